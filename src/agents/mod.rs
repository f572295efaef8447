//! Agent programs that people already have, driven as the backend of a step.
//!
//! `launch` starts one and keeps it within its limits; `tool_bridge` and `tool_server` bring it agentd's own tools; the
//! other files know what each program is told and what its events mean. None of them decides anything: git shows what a
//! program did; the gate and the sandbox decide what it may do.

pub mod tool_bridge;
pub mod launch;
mod tool_server;
pub mod permission_request;
mod lines;
mod command_line;
mod events;
mod acp;
mod claude_code;
mod codex;
mod gemini;
mod opencode;
mod reader;
mod replay;

pub use replay::read_output;
