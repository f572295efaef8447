//! Gemini: parts, signatures, refusals, broken calls.

use agentd::config::ProviderKind;
use agentd::domain::message::{Message, TokenUsage};
use agentd::engine::model::{Model, ModelErrorClass as Class, ReplyStop, ToolChoice};
use serde_json::{Value, json};

use super::server::{Answer, KEY, Server, ask, assistant, call, providers, request, spec, whole};

pub fn gemini_reply() -> Value {
    json!({
        "candidates": [{ "index": 0, "finishReason": "STOP", "content": { "role": "model", "parts": [
            { "text": "Let me see.", "thought": true },
            { "text": "I ask twice." },
            { "functionCall": { "name": "echo", "args": { "text": "a" } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "id": "given", "name": "echo", "args": { "text": "b" } } },
        ] } }],
        "usageMetadata": { "promptTokenCount": 100, "cachedContentTokenCount": 30, "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5, "totalTokenCount": 120 },
        "modelVersion": "m-2026",
    })
}

pub fn gemini_stream() -> Vec<Value> {
    let parts = |parts: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }], "modelVersion": "m-2026" });
    let mut last = gemini_reply();
    let calls = last["candidates"][0]["content"]["parts"].as_array().unwrap()[2..].to_vec();
    last["candidates"][0]["content"]["parts"] = json!(calls);
    vec![
        parts(json!([{ "text": "Let me ", "thought": true }])),
        parts(json!([{ "text": "see.", "thought": true }, { "text": "I ask " }])),
        parts(json!([{ "text": "twice." }])),
        last,
    ]
}

#[tokio::test]
async fn gemini_a_conversation_streamed_and_whole() {
    let stream: Vec<String> = gemini_stream().iter().map(|event| format!("data: {event}\r\n\r\n")).collect();
    let server = Server::start([whole(gemini_reply()), Answer::Pieces(stream.clone())]).await;
    let providers = providers(ProviderKind::Gemini, &server.base);
    let mut next = request(false);
    let once = providers.complete(&next).await.unwrap();
    assert_eq!(once.text, "I ask twice.");
    assert_eq!(once.tool_calls, [call("call_2_0", r#"{"text":"a"}"#), call("given", r#"{"text":"b"}"#)]);
    assert_eq!((once.stop, once.usage), (ReplyStop::ToolCalls, Some(TokenUsage::new(70, 20, 30, 0))));
    assert_eq!(once.actual_model.as_deref(), Some("m-2026"));
    assert_eq!(ask(ProviderKind::Gemini, Answer::Pieces(stream), true).await.unwrap(), once);

    next.messages.push(assistant(&once));
    next.messages.push(Message::Tool { tool_call_id: "call_2_0".into(), content: "a".into() });
    next.messages.push(Message::Tool { tool_call_id: "given".into(), content: "b".into() });
    next.stream = true;
    next.tool_choice = ToolChoice::Required;
    providers.complete(&next).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].path, "/v1beta/models/m:generateContent");
    assert_eq!(seen[1].path, "/v1beta/models/m:streamGenerateContent?alt=sse");
    assert!(seen[0].headers.contains(&format!("x-goog-api-key: {KEY}")), "{}", seen[0].headers);
    let body = seen[1].json();
    assert_eq!(body["systemInstruction"], json!({ "parts": [{ "text": "rules" }] }));
    assert_eq!(body["generationConfig"], json!({ "maxOutputTokens": 1000 }));
    assert_eq!(body["toolConfig"]["functionCallingConfig"]["mode"], "ANY");
    assert_eq!(body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"], spec().parameters);
    assert_eq!(
        body["contents"][1],
        gemini_reply()["candidates"][0]["content"],
        "signatures go back where they stood"
    );
    let results = json!([
        { "functionResponse": { "name": "echo", "response": { "result": "a" } } },
        { "functionResponse": { "id": "given", "name": "echo", "response": { "result": "b" } } },
    ]);
    assert_eq!(body["contents"][2]["parts"], results);
}

#[tokio::test]
async fn gemini_refusals_and_broken_calls_have_their_own_class() {
    let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" } });
    let reply = ask(ProviderKind::Gemini, whole(blocked), false).await.unwrap();
    assert_eq!((reply.stop, reply.text.as_str()), (ReplyStop::Refusal, ""));
    let broken =
        json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "call(" }] });
    let error = ask(ProviderKind::Gemini, whole(broken), false).await.unwrap_err();
    assert_eq!(error.class, Class::InvalidReply);
    let long = json!({ "candidates": [{ "finishReason": "MAX_TOKENS", "content": { "parts": [{ "text": "so" }] } }] });
    assert_eq!(ask(ProviderKind::Gemini, whole(long), false).await.unwrap().stop, ReplyStop::Length);
    let half = gemini_stream()[..2].iter().map(|event| format!("data: {event}\n\n")).collect();
    let error = ask(ProviderKind::Gemini, Answer::Pieces(half), true).await.unwrap_err();
    assert_eq!(error.class, Class::Network);
}
