//! Step kinds and intents: what a step is for, and what a model may ask for at its end.

use super::words::{words, words_of_a_format};

words! {
    /// What a step is for; decides the intents it may emit, its permission mode and whether it may close.
    pub enum StepKind {
        /// Changes things.
        Work = "work",
        /// Looks at what was changed.
        Verification = "verification",
        /// Ends the flow and may ask for closure effects.
        Closure = "closure",
    }
}

words_of_a_format!(StepKind, "StepKindWord", "`stepKind`.");

impl StepKind {
    /// The kind that a `c2` implies where `stepKind` is absent (P06).
    pub fn from_c2(c2: &str) -> Option<Self> {
        match c2 {
            "initial" | "continuation" => Some(Self::Work),
            "verification" => Some(Self::Verification),
            "closure" => Some(Self::Closure),
            _ => None,
        }
    }

    /// The intents a step of this kind may emit; `abort` is open to every kind.
    pub fn intents(self) -> &'static [Intent] {
        match self {
            Self::Work => &[Intent::Next, Intent::Repeat, Intent::Jump, Intent::Handoff, Intent::Abort],
            Self::Verification => {
                &[Intent::Next, Intent::Repeat, Intent::Jump, Intent::Escalate, Intent::Abort]
            }
            Self::Closure => &[Intent::Closing, Intent::Repeat, Intent::Abort],
        }
    }

    /// The permission mode of a step that names none.
    pub fn permission_mode(self) -> PermissionMode {
        match self {
            Self::Work | Self::Closure => PermissionMode::AcceptEdits,
            Self::Verification => PermissionMode::Plan,
        }
    }
}

words! {
    /// What a step asks for at its end; closed vocabulary.
    #[derive(PartialOrd, Ord)]
    pub enum Intent {
        /// Go on.
        Next = "next",
        /// Once more (or the step that `transitions.repeat` names).
        Repeat = "repeat",
        /// Go to a step that the output names.
        Jump = "jump",
        /// The work is done: to the closing part of the flow.
        Handoff = "handoff",
        /// End the flow.
        Closing = "closing",
        /// Somebody has to decide.
        Escalate = "escalate",
        /// Give up.
        Abort = "abort",
    }
}

impl Intent {
    /// Reads a word as models and definitions write it: any case, spaces around it, aliases (E04).
    pub fn read(word: &str) -> Option<Self> {
        let word = word.trim().to_ascii_lowercase();
        Some(match word.as_str() {
            "next" | "continue" | "pass" => Self::Next,
            "repeat" | "retry" | "wait" | "fail" => Self::Repeat,
            "jump" => Self::Jump,
            "handoff" => Self::Handoff,
            "closing" | "done" | "finished" => Self::Closing,
            "escalate" => Self::Escalate,
            "abort" => Self::Abort,
            _ => return None,
        })
    }
}

words! {
    /// What a step's tools may do; policy is asked in every mode.
    pub enum PermissionMode {
        /// Writers go through policy.
        Default = "default",
        /// Writers are denied; `run_command` only for the exact verify commands (D78).
        Plan = "plan",
        /// Writers go through policy.
        AcceptEdits = "acceptEdits",
        /// Writers go through policy: nothing bypasses it here.
        BypassPermissions = "bypassPermissions",
    }
}

words_of_a_format!(PermissionMode, "PermissionWord", "`permissionMode`.");

words! {
    /// What closing does to the issue.
    #[derive(Default)]
    pub enum ClosureAction {
        /// The issue is closed (with a pull request: by its merge, D81).
        #[default]
        Close = "close",
        /// Only labels change.
        LabelOnly = "label-only",
        /// Labels change and the issue is closed.
        LabelAndClose = "label-and-close",
    }
}

words_of_a_format!(ClosureAction, "ClosureWord", "`defaultClosureAction`.");

impl ClosureAction {
    /// Reads the word as models write it: any case, spaces around it, `_` for `-`.
    pub fn read(word: &str) -> Option<Self> {
        let word = word.trim().to_ascii_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// Whether the issue ends closed.
    pub fn closes(self) -> bool {
        self != Self::LabelOnly
    }

    /// What the model asked for, limited to what the definition allows. It may do less; it never closes what the
    /// definition only labels (D64, E21).
    pub fn clamped_to(self, allowed: Self) -> Self {
        if self.closes() && !allowed.closes() { allowed } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e04_intents_are_read_in_any_case_and_by_alias() {
        for (word, intent) in [
            ("continue", Intent::Next),
            (" PASS ", Intent::Next),
            ("FAIL", Intent::Repeat),
            ("retry", Intent::Repeat),
            ("wait", Intent::Repeat),
            ("done", Intent::Closing),
            ("Finished", Intent::Closing),
        ] {
            assert_eq!(Intent::read(word), Some(intent), "{word}");
        }
        assert_eq!(Intent::read("celebrate"), None);
        for intent in Intent::ALL {
            assert_eq!(Intent::read(intent.as_str()), Some(intent));
        }
    }

    #[test]
    fn e21_closure_actions_are_read_in_any_case() {
        for word in ["label-only", "LABEL_ONLY", " Label-Only "] {
            assert_eq!(ClosureAction::read(word), Some(ClosureAction::LabelOnly), "{word}");
        }
        assert_eq!(ClosureAction::read("labels"), None);
    }

    #[test]
    fn e21_a_model_never_closes_what_the_definition_only_labels() {
        use ClosureAction::{Close, LabelAndClose, LabelOnly};
        assert_eq!(Close.clamped_to(LabelOnly), LabelOnly);
        assert_eq!(LabelAndClose.clamped_to(LabelOnly), LabelOnly);
        assert_eq!(LabelOnly.clamped_to(Close), LabelOnly);
        assert_eq!(LabelAndClose.clamped_to(Close), LabelAndClose);
    }
}
