//! The protocol tool with which a model reports its progress, and the rule when such reports end the session.

use serde_json::{Map, Value, json};

use crate::domain::message::ToolSpec;

/// Name of the protocol tool.
pub const TASK_STATUS: &str = "agent__task_status";
/// Replies in a row that only say how far the model is.
const MOST_ALONE: u32 = 2;

/// How the protocol tool is offered.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: TASK_STATUS.to_owned(),
        description: "Says how far you are. Use it beside other calls; it does no work. \"completed\" makes the next turn \
                      the last one, for your final report."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "status": { "type": "string", "enum": ["in_progress", "blocked", "completed"] },
                "done": { "type": "string" },
                "next": { "type": "string" },
            },
            "required": ["status"],
            "additionalProperties": false,
        }),
    }
}

/// What is wrong with the arguments, for the model.
pub fn problem(arguments: &Map<String, Value>) -> Option<String> {
    let known = matches!(
        arguments.get("status").and_then(Value::as_str),
        Some("in_progress" | "blocked" | "completed")
    );
    (!known).then(|| "/status: one of in_progress, blocked, completed is required".to_owned())
}

/// Whether the arguments say that the work is done.
pub fn is_completed(arguments: &Map<String, Value>) -> bool {
    arguments.get("status").and_then(Value::as_str) == Some("completed")
}

/// Counts replies that bring nothing but a status.
#[derive(Debug, Default)]
pub struct StatusWatch {
    alone: u32,
}

impl StatusWatch {
    /// After an accepted reply: true when the next turn must be the final one.
    pub fn take(&mut self, said: bool, completed: bool, tools_ran: bool) -> bool {
        if tools_ran {
            self.alone = 0;
        } else if said {
            self.alone += 1;
        }
        completed || self.alone >= MOST_ALONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_07_one_status_alone_is_fine_two_in_a_row_force_the_final_turn() {
        let mut watch = StatusWatch::default();
        assert!(!watch.take(true, false, false));
        assert!(!watch.take(true, false, true), "a real tool resets the count");
        assert!(!watch.take(true, false, false));
        assert!(watch.take(true, false, false));
    }

    #[test]
    fn c_07_completed_forces_the_final_turn_at_once() {
        assert!(StatusWatch::default().take(true, true, true));
    }
}
