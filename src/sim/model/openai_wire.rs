//! The OpenAI chat-completions wire.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::{
    Answer, Asked, Broken, Place, Post, SentEvent, Wire, image_url_fault, pieces, schema_fault,
    tool_name_is_valid,
};
use crate::sim::scenario_file::StopFile;

/// `POST /model/openai/v1/chat/completions`.
pub const WIRE: Wire = Wire {
    name: "openai",
    path: "v1/chat/completions",
    place: |path| (path == ["v1", "chat", "completions"]).then(Place::default),
    models: &["v1", "models"],
    list,
    read,
    key,
    whole,
    events,
    error,
    error_event,
};

const FIELDS: [&str; 33] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "stop",
    "n",
    "seed",
    "user",
    "response_format",
    "reasoning_effort",
    "metadata",
    "store",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "service_tier",
    "prediction",
    "verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "modalities",
    "audio",
    "web_search_options",
];

fn key(headers: &HeaderMap) -> Option<String> {
    let header = headers.get("authorization").and_then(|value| value.to_str().ok())?;
    header.strip_prefix("Bearer ").map(str::to_owned)
}

/// Models as both OpenAI and Anthropic list them.
pub fn list(names: &[String]) -> Value {
    let model = |name: &String| json!({"id": name, "object": "model", "type": "model", "display_name": name, "created": 0});
    json!({"object": "list", "data": names.iter().map(model).collect::<Vec<_>>(), "has_more": false})
}

