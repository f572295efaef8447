//! The loop guard: the same action with the same result, three times running, is refused, and insisting ends the run
//!

use std::collections::VecDeque;

/// Finished actions looked back on.
const WINDOW: usize = 3;

/// What a proposal does: tool and canonical arguments, hashed.
pub type Action = String;

/// Remembers the last finished actions of a session, soft denials and refusals among them.
#[derive(Debug, Default)]
pub struct LoopGuard {
    /// Newest last: action, and what came of it.
    done: VecDeque<(Action, String)>,
    /// The action under the constraint, since the turn in which the model was told.
    constrained: Option<(Action, u32)>,
}

/// What the guard says to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopVerdict {
    /// Go on.
    Free,
    /// Refuse it and say so.
    Refuse,
    /// The model was told and asks again: the session ends.
    End,
}

impl LoopGuard {
    /// Judges a proposal of `turn`. All proposals of a reply are judged before any of them has a result, so only what
    /// finished in earlier turns can make a loop.
    pub fn judge(&mut self, action: &str, turn: u32) -> LoopVerdict {
        if let Some((constrained, told)) = &self.constrained
            && constrained == action
        {
            return if turn > *told { LoopVerdict::End } else { LoopVerdict::Refuse };
        }
        let repeats = self.done.len() == WINDOW
            && self.done.front().is_some_and(|first| first.0 == action)
            && self.done.iter().all(|done| Some(done) == self.done.front());
        if repeats {
            self.constrained = Some((action.to_owned(), turn));
            LoopVerdict::Refuse
        } else {
            LoopVerdict::Free
        }
    }

    /// An action has ended with a result (its hash, or the code of its denial). Another action lifts the constraint.
    pub fn finished(&mut self, action: Action, result: String) {
        if self.constrained.as_ref().is_some_and(|(constrained, _)| *constrained != action) {
            self.constrained = None;
        }
        self.done.push_back((action, result));
        if self.done.len() > WINDOW {
            self.done.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_035_three_run_the_fourth_is_refused_the_fifth_ends_the_run() {
        let mut guard = LoopGuard::default();
        for turn in 1..=3 {
            assert_eq!(guard.judge("echo", turn), LoopVerdict::Free);
            guard.finished("echo".into(), "same".into());
        }
        assert_eq!(guard.judge("echo", 4), LoopVerdict::Refuse);
        assert_eq!(guard.judge("echo", 4), LoopVerdict::Refuse, "told in this very turn");
        assert_eq!(guard.judge("echo", 5), LoopVerdict::End);
    }

    #[test]
    fn x_035_another_result_or_another_action_is_no_loop() {
        let mut guard = LoopGuard::default();
        for (turn, result) in [(1, "a"), (2, "b"), (3, "a")] {
            assert_eq!(guard.judge("test", turn), LoopVerdict::Free);
            guard.finished("test".into(), result.into());
        }
        assert_eq!(guard.judge("test", 4), LoopVerdict::Free);
        for _ in 0..3 {
            guard.finished("test".into(), "a".into());
        }
        assert_eq!(guard.judge("test", 5), LoopVerdict::Refuse);
        guard.finished("edit".into(), "ok".into());
        assert_eq!(guard.judge("test", 6), LoopVerdict::Free);
    }
}
