//! The OpenAI Responses wire, without server-side state: what was said before comes back in every request.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Answer, Asked, Broken, Place, Post, SentEvent, Wire, image_url_fault, openai_wire, pieces, schema_fault,
    tool_name_is_valid,
};
use crate::sim::scenario_file::StopFile;

/// `POST /model/openai-responses/v1/responses`.
pub const WIRE: Wire = Wire {
    name: "openai-responses",
    path: "v1/responses",
    place: |path| (path == ["v1", "responses"]).then(Place::default),
    models: &["v1", "models"],
    list: openai_wire::list,
    read,
    key,
    whole,
    events,
    error: openai_wire::error,
    error_event,
};

const FIELDS: [&str; 28] = [
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "top_logprobs",
    "store",
    "include",
    "stream",
    "stream_options",
    "reasoning",
    "text",
    "metadata",
    "client_metadata",
    "truncation",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "previous_response_id",
    "conversation",
    "background",
    "service_tier",
];

/// Tools that the provider itself runs.
const PROVIDERS_OWN: [&str; 6] = [
    "web_search",
    "web_search_preview",
    "file_search",
    "code_interpreter",
    "image_generation",
    "local_shell",
];

fn key(headers: &HeaderMap) -> Option<String> {
    let header = headers.get("authorization").and_then(|value| value.to_str().ok())?;
    header.strip_prefix("Bearer ").map(str::to_owned)
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
    let model = post.model().to_owned();
    if model.is_empty() {
        check.say("Missing required parameter: 'model'.");
    }
    if object.get("max_output_tokens").is_some_and(|tokens| tokens.as_u64().is_none_or(|tokens| tokens < 16))
    {
        check.say("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.");
    }
    if object
        .get("temperature")
        .is_some_and(|value| !value.as_f64().is_some_and(|t| (0.0..=2.0).contains(&t)))
    {
        check.say("Invalid 'temperature': must be between 0 and 2.");
    }
    let tools = check.tools(object.get("tools"));
    if tools.is_empty() && object.contains_key("tool_choice") && body["tool_choice"] != "none" {
        check.say("Tool choice is only allowed when 'tools' are specified.");
    }
    let stateless = body["store"] == false;
    let items = check.input(&body["input"], stateless);
    if !check.broken.is_empty() {
        return Err(check.broken);
    }
    let said = |item: &Value| item["role"] == "assistant" || item["type"] == "function_call";
    let last = items.iter().rposition(said);
    let texts = |items: &[Value]| items.iter().map(text_of).collect::<Vec<_>>().join("\n");
    let instructions = body["instructions"].as_str().unwrap_or_default();
    Ok(Asked {
        model,
        stream: post.stream(),
        stream_usage: true,
        fresh: texts(&items[last.map_or(0, |last| last + 1)..]),
        all: format!("{instructions}\n{}", texts(&items)),
        tools,
        turn: turns(&items) + 1,
    })
}

/// Rows of items that the model said in one go.
fn turns(items: &[Value]) -> usize {
    let said = |item: &Value| {
        item["role"] == "assistant" || matches!(item["type"].as_str(), Some("function_call" | "reasoning"))
    };
    let starts = |place: usize| said(&items[place]) && (place == 0 || !said(&items[place - 1]));
    (0..items.len()).filter(|place| starts(*place)).count()
}

