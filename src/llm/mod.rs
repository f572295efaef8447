//! Model providers: the wires behind `engine::Model`.
//!
//! One file a wire, each with a `*_wire.rs` twin that holds the provider's own shapes. What they share: `transport` sends
//! and reads within limits, `json` reads what is nearly text, `sse` cuts a stream into events, `failure` maps what providers say when they refuse,
//! `calls` and `reasoning` carry what must survive unharmed from a reply to the next request.

pub mod providers;
pub mod availability;
mod transport;
mod json;
mod failure;
mod sse;
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
