//! What a server answers to a message that it was asked to keep.

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// The answer: where the message is, or why it is not.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    /// The message's sequence in its stream.
    #[serde(default)]
    pub seq: u64,
    /// Why it was not kept.
    pub error: Option<Refusal>,
}

/// Why a message was not kept.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    /// Which error exactly.
    #[serde(default)]
    pub err_code: u32,
    /// In the server's words.
    #[serde(default)]
    pub description: String,
}

/// Of an answer about a stream, when it was given.
#[derive(Debug, Deserialize)]
pub(super) struct Timed {
    /// By the server's clock; servers since 2.10 say it.
    pub ts: Option<DateTime<Utc>>,
}
