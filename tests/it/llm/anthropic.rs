//! Anthropic Messages: thinking, caching, and the same reply whole and streamed.

use agentd::config::ProviderKind;
use agentd::domain::message::{Message, TokenUsage};
use agentd::engine::model::{Model, ReplyStop};
use serde_json::{Value, json};

use super::server::{Answer, KEY, Server, ask, assistant, call, compact, events, providers, request, whole};

pub fn anthropic_reply() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-2026",
        "content": [
            { "type": "thinking", "thinking": "Let me see.", "signature": "c2ln" },
            { "type": "redacted_thinking", "data": "b3BhcXVl" },
            { "type": "text", "text": "I ask twice." },
            { "type": "tool_use", "id": "toolu_1", "name": "echo", "input": { "text": "a" } },
            { "type": "thinking", "thinking": "And again.", "signature": "c2lnMg==" },
            { "type": "tool_use", "id": "toolu_2", "name": "echo", "input": { "text": "b" } },
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 10 },
    })
}

pub fn anthropic_stream() -> Vec<Value> {
    let start = |index: usize, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let delta =
        |index: usize, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let stop = |index: usize| json!({ "type": "content_block_stop", "index": index });
    let piece =
        |index: usize, text: &str| delta(index, json!({ "type": "input_json_delta", "partial_json": text }));
    vec![
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "model": "m-2026", "content": [],
            "usage": { "input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 10 } } }),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        json!({ "type": "ping" }),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Let me " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "see." })),
        delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
        stop(0),
        start(1, json!({ "type": "redacted_thinking", "data": "b3BhcXVl" })),
        stop(1),
        start(2, json!({ "type": "text", "text": "" })),
        delta(2, json!({ "type": "text_delta", "text": "I ask " })),
        delta(2, json!({ "type": "text_delta", "text": "twice." })),
        stop(2),
        start(3, json!({ "type": "tool_use", "id": "toolu_1", "name": "echo", "input": {} })),
        piece(3, "{\"text\": "),
        piece(3, "\"a\"}"),
        stop(3),
        start(4, json!({ "type": "thinking", "thinking": "And again.", "signature": "c2lnMg==" })),
        stop(4),
        start(5, json!({ "type": "tool_use", "id": "toolu_2", "name": "echo", "input": {} })),
        piece(5, "{\"text\":\"b\"}"),
        stop(5),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop" }),
    ]
}

