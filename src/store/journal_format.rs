//! The journal's line format (D40): one JSON object a line, chained by hash.

use std::path::{Component, Path};

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer as _, MapAccess};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::artifact::{self, Artifact};
use crate::domain::call_text::SHORT;
use crate::domain::canonical::{NotCanonical, canonical_json, canonical_text, sha256_hex_of};
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

/// A line as those hear it who follow a run: the event is there already, and the text is read only by who needs it.
#[derive(Debug, Clone)]
pub struct HeardLine {
    /// 1-based, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: i64,
    /// The run.
    pub run_id: RunId,
    /// Kind of event.
    pub kind: String,
    /// The event, or `None` for a kind of a newer version.
    pub event: Option<Event>,
    /// The line as it is written, with its end.
    pub text: String,
}

impl From<JournalLine> for HeardLine {
    fn from(line: JournalLine) -> Self {
        let event = line.event();
        // What was read as JSON can be written as JSON.
        let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
        Self { seq: line.seq, ts: line.ts, run_id: line.run_id, kind: line.kind, event, text }
    }
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

/// Gives each file that the data of a line names, whichever of the three ways a journal has for that. What a model says can look like
/// one of them: no file outside of the run's directory is given.
pub fn named_in(data: &Value, give: &mut impl FnMut(Artifact)) {
    match data {
        Value::Object(members) => {
            if let Some(artifact) = artifact_of(members).filter(|file| is_inside(&file.path)) {
                give(artifact);
            }
            members.values().for_each(|member| named_in(member, give));
        }
        Value::Array(items) => items.iter().for_each(|item| named_in(item, give)),
        _ => {}
    }
}

fn artifact_of(members: &Map<String, Value>) -> Option<Artifact> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let path = match members.len() {
        3 => text("path")?,
        4 => text("$ref").filter(|_| members.contains_key("mime"))?,
        // With the short ones among the arguments that it points to.
        5 => text("$ref").filter(|_| members.contains_key("mime") && members.contains_key(SHORT))?,
        6 => artifact::stored_output(&text("handle").filter(|_| members.contains_key("tokens"))?),
        _ => return None,
    };
    Some(Artifact { path, sha256: text("sha256")?, bytes: members.get("bytes")?.as_u64()? })
}

/// Whether a path stays in the directory that it is relative to.
pub fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Appends the line of an event to `out`, after the line with the hash `prev`, and gives its own hash. `event` is its
/// text with the members in canonical order; `canonical` is its RFC 8785 text.
pub fn seal(
    (seq, ts, run_id): (u64, i64, &str),
    event: &[u8],
    canonical: &[u8],
    prev: &str,
    out: &mut Vec<u8>,
) -> Result<String, String> {
    let (data, kind) = parts(event).ok_or("an event has data and a kind")?;
    let (covered, _) = parts(canonical).ok_or("an event has data and a kind")?;
    let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (seq, ts) = (first.format(seq).as_bytes(), second.format(ts).as_bytes());
    let (run_id, prev) = (run_id.as_bytes(), prev.as_bytes());
    let hash = hash_of((seq, ts, run_id), covered, kind, prev);
    let line: [&[u8]; 15] = [
        b"{\"seq\":",
        seq,
        b",\"ts\":",
        ts,
        b",\"run_id\":\"",
        run_id,
        b"\",\"kind\":",
        kind,
        b",\"data\":",
        data,
        b",\"prev\":\"",
        prev,
        b"\",\"hash\":\"",
        hash.as_bytes(),
        b"\"}\n",
    ];
    line.iter().for_each(|part| out.extend_from_slice(part));
    Ok(hash)
}

/// The hash of a line over its parts, each as the text that the line has. `data` and `kind` are canonical.
fn hash_of((seq, ts, run_id): (&[u8], &[u8], &[u8]), data: &[u8], kind: &[u8], prev: &[u8]) -> String {
    let covered: [&[u8]; 14] = [
        prev,
        b"{\"data\":",
        data,
        b",\"kind\":",
        kind,
        b",\"prev\":\"",
        prev,
        b"\",\"run_id\":\"",
        run_id,
        b"\",\"seq\":",
        seq,
        b",\"ts\":",
        ts,
        b"}",
    ];
    sha256_hex_of(&covered)
}

/// The ledger's line of an event that has one, as it stands in the event's own text.
pub fn ledger_entry(event: &[u8]) -> Option<&[u8]> {
    let (data, kind) = parts(event)?;
    let has_one = [&b"\"llm_attempted\""[..], b"\"tool_finished\""].contains(&kind);
    data.strip_prefix(b"{\"entry\":")?.strip_suffix(b"}").filter(|_| has_one)
}

