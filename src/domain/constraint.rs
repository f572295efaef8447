//! What a supervisor may tell a session: a typed constraint that expires. It never changes a prompt.

use serde::{Deserialize, Serialize};

/// Turns that a constraint holds, the one in which it was set among them.
pub const TURNS: u32 = 5;

/// A constraint on one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// What it forbids.
    #[serde(flatten)]
    pub kind: ConstraintKind,
    /// Who set it.
    pub by: Supervisor,
    /// 1-based turn in which it was set.
    pub turn: u32,
    /// Turns that it holds, from that one on.
    pub ttl: u32,
}

/// What a constraint forbids; the closed list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "constraint", rename_all = "snake_case")]
pub enum ConstraintKind {
    /// This action: a tool with these arguments, hashed.
    RefuseAction {
        /// The hash.
        action: String,
    },
}

/// Who may set one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Supervisor {
    /// The loop guard.
    LoopGuard,
}

impl Constraint {
    /// The loop guard's, set in `turn`.
    pub fn against(action: &str, turn: u32) -> Self {
        let kind = ConstraintKind::RefuseAction { action: action.to_owned() };
        Self { kind, by: Supervisor::LoopGuard, turn, ttl: TURNS }
    }

    /// Whether it counts in `turn`. A constraint that has expired does not.
    pub fn holds(&self, turn: u32) -> bool {
        (self.turn..self.turn.saturating_add(self.ttl)).contains(&turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_043_a_constraint_holds_for_its_turns_and_is_typed() {
        let constraint = Constraint::against("a1", 3);
        let held: Vec<u32> = (1..12).filter(|turn| constraint.holds(*turn)).collect();
        assert_eq!(held, [3, 4, 5, 6, 7]);
        let json = serde_json::json!({ "constraint": "refuse_action", "action": "a1", "by": "loop_guard", "turn": 3, "ttl": 5 });
        assert_eq!(serde_json::to_value(&constraint).unwrap(), json);
    }
}
