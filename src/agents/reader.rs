//! What a line of a program means, whichever program it is.

use serde_json::Value;

use super::events::Heard;
use super::{claude_code, codex, gemini, opencode};
use crate::domain::agent_program::Backend;
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;

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
    /// The reader of a backend that sends events; `before` is what Codex has already counted.
    pub(super) fn of(backend: Backend, before: TokenUsage) -> Option<Self> {
        Some(match backend {
            Backend::ClaudeCode => Self::ClaudeCode(claude_code::Reader::default()),
            Backend::Codex => Self::Codex(codex::Reader::after(before)),
            Backend::Gemini => Self::Gemini(gemini::Reader::default()),
            Backend::OpenCode => Self::OpenCode(opencode::Reader::default()),
            Backend::Command | Backend::Acp => return None,
        })
    }

    /// Reads one line. A line that is not a JSON object is ignored.
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