fn text_of(item: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    match item["type"].as_str() {
        Some("function_call") => item["arguments"].as_str().unwrap_or_default().to_owned(),
        Some("function_call_output") => text(&item["output"]),
        _ => text(&item["content"]),
    }
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
        let Some(tools) = tools.as_array() else {
            self.say("Invalid type for 'tools': expected an array.");
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        for (place, tool) in tools.iter().enumerate() {
            self.tool(&format!("tools[{place}]"), tool, None, &mut names);
        }
        names
    }

    /// One tool; those of a namespace are known as `namespace/name`. What the provider runs itself has no name.
    fn tool(&mut self, at: &str, tool: &Value, namespace: Option<&str>, names: &mut Vec<String>) {
        let kind = tool["type"].as_str().unwrap_or_default();
        if PROVIDERS_OWN.contains(&kind) && namespace.is_none() {
            return;
        }
        let known: &[&str] = match kind {
            "function" => &["type", "name", "description", "parameters", "strict"],
            "custom" => &["type", "name", "description", "format"],
            "namespace" if namespace.is_none() => &["type", "name", "description", "tools"],
            other => return self.say(format!("Invalid value: '{other}' for '{at}.type'.")),
        };
        for field in tool.as_object().into_iter().flat_map(|tool| tool.keys()) {
            if !known.contains(&field.as_str()) {
                self.say(format!("Unknown parameter: '{at}.{field}'."));
            }
        }
        let name = tool["name"].as_str().unwrap_or_default();
        if !tool_name_is_valid(name, 64) {
            self.say(format!("Invalid '{at}.name': {name:?} does not match '^[a-zA-Z0-9_-]+$'."));
        }
        let full = namespace.map_or_else(|| name.to_owned(), |space| format!("{space}/{name}"));
        if names.contains(&full) {
            self.say(format!("'{at}.name': {full:?} is there twice."));
        }
        match kind {
            "namespace" => {
                let inner = tool["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
                if inner.is_empty() {
                    self.say(format!("Missing required parameter: '{at}.tools'."));
                }
                for (place, tool) in inner.iter().enumerate() {
                    self.tool(&format!("{at}.tools[{place}]"), tool, Some(name), names);
                }
                return;
            }
            "function" => {
                if let Some(fault) = schema_fault(&tool["parameters"]) {
                    self.say(format!("Invalid schema for function '{name}': it {fault}."));
                }
                // The API makes every schema strict unless it is told not to, and refuses most of them then.
                if tool["strict"] != false {
                    self.say(format!("Invalid schema for function '{name}': 'strict' is not false."));
                }
            }
            _ => {}
        }
        names.push(full);
    }

    fn input(&mut self, input: &Value, stateless: bool) -> Vec<Value> {
        let items = match input {
            Value::String(text) if !text.is_empty() => vec![json!({"role": "user", "content": text})],
            Value::Array(items) if !items.is_empty() => items.clone(),
            _ => {
                self.say("Missing required parameter: 'input'.");
                return Vec::new();
            }
        };
        let mut open: BTreeSet<String> = BTreeSet::new();
        let mut called: BTreeSet<String> = BTreeSet::new();
        for (place, item) in items.iter().enumerate() {
            let at = format!("input[{place}]");
            let kind = item["type"].as_str().unwrap_or("message");
            let id = item["call_id"].as_str().unwrap_or_default().to_owned();
            let known: &[&str] = match kind {
                "message" => {
                    self.message(&at, item);
                    &["type", "role", "content", "id", "status"]
                }
                "function_call" => {
                    if id.is_empty() || !called.insert(id.clone()) {
                        self.say(format!("{at}.call_id: must be there and unique ({id:?})"));
                    }
                    open.insert(id);
                    if !tool_name_is_valid(item["name"].as_str().unwrap_or_default(), 64) {
                        self.say(format!("Invalid '{at}.name': is not a function's name"));
                    }
                    if !item["arguments"].is_string() {
                        self.say(format!("Invalid type for '{at}.arguments': expected a string."));
                    }
                    let named = item["namespace"].is_null()
                        || item["namespace"].as_str().is_some_and(|name| tool_name_is_valid(name, 64));
                    if !named {
                        self.say(format!("Invalid '{at}.namespace': is not a namespace's name"));
                    }
                    &["type", "call_id", "name", "namespace", "arguments", "id", "status"]
                }
                "function_call_output" => {
                    if !open.remove(&id) {
                        self.say(format!("No tool call found for function call output with call_id {id}."));
                    }
                    if !item["output"].is_string() && !item["output"].is_array() {
                        self.say(format!("Missing required parameter: '{at}.output'."));
                    }
                    &["type", "call_id", "output", "id", "status"]
                }
                "reasoning" => {
                    self.reasoning(&at, item, items.get(place + 1), stateless);
                    &["type", "id", "summary", "content", "encrypted_content", "status"]
                }
                other => {
                    self.say(format!("Invalid value: '{other}' for '{at}.type'."));
                    continue;
                }
            };
            for field in item.as_object().into_iter().flat_map(|item| item.keys()) {
                if !known.contains(&field.as_str()) {
                    self.say(format!("Unknown parameter: '{at}.{field}'."));
                }
            }
        }
        for id in open {
            self.say(format!("No tool output found for function call {id}."));
        }
        items
    }

    fn message(&mut self, at: &str, item: &Value) {
        let role = item["role"].as_str().unwrap_or_default();
        if !["user", "assistant", "system", "developer"].contains(&role) {
            self.say(format!("Invalid value: '{role}' for '{at}.role'."));
        }
        let empty = match &item["content"] {
            Value::String(text) => text.is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        if empty {
            self.say(format!("Missing required parameter: '{at}.content'."));
        }
        for (place, part) in item["content"].as_array().into_iter().flatten().enumerate() {
            if part["type"] == "input_image"
                && let Some(fault) = image_url_fault(part["image_url"].as_str().unwrap_or_default())
            {
                self.say(format!("Invalid '{at}.content[{place}].image_url': {fault}"));
            }
        }
    }

    /// Reasoning comes back unchanged, in its encrypted form, and before what followed it.
    fn reasoning(&mut self, at: &str, item: &Value, next: Option<&Value>, stateless: bool) {
        let id = item["id"].as_str().unwrap_or_default();
        let Some(encrypted) = item["encrypted_content"].as_str() else {
            if stateless {
                self.say(format!(
                    "Item with id '{id}' not found. Items are not persisted when `store` is set to false."
                ));
            }
            return;
        };
        let summary = item["summary"][0]["text"].as_str().unwrap_or_default();
        if encrypted != sealed(summary) {
            self.say(format!("The encrypted content of {at} could not be verified."));
        }
        let follows = next.is_some_and(|next| {
            next["role"] == "assistant"
                || matches!(next["type"].as_str(), Some("function_call" | "reasoning"))
        });
        if !follows {
            self.say(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ));
        }
    }
}

/// What stands for a thought's encrypted form.
fn sealed(thought: &str) -> String {
    let hash = Sha256::digest(format!("responses:{thought}"));
    format!("gAAAA{}", hex::encode(hash))
}

fn output(answer: &Answer) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thinking) = &answer.thinking {
        items.push(json!({
            "id": format!("rs_{:024}", answer.number), "type": "reasoning",
            "summary": [{"type": "summary_text", "text": thinking}], "encrypted_content": sealed(thinking),
        }));
    }
    let refused = answer.stop == StopFile::Refusal;
    let status = if answer.stop == StopFile::Length { "incomplete" } else { "completed" };
    if let Some(text) = answer.text.as_deref().or(refused.then_some("I cannot help with that.")) {
        let part = if refused {
            json!({"type": "refusal", "refusal": text})
        } else {
            json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
        };
        items.push(json!({
            "id": format!("msg_{:024}", answer.number), "type": "message", "role": "assistant", "status": status,
            "content": [part],
        }));
    }
    for (place, call) in answer.calls.iter().enumerate() {
        let mut item = json!({
            "id": format!("fc_{:020}_{place}", answer.number), "type": "function_call", "status": status,
            "call_id": call.id, "name": call.name, "arguments": call.arguments,
        });
        if let Some((namespace, name)) = call.name.split_once('/') {
            item["namespace"] = json!(namespace);
            item["name"] = json!(name);
        }
        items.push(item);
    }
    items
}