#[tokio::test]
async fn anthropic_a_reply_is_the_same_streamed_and_whole() {
    let once = ask(ProviderKind::Anthropic, whole(anthropic_reply()), false).await.unwrap();
    assert_eq!(once.text, "I ask twice.");
    assert_eq!(once.tool_calls, [call("toolu_1", r#"{"text":"a"}"#), call("toolu_2", r#"{"text":"b"}"#)]);
    assert_eq!((once.stop, once.stop_raw.as_deref()), (ReplyStop::ToolCalls, Some("tool_use")));
    assert_eq!(once.usage, Some(TokenUsage::new(100, 20, 30, 10)));
    assert_eq!(once.actual_model.as_deref(), Some("m-2026"));
    let answer = Answer::Pieces(events(&anthropic_stream()));
    let streamed = ask(ProviderKind::Anthropic, answer, true).await.unwrap();
    assert_eq!(compact(streamed), compact(once));
}

#[tokio::test]
async fn anthropic_a_user_begins_also_where_a_history_begins_with_an_answer() {
    let server = Server::start([whole(anthropic_reply())]).await;
    let providers = providers(ProviderKind::Anthropic, &format!("{}/", server.base));
    let mut next = request(false);
    let said = Message::Assistant { content: "You have 3.".into(), reasoning: None, tool_calls: Vec::new() };
    let system = Message::System { content: "rules".into() };
    next.messages = vec![system, said, Message::User { content: "task".into() }].into();
    providers.complete(&next).await.unwrap();
    let body = server.seen()[0].json();
    let turns = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = turns.iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"], "{body:#}");
    assert!(turns[0]["content"][0]["text"].as_str().unwrap().contains("is not shown"), "{body:#}");
}

#[tokio::test]
async fn a_044_anthropic_thinking_goes_back_as_it_came_and_where_it_stood() {
    let server = Server::start([whole(anthropic_reply()), whole(anthropic_reply())]).await;
    let providers = providers(ProviderKind::Anthropic, &format!("{}/", server.base));
    let mut next = request(false);
    let reply = providers.complete(&next).await.unwrap();
    next.messages.push(assistant(&reply));
    for call in &reply.tool_calls {
        next.messages.push(Message::Tool { tool_call_id: call.id.clone(), content: "done".into() });
    }
    next.messages.push(Message::User { content: "go on".into() });
    let second = providers.complete(&next).await.unwrap();
    assert_eq!(second.tool_calls.len(), 2);
    let ids: Vec<&str> = second.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_6_0", "call_6_1"], "ids are unique in the conversation");

    let seen = server.seen();
    assert_eq!(seen[0].path, "/v1/messages");
    assert!(seen[0].headers.contains(&format!("x-api-key: {KEY}")), "{}", seen[0].headers);
    assert!(seen[0].headers.contains("anthropic-version: 2023-06-01"), "{}", seen[0].headers);
    let body = seen[1].json();
    assert_eq!(body["messages"][1]["content"], anthropic_reply()["content"]);
    let roles: Vec<&str> =
        body["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"], "results and guidance are one turn");
    assert_eq!(body["messages"][2]["content"][1]["tool_use_id"], "toolu_2");
    assert_eq!(body["messages"][2]["content"][2]["text"], "go on");
}

#[tokio::test]
async fn anthropic_thinking_of_another_model_is_left_out() {
    let server = Server::start([whole(anthropic_reply()), whole(anthropic_reply())]).await;
    let providers = providers(ProviderKind::Anthropic, &server.base);
    let mut next = request(false);
    let reply = providers.complete(&next).await.unwrap();
    next.messages.push(assistant(&reply));
    next.target.model = "other".into();
    providers.complete(&next).await.unwrap();
    let content = server.seen()[1].json()["messages"][1]["content"].clone();
    let kinds: Vec<&str> =
        content.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
}

#[tokio::test]
async fn x_040_the_same_request_gives_the_same_bytes_and_a_longer_one_the_same_prefix() {
    let kinds = [
        (ProviderKind::Anthropic, ""),
        (ProviderKind::Openai, "/v1"),
        (ProviderKind::OpenaiResponses, "/v1"),
        (ProviderKind::Gemini, ""),
    ];
    for (kind, base) in kinds {
        let refusal = Answer::Whole(500, "", "text/plain", String::new());
        let server = Server::start([refusal.clone(), refusal.clone(), refusal]).await;
        let providers = providers(kind, &format!("{}{base}", server.base));
        let mut next = request(false);
        providers.complete(&next).await.unwrap_err();
        providers.complete(&next).await.unwrap_err();
        next.messages.push(Message::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![call("a", "{\"text\":1}")],
        });
        next.messages.push(Message::Tool { tool_call_id: "a".into(), content: "1".into() });
        providers.complete(&next).await.unwrap_err();
        let seen = server.seen();
        assert_eq!(seen[0].body, seen[1].body);
        let stable =
            |body: &Value| (body["system"].clone(), body["tools"].clone(), body["messages"][0].clone());
        let strip = |text: &str| text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        let (first, longer) = (strip(&seen[0].body), strip(&seen[2].body));
        assert_eq!(
            stable(&serde_json::from_str(&first).unwrap()),
            stable(&serde_json::from_str(&longer).unwrap())
        );
        let common = first.bytes().zip(longer.bytes()).take_while(|(a, b)| a == b).count();
        assert!(common > first.find("private sentence").unwrap(), "{first}\n{longer}");
    }
}

#[tokio::test]
async fn anthropic_marks_the_stable_prefix_for_its_cache() {
    let server = Server::start([whole(anthropic_reply())]).await;
    providers(ProviderKind::Anthropic, &server.base).complete(&request(false)).await.unwrap();
    let body = server.seen()[0].json();
    assert_eq!(body["system"][0]["cache_control"], json!({ "type": "ephemeral" }));
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], json!({ "type": "ephemeral" }));
    assert_eq!(server.seen()[0].body.matches("cache_control").count(), 2);
    assert_eq!(body["max_tokens"], 1000);
}

#[tokio::test]
async fn anthropic_names_the_tools_of_a_conversation_that_may_call_none_anymore() {
    let server = Server::start([whole(anthropic_reply())]).await;
    let mut last = request(false);
    last.tools = Vec::new().into();
    last.messages.push(Message::Assistant {
        content: String::new(),
        reasoning: None,
        tool_calls: vec![call("functions.echo:0", "{\"a\":")],
    });
    last.messages.push(Message::Tool { tool_call_id: "functions.echo:0".into(), content: "1".into() });
    providers(ProviderKind::Anthropic, &server.base).complete(&last).await.unwrap();
    let body = server.seen()[0].json();
    assert_eq!(body["tools"][0]["name"], "echo");
    assert_eq!(body["tool_choice"], json!({ "type": "none" }));
    let used = &body["messages"][1]["content"][0];
    assert_eq!(used["input"], json!({ "malformed_arguments": "{\"a\":" }));
    assert_eq!(used["id"], body["messages"][2]["content"][0]["tool_use_id"]);
    assert!(!used["id"].as_str().unwrap().contains(['.', ':']), "an id that this wire accepts");
}
