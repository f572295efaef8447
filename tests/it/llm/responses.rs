//! OpenAI Responses: whole, streamed, cut.

use agentd::config::ProviderKind;
use agentd::domain::message::{Message, TokenUsage};
use agentd::engine::model::{Model, ModelErrorClass as Class, ReplyStop};
use serde_json::{Value, json};

use super::server::{Answer, Server, ask, assistant, call, events, providers, request, whole};

pub fn responses_reply() -> Value {
    json!({
        "id": "resp_1", "object": "response", "status": "completed", "error": null, "incomplete_details": null, "model": "m-2026",
        "output": [
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl" },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{ "type": "output_text", "text": "I ask twice.", "annotations": [] }] },
            { "type": "function_call", "id": "fc_1", "call_id": "a", "name": "echo", "arguments": "{\"text\":" },
            { "type": "function_call", "id": "fc_2", "call_id": "b", "name": "echo", "arguments": "{\"text\":\"b\"}" },
        ],
        "usage": { "input_tokens": 100, "input_tokens_details": { "cached_tokens": 30 }, "output_tokens": 20,
            "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 120 },
    })
}

pub fn responses_stream() -> Vec<Value> {
    let mut stream =
        vec![json!({ "type": "response.created", "response": { "status": "in_progress", "output": [] } })];
    for item in responses_reply()["output"].as_array().unwrap() {
        stream.push(json!({ "type": "response.output_item.added", "item": { "type": item["type"] } }));
        stream.push(json!({ "type": "response.output_item.done", "item": item }));
    }
    // The items are told once only.
    let mut last = responses_reply();
    last["output"] = json!([]);
    stream.push(json!({ "type": "response.completed", "response": last }));
    stream
}

#[tokio::test]
async fn responses_a_conversation_streamed_and_whole() {
    let server = Server::start([whole(responses_reply()), Answer::Pieces(events(&responses_stream()))]).await;
    let providers = providers(ProviderKind::OpenaiResponses, &format!("{}/v1", server.base));
    let mut next = request(false);
    let once = providers.complete(&next).await.unwrap();
    assert_eq!(once.text, "I ask twice.");
    assert_eq!(once.tool_calls, [call("a", "{\"text\":"), call("b", "{\"text\":\"b\"}")]);
    assert_eq!((once.stop, once.usage), (ReplyStop::ToolCalls, Some(TokenUsage::new(70, 20, 30, 0))));
    let streamed =
        ask(ProviderKind::OpenaiResponses, Answer::Pieces(events(&responses_stream())), true).await;
    assert_eq!(streamed.unwrap(), once);

    next.messages.push(assistant(&once));
    next.messages.push(Message::Tool { tool_call_id: "a".into(), content: "no".into() });
    next.messages.push(Message::Tool { tool_call_id: "b".into(), content: "b".into() });
    next.stream = true;
    providers.complete(&next).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].path, "/v1/responses");
    let body = seen[1].json();
    assert_eq!(body["instructions"], "rules");
    assert_eq!((&body["store"], &body["max_output_tokens"]), (&json!(false), &json!(1000)));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body["tools"][0]["strict"], false);
    assert_eq!(body["input"][1], responses_reply()["output"][0], "reasoning goes back as it came");
    assert_eq!(body["input"][2], json!({ "role": "assistant", "content": "I ask twice." }));
    assert_eq!(body["input"][3]["arguments"], r#"{"malformed_arguments":"{\"text\":"}"#);
    assert_eq!(body["input"][6], json!({ "type": "function_call_output", "call_id": "b", "output": "b" }));
}

#[tokio::test]
async fn responses_that_were_cut_or_failed_say_so() {
    let mut cut = responses_reply();
    cut["status"] = json!("incomplete");
    cut["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let reply = ask(ProviderKind::OpenaiResponses, whole(cut), false).await.unwrap();
    assert_eq!((reply.stop, reply.stop_raw.as_deref()), (ReplyStop::Length, Some("max_output_tokens")));
    let failed = json!({ "status": "failed", "output": [], "error": { "code": "rate_limit_exceeded", "message": "slow" } });
    let error = ask(ProviderKind::OpenaiResponses, whole(failed.clone()), false).await.unwrap_err();
    assert_eq!(error.class, Class::RateLimited { retry_after: None });
    let stream = [json!({ "type": "response.failed", "response": failed })];
    let error = ask(ProviderKind::OpenaiResponses, Answer::Pieces(events(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::RateLimited { retry_after: None });
    let stream = [json!({ "type": "error", "code": "server_error", "message": "oops" })];
    let error = ask(ProviderKind::OpenaiResponses, Answer::Pieces(events(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::Server { retry_after: None });
    let half = Answer::Pieces(events(&responses_stream()[..4]));
    assert_eq!(ask(ProviderKind::OpenaiResponses, half, true).await.unwrap_err().class, Class::Network);
}