fn usage(answer: &Answer) -> Value {
    // Cached tokens are part of the input; nothing is charged for writing the cache.
    let input = answer.usage.input + answer.usage.cache_read + answer.usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": answer.usage.cache_read},
        "output_tokens": answer.usage.output,
        "output_tokens_details": {"reasoning_tokens": answer.usage.reasoning},
        "total_tokens": input + answer.usage.output,
    })
}

fn response(answer: &Answer, status: &str, output: &[Value], usage: Value) -> Value {
    let incomplete =
        if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
    json!({
        "id": format!("resp_{:024}", answer.number),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": null,
        "incomplete_details": incomplete,
        "instructions": null,
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "store": false,
        "usage": usage,
    })
}

fn final_status(answer: &Answer) -> &'static str {
    if answer.stop == StopFile::Length { "incomplete" } else { "completed" }
}

fn whole(answer: &Answer) -> Value {
    response(answer, final_status(answer), &output(answer), usage(answer))
}

fn events(answer: &Answer) -> Vec<SentEvent> {
    let mut sent: Vec<SentEvent> = Vec::new();
    let mut send = |name: &'static str, mut data: Value| {
        data["type"] = json!(name);
        data["sequence_number"] = json!(sent.len());
        sent.push(SentEvent { name: Some(name), data: data.to_string() });
    };
    let begun = response(answer, "in_progress", &[], Value::Null);
    send("response.created", json!({"response": begun}));
    send("response.in_progress", json!({"response": begun}));
    let items = output(answer);
    for (place, item) in items.iter().enumerate() {
        let mut bare = item.clone();
        bare["status"] = json!("in_progress");
        let id = item["id"].clone();
        match item["type"].as_str() {
            Some("message") => {
                bare["content"] = json!([]);
                send("response.output_item.added", json!({"output_index": place, "item": bare}));
                let part = &item["content"][0];
                let at = json!({"item_id": id, "output_index": place, "content_index": 0});
                let with = |more: Value| merged(&at, more);
                send(
                    "response.content_part.added",
                    with(json!({"part": {"type": part["type"], "text": ""}})),
                );
                let refused = part["type"] == "refusal";
                let text = part["text"].as_str().or(part["refusal"].as_str()).unwrap_or_default();
                let delta = if refused { "response.refusal.delta" } else { "response.output_text.delta" };
                for piece in pieces(text) {
                    send(delta, with(json!({"delta": piece})));
                }
                send("response.content_part.done", with(json!({"part": part})));
            }
            Some("function_call") => {
                bare["arguments"] = json!("");
                send("response.output_item.added", json!({"output_index": place, "item": bare}));
                let arguments = item["arguments"].as_str().unwrap_or_default();
                for piece in pieces(arguments) {
                    let data = json!({"item_id": id, "output_index": place, "delta": piece});
                    send("response.function_call_arguments.delta", data);
                }
                let data = json!({"item_id": id, "output_index": place, "arguments": arguments});
                send("response.function_call_arguments.done", data);
            }
            _ => {
                bare["summary"] = json!([]);
                send("response.output_item.added", json!({"output_index": place, "item": bare}));
            }
        }
        send("response.output_item.done", json!({"output_index": place, "item": item}));
    }
    let ended = response(answer, final_status(answer), &items, usage(answer));
    let name =
        if final_status(answer) == "incomplete" { "response.incomplete" } else { "response.completed" };
    send(name, json!({"response": ended}));
    sent
}

fn merged(into: &Value, more: Value) -> Value {
    let mut all = into.clone();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

fn error_event(status: u16, message: &str) -> SentEvent {
    let code = openai_wire::error(status, message)["error"]["code"].clone();
    let code = if code.is_null() { json!("server_error") } else { code };
    let data =
        json!({"type": "error", "code": code, "message": message, "param": null, "sequence_number": 2});
    SentEvent { name: Some("error"), data: data.to_string() }
}
