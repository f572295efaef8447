//! What the events of all programs have in common: what they say about the launch, and how they are read.

use serde_json::Value;

/// What an event says of the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// It goes on.
    More,
    /// The program is done; nothing that comes after counts.
    Done,
    /// It gave up, and why.
    Failed(String),
}

/// More tokens than any launch uses. Larger figures of a program would overflow sums.
const MOST_TOKENS: u64 = 1 << 40;

/// A count at `at`; 0 where it is none.
pub(super) fn count(event: &Value, at: &str) -> u64 {
    event.pointer(at).and_then(Value::as_u64).unwrap_or(0).min(MOST_TOKENS)
}

/// A text at `at`.
pub(super) fn text(event: &Value, at: &str) -> Option<String> {
    event.pointer(at).and_then(Value::as_str).map(str::to_owned)
}

/// The kind of an event.
pub(super) fn kind(event: &Value) -> &str {
    event.get("type").and_then(Value::as_str).unwrap_or_default()
}
