//! The scripted model: one endpoint per provider's wire, fed from one script, strict about the protocol.

pub mod anthropic_wire;
pub mod gemini_wire;
pub mod openai_wire;
pub mod responses_wire;
pub mod script;
mod serve;

use axum::http::HeaderMap;
use base64::Engine as _;
use serde_json::Value;

use super::scenario_file::{StopFile, UsageFile};
use crate::domain::image::ImageKind;

pub use serve::{Arrived, models, paced, serve};

/// One provider's wire: how its requests are read and its answers written. A further wire is a further value.
#[derive(Debug)]
pub struct Wire {
    /// Name in paths and logs.
    pub name: &'static str,
    /// Path below `/model/NAME`, for people.
    pub path: &'static str,
    /// Whether a path below `/model/NAME` takes requests, and what the path itself says.
    pub place: fn(&[&str]) -> Option<Place>,
    /// Path below `/model/NAME` where models are listed.
    pub models: &'static [&'static str],
    /// The list of these models.
    pub list: fn(&[String]) -> Value,
    /// Reads and checks a request.
    pub read: fn(&Post<'_>) -> Result<Asked, Vec<Broken>>,
    /// The API key of a request.
    pub key: fn(&HeaderMap) -> Option<String>,
    /// An answer in one piece.
    pub whole: fn(&Answer) -> Value,
    /// An answer as server-sent events.
    pub events: fn(&Answer) -> Vec<SentEvent>,
    /// An error's body.
    pub error: fn(u16, &str) -> Value,
    /// An error inside a stream.
    pub error_event: fn(u16, &str) -> SentEvent,
}

/// Every wire the simulator speaks.
pub const WIRES: [&Wire; 4] =
    [&anthropic_wire::WIRE, &openai_wire::WIRE, &responses_wire::WIRE, &gemini_wire::WIRE];

/// What a path says of a request, where the body does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Model name.
    pub model: Option<String>,
    /// Whether a stream is wanted.
    pub stream: Option<bool>,
}

/// A request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// What its path says.
    pub place: &'a Place,
    /// Its query.
    pub query: &'a str,
    /// Its body.
    pub body: &'a Value,
}

impl Post<'_> {
    /// The model asked for.
    pub fn model(&self) -> &str {
        self.place.model.as_deref().or(self.body["model"].as_str()).unwrap_or_default()
    }

    /// Whether a stream is wanted.
    pub fn stream(&self) -> bool {
        self.place.stream.or(self.body["stream"].as_bool()).unwrap_or(false)
    }
}

/// What a request asks for, in no provider's words.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Model name.
    pub model: String,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Whether the stream shall end with usage (OpenAI makes it optional).
    pub stream_usage: bool,
    /// Text after the model's last message.
    pub fresh: String,
    /// Text of the whole conversation, system prompt included.
    pub all: String,
    /// Names of the tools on offer.
    pub tools: Vec<String>,
    /// The model's earlier messages plus one.
    pub turn: usize,
}

/// One way in which a request broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

/// A reply, ready to be written on a wire.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Number of the reply, unique.
    pub number: u64,
    /// Model name.
    pub model: String,
    /// Reasoning.
    pub thinking: Option<String>,
    /// Text.
    pub text: Option<String>,
    /// Calls.
    pub calls: Vec<AnsweredCall>,
    /// Why it stops.
    pub stop: StopFile,
    /// Tokens.
    pub usage: UsageFile,
    /// Seconds since 1970.
    pub created: i64,
    /// Whether a stream ends with usage.
    pub stream_usage: bool,
}

/// A call in a reply.
#[derive(Debug, Clone)]
pub struct AnsweredCall {
    /// Call id.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments as text, broken or not.
    pub arguments: String,
}

/// One server-sent event.
#[derive(Debug, Clone)]
pub struct SentEvent {
    /// The `event:` line, where the wire has one.
    pub name: Option<&'static str>,
    /// The `data:` line.
    pub data: String,
}

impl SentEvent {
    /// The event's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data).into_bytes(),
            None => format!("data: {}\n\n", self.data).into_bytes(),
        }
    }
}

/// Cuts a text into the small pieces that streams are made of.
pub fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(24).map(|piece| piece.iter().collect()).collect()
}

/// What is wrong with an image: its bytes must be of the type that it is said to be.
pub fn image_fault(media_type: &str, base64: &str) -> Option<String> {
    let bytes = match base64::engine::general_purpose::STANDARD.decode(base64) {
        Ok(bytes) => bytes,
        Err(error) => return Some(format!("invalid base64 data: {error}")),
    };
    match ImageKind::of(&bytes) {
        None => Some("Could not process image".to_owned()),
        Some(kind) if kind.media_type() != media_type => {
            Some(format!("the image appears to be {}, but {media_type} was said", kind.media_type()))
        }
        Some(_) => None,
    }
}

/// The same for an address that holds the whole of an image.
pub fn image_url_fault(url: &str) -> Option<String> {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((media_type, base64)) => image_fault(media_type, base64),
        None => Some("only images in the address itself are taken here".to_owned()),
    }
}

/// Whether a tool's name is one both providers accept.
pub fn tool_name_is_valid(name: &str, longest: usize) -> bool {
    !name.is_empty()
        && name.len() <= longest
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// What is wrong with a tool's parameters schema, if anything.
pub fn schema_fault(schema: &Value) -> Option<&'static str> {
    let Some(object) = schema.as_object() else { return Some("is not an object") };
    if object.get("type").and_then(Value::as_str) != Some("object") {
        return Some("has no `type: \"object\"` at its root");
    }
    if object.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Some("has `properties` that are not an object");
    }
    None
}
