//! The Gemini wire: the model's name and the streaming stand in the path, calls have no ids.

use axum::http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, Asked, Broken, Place, Post, SentEvent, Wire, image_fault, pieces, schema_fault};
use crate::sim::scenario_file::StopFile;

/// `POST /model/gemini/v1beta/models/MODEL:generateContent`, or `:streamGenerateContent?alt=sse`.
pub const WIRE: Wire = Wire {
    name: "gemini",
    path: "v1beta/models/MODEL:generateContent",
    place,
    models: &["v1beta", "models"],
    list,
    read,
    key,
    whole,
    events,
    error,
    error_event,
};

const FIELDS: [&str; 8] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
];

fn place(path: &[&str]) -> Option<Place> {
    let ["v1" | "v1beta", "models", last] = path else { return None };
    let (model, method) = last.split_once(':')?;
    let stream = match method {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return None,
    };
    Some(Place { model: Some(model.to_owned()), stream: Some(stream) })
}

fn list(names: &[String]) -> Value {
    let methods = ["generateContent", "streamGenerateContent"];
    let model =
        |name: &String| json!({"name": format!("models/{name}"), "supportedGenerationMethods": methods});
    json!({ "models": names.iter().map(model).collect::<Vec<_>>() })
}

fn key(headers: &HeaderMap) -> Option<String> {
    headers.get("x-goog-api-key").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn read(post: &Post<'_>) -> Result<Asked, Vec<Broken>> {
    let body = &camel(post.body);
    let mut check = Check::default();
    let Some(object) = body.as_object() else {
        check.say("the body is not a JSON object");
        return Err(check.broken);
    };
    for name in object.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
        check.say(format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."));
    }
    if post.stream() && !post.query.split('&').any(|pair| pair == "alt=sse") {
        check.say(
            "streamGenerateContent without alt=sse gives a JSON array, which the simulator does not serve",
        );
    }
    check.settings(&body["generationConfig"]);
    let tools = check.tools(object.get("tools"));
    if tools.is_empty() && object.contains_key("toolConfig") {
        check.say("Function calling config is set without function_declarations.");
    }
    let system = check.system(object.get("systemInstruction"));
    let contents = check.contents(&body["contents"]);
    if !check.broken.is_empty() {
        return Err(check.broken);
    }
    let last = contents.iter().rposition(|content| content["role"] == "model");
    let texts = |contents: &[Value]| contents.iter().map(text_of).collect::<Vec<_>>().join("\n");
    Ok(Asked {
        model: post.model().to_owned(),
        stream: post.stream(),
        stream_usage: true,
        fresh: texts(&contents[last.map_or(0, |last| last + 1)..]),
        all: format!("{system}\n{}", texts(&contents)),
        tools,
        turn: contents.iter().filter(|content| content["role"] == "model").count() + 1,
    })
}

/// What callers say in their own words, which no spelling changes.
const OPAQUE: [&str; 7] = [
    "args",
    "response",
    "parameters",
    "parametersJsonSchema",
    "responseSchema",
    "responseJsonSchema",
    "labels",
];

/// The same with the API's names as `camelCase`: it takes `snake_case` as well.
fn camel(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(camel).collect(),
        Value::Object(object) => {
            let named = |name: &str| {
                let mut words = name.split('_');
                let mut whole = words.next().unwrap_or_default().to_owned();
                for word in words {
                    let mut letters = word.chars();
                    whole.extend(letters.next().map(|first| first.to_ascii_uppercase()));
                    whole.push_str(letters.as_str());
                }
                whole
            };
            object
                .iter()
                .map(|(name, value)| {
                    let name = if name.starts_with('_') { name.clone() } else { named(name) };
                    let value = if OPAQUE.contains(&name.as_str()) { value.clone() } else { camel(value) };
                    (name, value)
                })
                .collect()
        }
        other => other.clone(),
    }
}

fn text_of(content: &Value) -> String {
    let part = |part: &Value| {
        if let Some(text) = part["text"].as_str() {
            return text.to_owned();
        }
        match (part.get("functionCall"), part.get("functionResponse")) {
            (Some(call), _) => call["args"].to_string(),
            (_, Some(response)) => {
                response["response"]["result"].as_str().map_or_else(|| response.to_string(), str::to_owned)
            }
            _ => String::new(),
        }
    };
    content["parts"].as_array().into_iter().flatten().map(part).collect::<Vec<_>>().join("\n")
}

/// Names of the functions that a content calls or answers, in order.
fn functions<'a>(content: &'a Value, kind: &str) -> Vec<&'a str> {
    let parts = content["parts"].as_array().into_iter().flatten();
    parts
        .filter_map(|part| part.get(kind))
        .map(|function| function["name"].as_str().unwrap_or_default())
        .collect()
}

#[derive(Default)]
struct Check {
    broken: Vec<Broken>,
}

