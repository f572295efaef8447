//! What goes wrong on every wire: limits, cuts, garbage, silence, endless replies.

use agentd::config::ProviderKind;
use agentd::domain::message::TokenUsage;
use agentd::engine::model::{Model, ModelErrorClass as Class, ReplyStop, Spent};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::anthropic::{anthropic_reply, anthropic_stream};
use super::gemini::{gemini_reply, gemini_stream};
use super::openai::{openai_reply, openai_stream};
use super::responses::{responses_reply, responses_stream};
use super::server::{Answer, KEY, Server, ask, chunks, events, providers, request, whole};
use crate::ports::free_port;

#[tokio::test]
async fn a_052_retry_after_is_heard_in_whole_and_streamed_requests() {
    for stream in [false, true] {
        let body = json!({ "error": { "type": "rate_limit_error", "message": "slow down" } }).to_string();
        let answer = Answer::Whole(429, "retry-after: 7\r\n", "application/json", body);
        let error = ask(ProviderKind::Anthropic, answer, stream).await.unwrap_err();
        assert_eq!(error.class, Class::RateLimited { retry_after: Some(Duration::from_secs(7)) });
        assert_eq!(error.status, Some(429));
        // A server that is overloaded tells it just as well.
        let answer = Answer::Whole(503, "retry-after: 7\r\n", "text/plain", "overloaded".into());
        let error = ask(ProviderKind::Anthropic, answer, stream).await.unwrap_err();
        assert_eq!(error.class, Class::Server { retry_after: Some(Duration::from_secs(7)) });
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
            (
                Answer::Whole(529, "", "text/plain", "overloaded".into()),
                true,
                Class::Server { retry_after: None },
            ),
        ];
        for (row, (answer, stream, class)) in table.into_iter().enumerate() {
            let error = ask(kind, answer, stream).await.unwrap_err();
            assert_eq!(error.class, class, "{kind:?} row {row}: {error}");
        }
    }
    // Nobody listens.
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let refused = providers(ProviderKind::Openai, &url).complete(&request(false)).await;
    assert_eq!(refused.unwrap_err().class, Class::Network);
}

#[tokio::test]
async fn errors_inside_a_stream_keep_their_class() {
    let overloaded =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let mut stream = anthropic_stream()[..5].to_vec();
    stream.push(overloaded);
    let error = ask(ProviderKind::Anthropic, Answer::Pieces(events(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::Server { retry_after: None });
    let mut stream = openai_stream()[..5].to_vec();
    stream.push(json!({ "error": { "code": 429, "message": "upstream limit" }, "choices": [] }));
    let error = ask(ProviderKind::Openai, Answer::Pieces(chunks(&stream)), true).await.unwrap_err();
    assert_eq!(error.class, Class::RateLimited { retry_after: None });
}

#[tokio::test]
async fn what_a_reply_that_cannot_be_used_had_cost_is_told_on_every_wire() {
    let usage = |input, output| Some(TokenUsage::new(input, output, 0, 0));
    let told = |input, output| Spent::Reply { usage: usage(input, output), cost: None };
    let begun_with = |input, output| Spent::BrokeOff { usage: usage(input, output), written: 0 };
    let unknown = |written| Spent::BrokeOff { usage: None, written };
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let start = json!({ "type": "message_start", "message": { "model": "m", "content": [], "usage": { "input_tokens": 9 } } });
    let odd = json!({ "type": "message_delta", "delta": {}, "usage": { "input_tokens": -5, "output_tokens": 2.0 } });
    let nameless = json!({ "choices": [{ "message": { "tool_calls": [{ "function": { "arguments": "{}" } }] } }],
        "usage": { "prompt_tokens": 9, "completion_tokens": 1 } });
    let counted = json!({ "input_tokens": 9, "output_tokens": 1 });
    let failed = json!({ "type": "response.failed", "response": { "status": "failed", "error": { "message": "no" }, "usage": counted } });
    let malformed = json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }],
        "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 1 } });
    let stream = |list: &[Value]| Answer::Pieces(events(list));
    let begun = stream(&responses_stream()[..3]);
    let table = [
        (ProviderKind::Anthropic, stream(&[start.clone(), error.clone()]), true, begun_with(9, 0)),
        (ProviderKind::Anthropic, stream(&[start, odd, error.clone()]), true, begun_with(9, 2)),
        (ProviderKind::Anthropic, stream(&[error]), true, Spent::Nothing),
        (ProviderKind::Openai, whole(nameless), false, told(9, 1)),
        (ProviderKind::Openai, Answer::Cut(chunks(&openai_stream())[..3].to_vec()), true, unknown(3)),
        (ProviderKind::OpenaiResponses, stream(&[failed]), true, begun_with(9, 1)),
        (ProviderKind::OpenaiResponses, begun, true, unknown(6)),
        (ProviderKind::Gemini, whole(malformed), false, told(9, 1)),
        (ProviderKind::Gemini, whole(json!({ "candidates": [] })), false, Spent::Nothing),
    ];
    for (row, (kind, answer, stream, spent)) in table.into_iter().enumerate() {
        let error = ask(kind, answer, stream).await.unwrap_err();
        assert_eq!(error.spent, spent, "row {row}: {error}");
    }
}

