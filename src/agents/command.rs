//! A program that reads the prompt and answers with its standard output.

use super::program::{CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::message::TokenUsage;

/// Any such program.
pub(super) struct Command;

impl Program for Command {
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        if let Some(entry) = context.entry {
            line.env.push(("AGENTD_MCP_SOCKET", entry.socket.clone()));
        }
    }

    fn output_format(&self, _before: TokenUsage) -> OutputFormat {
        OutputFormat::Answer
    }
}
