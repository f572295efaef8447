//! Model providers: the wires behind `engine::Model`.
//!
//! One file a wire, each with a `*_wire.rs` twin that holds the provider's own shapes. What they share: `transport` sends
//! and reads within limits, `json` reads what is nearly text, `failure` maps what providers say when they refuse,
//! `calls` and `reasoning` carry what must survive unharmed from a reply to the next request. A new wire is its file, its line
//! below, and its entry in `domain::model_wire`.

use crate::domain::model_wire::ProviderKind;

pub mod providers;
pub mod availability;
mod transport;
mod wire;
mod json;
mod failure;
mod calls;
mod reasoning;
mod anthropic;
mod anthropic_wire;
mod openai;
mod openai_wire;
mod openai_responses;
mod openai_responses_wire;
mod gemini;
mod gemini_wire;

#[doc(hidden)]
pub use failure::retry_after;
pub use providers::{ProviderError, Providers};

/// Who speaks a wire.
fn wire(kind: ProviderKind) -> &'static dyn wire::Wire {
    match kind {
        ProviderKind::Anthropic => &anthropic::Anthropic,
        ProviderKind::Openai => &openai::Openai,
        ProviderKind::OpenaiResponses => &openai_responses::OpenaiResponses,
        ProviderKind::Gemini => &gemini::Gemini,
    }
}

#[cfg(test)]
mod fixtures;
