//! Step kinds and intents: what a step is for, and what a model may ask for at its end.

use std::fmt;

/// What a step is for; decides the intents it may emit, its permission mode and whether it may close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Changes things.
    Work,
    /// Looks at what was changed.
    Verification,
    /// Ends the flow and may ask for closure effects.
    Closure,
}

impl StepKind {
    /// The word in `stepKind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Verification => "verification",
            Self::Closure => "closure",
        }
    }

    /// Reads `stepKind`.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Work, Self::Verification, Self::Closure].into_iter().find(|kind| kind.as_str() == word)
    }

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

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a step asks for at its end; closed vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Intent {
    /// Go on.
    Next,
    /// Once more (or the step that `transitions.repeat` names).
    Repeat,
    /// Go to a step that the output names.
    Jump,
    /// The work is done: to the closing part of the flow.
    Handoff,
    /// End the flow.
    Closing,
    /// Somebody has to decide.
    Escalate,
    /// Give up.
    Abort,
}

impl Intent {
    /// Every intent.
    pub const ALL: [Self; 7] =
        [Self::Next, Self::Repeat, Self::Jump, Self::Handoff, Self::Closing, Self::Escalate, Self::Abort];

    /// The canonical word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Repeat => "repeat",
            Self::Jump => "jump",
            Self::Handoff => "handoff",
            Self::Closing => "closing",
            Self::Escalate => "escalate",
            Self::Abort => "abort",
        }
    }

    /// Reads a word as models and definitions write it: any case, spaces around it, aliases (E04).
    pub fn parse(word: &str) -> Option<Self> {
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

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a step's tools may do; policy is asked in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PermissionMode {
    /// Writers go through policy.
    Default,
    /// Writers are denied; `run_command` only for the exact verify commands (D78).
    Plan,
    /// Writers go through policy.
    AcceptEdits,
    /// Writers go through policy: nothing bypasses it here.
    BypassPermissions,
}

impl PermissionMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Default, Self::Plan, Self::AcceptEdits, Self::BypassPermissions];

    /// The word in definitions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Plan => "plan",
            Self::AcceptEdits => "acceptEdits",
            Self::BypassPermissions => "bypassPermissions",
        }
    }

    /// Reads the word in definitions.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// What closing does to the issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClosureAction {
    /// The issue is closed (with a pull request: by its merge, D81).
    #[default]
    Close,
    /// Only labels change.
    LabelOnly,
    /// Labels change and the issue is closed.
    LabelAndClose,
}

impl ClosureAction {
    /// Every action.
    pub const ALL: [Self; 3] = [Self::Close, Self::LabelOnly, Self::LabelAndClose];

    /// The word in definitions, outputs and adaptations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::LabelOnly => "label-only",
            Self::LabelAndClose => "label-and-close",
        }
    }

    /// Reads the word as models write it: any case, spaces around it, `_` for `-`.
    pub fn parse(word: &str) -> Option<Self> {
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
            assert_eq!(Intent::parse(word), Some(intent), "{word}");
        }
        assert_eq!(Intent::parse("celebrate"), None);
        for intent in Intent::ALL {
            assert_eq!(Intent::parse(intent.as_str()), Some(intent));
        }
    }

    #[test]
    fn e21_closure_actions_are_read_in_any_case() {
        for word in ["label-only", "LABEL_ONLY", " Label-Only "] {
            assert_eq!(ClosureAction::parse(word), Some(ClosureAction::LabelOnly), "{word}");
        }
        assert_eq!(ClosureAction::parse("labels"), None);
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
