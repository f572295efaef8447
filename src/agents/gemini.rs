//! Gemini CLI's stream of JSON events.

use serde_json::Value;

use super::events::{Heard, count, kind, text};
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;

/// Reads its events. Its words come in pieces; those after the last use of a tool are the last words.
#[derive(Debug, Default)]
pub(super) struct Reader {
    after_tool: bool,
}

impl Reader {
    pub(super) fn event(&mut self, event: &Value, progress: &AgentProgress) -> Heard {
        match kind(event) {
            "init" => progress.tell(|said| {
                said.conversation = text(event, "/session_id");
                said.model = text(event, "/model");
            }),
            "tool_use" => self.after_tool = true,
            "message" if text(event, "/role").as_deref() == Some("assistant") => {
                let fresh = std::mem::take(&mut self.after_tool);
                let words = text(event, "/content").unwrap_or_default();
                progress.tell(|said| {
                    if fresh {
                        said.text.clear();
                    }
                    said.text.push_str(&words);
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
                progress.tell(|said| {
                    if used.total_tokens > 0 {
                        said.usage = Some(used);
                    }
                    said.turns = said.turns.max(1);
                });
                if text(event, "/status").as_deref() == Some("error") {
                    let why = text(event, "/error/message").or_else(|| text(event, "/error"));
                    return Heard::Failed(why.unwrap_or_else(|| "it ended with an error".to_owned()));
                }
                return Heard::Done;
            }
            _ => {}
        }
        Heard::More
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(reader.event(&result, &progress), Heard::Done);
        assert_eq!(progress.so_far().text, "All done");
        assert_eq!(progress.so_far().usage, Some(TokenUsage::new(60, 7, 40, 0)));
    }
}
