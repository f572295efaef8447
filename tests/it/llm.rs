//! Providers over real HTTP, as servers really answer: whole, streamed, odd, broken, silent.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentd::config::{Provider, ProviderKind};
use agentd::domain::message::{Message, TokenUsage, ToolCall, ToolSpec};
use agentd::domain::money::Money;
use agentd::domain::target::Target;
use agentd::engine::model::{
    Model, ModelError, ModelErrorClass as Class, ModelReply, ModelRequest, ReplyStop, ToolChoice,
};
use agentd::llm::Providers;
use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::sys::clock::Clock;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How the server answers one request.
#[derive(Clone)]
enum Answer {
    /// Status, extra header lines, content type, body.
    Whole(u16, &'static str, &'static str, String),
    /// A stream in these pieces, then its end.
    Pieces(Vec<String>),
    /// These pieces, then the connection breaks.
    Cut(Vec<String>),
    /// These pieces, each after this long, then silence.
    Slow(Duration, Vec<String>),
    /// Nothing at all.
    Hang,
}

/// A server that answers as scripted, and keeps what it was asked.
struct Server {
    base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone)]
struct Seen {
    path: String,
    headers: String,
    body: String,
}

impl Seen {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Server {
    async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, answers.clone(), log.clone()));
            }
        });
        Self { base, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(socket: TcpStream, answers: Arc<Mutex<VecDeque<Answer>>>, log: Arc<Mutex<Vec<Seen>>>) {
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length =
        lower.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    log.lock().unwrap().push(Seen { path, headers: lower, body: String::from_utf8(body).unwrap() });
    let answer = answers.lock().unwrap().pop_front().unwrap();
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |piece: &str| format!("{:x}\r\n{piece}\r\n", piece.len());
    let mut send = async |text: String| {
        let _ = socket.write_all(text.as_bytes()).await;
        let _ = socket.flush().await;
    };
    match answer {
        Answer::Whole(status, headers, kind, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
            );
            send(head + &body).await;
        }
        Answer::Pieces(pieces) => {
            let body: String = pieces.iter().map(|piece| chunk(piece)).collect();
            send(format!("{stream}{body}0\r\n\r\n")).await;
        }
        Answer::Cut(pieces) => {
            let body: String = pieces.iter().map(|piece| chunk(piece)).collect();
            send(format!("{stream}{body}")).await;
        }
        Answer::Slow(pause, pieces) => {
            send(stream.to_owned()).await;
            for piece in pieces {
                tokio::time::sleep(pause).await;
                send(chunk(&piece)).await;
            }
            std::future::pending::<()>().await;
        }
        Answer::Hang => std::future::pending().await,
    }
}

fn whole(body: Value) -> Answer {
    Answer::Whole(200, "", "application/json", body.to_string())
}

fn events(list: &[Value]) -> Vec<String> {
    list.iter()
        .map(|value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or("x")))
        .collect()
}

fn chunks(list: &[Value]) -> Vec<String> {
    list.iter().map(|value| format!("data: {value}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

const KEY: &str = "sk-sentinel-0123456789";

fn providers(kind: ProviderKind, base_url: &str) -> Providers {
    let provider = Provider {
        name: "p".into(),
        kind,
        base_url: base_url.to_owned(),
        api_key: Some(KEY.into()),
        headers: vec![("x-extra".to_owned(), "sentinel-header".into())],
    };
    Providers::new([provider], &Clock::system()).unwrap()
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "echo".into(),
        description: "Says it again.".into(),
        parameters: json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] }),
    }
}

fn request(stream: bool) -> ModelRequest {
    ModelRequest {
        target: Target {
            provider: "p".into(),
            model: "m".into(),
            context_window: 8000,
            context_window_buffer: 256,
            max_output_tokens: 1000,
            temperature: None,
            price: None,
        },
        messages: vec![
            Message::System { content: "rules".into() },
            Message::User { content: "a private sentence that no error message may ever repeat".into() },
        ],
        tools: vec![spec()],
        tool_choice: ToolChoice::Auto,
        stream,
        timeout: Duration::from_secs(5),
    }
}

