//! What a line of a program means, whichever program it is.

use serde_json::Value;

use super::{claude_code, codex, gemini, opencode};
use crate::domain::agent_program::Backend;
use crate::domain::message::TokenUsage;
use crate::engine::agent_said::AgentProgress;

/// What an event says of the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// It goes on.
    More,
    /// The program is done; nothing that comes after counts.
    Done,
    /// It gave up, and why.
    Failed(String),
}

/// The reader of one launch.
#[derive(Debug)]
pub(super) enum Reader {
    /// Claude Code.
    ClaudeCode(claude_code::Reader),
    /// Codex.
    Codex(codex::Reader),
    /// Gemini CLI.
    Gemini(gemini::Reader),
    /// OpenCode.
    OpenCode(opencode::Reader),
}

impl Reader {
    /// The reader of a backend that tells events; `before` is what Codex counted already.
    pub(super) fn of(backend: Backend, before: TokenUsage) -> Option<Self> {
        Some(match backend {
            Backend::ClaudeCode => Self::ClaudeCode(claude_code::Reader::default()),
            Backend::Codex => Self::Codex(codex::Reader::after(before)),
            Backend::Gemini => Self::Gemini(gemini::Reader::default()),
            Backend::OpenCode => Self::OpenCode(opencode::Reader::default()),
            Backend::Command | Backend::Acp => return None,
        })
    }

    /// Reads one line. What is no JSON object is a program's chatter and says nothing.
    pub(super) fn line(&mut self, line: &str, progress: &AgentProgress) -> Heard {
        let Ok(event @ Value::Object(_)) = serde_json::from_str::<Value>(line) else { return Heard::More };
        match self {
            Self::ClaudeCode(reader) => reader.event(&event, progress),
            Self::Codex(reader) => reader.event(&event, progress),
            Self::Gemini(reader) => reader.event(&event, progress),
            Self::OpenCode(reader) => reader.event(&event, progress),
        }
    }
}

/// More tokens than any launch uses: a program's figures are not to be trusted with a sum.
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
