//! The journal's line format (D40): one JSON object a line, chained by hash.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::domain::canonical::{Texts, canonical_json, finished, sha256_hex};
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

/// A line as its hash covers it.
#[derive(Serialize)]
struct Unsealed<'a> {
    data: &'a Value,
    kind: &'a str,
    prev: &'a str,
    run_id: RunId,
    seq: u64,
    ts: i64,
}

/// Puts the line of an event behind `out`, as the successor of the line with the hash `prev`, and gives its own hash.
pub fn seal(
    (seq, ts, run_id): (u64, i64, RunId),
    event: &Texts,
    prev: &str,
    out: &mut Vec<u8>,
) -> Result<String, String> {
    let (Some(content), Some(covered)) = (inside(event.plain()), inside(event.canonical())) else {
        return Err("an event is an object".into());
    };
    if !content.starts_with(b"\"kind\":\"") {
        return Err("an event begins with its kind".into());
    }
    // An event without content has an empty one.
    let (data, covered_data) = match covered.starts_with(b"\"data\":") {
        true => ("", ""),
        false => (",\"data\":{}", "\"data\":{},"),
    };
    let mut rest = String::with_capacity(256);
    let written = write!(rest, ",\"prev\":\"{prev}\",\"run_id\":\"{run_id}\",\"seq\":{seq},\"ts\":{ts}}}");
    written.map_err(|error| error.to_string())?;
    let covered = [prev.as_bytes(), b"{", covered_data.as_bytes(), covered, rest.as_bytes()];
    let hash = finished(covered.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)));
    rest.clear();
    let written = write!(rest, "{{\"seq\":{seq},\"ts\":{ts},\"run_id\":\"{run_id}\",");
    written.map_err(|error| error.to_string())?;
    let line: [&[u8]; 8] = [
        rest.as_bytes(),
        content,
        data.as_bytes(),
        b",\"prev\":\"",
        prev.as_bytes(),
        b"\",\"hash\":\"",
        hash.as_bytes(),
        b"\"}\n",
    ];
    for part in line {
        out.extend_from_slice(part);
    }
    Ok(hash)
}

/// The ledger's line of an event that has one, as it stands in the event's own text.
pub fn ledger_entry(event: &Texts) -> Option<&[u8]> {
    let text = event.plain();
    let entry =
        |kind: &[u8]| text.strip_prefix(kind)?.strip_prefix(b"\"data\":{\"entry\":")?.strip_suffix(b"}}");
    entry(b"{\"kind\":\"llm_attempted\",").or_else(|| entry(b"{\"kind\":\"tool_finished\","))
}

/// An object's text without its braces.
fn inside(object: &[u8]) -> Option<&[u8]> {
    object.strip_prefix(b"{")?.strip_suffix(b"}")
}

impl JournalLine {
    fn expected_hash(&self) -> Result<String, String> {
        let Self { seq, ts, run_id, kind, data, prev, hash: _ } = self;
        let unsealed = Unsealed { data, kind, prev, run_id: *run_id, seq: *seq, ts: *ts };
        let canonical = canonical_json(&unsealed).map_err(|error| error.to_string())?;
        Ok(sha256_hex(format!("{prev}{canonical}").as_bytes()))
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_sealed_line_reads_back_as_what_it_was_made_of() {
        let run = RunId(Uuid::from_u128(5));
        let events = [
            json!({ "kind": "a", "data": { "z": 1.0, "b": "\u{7}\"", "a": [1, null] } }),
            json!({ "kind": "b" }),
            json!({ "kind": "c", "data": {} }),
        ];
        let mut prev = GENESIS.to_owned();
        for (index, event) in events.iter().enumerate() {
            let seq = index as u64 + 1;
            let (mut texts, mut line) = (Texts::default(), Vec::new());
            texts.write(event).unwrap();
            let hash = seal((seq, -3, run), &texts, &prev, &mut line).unwrap();
            let text = String::from_utf8(line).unwrap();
            let read = JournalLine::read(text.trim_end(), seq, seq, &prev).unwrap();
            assert_eq!(
                (read.kind.as_str(), read.ts, read.run_id),
                (event["kind"].as_str().unwrap(), -3, run)
            );
            assert_eq!(read.data, event.get("data").cloned().unwrap_or_else(|| json!({})));
            assert_eq!(
                serde_json::to_string(&read).unwrap() + "\n",
                text,
                "members in the order of the type"
            );
            prev = hash;
        }
    }
}
