//! Codex's stream of JSON events.

use serde_json::Value;

use super::events::{Heard, count, kind, text};
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;

/// Reads its events. Its counts are those of the whole thread, also of what went before in it.
#[derive(Debug, Default)]
pub(super) struct Reader {
    before: TokenUsage,
}

impl Reader {
    /// A reader for a thread that used `before` already.
    pub(super) fn after(before: TokenUsage) -> Self {
        Self { before }
    }

    pub(super) fn event(&mut self, event: &Value, progress: &AgentProgress) -> Heard {
        match kind(event) {
            "thread.started" => progress.tell(|said| said.conversation = text(event, "/thread_id")),
            "turn.started" => progress.tell(|said| said.turns = said.turns.saturating_add(1)),
            "item.completed" if text(event, "/item/type").as_deref() == Some("agent_message") => {
                if let Some(words) = text(event, "/item/text") {
                    progress.tell(|said| said.text = words);
                }
            }
            "turn.completed" => {
                let (input, cached) =
                    (count(event, "/usage/input_tokens"), count(event, "/usage/cached_input_tokens"));
                let written = count(event, "/usage/cache_write_input_tokens");
                let before = self.before;
                let now = TokenUsage::new(
                    input.saturating_sub(cached).saturating_sub(written).saturating_sub(before.input_tokens),
                    count(event, "/usage/output_tokens").saturating_sub(before.output_tokens),
                    cached.saturating_sub(before.cache_read_input_tokens),
                    written.saturating_sub(before.cache_write_input_tokens),
                );
                progress.tell(|said| said.usage = Some(now));
                return Heard::Done;
            }
            "turn.failed" => return Heard::Failed(reason(event, "/error/message")),
            _ => {}
        }
        Heard::More
    }
}

/// The provider's words may be JSON in a text.
fn reason(event: &Value, at: &str) -> String {
    text(event, at).unwrap_or_else(|| "its turn failed without a reason".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_of_a_thread_that_goes_on_are_those_of_this_launch() {
        let progress = AgentProgress::default();
        let mut reader = Reader::after(TokenUsage::new(100, 10, 50, 0));
        let event = json!({"type": "turn.completed",
            "usage": {"input_tokens": 300, "cached_input_tokens": 80, "output_tokens": 15}});
        assert_eq!(reader.event(&event, &progress), Heard::Done);
        assert_eq!(progress.so_far().usage, Some(TokenUsage::new(120, 5, 30, 0)));
    }
}
