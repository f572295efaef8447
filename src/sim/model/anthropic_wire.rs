//! The Anthropic Messages wire.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Answer, Asked, Broken, Place, Post, SentEvent, Wire, image_fault, openai_wire, pieces, schema_fault,
    tool_name_is_valid,
};
use crate::sim::scenario_file::StopFile;

/// `POST /model/anthropic/v1/messages`.
pub const WIRE: Wire = Wire {
    name: "anthropic",
    path: "v1/messages",
    place: |path| (path == ["v1", "messages"]).then(Place::default),
    models: &["v1", "models"],
    list: openai_wire::list,
    read,
    key,
    whole,
    events,
    error,
    error_event,
};

const FIELDS: [&str; 18] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "metadata",
    "thinking",
    "service_tier",
    "container",
    "context_management",
    "output_config",
    "cache_control",
];

fn key(headers: &HeaderMap) -> Option<String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    header("x-api-key").or_else(bearer).map(str::to_owned)
}

fn read(post: &Post<'_>) -> Result<Asked, Vec<Broken>> {
    let (headers, body) = (post.headers, post.body);
    let betas = headers.get("anthropic-beta").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let beta_system = betas.contains("mid-conversation-system");
    let mut check = Check { beta_system, ..Check::default() };
    if headers.get("anthropic-version").is_none() {
        check.say("anthropic-version: header is required");
    }
    let Some(object) = body.as_object() else {
        check.say("the body is not a JSON object");
        return Err(check.broken);
    };
    for name in object.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
        check.say(format!("{name}: Extra inputs are not permitted"));
    }
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    if model.is_empty() {
        check.say("model: Field required");
    }
    if body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        check.say("max_tokens: Field required, a whole number above 0");
    }
    if let Some(temperature) = object.get("temperature")
        && !temperature.as_f64().is_some_and(|value| (0.0..=1.0).contains(&value))
    {
        check.say("temperature: must be between 0 and 1");
    }
    for name in ["stream"] {
        if object.get(name).is_some_and(|value| !value.is_boolean()) {
            check.say(format!("{name}: Input should be a boolean"));
        }
    }
    check.system(object.get("system"));
    let tools = check.tools(object.get("tools"));
    check.tool_choice(object.get("tool_choice"), &tools);
    check.messages(&body["messages"]);
    if check.cache_marks > 4 {
        check.say(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {}.",
            check.cache_marks
        ));
    }
    if !check.broken.is_empty() {
        return Err(check.broken);
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.iter().rposition(|message| message["role"] == "assistant");
    let texts =
        |messages: &[Value]| messages.iter().map(|m| text_of(&m["content"])).collect::<Vec<_>>().join("\n");
    Ok(Asked {
        model,
        stream: body["stream"].as_bool().unwrap_or(false),
        stream_usage: true,
        fresh: texts(&messages[last.map_or(0, |last| last + 1)..]),
        all: format!("{}\n{}", text_of(&body["system"]), texts(&messages)),
        tools,
        turn: messages.iter().filter(|message| message["role"] == "assistant").count() + 1,
    })
}

/// Every text in a content, tool results and arguments included.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("text") => block["text"].as_str().unwrap_or_default().to_owned(),
                Some("tool_result") => text_of(&block["content"]),
                Some("tool_use") => block["input"].to_string(),
                Some("thinking") => block["thinking"].as_str().unwrap_or_default().to_owned(),
                _ => String::new(),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

#[derive(Default)]
struct Check {
    broken: Vec<Broken>,
    cache_marks: usize,
    /// The request asks for system messages between the turns.
    beta_system: bool,
}

impl Check {
    fn say(&mut self, text: impl Into<String>) {
        self.broken.push(Broken(text.into()));
    }

    fn mark(&mut self, block: &Value) {
        if block.get("cache_control").is_some() {
            self.cache_marks += 1;
        }
    }

    fn system(&mut self, system: Option<&Value>) {
        match system {
            None | Some(Value::String(_)) => {}
            Some(Value::Array(blocks)) => {
                for (place, block) in blocks.iter().enumerate() {
                    self.mark(block);
                    if block["type"] != "text" || block["text"].as_str().is_none_or(str::is_empty) {
                        self.say(format!("system.{place}: must be a text block that is not empty"));
                    }
                }
            }
            Some(_) => self.say("system: must be a string or an array of text blocks"),
        }
    }

