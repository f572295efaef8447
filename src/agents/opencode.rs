//! OpenCode's stream of JSON events.

use serde_json::Value;

use super::events::{Heard, count, kind, text};
use crate::domain::message::TokenUsage;
use crate::domain::money::Money;
use crate::engine::agent_output::AgentProgress;

/// Reads its events. Each step reports its own tokens and money; the program ends by itself.
#[derive(Debug, Default)]
pub(super) struct Reader {
    used: TokenUsage,
    cost: Option<Money>,
}

impl Reader {
    pub(super) fn event(&mut self, event: &Value, progress: &AgentProgress) -> Heard {
        if let Some(id) = text(event, "/sessionID") {
            progress.tell(|said| said.conversation = Some(id));
        }
        match kind(event) {
            "step_start" => progress.tell(|said| {
                said.turns = said.turns.saturating_add(1);
                said.text.clear();
            }),
            "text" => {
                let words = text(event, "/part/text").unwrap_or_default();
                progress.tell(|said| said.text.push_str(&words));
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
                let dollars = event.pointer("/part/cost").and_then(Value::as_f64).filter(|cost| *cost > 0.0);
                if let Some(cost) = dollars.and_then(Money::from_dollars) {
                    self.cost = Some(self.cost.unwrap_or_default() + cost);
                }
                progress.tell(|said| {
                    said.usage = Some(self.used);
                    said.cost = self.cost;
                });
            }
            "error" => {
                let why = ["/error/data/message", "/error/message", "/error/name"];
                let why = why.into_iter().find_map(|at| text(event, at));
                return Heard::Failed(why.unwrap_or_else(|| "it ended with an error".to_owned()));
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
    fn steps_add_up_and_the_last_step_has_the_last_words() {
        let (mut reader, progress) = (Reader::default(), AgentProgress::default());
        let finish = json!({"type": "step_finish", "part": {"cost": 0.01,
            "tokens": {"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 4}}}});
        let start = json!({"type": "step_start", "sessionID": "ses_1"});
        let said = |words: &str| json!({"type": "text", "part": {"text": words}});
        for event in [start.clone(), said("looking"), finish.clone(), start, said("done"), finish] {
            assert_eq!(reader.event(&event, &progress), Heard::More);
        }
        let all = progress.so_far();
        assert_eq!((all.text.as_str(), all.turns), ("done", 2));
        assert_eq!(all.usage, Some(TokenUsage::new(10, 6, 6, 8)));
        assert_eq!(all.cost, Some(Money::from_micros(20_000)));
        assert_eq!(all.conversation.as_deref(), Some("ses_1"));
    }
}
