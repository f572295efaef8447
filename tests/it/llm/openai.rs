//! OpenAI chat completions and the accents of compatible servers.

use agentd::config::ProviderKind;
use agentd::domain::message::{Message, TokenUsage};
use agentd::domain::money::Money;
use agentd::engine::model::{Model, ReplyStop, ToolChoice};
use serde_json::{Value, json};

use super::server::{Answer, KEY, Server, ask, assistant, call, chunks, providers, request, whole};

pub fn openai_reply() -> Value {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m-2026", "provider": "Upstream",
        "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": null, "reasoning_content": "Let me see.",
            "tool_calls": [
                { "id": "a", "type": "function", "function": { "name": "echo", "arguments": "{\"text\":" } },
                { "id": "b", "type": "function", "function": { "name": "echo", "arguments": "{ \"text\" : 1.0, \"text\": \"b\" }" } },
            ] } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": { "cached_tokens": 30 }, "cost": 0.0123 },
    })
}

pub fn openai_stream() -> Vec<Value> {
    let chunk = |delta: Value| {
        json!({ "id": "c", "object": "chat.completion.chunk", "model": "m-2026", "provider": "Upstream",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
    };
    let call = |index: usize, id: Value, name: Value, arguments: &str| {
        chunk(
            json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }] }),
        )
    };
    vec![
        chunk(json!({ "role": "assistant", "content": "" })),
        chunk(json!({ "reasoning_content": "Let me " })),
        chunk(json!({ "reasoning_content": "see." })),
        call(0, json!("a"), json!("echo"), ""),
        call(0, json!(null), json!(null), "{\"text\":"),
        call(1, json!("b"), json!("echo"), "{ \"text\" : 1.0,"),
        call(1, json!("b"), json!("echo"), " \"text\": \"b\" }"),
        json!({ "model": "m-2026", "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }),
        json!({ "model": "m-2026", "choices": [], "usage": openai_reply()["usage"] }),
    ]
}

#[tokio::test]
async fn a_048_openai_a_malformed_call_is_kept_raw_and_the_others_survive_streamed_and_whole() {
    let once = ask(ProviderKind::Openai, whole(openai_reply()), false).await.unwrap();
    assert_eq!(
        once.tool_calls,
        [call("a", "{\"text\":"), call("b", "{ \"text\" : 1.0, \"text\": \"b\" }")],
        "arguments are what the model wrote, to the byte"
    );
    assert_eq!(once.stop, ReplyStop::ToolCalls);
    assert_eq!(once.usage, Some(TokenUsage::new(70, 20, 30, 0)));
    assert_eq!(once.cost, Money::from_dollars(0.0123));
    assert_eq!(once.actual_provider.as_deref(), Some("Upstream"));
    assert_eq!(once.actual_model.as_deref(), Some("m-2026"));
    let streamed = ask(ProviderKind::Openai, Answer::Pieces(chunks(&openai_stream())), true).await.unwrap();
    assert_eq!(streamed, once);
}

#[tokio::test]
async fn a_082_with_a_key_of_ones_own_the_cost_is_the_routers_fee_and_what_is_paid_behind_it() {
    for (is_byok, cost) in [(true, 0.5123), (false, 0.0123)] {
        let mut reply = openai_reply();
        reply["usage"]["is_byok"] = json!(is_byok);
        reply["usage"]["cost_details"] = json!({ "upstream_inference_cost": 0.5 });
        let told = ask(ProviderKind::Openai, whole(reply), false).await.unwrap();
        assert_eq!(told.cost, Money::from_dollars(cost), "{is_byok}");
    }
}

#[tokio::test]
async fn openai_sends_what_every_compatible_server_understands() {
    let server = Server::start([whole(openai_reply()), Answer::Pieces(chunks(&openai_stream()))]).await;
    let providers = providers(ProviderKind::Openai, &format!("{}/v1/", server.base));
    let mut next = request(false);
    let reply = providers.complete(&next).await.unwrap();
    next.messages.push(assistant(&reply));
    next.messages
        .push(Message::Tool { tool_call_id: "a".into(), content: "(tool failed: malformed)".into() });
    next.messages.push(Message::Tool { tool_call_id: "b".into(), content: "b".into() });
    next.stream = true;
    next.tool_choice = ToolChoice::Required;
    next.target.temperature = Some(0.5);
    providers.complete(&next).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].path, "/v1/chat/completions");
    assert!(seen[0].headers.contains(&format!("authorization: bearer {KEY}")), "{}", seen[0].headers);
    assert!(seen[0].headers.contains("x-extra: sentinel-header"), "{}", seen[0].headers);
    let first = seen[0].json();
    assert_eq!(first["max_tokens"], 1000);
    let keys: Vec<&str> = first.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["model", "messages", "tools", "max_tokens"], "A-095: no temperature unless it is set");
    let second = seen[1].json();
    assert_eq!(second["temperature"], 0.5);
    assert_eq!(second["tool_choice"], "required");
    assert_eq!(second["stream_options"], json!({ "include_usage": true }));
    let said = &second["messages"][2];
    assert_eq!(said["content"], Value::Null);
    assert_eq!(said["reasoning_content"], "Let me see.");
    assert_eq!(said["tool_calls"][0]["function"]["arguments"], r#"{"malformed_arguments":"{\"text\":"}"#);
    assert_eq!(said["tool_calls"][1]["function"]["arguments"], "{ \"text\" : 1.0, \"text\": \"b\" }");
}

