//! Codex: its command line, and its stream of JSON events.

use serde_json::{Value, json};

use super::events::{Signal, count, kind, text};
use super::permission_request::SERVER;
use super::program::{self, Before, CALL_SECONDS, CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;

/// The program.
pub(super) struct Codex;

impl Program for Codex {
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        let LaunchContext { program, sandboxed, task, entry, variable } = *context;
        line.add(&["exec"]);
        if let Some(resume) = &task.resume {
            line.add(&["resume", resume]);
        }
        line.add(&["--json", "--skip-git-repo-check"]);
        if sandboxed {
            line.add(&["--dangerously-bypass-approvals-and-sandbox"]);
        } else if task.resume.is_none() {
            line.add(&["-s", "workspace-write"]);
        }
        if let Some(entry) = entry {
            // Values are TOML; a JSON text or list of texts is one, too.
            let mut set =
                |key: &str, value: Value| line.add(&["-c", &format!("mcp_servers.{SERVER}.{key}={value}")]);
            set("command", json!(entry.agentd));
            set("args", json!(entry.args()));
            set("tool_timeout_sec", json!(CALL_SECONDS));
            set("default_tools_approval_mode", json!("approve"));
        }
        // Its own provider reads no other address from a variable. Copied settings have their own.
        if let Some(address) = variable("OPENAI_BASE_URL").filter(|_| !context.has_settings(".codex")) {
            line.add(&["-c", &format!("model_provider=\"{SERVER}\"")]);
            let mut set = |key: &str, value: &str| {
                line.add(&["-c", &format!("model_providers.{SERVER}.{key}={}", json!(value))]);
            };
            set("name", SERVER);
            set("base_url", &address);
            set("env_key", "OPENAI_API_KEY");
            set("wire_api", "responses");
        }
        if let Some(model) = &program.model {
            line.add(&["-m", model]);
        }
        line.add(&["-"]);
    }

    fn output_format(&self, before: Before) -> OutputFormat {
        OutputFormat::Events(Box::new(Reader::after(before)))
    }

    fn counts_conversation(&self) -> bool {
        true
    }
}

/// Reads its events. Its counts are those of the whole thread, also of what went before in it.
#[derive(Debug, Default)]
struct Reader {
    before: Before,
}

impl Reader {
    /// A reader for a thread that used `before` already.
    fn after(before: Before) -> Self {
        Self { before }
    }
}

impl program::Reader for Reader {
    fn event(&mut self, event: &Value, progress: &AgentProgress) -> Signal {
        match kind(event) {
            "thread.started" => {
                let thread = text(event, "/thread_id");
                // It could not go on where it was to: its counts are those of a new thread.
                if thread != self.before.conversation {
                    self.before = Before::default();
                }
                progress.tell(|output| output.conversation = thread);
            }
            "turn.started" => progress.tell(|output| output.turns = output.turns.saturating_add(1)),
            "item.completed" if text(event, "/item/type").as_deref() == Some("agent_message") => {
                if let Some(words) = text(event, "/item/text") {
                    progress.tell(|output| output.text = words);
                }
            }
            "turn.completed" => {
                let (input, cached) =
                    (count(event, "/usage/input_tokens"), count(event, "/usage/cached_input_tokens"));
                let written = count(event, "/usage/cache_write_input_tokens");
                let before = self.before.usage;
                let now = TokenUsage::new(
                    input.saturating_sub(cached).saturating_sub(written).saturating_sub(before.input_tokens),
                    count(event, "/usage/output_tokens").saturating_sub(before.output_tokens),
                    cached.saturating_sub(before.cache_read_input_tokens),
                    written.saturating_sub(before.cache_write_input_tokens),
                );
                progress.tell(|output| output.has_used(now));
                return Signal::Done;
            }
            "turn.failed" => return Signal::Failed(reason(event, "/error/message")),
            _ => {}
        }
        Signal::More
    }
}

/// The provider's words may be JSON in a text.
fn reason(event: &Value, at: &str) -> String {
    text(event, at).unwrap_or_else(|| "its turn failed without a reason".to_owned())
}

#[cfg(test)]
mod tests {
    use program::Reader as _;

    use super::*;

    #[test]
    fn counts_of_a_thread_that_goes_on_are_those_of_this_launch() {
        let progress = AgentProgress::default();
        let usage = TokenUsage::new(100, 10, 50, 0);
        let before = Before { conversation: Some("one".into()), usage };
        let mut reader = Reader::after(before.clone());
        let started = |id: &str| json!({"type": "thread.started", "thread_id": id});
        let event = json!({"type": "turn.completed",
            "usage": {"input_tokens": 300, "cached_input_tokens": 80, "output_tokens": 15}});
        reader.event(&started("one"), &progress);
        assert_eq!(reader.event(&event, &progress), Signal::Done);
        assert_eq!(progress.so_far().usage, Some(TokenUsage::new(120, 5, 30, 0)));
        // Another thread has none of that.
        let (mut reader, progress) = (Reader::after(before), AgentProgress::default());
        reader.event(&started("two"), &progress);
        reader.event(&event, &progress);
        assert_eq!(progress.so_far().usage, Some(TokenUsage::new(220, 15, 80, 0)));
    }

    #[test]
    fn a_turn_that_tells_no_tokens_says_nothing_of_what_it_used() {
        for event in [
            json!({"type": "turn.completed"}),
            json!({"type": "turn.completed", "usage": {"input_tokens": 0}}),
        ] {
            let progress = AgentProgress::default();
            assert_eq!(Reader::default().event(&event, &progress), Signal::Done);
            assert_eq!(progress.so_far().usage, None);
        }
    }
}
