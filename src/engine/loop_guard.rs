//! The loop guard: an action that gave the same result too often among the last ones is refused. A further try ends the
//! run.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::constraint::Constraint;
use crate::domain::model_target::LoopLimits;

/// What a proposal does: tool and canonical arguments, hashed.
pub type Action = String;

/// Remembers the last finished actions of a session, with soft denials and refusals.
#[derive(Debug)]
pub struct LoopGuard {
    limits: LoopLimits,
    /// Newest last: action, and what came of it.
    done: VecDeque<(Action, String)>,
    /// Actions that the model was told about.
    constrained: BTreeMap<Action, Constrained>,
}

/// How the model was told about an action.
#[derive(Debug, Clone)]
struct Constrained {
    times: u32,
    /// Set when it was told last.
    constraint: Constraint,
}

/// What the guard says to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopVerdict {
    /// Go on.
    Free,
    /// Refuse it and tell the model. Has the constraint if this proposal sets one.
    Refuse(Option<Constraint>),
    /// The model was told and asks again: the session ends.
    End,
}

impl LoopGuard {
    /// A guard that has seen nothing.
    pub fn new(limits: LoopLimits) -> Self {
        Self { limits, done: VecDeque::new(), constrained: BTreeMap::new() }
    }

    /// Judges a proposal of `turn`. All proposals of a reply are judged before one of them has a result, so only
    /// earlier turns can make a loop.
    pub fn judge(&mut self, action: &str, turn: u32) -> LoopVerdict {
        if !self.repeats(action) {
            self.constrained.remove(action);
            return LoopVerdict::Free;
        }
        // A constraint that has expired does not count. The model is told again before anything ends.
        let told = self.constrained.get(action).filter(|told| told.constraint.holds(turn));
        let times = match told {
            Some(told) if told.constraint.turn == turn => return LoopVerdict::Refuse(None),
            Some(told) => told.times + 1,
            None => 1,
        };
        if times > self.limits.overrides {
            return LoopVerdict::End;
        }
        let constraint = Constraint::against(action, turn);
        self.constrained.insert(action.to_owned(), Constrained { times, constraint: constraint.clone() });
        LoopVerdict::Refuse(Some(constraint))
    }

    /// Whether the action's last results in the window are as many as the threshold, and equal.
    fn repeats(&self, action: &str) -> bool {
        let threshold = self.limits.threshold as usize;
        let mut results = self.done.iter().rev().filter(|done| done.0 == action).map(|done| &done.1);
        let Some(last) = results.next() else { return false };
        1 + results.take(threshold - 1).take_while(|result| *result == last).count() == threshold
    }

    /// An action has ended with a result (its hash, or the code of its denial).
    pub fn finished(&mut self, action: Action, result: String) {
        self.done.push_back((action, result));
        if self.done.len() > self.limits.window as usize {
            self.done.pop_front();
        }
    }

    /// This action changed something, so other actions may give other results from now on.
    pub fn forget_others(&mut self, action: &str) {
        self.done.retain(|done| done.0 == action);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_035_three_run_the_fourth_is_refused_the_fifth_ends_the_run() {
        let mut guard = LoopGuard::new(LoopLimits::default());
        for turn in 1..=3 {
            assert_eq!(guard.judge("echo", turn), LoopVerdict::Free);
            guard.finished("echo".into(), "same".into());
        }
        assert!(matches!(guard.judge("echo", 4), LoopVerdict::Refuse(_)));
        assert!(matches!(guard.judge("echo", 4), LoopVerdict::Refuse(_)), "told in this very turn");
        assert_eq!(guard.judge("echo", 5), LoopVerdict::End);
    }

    #[test]
    fn x_035_another_result_or_another_action_is_no_loop() {
        let mut guard = LoopGuard::new(LoopLimits::default());
        for (turn, result) in [(1, "a"), (2, "b"), (3, "a")] {
            assert_eq!(guard.judge("test", turn), LoopVerdict::Free);
            guard.finished("test".into(), result.into());
        }
        assert_eq!(guard.judge("test", 4), LoopVerdict::Free);
        for _ in 0..3 {
            guard.finished("test".into(), "a".into());
        }
        assert!(matches!(guard.judge("test", 5), LoopVerdict::Refuse(_)));
        guard.finished("edit".into(), "ok".into());
        assert_eq!(guard.judge("test", 6), LoopVerdict::Free);
    }

    #[test]
    fn x_035_the_numbers_are_the_configurations() {
        let mut guard = LoopGuard::new(LoopLimits { window: 5, threshold: 2, overrides: 2 });
        for action in ["a", "b", "a"] {
            assert_eq!(guard.judge(action, 1), LoopVerdict::Free);
            guard.finished(action.into(), "same".into());
        }
        let third = guard.judge("a", 2);
        assert!(matches!(third, LoopVerdict::Refuse(_)), "two of the last five, another one between them");
        assert!(matches!(guard.judge("a", 3), LoopVerdict::Refuse(_)));
        assert_eq!(guard.judge("a", 4), LoopVerdict::End);
        let mut strict = LoopGuard::new(LoopLimits { window: 1, threshold: 1, overrides: 0 });
        strict.finished("a".into(), "same".into());
        assert_eq!(strict.judge("b", 1), LoopVerdict::Free);
        assert_eq!(strict.judge("a", 1), LoopVerdict::End);
    }

    #[test]
    fn x_035_what_an_edit_in_between_may_have_changed_is_no_loop() {
        let mut guard = LoopGuard::new(LoopLimits { window: 10, threshold: 2, overrides: 1 });
        for turn in 1..=4 {
            assert_eq!(guard.judge("test", turn), LoopVerdict::Free);
            guard.finished("test".into(), "red".into());
            let edit = format!("edit {turn}");
            guard.forget_others(&edit);
            guard.finished(edit, "ok".into());
        }
    }

    #[test]
    fn x_043_a_constraint_that_has_expired_is_ignored_and_the_model_is_told_anew() {
        let mut guard = LoopGuard::new(LoopLimits::default());
        for turn in 1..=3 {
            guard.judge("echo", turn);
            guard.finished("echo".into(), "same".into());
        }
        let set = match guard.judge("echo", 4) {
            LoopVerdict::Refuse(Some(set)) => set,
            other => panic!("{other:?}"),
        };
        assert_eq!(guard.judge("echo", 4), LoopVerdict::Refuse(None), "told in this very turn");
        let after = set.turn + set.ttl;
        assert_eq!(guard.judge("echo", after), LoopVerdict::Refuse(Some(Constraint::against("echo", after))));
        assert_eq!(guard.judge("echo", after + 1), LoopVerdict::End, "within the time of the new one");
    }
}
