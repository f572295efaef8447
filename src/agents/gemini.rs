//! Gemini CLI: its command line, and its stream of JSON events.

use serde_json::{Value, json};

use super::events::{Signal, count, kind, text};
use super::permission_request::SERVER;
use super::program::{self, Before, CALL_SECONDS, CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;

/// The program.
pub(super) struct Gemini;

impl Program for Gemini {
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        let LaunchContext { program, sandboxed, task, entry, variable } = *context;
        let mode = if sandboxed { "yolo" } else { "auto_edit" };
        line.add(&["-o", "stream-json", "--skip-trust", "--approval-mode", mode]);
        if let Some(entry) = entry {
            // Settings of the system go before the user's and are merged with them.
            let server = json!({
                "command": entry.agentd, "args": entry.args(), "trust": true, "timeout": u64::from(CALL_SECONDS) * 1000,
            });
            let mut settings = json!({"mcpServers": {SERVER: server}});
            if variable("GEMINI_API_KEY").is_some() && !context.has_settings(".gemini") {
                settings["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
            }
            let path = line.file(entry, "gemini-settings.json", settings);
            line.env.push(("GEMINI_CLI_SYSTEM_SETTINGS_PATH", path));
        }
        if let Some(model) = &program.model {
            line.add(&["-m", model]);
        }
        if let Some(resume) = &task.resume {
            line.add(&["--resume", resume]);
        }
        line.add(&["-p", "The task is above."]);
    }

    fn output_format(&self, _before: Before) -> OutputFormat {
        OutputFormat::Events(Box::new(Reader::default()))
    }
}

/// Reads its events. Its words come in pieces; those after the last use of a tool are the last words.
#[derive(Debug, Default)]
struct Reader {
    after_tool: bool,
}

impl program::Reader for Reader {
    fn event(&mut self, event: &Value, progress: &AgentProgress) -> Signal {
        match kind(event) {
            "init" => progress.tell(|output| {
                output.conversation = text(event, "/session_id");
                output.model = text(event, "/model");
            }),
            "tool_use" => self.after_tool = true,
            "message" if text(event, "/role").as_deref() == Some("assistant") => {
                let fresh = std::mem::take(&mut self.after_tool);
                let words = text(event, "/content").unwrap_or_default();
                progress.tell(|output| {
                    if fresh {
                        output.text.clear();
                    }
                    output.text.push_str(&words);
                });
            }
            "result" => {
                let (input, cached) = (count(event, "/stats/input_tokens"), count(event, "/stats/cached"));
                let used = TokenUsage::new(
                    input.saturating_sub(cached),
                    count(event, "/stats/output_tokens"),
                    cached,
                    0,
                );
                progress.tell(|output| {
                    output.has_used(used);
                    output.turns = output.turns.max(1);
                });
                if text(event, "/status").as_deref() == Some("error") {
                    let why = text(event, "/error/message").or_else(|| text(event, "/error"));
                    return Signal::Failed(why.unwrap_or_else(|| "it ended with an error".to_owned()));
                }
                return Signal::Done;
            }
            _ => {}
        }
        Signal::More
    }
}

#[cfg(test)]
mod tests {
    use program::Reader as _;

    use super::*;

    #[test]
    fn pieces_after_the_last_tool_are_the_last_words() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let said =
            |words: &str| json!({"type": "message", "role": "assistant", "content": words, "delta": true});
        for event in [said("I look"), json!({"type": "tool_use"}), said("All "), said("done")] {
            reader.event(&event, &progress);
        }
        let result = json!({"type": "result", "status": "success", "stats": {"input_tokens": 100, "cached": 40, "output_tokens": 7}});
        assert_eq!(reader.event(&result, &progress), Signal::Done);
        assert_eq!(progress.so_far().text, "All done");
        assert_eq!(progress.so_far().usage, Some(TokenUsage::new(60, 7, 40, 0)));
    }
}
