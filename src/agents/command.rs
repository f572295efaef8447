//! A program that reads the prompt and answers with its standard output.

use super::program::{Before, CommandLine, LaunchContext, OutputFormat, Program};

/// Any such program.
pub(super) struct Command;

impl Program for Command {
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        if let Some(entry) = context.entry {
            line.env.push(("AGENTD_MCP_SOCKET", entry.socket.clone()));
        }
    }

    fn output_format(&self, _before: Before) -> OutputFormat {
        OutputFormat::Answer
    }
}
