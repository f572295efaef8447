//! OpenCode: its command line, and its stream of JSON events.

use serde_json::{Value, json};

use super::events::{Signal, count, dollars, kind, text};
use super::permission_request::SERVER;
use super::program::{self, Before, CALL_SECONDS, CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::message::TokenUsage;
use crate::domain::money::Money;
use crate::engine::agent_output::AgentProgress;

/// The program.
pub(super) struct OpenCode;

impl Program for OpenCode {
    fn ends_without_a_word(&self) -> bool {
        true
    }

    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        let LaunchContext { program, sandboxed, task, entry, variable } = *context;
        line.add(&["run", "--format", "json"]);
        if sandboxed {
            line.add(&["--auto"]);
        }
        if let Some(entry) = entry {
            let command: Vec<&str> = [entry.agentd.as_str()].into_iter().chain(entry.args()).collect();
            let timeout = u64::from(CALL_SECONDS) * 1000;
            let server = json!({"type": "local", "command": command, "enabled": true, "timeout": timeout});
            let mut config = json!({"mcp": {SERVER: server}, "permission": {format!("{SERVER}_*"): "allow"}});
            for (provider, variables, below) in [("anthropic", "ANTHROPIC", "/v1"), ("openai", "OPENAI", "")]
            {
                let key = format!("{{env:{variables}_API_KEY}}");
                let Some(address) = variable(&format!("{variables}_BASE_URL")) else { continue };
                let options = json!({"baseURL": format!("{address}{below}"), "apiKey": key});
                config["provider"][provider] = json!({"options": options});
                let model = program
                    .model
                    .as_deref()
                    .and_then(|model| model.strip_prefix(provider)?.strip_prefix('/'));
                if let Some(model) = model {
                    config["provider"][provider]["models"] = json!({model: {}});
                }
            }
            // The user's own settings may come by one of the two ways; they are merged.
            if program.environment.iter().any(|name| name == "OPENCODE_CONFIG") {
                line.env.push(("OPENCODE_CONFIG_CONTENT", config.to_string()));
            } else {
                let path = line.file(entry, "opencode.json", config);
                line.env.push(("OPENCODE_CONFIG", path));
            }
        }
        if let Some(model) = &program.model {
            line.add(&["-m", model]);
        }
        if let Some(resume) = &task.resume {
            line.add(&["-s", resume]);
        }
    }

    fn output_format(&self, _before: Before) -> OutputFormat {
        OutputFormat::Events(Box::new(Reader::default()))
    }
}

/// Reads its events. Each step reports its own tokens and money; the program ends by itself.
#[derive(Debug, Default)]
struct Reader {
    used: TokenUsage,
    cost: Option<Money>,
}

impl program::Reader for Reader {
    fn event(&mut self, event: &Value, progress: &AgentProgress) -> Signal {
        if let Some(id) = text(event, "/sessionID") {
            progress.tell(|output| output.conversation = Some(id));
        }
        match kind(event) {
            "step_start" => progress.tell(|output| {
                output.turns = output.turns.saturating_add(1);
                output.text.clear();
            }),
            "text" => {
                let words = text(event, "/part/text").unwrap_or_default();
                progress.tell(|output| output.text.push_str(&words));
            }
            "step_finish" => {
                let of = |name: &str| count(event, &format!("/part/tokens/{name}"));
                let step = TokenUsage::new(
                    of("input"),
                    of("output").saturating_add(of("reasoning")),
                    of("cache/read"),
                    of("cache/write"),
                );
                self.used = self.used.plus(step);
                // A model without a price counts as free there: that says nothing.
                if let Some(cost) = dollars(event, "/part/cost").filter(|cost| !cost.is_zero()) {
                    self.cost = Some(self.cost.unwrap_or_default() + cost);
                }
                progress.tell(|output| {
                    output.has_used(self.used);
                    output.cost = self.cost;
                });
            }
            "error" => {
                // It may try again. Its report is what it says after that.
                progress.tell(|output| output.text.clear());
                let why = ["/error/data/message", "/error/message", "/error/name"];
                let why = why.into_iter().find_map(|at| text(event, at));
                return Signal::Failed(why.unwrap_or_else(|| "it ended with an error".to_owned()));
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
    fn steps_add_up_and_the_last_step_has_the_last_words() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let finish = json!({"type": "step_finish", "part": {"cost": 0.01,
            "tokens": {"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 4}}}});
        let start = json!({"type": "step_start", "sessionID": "ses_1"});
        let said = |words: &str| json!({"type": "text", "part": {"text": words}});
        for event in [start.clone(), said("looking"), finish.clone(), start, said("done"), finish] {
            assert_eq!(reader.event(&event, &progress), Signal::More);
        }
        let all = progress.so_far();
        assert_eq!((all.text.as_str(), all.turns), ("done", 2));
        assert_eq!(all.usage, Some(TokenUsage::new(10, 6, 6, 8)));
        assert_eq!(all.cost, Some(Money::from_micros(20_000)));
        assert_eq!(all.conversation.as_deref(), Some("ses_1"));
    }
}
