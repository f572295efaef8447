//! What models and their providers say.

use super::*;

fn request() -> ModelRequest {
    let target = json!({ "provider": "p", "model": "m", "context_window": 8000, "context_window_buffer": 256, "max_output_tokens": 1000, "temperature": null, "price": null });
    let target: ModelTarget = serde_json::from_value(target).unwrap_or_else(|error| panic!("{error}"));
    ModelRequest {
        target,
        messages: vec![Message::User { content: "hello".into() }].into(),
        images: Arc::from([]),
        tools: Arc::from([]),
        tool_choice: ToolChoice::Auto,
        stream: true,
        timeout: Duration::from_secs(1),
    }
}

pub fn parsers() -> Vec<Parser> {
    let mut all = vec![
        of_text(
            "arguments, repaired",
            &[r#"{"path": "a", "content": "b\n"}"#, "{'a': 1,}", "```json\n{\"a\":[1,2]}\n```"],
            |text| size(&arguments::parse(text).is_ok()),
        ),
        of_text(
            "JSON in prose",
            &["Here: {\"next_action\": {\"action\": \"next\"}} done", "```json\n{}\n```"],
            |text| size(&output_schema::extract(text, &json!({ "type": "object" })).is_ok()),
        ),
        of_text("Retry-After", &["120", "Fri, 31 Dec 1999 23:59:59 GMT", "0.5"], |text| {
            let mut headers = HeaderMap::new();
            for name in ["retry-after", "retry-after-ms", "date"] {
                let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(text)) else {
                    return 0;
                };
                headers.insert(name, value);
            }
            let now = chrono::DateTime::UNIX_EPOCH;
            let with_ms = size(&llm::retry_after(&headers, now));
            headers.remove("retry-after-ms");
            with_ms + size(&llm::retry_after(&headers, now))
        }),
        of_answers(
            "refusals of providers",
            &[
                "429\nretry-after: 7\n\n{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}",
                "400\n\n[{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"details\":[{\"retryDelay\":\"7.5s\",\"reason\":\"x\"}]}}]",
            ],
            |answers| {
                let read = |(status, headers, body): &Answer| {
                    size(&llm::providers::read_refusal(*status, headers, body.as_bytes()))
                };
                answers.iter().map(read).sum()
            },
        ),
    ];
    let streams = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\ndata: [DONE]\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}],\"usage\":{\"input_tokens\":1}}}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1}}\n\n",
    ];
    let kinds =
        [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses, ProviderKind::Gemini];
    let names = [
        ("stream of Anthropic", "reply of Anthropic"),
        ("stream of OpenAI", "reply of OpenAI"),
        ("stream of OpenAI Responses", "reply of OpenAI Responses"),
        ("stream of Gemini", "reply of Gemini"),
    ];
    for (kind, (stream, reply)) in kinds.into_iter().zip(names) {
        all.push(parser(stream, &streams, move |bytes| {
            // In slices as a network cuts them, in the middle of anything.
            let step = 1 + bytes.first().map_or(0, |byte| usize::from(*byte) % 50);
            size(&llm::providers::read_stream(kind, &request(), bytes.chunks(step)))
        }));
        let bodies: Vec<String> = streams
            .iter()
            .flat_map(|stream| stream.lines().filter_map(|line| line.strip_prefix("data: ")))
            .map(str::to_owned)
            .collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        all.push(parser(reply, &bodies, move |bytes| {
            size(&llm::providers::read_reply(kind, &request(), bytes))
        }));
    }
    all
}