#[tokio::test]
async fn a_call_that_the_limit_cut_before_its_arguments_has_none_on_every_wire() {
    let anthropic = json!({ "type": "message", "content": [{ "type": "tool_use", "id": "a", "name": "wipe", "input": {} }], "stop_reason": "max_tokens" });
    let openai = json!({ "choices": [{ "finish_reason": "length", "message": { "tool_calls": [
        { "id": "a", "function": { "name": "wipe", "arguments": "" } }] } }] });
    let responses = json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" },
        "output": [{ "type": "function_call", "call_id": "a", "name": "wipe", "arguments": "", "status": "incomplete" }] });
    for (kind, reply) in [
        (ProviderKind::Anthropic, anthropic),
        (ProviderKind::Openai, openai),
        (ProviderKind::OpenaiResponses, responses),
    ] {
        let reply = ask(kind, whole(reply), false).await.unwrap();
        let arguments = reply.tool_calls[0].arguments.as_str();
        assert_eq!((reply.stop, arguments), (ReplyStop::Length, ""), "{kind:?}");
    }
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
        assert!((200..10_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
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
    let end = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut rest)).await;
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

#[tokio::test]
async fn half_a_character_costs_itself_on_every_wire_streamed_and_whole() {
    let data = |list: Vec<Value>| list.iter().map(|event| format!("data: {event}\n\n")).collect::<Vec<_>>();
    let wires = [
        (ProviderKind::Anthropic, anthropic_reply(), events(&anthropic_stream())),
        (ProviderKind::Openai, openai_reply(), chunks(&openai_stream())),
        (ProviderKind::OpenaiResponses, responses_reply(), events(&responses_stream())),
        (ProviderKind::Gemini, gemini_reply(), data(gemini_stream())),
    ];
    for (kind, body, pieces) in wires {
        // "see" is in what it thinks, "b" in the arguments of its last call.
        let with =
            |text: &str, half: &str| text.replace("see.", half).replace("\"b\\\"", &format!("\"{half}\\\""));
        for (half, instead) in [
            (r"\ud83d", r"\ufffd"),
            (r"\ude00 see", r"\ufffd see"),
            (r"see \ud83d\ud83d\ude00", r"see \ufffd\ud83d\ude00"),
        ] {
            let whole = |word| Answer::Whole(200, "", "application/json", with(&body.to_string(), word));
            let wanted = ask(kind, whole(instead), false).await.unwrap();
            assert_eq!(ask(kind, whole(half), false).await, Ok(wanted), "{kind:?} {half}");
            let stream = |word| Answer::Pieces(pieces.iter().map(|piece| with(piece, word)).collect());
            let wanted = ask(kind, stream(instead), true).await.unwrap();
            assert_eq!(ask(kind, stream(half), true).await, Ok(wanted), "{kind:?} {half}, streamed");
        }
    }
}