#[tokio::test]
async fn openai_accents_are_understood() {
    let said = |message: Value| whole(json!({ "choices": [{ "message": message }] }));
    // No ids, arguments as an object, none at all, no usage, no finish reason.
    let calls = json!({ "content": "", "tool_calls": [
        { "function": { "name": "echo", "arguments": { "text": "a" } } },
        { "index": 0, "id": "", "function": { "name": "echo" } },
    ] });
    let reply = ask(ProviderKind::Openai, said(calls), false).await.unwrap();
    assert_eq!(reply.tool_calls, [call("call_2_0", r#"{"text":"a"}"#), call("call_2_1", "{}")]);
    assert_eq!((reply.stop, reply.usage, reply.cost), (ReplyStop::Other, None, None));
    // Text in parts, reasoning under its other name.
    let parts = json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }], "reasoning": "hm" });
    let reply = ask(ProviderKind::Openai, said(parts), false).await.unwrap();
    assert_eq!(reply.text, "ab");
    assert_eq!(reply.reasoning.unwrap()["blocks"], json!([{ "reasoning": "hm" }]));
    // A server that does not stream although it was asked to.
    let reply = ask(ProviderKind::Openai, said(json!({ "content": "whole" })), true).await.unwrap();
    assert_eq!(reply.text, "whole");
    // Streamed calls told apart by id alone, and by nothing but their names.
    let delta = |call: Value| json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
    let stream = chunks(&[
        delta(json!({ "index": 0, "id": "a", "function": { "name": "echo", "arguments": "{}" } })),
        delta(json!({ "index": 0, "id": "b", "function": { "name": "echo", "arguments": "{}" } })),
        delta(json!({ "function": { "name": "echo", "arguments": "{\"text\"" } })),
        delta(json!({ "function": { "arguments": ":1}" } })),
    ]);
    let reply = ask(ProviderKind::Openai, Answer::Pieces(stream), true).await.unwrap();
    assert_eq!(reply.tool_calls, [call("a", "{}"), call("b", "{}"), call("call_2_2", "{\"text\":1}")]);
    // Reasoning details in pieces.
    let detail = |detail: Value| json!({ "choices": [{ "delta": { "reasoning_details": [detail] } }] });
    let stream = chunks(&[
        detail(json!({ "type": "reasoning.text", "index": 0, "text": "a" })),
        detail(json!({ "type": "reasoning.text", "index": 0, "text": "b", "signature": "s" })),
        json!({ "choices": [{ "delta": { "content": "t" }, "finish_reason": "length" }] }),
    ]);
    let reply = ask(ProviderKind::Openai, Answer::Pieces(stream), true).await.unwrap();
    assert_eq!(reply.stop, ReplyStop::Length);
    let details = json!([{ "type": "reasoning.text", "index": 0, "text": "ab", "signature": "s" }]);
    assert_eq!(reply.reasoning.unwrap()["blocks"], json!([{ "reasoning_details": details }]));
}
