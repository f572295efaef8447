//! The journal's line format (D40): one JSON object a line, chained by hash.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::canonical::{canonical_json, sha256_hex};
use crate::domain::event::Event;
use crate::domain::run::RunId;

/// `prev` of the first line.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalLine {
    /// 1-based, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: i64,
    /// The run.
    pub run_id: RunId,
    /// Kind of event.
    pub kind: String,
    /// The event's content.
    pub data: Value,
    /// Hash of the line before.
    pub prev: String,
    /// SHA-256 over `prev` as text followed by the RFC 8785 form of this line without `hash`.
    pub hash: String,
}

/// Why a line is not what it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not a journal line.
    #[error("line {line} is not a journal line: {message}")]
    Malformed {
        /// 1-based line of the file.
        line: u64,
        /// The parser's words.
        message: String,
    },
    /// The chain is broken here.
    #[error("line {line} breaks the hash chain: {what}")]
    Broken {
        /// 1-based line of the file.
        line: u64,
        /// What differs.
        what: &'static str,
    },
}

impl JournalLine {
    /// Seals an event as the successor of `prev`.
    pub fn seal(seq: u64, ts: i64, run_id: RunId, event: Value, prev: String) -> Result<Self, String> {
        let Value::Object(mut tagged) = event else { return Err("an event is an object".into()) };
        let Some(Value::String(kind)) = tagged.remove("kind") else {
            return Err("an event has a kind".into());
        };
        let data = tagged.remove("data").unwrap_or_else(|| Value::Object(Map::new()));
        let mut line = Self { seq, ts, run_id, kind, data, prev, hash: String::new() };
        line.hash = line.expected_hash()?;
        Ok(line)
    }

    fn expected_hash(&self) -> Result<String, String> {
        let unsealed = serde_json::json!({
            "seq": self.seq, "ts": self.ts, "run_id": self.run_id, "kind": self.kind, "data": self.data, "prev": self.prev,
        });
        let canonical = canonical_json(&unsealed).map_err(|error| error.to_string())?;
        Ok(sha256_hex(format!("{}{canonical}", self.prev).as_bytes()))
    }

    /// Reads one line of text and checks it against its predecessor's hash and sequence.
    pub fn read(text: &str, line: u64, seq: u64, prev: &str) -> Result<Self, LineError> {
        let read: Self = serde_json::from_str(text)
            .map_err(|error| LineError::Malformed { line, message: error.to_string() })?;
        if read.seq != seq {
            return Err(LineError::Broken { line, what: "seq does not follow" });
        }
        if read.prev != prev {
            return Err(LineError::Broken { line, what: "prev is not the hash of the line before" });
        }
        match read.expected_hash() {
            Ok(hash) if hash == read.hash => Ok(read),
            _ => Err(LineError::Broken { line, what: "hash does not match the content" }),
        }
    }

    /// The event, or `None` for a kind of a newer version.
    pub fn event(&self) -> Option<Event> {
        let tagged = serde_json::json!({ "kind": self.kind, "data": self.data });
        serde_json::from_value(tagged).ok()
    }
}
