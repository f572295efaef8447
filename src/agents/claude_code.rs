//! Claude Code: its command line, and its stream of JSON events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::events::{Signal, count, dollars, kind, text};
use super::permission_request::{self, PERMISSION, SERVER};
use super::program::{self, Before, CALL_SECONDS, CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::agent_program::Permissions;
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;
use crate::engine::agent_tools::PermissionRequest;

/// The program.
pub(super) struct ClaudeCode;

impl Program for ClaudeCode {
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>) {
        let LaunchContext { program, task, entry, .. } = *context;
        line.add(&["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]);
        if let Some(entry) = entry {
            let server = json!({"type": "stdio", "command": entry.agentd, "args": entry.args()});
            let config = json!({"mcpServers": {SERVER: server}});
            let path = line.file(entry, "claude-mcp.json", config);
            line.add(&["--mcp-config", &path, "--allowedTools", &format!("mcp__{SERVER}")]);
            line.env.push(("MCP_TOOL_TIMEOUT", format!("{CALL_SECONDS}000")));
        }
        match (program.permissions, entry) {
            // In the sandbox it may do what it likes.
            (Permissions::Sandbox, _) => line.add(&["--permission-mode", "bypassPermissions"]),
            (Permissions::Policy, Some(_)) => {
                let asked = format!("mcp__{SERVER}__{PERMISSION}");
                line.add(&["--permission-mode", "default", "--permission-prompt-tool", &asked]);
            }
            // Nobody can be asked: what it would ask for is refused.
            (Permissions::Policy, None) => line.add(&["--permission-mode", "default"]),
        }
        if let Some(turns) = program.max_turns {
            line.add(&["--max-turns", &turns.to_string()]);
        }
        if let Some(model) = &program.model {
            line.add(&["--model", model]);
        }
        if let Some(schema) = &task.schema {
            line.add(&["--json-schema", &schema.to_string()]);
        }
        if let Some(resume) = &task.resume {
            line.add(&["--resume", resume]);
        }
    }

    fn output_format(&self, _before: Before) -> OutputFormat {
        OutputFormat::Events(Box::new(Reader::default()))
    }
}

/// Reads its events. Messages repeat their usage for each content block, so counts are kept by message until the last
/// event gives the sum.
#[derive(Debug, Default)]
struct Reader {
    messages: BTreeMap<String, TokenUsage>,
    /// The sum of the last such event, and that of the messages before it.
    told: TokenUsage,
    before: TokenUsage,
}

impl program::Reader for Reader {
    fn event(&mut self, event: &Value, progress: &AgentProgress) -> Signal {
        match kind(event) {
            "system" => progress.tell(|output| {
                output.conversation = text(event, "/session_id").or(output.conversation.take());
                output.model = text(event, "/model").or(output.model.take());
            }),
            "assistant" => {
                let id = text(event, "/message/id").unwrap_or_default();
                let known = self.messages.entry(id).or_default();
                *known = known.max_of(usage(event, "/message/usage"));
                let whole = self.told.plus(self.of_messages().beyond(self.before));
                let spoken: String = event
                    .pointer("/message/content")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|block| text(block, "/text"))
                    .collect();
                progress.tell(|output| {
                    output.has_used(whole);
                    output.turns = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
                    output.model = text(event, "/message/model").or(output.model.take());
                    if !spoken.trim().is_empty() {
                        output.text = spoken;
                    }
                });
            }
            "result" => return self.result(event, progress),
            _ => {}
        }
        Signal::More
    }
}

impl Reader {
    fn of_messages(&self) -> TokenUsage {
        self.messages.values().fold(TokenUsage::default(), |all, one| all.plus(*one))
    }

    /// The subtype may say success where the provider failed: only `is_error` counts.
    fn result(&mut self, event: &Value, progress: &AgentProgress) -> Signal {
        let reported = usage(event, "/usage");
        self.before = self.of_messages();
        progress.tell(|output| {
            output.conversation = text(event, "/session_id").or(output.conversation.take());
            // The last figure may leave out what its helpers used.
            output.has_used(reported);
            self.told = output.usage.unwrap_or_default();
            if let Some(cost) = dollars(event, "/total_cost_usd") {
                output.has_paid(cost);
            }
            output.turns = u32::try_from(count(event, "/num_turns")).unwrap_or(u32::MAX).max(output.turns);
            output.structured = event.get("structured_output").and_then(Value::as_object).cloned();
            if let Some(last) = text(event, "/result").filter(|last| !last.trim().is_empty()) {
                output.text = last;
            }
        });
        let subtype = text(event, "/subtype").unwrap_or_default();
        let failed = event.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        if !failed && !subtype.starts_with("error") {
            return Signal::Done;
        }
        let words = text(event, "/result").unwrap_or_default();
        let why = match subtype.as_str() {
            "error_max_turns" => "it used all the turns it may make".to_owned(),
            "error_max_budget_usd" => "it used all the money it may spend".to_owned(),
            _ if words.trim().is_empty() => format!("it ended with \"{subtype}\""),
            _ => words,
        };
        Signal::Failed(why)
    }
}

/// What it asks to be allowed before it uses a tool of its own; `None` = a tool of agentd's, judged when it is called.
pub(super) fn request_of(tool: &str, input: &Value) -> Option<PermissionRequest> {
    let at = |keys: &[&str]| keys.iter().find_map(|key| input.get(*key)?.as_str());
    if let Some(named) = tool.strip_prefix("mcp__") {
        let ours = named.strip_prefix(SERVER).is_some_and(|rest| rest.starts_with("__"));
        return (!ours).then(|| PermissionRequest::new(named, input.clone()));
    }
    // A pattern may name another folder than the one that it is looked for in.
    let elsewhere = at(&["pattern"]).filter(|pattern| tool == "Glob" && names_a_place(pattern));
    let place = elsewhere.or_else(|| at(&["file_path", "notebook_path", "path"]));
    Some(match (tool, place) {
        ("Edit" | "MultiEdit" | "Write" | "NotebookEdit", Some(path)) => permission_request::edit(path),
        ("Read" | "NotebookRead" | "Grep" | "Glob" | "LS", path) => {
            permission_request::read(path.unwrap_or("."))
        }
        ("Bash", _) => permission_request::command(input.get("command").unwrap_or(&Value::Null)),
        _ => PermissionRequest::new(format!("claude-code__{tool}"), input.clone()),
    })
}

/// Whether a pattern leads elsewhere than below the folder that it is looked for in.
fn names_a_place(pattern: &str) -> bool {
    pattern.starts_with(['/', '~']) || pattern.split('/').any(|part| part == "..")
}

fn usage(event: &Value, at: &str) -> TokenUsage {
    let of = |name: &str| count(event, &format!("{at}/{name}"));
    TokenUsage::new(
        of("input_tokens"),
        of("output_tokens"),
        of("cache_read_input_tokens"),
        of("cache_creation_input_tokens"),
    )
}

#[cfg(test)]
mod tests {
    use program::Reader as _;

    use super::*;
    use crate::domain::money::Money;

    #[test]
    fn usage_of_a_repeated_message_counts_once_and_the_result_has_the_last_word() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let message = |id: &str, text: &str| {
            json!({"type": "assistant", "message": {"id": id, "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1},
                "content": [{"type": "text", "text": text}]}})
        };
        for event in [message("a", "one"), message("a", ""), message("b", "two")] {
            assert_eq!(reader.event(&event, &progress), Signal::More);
        }
        assert_eq!(progress.so_far().usage.map(|usage| usage.total_tokens), Some(22));
        let result = json!({"type": "result", "subtype": "success", "is_error": false, "result": "done",
            "session_id": "s", "num_turns": 2, "total_cost_usd": 0.5, "usage": {"input_tokens": 30, "output_tokens": 9}});
        assert_eq!(reader.event(&result, &progress), Signal::Done);
        let output = progress.so_far();
        assert_eq!((output.text.as_str(), output.turns), ("done", 2));
        assert_eq!(output.cost, Some(Money::from_micros(500_000)));
        assert_eq!(output.usage.map(|usage| usage.total_tokens), Some(39));
    }

    #[test]
    fn what_was_used_and_paid_does_not_shrink_where_a_later_event_tells_less() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let message = |output: u64| json!({"type": "assistant", "message": {"id": "a", "usage": {"input_tokens": 10, "output_tokens": output}}});
        let result = |cost: f64, output: u64| json!({"type": "result", "subtype": "success", "result": "d", "total_cost_usd": cost, "usage": {"output_tokens": output}});
        for event in [message(500), message(1), result(2.5, 900), result(0.01, 2), message(1)] {
            reader.event(&event, &progress);
        }
        let output = progress.so_far();
        assert_eq!(output.usage, Some(TokenUsage::new(10, 900, 0, 0)));
        assert_eq!(output.cost, Some(Money::from_micros(2_500_000)));
    }

    #[test]
    fn messages_after_the_sum_are_used_beside_it() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let message = |id: &str, output: u64| json!({"type": "assistant", "message": {"id": id, "usage": {"output_tokens": output}}});
        let result = |output: u64| json!({"type": "result", "subtype": "success", "result": "d", "total_cost_usd": 0.5, "usage": {"output_tokens": output}});
        let used = |progress: &AgentProgress| progress.so_far().usage.map(|usage| usage.output_tokens);
        for (event, all) in [
            (message("a", 10), 10),
            (result(900), 900),
            (message("a", 12), 902),
            (message("b", 100), 1002),
            (result(1500), 1500),
            (message("b", 101), 1501),
        ] {
            reader.event(&event, &progress);
            assert_eq!(used(&progress), Some(all), "{event}");
        }
    }

    #[test]
    fn success_with_is_error_is_a_failure() {
        let event =
            json!({"type": "result", "subtype": "success", "is_error": true, "result": "API Error: 500"});
        let signal = Reader::default().event(&event, &AgentProgress::default());
        assert_eq!(signal, Signal::Failed("API Error: 500".into()));
    }
}
