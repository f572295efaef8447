//! What a wire does: where a request goes, its bytes, and how a reply is put together.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::domain::image::Image;
use crate::domain::message::{Message, TokenUsage};
use crate::domain::money::Money;
use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, Spent, ToolChoice};

/// One wire.
pub(super) trait Wire: Sync {
    /// Path below the base URL (D51).
    fn path(&self, request: &ModelRequest, base_url: &str) -> String;

    /// The request's bytes; the same request gives the same bytes, and a longer conversation the same beginning.
    fn body(&self, request: &ModelRequest, base_url: &str) -> Result<Vec<u8>, serde_json::Error>;

    /// What a whole reply says that it cost, whatever else is in it.
    fn spent(&self, reply: &Value) -> Spent;

    /// Reads a whole reply.
    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError>;

    /// Begins a reply that comes as a stream.
    fn fold(&self) -> Box<dyn Fold>;
}

/// A reply that is put together from a stream's events.
pub(super) trait Fold: Send {
    /// Takes one event; true when the reply is complete.
    fn event(&mut self, event: &Event) -> Result<bool, ModelError>;

    /// What the reply has cost so far, as far as it has said so.
    fn spent(&self) -> Spent;

    /// Bytes of what the model wrote so far: text, thoughts, arguments of calls.
    fn written(&self) -> usize;

    /// The reply, once the stream is over.
    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError>;
}

/// What a reply cost that says this, and has begun or not; a reply that says nothing and has not begun cost nothing.
pub(super) fn spent(began: bool, usage: Option<TokenUsage>, cost: Option<Money>) -> Spent {
    let usage = usage.filter(|usage| usage.total_tokens > 0);
    match began || usage.is_some() || cost.is_some() {
        true => Spent::Reply { usage, cost },
        false => Spent::Nothing,
    }
}

/// Bytes of the texts in a value, with their names where it has several.
pub(super) fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(fields) => fields.values().map(bytes_of).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The wire's word for a choice among tools that are named; `None` = the usual one, which is not sent.
pub(super) fn tool_choice(
    request: &ModelRequest,
    required: &'static str,
    none: &'static str,
) -> Option<&'static str> {
    match request.tool_choice {
        ToolChoice::Required if !request.tools.is_empty() => Some(required),
        ToolChoice::None if !request.tools.is_empty() => Some(none),
        _ => None,
    }
}

/// The file of an image in the letters of base64.
pub(super) fn base64(image: &Image) -> String {
    STANDARD.encode(&image.bytes)
}

/// An image as an address that holds the whole of it.
pub(super) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.kind.media_type(), base64(image))
}

/// Said by the user where a protocol begins with one and the messages do not.
pub(super) const NOT_SHOWN: &str = "(What was said before is not shown.)";

/// The images that stand before the text of a message: those of the request before the first thing that a user says.
pub(super) fn images_before<'a>(request: &'a ModelRequest, message: &Message) -> &'a [Image] {
    let first = request.messages.iter().find(|message| matches!(message, Message::User { .. }));
    match first.is_some_and(|first| std::ptr::eq(first, message)) {
        true => &request.images,
        false => &[],
    }
}