fn read(post: &Post<'_>) -> Result<Asked, Vec<Broken>> {
    let body = post.body;
    let mut check = Check::default();
    let Some(object) = body.as_object() else {
        check.say("the body is not a JSON object");
        return Err(check.broken);
    };
    for name in object.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
        check.say(format!("Unknown parameter: '{name}'."));
    }
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    if model.is_empty() {
        check.say("you must provide a model parameter");
    }
    if object.contains_key("max_tokens") && object.contains_key("max_completion_tokens") {
        check.say("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.");
    }
    if let Some(temperature) = object.get("temperature")
        && !temperature.as_f64().is_some_and(|value| (0.0..=2.0).contains(&value))
    {
        check.say("Invalid 'temperature': must be between 0 and 2.");
    }
    let stream = body["stream"].as_bool().unwrap_or(false);
    if object.contains_key("stream_options") && !stream {
        check.say("The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    }
    let tools = check.tools(object.get("tools"));
    if tools.is_empty() {
        for name in ["tool_choice", "parallel_tool_calls"] {
            if object.contains_key(name) {
                check.say(format!("'{name}' is only allowed when 'tools' are specified."));
            }
        }
    }
    check.tool_choice(object.get("tool_choice"), &tools);
    check.messages(&body["messages"]);
    if !check.broken.is_empty() {
        return Err(check.broken);
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.iter().rposition(|message| message["role"] == "assistant");
    let texts = |messages: &[Value]| messages.iter().map(text_of).collect::<Vec<_>>().join("\n");
    Ok(Asked {
        model,
        stream,
        stream_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        fresh: texts(&messages[last.map_or(0, |last| last + 1)..]),
        all: texts(&messages),
        tools,
        turn: messages.iter().filter(|message| message["role"] == "assistant").count() + 1,
    })
}

/// Every text in a message, call arguments included.
fn text_of(message: &Value) -> String {
    let mut texts = Vec::new();
    match &message["content"] {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(parts) => {
            texts.extend(parts.iter().filter_map(|part| part["text"].as_str()).map(str::to_owned));
        }
        _ => {}
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        texts.push(call["function"]["arguments"].as_str().unwrap_or_default().to_owned());
    }
    texts.join("\n")
}

#[derive(Default)]
struct Check {
    broken: Vec<Broken>,
}

impl Check {
    fn say(&mut self, text: impl Into<String>) {
        self.broken.push(Broken(text.into()));
    }

    fn tools(&mut self, tools: Option<&Value>) -> Vec<String> {
        let Some(tools) = tools else { return Vec::new() };
        let Some(tools) = tools.as_array().filter(|tools| !tools.is_empty()) else {
            self.say("Invalid 'tools': must be an array that is not empty.");
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        for (place, tool) in tools.iter().enumerate() {
            if tool["type"] != "function" {
                self.say(format!("Invalid value: 'tools[{place}].type' must be 'function'."));
            }
            let function = &tool["function"];
            let name = function["name"].as_str().unwrap_or_default();
            if !tool_name_is_valid(name, 64) {
                self.say(format!(
                    "Invalid 'tools[{place}].function.name': {name:?} does not match '^[a-zA-Z0-9_-]{{1,64}}$'."
                ));
            }
            if names.iter().any(|other| other == name) {
                self.say(format!("'tools[{place}].function.name': {name:?} is there twice."));
            }
            // A function without parameters may leave the schema out.
            if let Some(schema) = function.get("parameters")
                && let Some(fault) = schema_fault(schema)
            {
                self.say(format!("Invalid schema for function '{name}': it {fault}."));
            }
            let known = ["name", "description", "parameters", "strict"];
            for field in function.as_object().into_iter().flat_map(|function| function.keys()) {
                if !known.contains(&field.as_str()) {
                    self.say(format!("Unknown parameter: 'tools[{place}].function.{field}'."));
                }
            }
            names.push(name.to_owned());
        }
        names
    }

    fn tool_choice(&mut self, choice: Option<&Value>, tools: &[String]) {
        match choice {
            None => {}
            Some(Value::String(word)) if ["auto", "none", "required"].contains(&word.as_str()) => {}
            Some(Value::Object(_)) => {
                let name = choice.and_then(|choice| choice["function"]["name"].as_str()).unwrap_or_default();
                if !tools.iter().any(|tool| tool == name) {
                    self.say(format!("Tool choice '{name}' not found in 'tools' parameter."));
                }
            }
            Some(_) => self.say("Invalid value for 'tool_choice'."),
        }
    }

    fn messages(&mut self, messages: &Value) {
        let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
            self.say("Invalid 'messages': expected an array with at least one message.");
            return;
        };
        let mut open: BTreeSet<String> = BTreeSet::new();
        for (place, message) in messages.iter().enumerate() {
            let at = format!("messages.[{place}]");
            let role = message["role"].as_str().unwrap_or_default();
            if role != "tool" && !open.is_empty() {
                let missing = open.iter().cloned().collect::<Vec<_>>().join(", ");
                self.say(format!(
                    "{at}: an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'; without result: {missing}"
                ));
                open.clear();
            }
            let known: &[&str] = match role {
                "system" | "developer" | "user" => {
                    self.content(&at, &message["content"]);
                    &["role", "content", "name"]
                }
                "assistant" => {
                    self.assistant(&at, message, &mut open);
                    &["role", "content", "name", "tool_calls", "refusal", "audio", "reasoning_content"]
                }
                "tool" => {
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    if !open.remove(id) {
                        self.say(format!(
                            "{at}: messages with role 'tool' must be a response to a preceding message with 'tool_calls' (id {id:?})"
                        ));
                    }
                    if !message["content"].is_string() && !message["content"].is_array() {
                        self.say(format!("{at}.content: a tool message needs content"));
                    }
                    &["role", "content", "tool_call_id"]
                }
                _ => {
                    self.say(format!("{at}.role: unknown role {role:?}"));
                    continue;
                }
            };
            for field in message.as_object().into_iter().flat_map(|message| message.keys()) {
                if !known.contains(&field.as_str()) {
                    self.say(format!("Unknown parameter: '{at}.{field}'."));
                }
            }
        }
        if !open.is_empty() {
            let missing = open.iter().cloned().collect::<Vec<_>>().join(", ");
            self.say(format!("messages: the last 'tool_calls' have no results: {missing}"));
        }
    }

    fn content(&mut self, at: &str, content: &Value) {
        let empty = match content {
            Value::String(text) => text.is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        if empty {
            self.say(format!("{at}.content: a string or an array of parts that is not empty is needed"));
        }
        for (place, part) in content.as_array().into_iter().flatten().enumerate() {
            let fault = match part["type"].as_str() {
                Some("text") => part["text"].as_str().is_none().then(|| "text is missing".to_owned()),
                Some("image_url") => image_url_fault(part["image_url"]["url"].as_str().unwrap_or_default()),
                other => Some(format!("{other:?} is no type of a part here")),
            };
            if let Some(fault) = fault {
                self.say(format!("{at}.content[{place}]: {fault}"));
            }
        }
    }

    fn assistant(&mut self, at: &str, message: &Value, open: &mut BTreeSet<String>) {
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        if message.get("tool_calls").is_some() && calls.is_empty() {
            self.say(format!("Invalid '{at}.tool_calls': empty array."));
        }
        if calls.is_empty() && !message["content"].is_string() && !message["content"].is_array() {
            self.say(format!("{at}: an assistant message needs 'content' or 'tool_calls'"));
        }
        for (place, call) in calls.iter().enumerate() {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || !open.insert(id.to_owned()) {
                self.say(format!("{at}.tool_calls[{place}].id: must be there and unique ({id:?})"));
            }
            if call["type"] != "function" {
                self.say(format!("{at}.tool_calls[{place}].type: must be 'function'"));
            }
            if !tool_name_is_valid(call["function"]["name"].as_str().unwrap_or_default(), 64) {
                self.say(format!("{at}.tool_calls[{place}].function.name: is not a function's name"));
            }
            if !call["function"]["arguments"].is_string() {
                self.say(format!("{at}.tool_calls[{place}].function.arguments: must be a string"));
            }
        }
    }
}

fn finish_reason(answer: &Answer) -> &'static str {
    match answer.stop {
        StopFile::End | StopFile::StopSequence | StopFile::Pause => "stop",
        StopFile::ToolCalls => "tool_calls",
        StopFile::Length => "length",
        StopFile::Refusal => "content_filter",
    }
}

fn usage(answer: &Answer) -> Value {
    // OpenAI counts cached tokens as part of the prompt; nothing is charged for writing the cache.
    let prompt = answer.usage.input + answer.usage.cache_read + answer.usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": answer.usage.output,
        "total_tokens": prompt + answer.usage.output,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": answer.usage.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

fn id(answer: &Answer) -> String {
    format!("chatcmpl-{:024}", answer.number)
}

fn whole(answer: &Answer) -> Value {
    let mut message =
        json!({"role": "assistant", "content": answer.text, "refusal": null, "annotations": []});
    if answer.stop == StopFile::Refusal {
        message["refusal"] = json!(answer.text.as_deref().unwrap_or("I cannot help with that."));
    }
    if let Some(thinking) = &answer.thinking {
        message["reasoning_content"] = json!(thinking);
    }
    if !answer.calls.is_empty() {
        let calls = answer.calls.iter().map(|call| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": id(answer),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [{
            "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer),
        }],
        "usage": usage(answer),
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    })
}

fn events(answer: &Answer) -> Vec<SentEvent> {
    let chunk = |choices: Value, usage: Value| {
        let mut data = json!({
            "id": id(answer),
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
            "choices": choices,
        });
        if answer.stream_usage {
            data["usage"] = usage;
        }
        SentEvent { name: None, data: data.to_string() }
    };
    let delta = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        chunk(json!([choice]), Value::Null)
    };
    let content = if answer.calls.is_empty() { json!("") } else { Value::Null };
    let mut sent = vec![delta(json!({"role": "assistant", "content": content, "refusal": null}), None)];
    for part in answer.thinking.as_deref().map(pieces).unwrap_or_default() {
        sent.push(delta(json!({"reasoning_content": part}), None));
    }
    for part in answer.text.as_deref().map(pieces).unwrap_or_default() {
        sent.push(delta(json!({"content": part}), None));
    }
    for (place, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let start = json!({"index": place, "id": call.id, "type": "function", "function": function});
        sent.push(delta(json!({"tool_calls": [start]}), None));
        for part in pieces(&call.arguments) {
            let more = json!({"index": place, "function": {"arguments": part}});
            sent.push(delta(json!({"tool_calls": [more]}), None));
        }
    }
    sent.push(delta(json!({}), Some(finish_reason(answer))));
    if answer.stream_usage {
        sent.push(chunk(json!([]), usage(answer)));
    }
    sent.push(SentEvent { name: None, data: "[DONE]".to_owned() });
    sent
}

/// An error's body.
pub fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        402 => ("insufficient_quota", json!("insufficient_quota")),
        403 => ("invalid_request_error", json!("permission_denied")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", Value::Null),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn error_event(status: u16, message: &str) -> SentEvent {
    SentEvent { name: None, data: error(status, message).to_string() }
}