impl Check {
    fn say(&mut self, text: impl Into<String>) {
        self.broken.push(Broken(text.into()));
    }

    fn settings(&mut self, settings: &Value) {
        let known = [
            "maxOutputTokens",
            "temperature",
            "topP",
            "topK",
            "stopSequences",
            "candidateCount",
            "thinkingConfig",
            "responseMimeType",
            "responseSchema",
            "responseJsonSchema",
            "responseModalities",
            "presencePenalty",
            "frequencyPenalty",
            "mediaResolution",
            "seed",
        ];
        for field in settings.as_object().into_iter().flat_map(|settings| settings.keys()) {
            if !known.contains(&field.as_str()) {
                self.say(format!("Unknown name \"{field}\" at 'generation_config': Cannot find field."));
            }
        }
        let tokens = settings.get("maxOutputTokens");
        if tokens.is_some_and(|tokens| tokens.as_u64().is_none_or(|tokens| tokens == 0)) {
            self.say("max_output_tokens must be positive.");
        }
        let fits = |value: &Value| value.as_f64().is_some_and(|value| (0.0..=2.0).contains(&value));
        if settings.get("temperature").is_some_and(|value| !fits(value)) {
            self.say("temperature must be between 0 and 2.");
        }
    }

    fn tools(&mut self, tools: Option<&Value>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for tool in tools.and_then(Value::as_array).into_iter().flatten() {
            for declaration in tool["functionDeclarations"].as_array().into_iter().flatten() {
                let name = declaration["name"].as_str().unwrap_or_default();
                let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
                if !first || name.len() > 64 || !name.chars().all(plain) {
                    self.say(format!(
                        "Invalid function name {name:?}. Must start with a letter or an underscore."
                    ));
                }
                if names.iter().any(|other| other == name) {
                    self.say(format!("Duplicate function declaration found: {name}"));
                }
                if let Some(fault) = declaration.get("parametersJsonSchema").and_then(schema_fault) {
                    self.say(format!("The parameters of {name}: it {fault}."));
                }
                let known = ["name", "description", "parameters", "parametersJsonSchema", "behavior"];
                for field in declaration.as_object().into_iter().flat_map(|declaration| declaration.keys()) {
                    if !known.contains(&field.as_str()) {
                        self.say(format!("Unknown name \"{field}\" at a function declaration."));
                    }
                }
                names.push(name.to_owned());
            }
        }
        if tools.is_some() && names.is_empty() {
            self.say("tools without function_declarations");
        }
        names
    }

    fn system(&mut self, system: Option<&Value>) -> String {
        let Some(system) = system else { return String::new() };
        let text = text_of(system);
        if text.is_empty() {
            self.say("systemInstruction must have one or more text parts.");
        }
        text
    }

    fn contents(&mut self, contents: &Value) -> Vec<Value> {
        let Some(contents) = contents.as_array().filter(|contents| !contents.is_empty()) else {
            self.say("contents is not specified");
            return Vec::new();
        };
        for (place, content) in contents.iter().enumerate() {
            let role = content["role"].as_str().unwrap_or_default();
            if role != "user" && role != "model" {
                self.say(format!("Please use a valid role: user, model. (contents[{place}]: {role:?})"));
            }
            let parts = content["parts"].as_array().cloned().unwrap_or_default();
            if parts.is_empty() {
                self.say(format!("contents[{place}].parts must not be empty."));
            }
            for (inner, part) in parts.iter().enumerate() {
                self.part(&format!("contents[{place}].parts[{inner}]"), part);
            }
            let before = place.checked_sub(1).map(|before| &contents[before]);
            let calls = functions(content, "functionCall");
            if !calls.is_empty() && before.is_none_or(|before| before["role"] != "user") {
                self.say("Please ensure that function call turn comes immediately after a user turn or after a function response turn.");
            }
            let answered = functions(content, "functionResponse");
            let called = before.map(|before| functions(before, "functionCall")).unwrap_or_default();
            if answered != called {
                self.say(format!(
                    "contents[{place}]: the function response parts must be equal to the function call parts of the turn before ({answered:?}, {called:?})"
                ));
            }
        }
        if contents.last().is_some_and(|last| !functions(last, "functionCall").is_empty()) {
            self.say("the last function calls have no responses");
        }
        contents.clone()
    }