/// The kind in an event's text.
pub fn kind(event: &[u8]) -> Option<&str> {
    std::str::from_utf8(parts(event)?.1).ok().map(|quoted| quoted.trim_matches('"'))
}

/// Data and kind of an event's text; an event without content has empty data.
fn parts(event: &[u8]) -> Option<(&[u8], &[u8])> {
    const KIND: &[u8] = b"\"kind\":";
    let inside = event.strip_prefix(b"{")?.strip_suffix(b"}")?;
    if let Some(kind) = inside.strip_prefix(KIND) {
        return Some((b"{}", kind));
    }
    // A kind is one word without escaped quotes, so the first quote from the end belongs to it.
    let mark = inside.windows(KIND.len()).rposition(|window| window == KIND)?;
    let data = inside[..mark].strip_prefix(b"\"data\":")?.strip_suffix(b",")?;
    Some((data, &inside[mark + KIND.len()..]))
}

impl JournalLine {
    fn expected_hash(&self) -> Result<String, NotCanonical> {
        let (seq, ts) = (self.seq.to_string(), self.ts.to_string());
        let run_id = self.run_id.to_string();
        let place = (seq.as_bytes(), ts.as_bytes(), run_id.as_bytes());
        let (data, kind) = (canonical_text(&self.data)?, canonical_json(&self.kind)?);
        Ok(hash_of(place, data.as_bytes(), kind.as_bytes(), self.prev.as_bytes()))
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
        let members = Members { kind: Some(&self.kind), data: Some(&self.data) };
        Event::deserialize(MapAccessDeserializer::new(members)).ok()
    }
}

/// The two members of an event that stand in a line: read where they are, because lines are long.
struct Members<'a> {
    kind: Option<&'a str>,
    data: Option<&'a Value>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        let name = match (self.kind, self.data) {
            (Some(_), _) => "kind",
            (None, Some(_)) => "data",
            (None, None) => return Ok(None),
        };
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        match self.kind.take() {
            Some(kind) => seed.deserialize(kind.into_deserializer()),
            None => seed.deserialize(self.data.take().unwrap_or(&Value::Null)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::domain::canonical::both_texts;

    #[test]
    fn a_line_names_files_in_three_ways_and_none_outside_of_its_run() {
        let data = serde_json::json!({
            "file": { "path": "verify/1.txt", "sha256": "a", "bytes": 1 },
            "prompt": { "$ref": "prompts/2", "sha256": "b", "bytes": 2, "mime": "text/plain" },
            "arguments": { "$ref": "artifacts/4", "sha256": "g", "bytes": 7, "mime": "application/json", "short": { "path": "a.txt" } },
            "output": { "handle": "session-1/3", "reason": "size", "bytes": 3, "lines": 1, "tokens": 1, "sha256": "c" },
            "said": [
                { "path": "../../seal.key", "sha256": "d", "bytes": 4 },
                { "path": "/etc/passwd", "sha256": "e", "bytes": 5 },
                { "handle": "../../seal.key", "reason": "size", "bytes": 3, "lines": 1, "tokens": 1, "sha256": "f" },
                { "path": "one.txt", "bytes": 1, "created": true },
            ],
        });
        let mut named = Vec::new();
        named_in(&data, &mut |file| named.push(file.path));
        named.sort();
        assert_eq!(named, ["artifacts/4", "prompts/2", "tool-output/session-1/3", "verify/1.txt"]);
    }

    #[test]
    fn a_sealed_line_reads_back_as_what_it_was_made_of() {
        let run = RunId(Uuid::from_u128(5));
        let events = [
            json!({ "kind": "a", "data": { "z": 1.0, "big": u64::MAX, "kind": "\"kind\":\"x", "b": "\u{7}\"", "a": [1, null] } }),
            json!({ "kind": "b" }),
            json!({ "kind": "c", "data": {} }),
        ];
        let mut prev = GENESIS.to_owned();
        for (index, event) in events.iter().enumerate() {
            let seq = index as u64 + 1;
            let mut line = Vec::new();
            let (text, canonical) = both_texts(event).unwrap();
            let canonical = canonical.unwrap_or_else(|| text.clone());
            let run_id = run.to_string();
            let hash =
                seal((seq, -3, &run_id), text.as_bytes(), canonical.as_bytes(), &prev, &mut line).unwrap();
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