fn assistant(reply: &ModelReply) -> Message {
    Message::Assistant {
        content: reply.text.clone(),
        reasoning: reply.reasoning.clone(),
        tool_calls: reply.tool_calls.clone(),
    }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "echo".into(), arguments: arguments.into() }
}

async fn ask(kind: ProviderKind, answer: Answer, stream: bool) -> Result<ModelReply, ModelError> {
    let server = Server::start([answer]).await;
    providers(kind, &server.base).complete(&request(stream)).await
}

/// Arguments may differ in spaces between the two forms of a reply; nothing else may.
fn compact(mut reply: ModelReply) -> ModelReply {
    for call in &mut reply.tool_calls {
        if let Ok(value) = serde_json::from_str::<Value>(&call.arguments) {
            call.arguments = value.to_string();
        }
    }
    reply
}

fn anthropic_reply() -> Value {
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

fn anthropic_stream() -> Vec<Value> {
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
    last.tools.clear();
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

fn openai_reply() -> Value {
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

fn openai_stream() -> Vec<Value> {
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

fn responses_reply() -> Value {
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

fn responses_stream() -> Vec<Value> {
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
    assert_eq!(error.class, Class::Server);
    let half = Answer::Pieces(events(&responses_stream()[..4]));
    assert_eq!(ask(ProviderKind::OpenaiResponses, half, true).await.unwrap_err().class, Class::Network);
}

fn gemini_reply() -> Value {
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

fn gemini_stream() -> Vec<Value> {
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

#[tokio::test]
async fn a_052_retry_after_is_heard_in_whole_and_streamed_requests() {
    for stream in [false, true] {
        let body = json!({ "error": { "type": "rate_limit_error", "message": "slow down" } }).to_string();
        let answer = Answer::Whole(429, "retry-after: 7\r\n", "application/json", body);
        let error = ask(ProviderKind::Anthropic, answer, stream).await.unwrap_err();
        assert_eq!(error.class, Class::RateLimited { retry_after: Some(Duration::from_secs(7)) });
        assert_eq!(error.status, Some(429));
    }
}

#[tokio::test]
async fn a_054_a_055_transport_faults_and_garbage_have_their_own_class() {
    let half = |kind: ProviderKind| match kind {
        ProviderKind::Anthropic => events(&anthropic_stream()[..12]),
        ProviderKind::OpenaiResponses => events(&responses_stream()[..4]),
        ProviderKind::Gemini => events(&gemini_stream()[..2]),
        ProviderKind::Openai => chunks(&openai_stream())[..4].to_vec(),
    };
    let html = || Answer::Whole(200, "", "text/html", "<html>login</html>".into());
    let not_json = || Answer::Whole(200, "", "application/json", "not json".into());
    let other_json = || whole(json!({ "hello": "world" }));
    let kinds =
        [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses, ProviderKind::Gemini];
    for kind in kinds {
        let table = [
            (html(), false, Class::InvalidReply),
            (html(), true, Class::InvalidReply),
            (other_json(), false, Class::InvalidReply),
            (other_json(), true, Class::InvalidReply),
            (not_json(), false, Class::InvalidReply),
            (not_json(), true, Class::InvalidReply),
            (Answer::Pieces(vec!["data: {oops\n\n".into()]), true, Class::InvalidReply),
            (Answer::Whole(200, "", "application/json", String::new()), false, Class::InvalidReply),
            (Answer::Cut(half(kind)), true, Class::Network),
            (Answer::Pieces(half(kind)), true, Class::Network),
            (Answer::Pieces(vec![]), true, Class::Network),
            (Answer::Cut(vec!["{\"half\":".into()]), false, Class::Network),
            (Answer::Whole(302, "location: /x\r\n", "text/plain", String::new()), false, Class::BadRequest),
            (Answer::Whole(529, "", "text/plain", "overloaded".into()), true, Class::Server),
        ];
        for (row, (answer, stream, class)) in table.into_iter().enumerate() {
            let error = ask(kind, answer, stream).await.unwrap_err();
            assert_eq!(error.class, class, "{kind:?} row {row}: {error}");
        }
    }
    // Nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused =
        providers(ProviderKind::Openai, &format!("http://{free}/v1")).complete(&request(false)).await;
    assert_eq!(refused.unwrap_err().class, Class::Network);
}

#[tokio::test]
async fn errors_inside_a_stream_keep_their_class() {
    let overloaded =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let mut stream = anthropic_stream()[..5].to_vec();
    stream.push(overloaded);
    let error = ask(ProviderKind::Anthropic, Answer::Pieces(events(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::Server);
    let mut stream = openai_stream()[..5].to_vec();
    stream.push(json!({ "error": { "code": 429, "message": "upstream limit" }, "choices": [] }));
    let error = ask(ProviderKind::Openai, Answer::Pieces(chunks(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::RateLimited { retry_after: None });
}

#[tokio::test]
async fn a_054_a_hang_is_a_timeout_and_a_slow_stream_is_not() {
    let limited = |stream: bool, limit: u64| {
        let mut request = request(stream);
        request.timeout = Duration::from_millis(limit);
        request
    };
    for stream in [false, true] {
        let server = Server::start([Answer::Hang]).await;
        let began = Instant::now();
        let error =
            providers(ProviderKind::Openai, &server.base).complete(&limited(stream, 200)).await.unwrap_err();
        assert_eq!(error.class, Class::Timeout);
        assert!((200..1500).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }
    // Longer in all than the limit, never silent for as long.
    let pieces = chunks(&openai_stream());
    let server = Server::start([Answer::Slow(Duration::from_millis(100), pieces)]).await;
    let providers_ = providers(ProviderKind::Openai, &server.base);
    providers_.complete(&limited(true, 600)).await.unwrap();
    // Silent in the middle.
    let pieces = chunks(&openai_stream())[..3].to_vec();
    let server = Server::start([Answer::Slow(Duration::from_millis(1), pieces)]).await;
    let error =
        providers(ProviderKind::Openai, &server.base).complete(&limited(true, 200)).await.unwrap_err();
    assert_eq!(error.class, Class::Timeout);
}

#[tokio::test]
async fn s_048_errors_hold_no_key_no_header_and_no_request() {
    let echo = format!(
        "bad key {KEY} and sentinel-header and sk-other-abcdefgh: a private sentence that no error message may ever repeat"
    );
    let bodies =
        [echo.clone(), json!({ "error": { "message": echo, "type": "invalid_request_error" } }).to_string()];
    for body in bodies {
        for status in [400, 401, 429, 500] {
            let answer = Answer::Whole(status, "", "application/json", body.clone());
            let error = ask(ProviderKind::Openai, answer, false).await.unwrap_err().to_string();
            for secret in [KEY, "sentinel-header", "sk-other", "private sentence"] {
                assert!(!error.contains(secret), "{error}");
            }
            assert!(error.contains("bad key [redacted]"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_never_ends_is_cut_by_size() {
    let long = format!("data: {}\n\n", "x".repeat(1024 * 1024));
    let error = ask(ProviderKind::Openai, Answer::Pieces(vec![format!(": {}", long.repeat(33))]), true).await;
    let error = error.unwrap_err();
    assert_eq!(error.class, Class::InvalidReply, "{error}");
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let providers = providers(ProviderKind::Openai, &base);
    let request = request(false);
    let asked = providers.complete(&request);
    let accepted = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        assert!(socket.read(&mut buffer).await.unwrap() > 0);
        socket
    };
    let mut socket = tokio::select! {
        socket = accepted => socket,
        reply = asked => panic!("{reply:?}"),
    };
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(5), socket.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "the connection stays open");
}

#[tokio::test]
async fn an_unknown_provider_is_named() {
    let mut request = request(false);
    request.target.provider = "nobody".into();
    let error = providers(ProviderKind::Openai, "http://127.0.0.1:1").complete(&request).await.unwrap_err();
    assert_eq!(error.class, Class::BadRequest);
    assert!(error.message.contains("[providers.nobody]"), "{error}");
}

/// The scripted model of the simulator, which refuses what breaks a provider's protocol.
async fn simulator(replies: &str) -> Simulator {
    let text = format!("[model]\napi_keys = [\"{KEY}\"]\nnames = [\"m\"]\n{replies}");
    let scenario = Scenario::from_text(&text, Path::new("scenario.toml")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_conversation_with_the_simulator_breaks_no_protocol() {
    let replies = r#"
[[model.replies]]
thinking = "Let me see."
text = "I ask twice."
tool_calls = [{ name = "echo", raw = "{\"text\":" }, { name = "echo", arguments = { text = "b" } }]
usage = { input = 100, output = 20, cache_read = 30 }
[[model.replies]]
thinking = "Only thinking."
[[model.replies]]
text = "Done."
"#;
    for kind in [ProviderKind::Anthropic, ProviderKind::Openai] {
        let mut conversations = Vec::new();
        for stream in [false, true] {
            let sim = simulator(replies).await;
            let base = if kind == ProviderKind::Anthropic {
                sim.model_url_anthropic()
            } else {
                sim.model_url_openai()
            };
            let providers = providers(kind, &base);
            let mut next = request(stream);
            let first = providers.complete(&next).await.unwrap();
            assert_eq!(first.text, "I ask twice.");
            let arguments: Vec<&str> = first.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
            assert_eq!(arguments[0], "{\"text\":", "{kind:?} stream {stream}");
            assert_eq!(serde_json::from_str::<Value>(arguments[1]).unwrap(), json!({ "text": "b" }));
            assert_eq!(first.usage.unwrap(), TokenUsage::new(100, 20, 30, 0));
            next.messages.push(assistant(&first));
            for call in &first.tool_calls {
                next.messages.push(Message::Tool { tool_call_id: call.id.clone(), content: "done".into() });
            }
            let thought = providers.complete(&next).await.unwrap();
            assert!(thought.text.is_empty() && thought.tool_calls.is_empty() && thought.reasoning.is_some());
            next.messages.push(assistant(&thought));
            next.messages.push(Message::User { content: "Say something, or call a tool.".into() });
            next.tools.clear();
            let last = providers.complete(&next).await.unwrap();
            assert_eq!((last.text.as_str(), last.stop), ("Done.", ReplyStop::End));
            assert_eq!(sim.violations(), Vec::<String>::new());
            assert_eq!(sim.unused_replies(), Vec::<String>::new());
            next.messages.push(assistant(&last));
            next.messages.iter_mut().for_each(|message| {
                if let Message::Assistant { tool_calls, .. } = message {
                    tool_calls.clear();
                }
            });
            conversations.push(next.messages);
        }
        assert_eq!(conversations[0], conversations[1], "streamed and whole are the same conversation");
    }
}

#[tokio::test]
async fn the_simulators_faults_have_the_class_they_stand_for() {
    let faults = [
        (
            "error = { status = 429, retry_after = 2 }",
            Class::RateLimited { retry_after: Some(Duration::from_secs(2)) },
        ),
        ("error = { status = 401 }", Class::Auth),
        ("error = { status = 402 }", Class::Quota),
        ("error = { status = 500 }", Class::Server),
        ("garbage = \"not json\"", Class::InvalidReply),
        ("text = \"half a reply that never comes to its end\"\ndrop = \"mid_stream\"", Class::Network),
        ("text = \"x\"\nhang = \"before_headers\"", Class::Timeout),
    ];
    for (fault, class) in faults {
        for stream in [false, true] {
            let sim = simulator(&format!("[[model.replies]]\n{fault}\n")).await;
            let mut request = request(stream);
            request.timeout = Duration::from_millis(1500);
            for kind in [ProviderKind::Anthropic] {
                let error = providers(kind, &sim.model_url_anthropic()).complete(&request).await.unwrap_err();
                assert_eq!(error.class, class, "{fault}, stream {stream}: {error}");
            }
        }
    }
}