    fn tools(&mut self, tools: Option<&Value>) -> Vec<String> {
        let Some(tools) = tools else { return Vec::new() };
        let Some(tools) = tools.as_array() else {
            self.say("tools: Input should be an array");
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        for (place, tool) in tools.iter().enumerate() {
            self.mark(tool);
            let name = tool["name"].as_str().unwrap_or_default();
            if !tool_name_is_valid(name, 128) {
                self.say(format!("tools.{place}.name: {name:?} should match '^[a-zA-Z0-9_-]{{1,128}}$'"));
            }
            if names.iter().any(|other| other == name) {
                self.say(format!("tools: Tool names must be unique ({name})"));
            }
            if let Some(fault) = schema_fault(&tool["input_schema"]) {
                self.say(format!("tools.{place}.input_schema of {name} {fault}"));
            }
            let known = [
                "name",
                "description",
                "input_schema",
                "cache_control",
                "type",
                "strict",
                "eager_input_streaming",
                "defer_loading",
                "allowed_callers",
                "input_examples",
            ];
            for field in tool.as_object().into_iter().flat_map(|tool| tool.keys()) {
                if !known.contains(&field.as_str()) {
                    self.say(format!("tools.{place}.{field}: Extra inputs are not permitted"));
                }
            }
            names.push(name.to_owned());
        }
        names
    }

    fn tool_choice(&mut self, choice: Option<&Value>, tools: &[String]) {
        let Some(choice) = choice else { return };
        if tools.is_empty() {
            self.say("tool_choice may only be specified while providing tools");
        }
        match choice["type"].as_str() {
            Some("auto" | "any" | "none") => {}
            Some("tool") => {
                let name = choice["name"].as_str().unwrap_or_default();
                if !tools.iter().any(|tool| tool == name) {
                    self.say(format!("tool_choice.name: there is no tool {name:?}"));
                }
            }
            _ => self.say("tool_choice.type: must be auto, any, tool or none"),
        }
    }

    fn messages(&mut self, messages: &Value) {
        let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
            self.say("messages: at least one message is required");
            return;
        };
        let mut before: Option<&str> = None;
        let mut open: BTreeSet<String> = BTreeSet::new();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for (place, message) in messages.iter().enumerate() {
            for field in message.as_object().into_iter().flat_map(|message| message.keys()) {
                if field != "role" && field != "content" {
                    self.say(format!("messages.{place}.{field}: Extra inputs are not permitted"));
                }
            }
            let role = message["role"].as_str().unwrap_or_default();
            // Instructions between the turns, where the request asks for that beta: they are nobody's turn.
            if role == "system" && self.beta_system && place > 0 {
                continue;
            }
            match (role, before) {
                ("user" | "assistant", Some(other)) if other == role => self.say(format!(
                    "messages.{place}: roles must alternate between \"user\" and \"assistant\", but found multiple {role:?} roles in a row"
                )),
                ("assistant", None) => self.say("messages: first message must use the \"user\" role"),
                ("user" | "assistant", _) => {}
                _ => self.say(format!("messages.{place}.role: unknown role {role:?}; it must be user or assistant")),
            }
            before = Some(role);
            let blocks = match &message["content"] {
                Value::String(text) => vec![json!({"type": "text", "text": text})],
                Value::Array(blocks) => blocks.clone(),
                _ => {
                    self.say(format!("messages.{place}.content: Field required"));
                    Vec::new()
                }
            };
            if blocks.is_empty() {
                self.say(format!("messages.{place}: all messages must have non-empty content"));
            }
            if role == "user" {
                self.answers(place, &blocks, &mut open);
            }
            for (inner, block) in blocks.iter().enumerate() {
                self.mark(block);
                self.block(&format!("messages.{place}.content.{inner}"), role, block);
                if block["type"] == "tool_use" {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !seen.insert(id.clone()) {
                        self.say(format!("messages.{place}: `tool_use` ids must be unique ({id})"));
                    }
                    open.insert(id);
                }
            }
        }
        if !open.is_empty() {
            self.say(format!("`tool_use` ids were found without `tool_result` blocks: {}", join(&open)));
        }
    }

