//! What a wire does: where a request goes, its bytes, and how a reply is put together.

use serde_json::Value;

use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ToolChoice};

/// One wire.
pub(super) trait Wire: Sync {
    /// Path below the base URL (D51).
    fn path(&self, request: &ModelRequest, base_url: &str) -> String;

    /// The request's bytes; the same request gives the same bytes, and a longer conversation the same beginning.
    fn body(&self, request: &ModelRequest, base_url: &str) -> Result<Vec<u8>, serde_json::Error>;

    /// Reads a whole reply.
    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError>;

    /// Begins a reply that comes as a stream.
    fn fold(&self) -> Box<dyn Fold>;
}

/// A reply that is put together from a stream's events.
pub(super) trait Fold: Send {
    /// Takes one event; true when the reply is complete.
    fn event(&mut self, event: &Event) -> Result<bool, ModelError>;

    /// The reply, once the stream is over.
    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError>;
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
