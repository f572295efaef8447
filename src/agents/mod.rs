//! Agent programs that people already have, driven as the backend of a step.
//!
//! `launch` starts one and keeps it within its limits; `tool_bridge`, `tool_server` and `tool_wire` bring it agentd's own tools; the
//! other files know what each program is told and what its events mean. None of them decides anything: git shows what a
//! program did; the gate and the sandbox decide what it may do.

pub mod tool_bridge;
pub mod launch;
mod tool_server;
mod tool_wire;
pub mod permission_request;
mod lines;
mod command;
mod program;
mod entry;
mod events;
mod acp;
mod acp_requests;
mod claude_code;
mod codex;
mod gemini;
mod opencode;
mod replay;

use crate::domain::agent_program::Backend;

pub use replay::read_output;

/// Who knows a backend's program.
fn program(backend: Backend) -> &'static dyn program::Program {
    match backend {
        Backend::Command => &command::Command,
        Backend::ClaudeCode => &claude_code::ClaudeCode,
        Backend::Codex => &codex::Codex,
        Backend::Gemini => &gemini::Gemini,
        Backend::OpenCode => &opencode::OpenCode,
        Backend::Acp => &acp::Acp,
    }
}