    /// The results in a user's message must be exactly those of the calls just before it, and come first.
    fn answers(&mut self, place: usize, blocks: &[Value], open: &mut BTreeSet<String>) {
        let mut other = false;
        for block in blocks {
            if block["type"] != "tool_result" {
                other = true;
                continue;
            }
            let id = block["tool_use_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                self.say(format!(
                    "messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id:?}; each result needs its call in the message before"
                ));
            }
            if other {
                self.say(format!("messages.{place}: `tool_result` blocks must come first in the content"));
            }
        }
        if !open.is_empty() {
            let missing = join(open);
            self.say(format!(
                "messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
            ));
            open.clear();
        }
    }

    fn block(&mut self, place: &str, role: &str, block: &Value) {
        let kind = block["type"].as_str().unwrap_or_default();
        match (kind, role) {
            ("text", _) => {
                if block["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
                    self.say(format!("{place}: text content blocks must contain non-whitespace text"));
                }
            }
            ("tool_use", "assistant") => {
                if !block["input"].is_object() {
                    self.say(format!("{place}.input: Input should be an object"));
                }
                if block["id"].as_str().is_none_or(str::is_empty) {
                    self.say(format!("{place}.id: Field required"));
                }
                if !tool_name_is_valid(block["name"].as_str().unwrap_or_default(), 200) {
                    self.say(format!("{place}.name: is not a tool's name"));
                }
            }
            ("tool_result", "user") => {
                let content = &block["content"];
                if !(content.is_string() || content.is_array() || content.is_null()) {
                    self.say(format!("{place}.content: must be a string or an array of blocks"));
                }
                if block.get("is_error").is_some_and(|flag| !flag.is_boolean()) {
                    self.say(format!("{place}.is_error: Input should be a boolean"));
                }
            }
            ("thinking", "assistant") => {
                let thinking = block["thinking"].as_str().unwrap_or_default();
                if block["signature"].as_str() != Some(signature(thinking).as_str()) {
                    self.say(format!(
                        "{place}: Invalid `signature` in `thinking` block; send it back as it came"
                    ));
                }
            }
            ("image", "user") => {
                let source = &block["source"];
                let part = |name: &str| source[name].as_str().unwrap_or_default();
                if part("type") != "base64" {
                    self.say(format!("{place}.source: Input should be base64 here"));
                }
                if let Some(fault) = image_fault(part("media_type"), part("data")) {
                    self.say(format!("{place}.source: {fault}"));
                }
            }
            ("redacted_thinking", "assistant") | ("document", "user") => {}
            _ => self.say(format!("{place}.type: {kind:?} is not allowed in a message of role {role:?}")),
        }
    }
}

fn join(ids: &BTreeSet<String>) -> String {
    ids.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// What vouches for a thinking block.
fn signature(thinking: &str) -> String {
    format!("sig-{}", &hex::encode(Sha256::digest(thinking))[..32])
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer.stop {
        StopFile::End => "end_turn",
        StopFile::ToolCalls => "tool_use",
        StopFile::Length => "max_tokens",
        StopFile::Refusal => "refusal",
        StopFile::StopSequence => "stop_sequence",
        StopFile::Pause => "pause_turn",
    }
}

fn usage(answer: &Answer, output: u64) -> Value {
    json!({
        "input_tokens": answer.usage.input,
        "cache_creation_input_tokens": answer.usage.cache_write,
        "cache_read_input_tokens": answer.usage.cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": answer.usage.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    })
}

fn head(answer: &Answer, content: Vec<Value>, stop: Option<&str>, output: u64) -> Value {
    json!({
        "id": format!("msg_{:024}", answer.number),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": usage(answer, output),
    })
}

fn whole(answer: &Answer) -> Value {
    let mut content = Vec::new();
    if let Some(thinking) = &answer.thinking {
        content.push(json!({"type": "thinking", "thinking": thinking, "signature": signature(thinking)}));
    }
    if let Some(text) = &answer.text {
        content.push(json!({"type": "text", "text": text}));
    }
    for call in &answer.calls {
        // An answer in one piece cannot carry broken JSON; the broken text stands where the object should.
        let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    head(answer, content, Some(stop_reason(answer)), answer.usage.output)
}

fn event(name: &'static str, mut data: Value) -> SentEvent {
    data["type"] = json!(name);
    SentEvent { name: Some(name), data: data.to_string() }
}

fn events(answer: &Answer) -> Vec<SentEvent> {
    let mut sent = vec![
        event("message_start", json!({"type": "", "message": head(answer, Vec::new(), None, 1)})),
        event("ping", json!({})),
    ];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        sent.push(event("content_block_start", json!({"type": "", "index": index, "content_block": start})));
        for delta in deltas {
            sent.push(event("content_block_delta", json!({"type": "", "index": index, "delta": delta})));
        }
        sent.push(event("content_block_stop", json!({"type": "", "index": index})));
        index += 1;
    };
    if let Some(thinking) = &answer.thinking {
        let mut deltas: Vec<Value> =
            pieces(thinking).iter().map(|part| json!({"type": "thinking_delta", "thinking": part})).collect();
        deltas.push(json!({"type": "signature_delta", "signature": signature(thinking)}));
        block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if let Some(text) = &answer.text {
        let deltas = pieces(text).iter().map(|part| json!({"type": "text_delta", "text": part})).collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for call in &answer.calls {
        let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
        if call.arguments != "{}" {
            let parts = pieces(&call.arguments);
            deltas.extend(parts.iter().map(|part| json!({"type": "input_json_delta", "partial_json": part})));
        }
        block(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas);
    }
    sent.push(event(
        "message_delta",
        json!({
            "type": "",
            "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
            "usage": usage(answer, answer.usage.output),
        }),
    ));
    sent.push(event("message_stop", json!({})));
    sent
}

fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 | 422 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_simulated"})
}

fn error_event(status: u16, message: &str) -> SentEvent {
    SentEvent { name: Some("error"), data: error(status, message).to_string() }
}
