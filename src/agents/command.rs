//! A program that reads the prompt and answers with its standard output.

use super::program::{CommandLine, Program, Talk, Told};
use crate::domain::message::TokenUsage;

/// Any such program.
pub(super) struct Command;

impl Program for Command {
    fn command_line(&self, line: &mut CommandLine, told: &Told<'_>) {
        if let Some(entry) = told.entry {
            line.env.push(("AGENTD_MCP_SOCKET", entry.socket.clone()));
        }
    }

    fn talk(&self, _before: TokenUsage) -> Talk {
        Talk::Answer
    }
}