    fn part(&mut self, at: &str, part: &Value) {
        let kinds = ["text", "functionCall", "functionResponse", "inlineData"];
        if kinds.iter().filter(|kind| part.get(**kind).is_some()).count() != 1 {
            self.say(format!("{at}: required oneof field 'data' must have one initialized field"));
        }
        if let Some(call) = part.get("functionCall") {
            if !call["args"].is_object() {
                self.say(format!("{at}.function_call.args: is not an object"));
            }
            if let Some(signature) = part.get("thoughtSignature")
                && *signature != signed(call["name"].as_str().unwrap_or_default())
                && !signature.as_str().is_some_and(|text| UNSIGNED.contains(&text))
            {
                self.say(format!("{at}: Thought signature is not valid."));
            }
        }
        if let Some(data) = part.get("inlineData") {
            let said = |name: &str| data[name].as_str().unwrap_or_default();
            let fault = image_fault(said("mimeType"), said("data"));
            let gif = said("mimeType") == "image/gif";
            if let Some(fault) = fault.or_else(|| gif.then(|| "Unsupported MIME type: image/gif".to_owned()))
            {
                self.say(format!("{at}.inline_data: {fault}"));
            }
        }
        if let Some(response) = part.get("functionResponse")
            && !response["response"].is_object()
        {
            self.say(format!("{at}.function_response.response: is not an object"));
        }
        let known = ["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"];
        for field in part.as_object().into_iter().flat_map(|part| part.keys()) {
            if !known.contains(&field.as_str()) {
                self.say(format!("Unknown name \"{field}\" at '{at}': Cannot find field."));
            }
        }
    }
}

/// What the API takes from clients that hold no signature for a call, in place of one.
const UNSIGNED: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// The signature that a call's part carries when the model thought about it.
fn signed(function: &str) -> String {
    hex::encode(Sha256::digest(format!("gemini:{function}")))
}

/// What the answer says, part by part; `None` when a call's arguments are no object, which this wire cannot express.
fn parts(answer: &Answer) -> Option<Vec<Value>> {
    let mut parts = Vec::new();
    if let Some(thinking) = &answer.thinking {
        parts.push(json!({"text": thinking, "thought": true}));
    }
    if let Some(text) = &answer.text {
        parts.push(json!({"text": text}));
    }
    for (place, call) in answer.calls.iter().enumerate() {
        let args = serde_json::from_str::<Value>(&call.arguments).ok().filter(Value::is_object)?;
        let mut part = json!({"functionCall": {"name": call.name, "args": args}});
        if place == 0 && answer.thinking.is_some() {
            part["thoughtSignature"] = json!(signed(&call.name));
        }
        parts.push(part);
    }
    Some(parts)
}

fn finish_reason(answer: &Answer) -> &'static str {
    match answer.stop {
        StopFile::End | StopFile::StopSequence | StopFile::Pause | StopFile::ToolCalls => "STOP",
        StopFile::Length => "MAX_TOKENS",
        StopFile::Refusal => "SAFETY",
    }
}

fn reply(answer: &Answer, candidate: Value, with_usage: bool) -> Value {
    let mut reply = json!({
        "candidates": [candidate],
        "modelVersion": answer.model,
        "responseId": format!("gemini-{:024}", answer.number),
    });
    if with_usage {
        let prompt = answer.usage.input + answer.usage.cache_read + answer.usage.cache_write;
        let said = answer.usage.output.saturating_sub(answer.usage.reasoning);
        reply["usageMetadata"] = json!({
            "promptTokenCount": prompt,
            "cachedContentTokenCount": answer.usage.cache_read,
            "candidatesTokenCount": said,
            "thoughtsTokenCount": answer.usage.output - said,
            "totalTokenCount": prompt + answer.usage.output,
        });
    }
    reply
}

fn malformed() -> Value {
    json!({"index": 0, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: print("})
}

fn whole(answer: &Answer) -> Value {
    let candidate = match parts(answer) {
        None => malformed(),
        Some(parts) if parts.is_empty() => json!({"index": 0, "finishReason": finish_reason(answer)}),
        Some(parts) => {
            let content = json!({"role": "model", "parts": parts});
            json!({"index": 0, "finishReason": finish_reason(answer), "content": content})
        }
    };
    reply(answer, candidate, true)
}

fn events(answer: &Answer) -> Vec<SentEvent> {
    let event = |candidate: Value, last: bool| SentEvent {
        name: None,
        data: reply(answer, candidate, last).to_string(),
    };
    let Some(parts) = parts(answer) else { return vec![event(malformed(), true)] };
    let mut sent = Vec::new();
    for part in parts {
        let said = match part["text"].as_str() {
            Some(text) => pieces(text)
                .into_iter()
                .map(|piece| {
                    let mut part = part.clone();
                    part["text"] = json!(piece);
                    part
                })
                .collect(),
            None => vec![part],
        };
        for part in said {
            sent.push(event(json!({"index": 0, "content": {"role": "model", "parts": [part]}}), false));
        }
    }
    sent.push(event(json!({"index": 0, "finishReason": finish_reason(answer)}), true));
    sent
}

fn error(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 429 => "RESOURCE_EXHAUSTED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": word}})
}

fn error_event(status: u16, message: &str) -> SentEvent {
    SentEvent { name: None, data: error(status, message).to_string() }
}
