//! Where an issue stands as its labels say it: one entry a state, with its label, and which end of a run leads there.

use serde::{Deserialize, Serialize};

use super::stop::{StopDetail, StopReason};

/// A label as it is made where it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Six hexadecimal digits.
    pub color: &'a str,
    /// One line.
    pub description: &'a str,
}

macro_rules! issue_states {
    ($($(#[$doc:meta])* $state:ident $key:ident: $name:literal, $color:literal, $says:literal, end: $end:literal;)+) => {
        /// A state of an issue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum IssueState {
            $($(#[$doc])* $state,)+
        }

        impl IssueState {
            /// Every state.
            pub const ALL: &'static [Self] = &[$(Self::$state,)+];

            /// The key of its label in the configuration.
            pub fn key(self) -> &'static str {
                match self { $(Self::$state => stringify!($key),)+ }
            }

            /// Whether the state is an end: then the trigger label comes off, so that putting it on again starts the next
            /// run (D6).
            pub fn is_end(self) -> bool {
                match self { $(Self::$state => $end,)+ }
            }
        }

        /// `[github.labels]`.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct LabelsTable {
            /// Starts a run.
            pub trigger: String,
            $($(#[$doc])* pub $key: String,)+
        }

        impl Default for LabelsTable {
            fn default() -> Self {
                Self { trigger: "agentd".to_owned(), $($key: $name.to_owned(),)+ }
            }
        }

        impl LabelsTable {
            /// The label of a state.
            pub fn of(&self, state: IssueState) -> &str {
                match state { $(IssueState::$state => &self.$key,)+ }
            }

            /// The trigger and the label of each state by its key, as it is made where it is missing.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, LabelSpec<'_>)> {
                let trigger = LabelSpec {
                    name: &self.trigger,
                    color: "5319e7",
                    description: "agentd works on this issue",
                };
                [
                    ("trigger", trigger),
                    $((stringify!($key), LabelSpec { name: &self.$key, color: $color, description: $says }),)+
                ]
                .into_iter()
            }
        }
    };
}

issue_states! {
    /// The issue waits.
    Queued queued: "agentd:queued", "c5def5", "agentd will start when a slot is free", end: false;
    /// A run works on it.
    Running running: "agentd:running", "fbca04", "agentd is working on it", end: false;
    /// A person is asked, and the work goes on when they have answered.
    NeedsInput needs_input: "agentd:needs-input", "d4c5f9", "agentd waits for a person's answer; the comment says for what", end: false;
    /// The last run succeeded.
    Done done: "agentd:done", "0e8a16", "agentd finished", end: true;
    /// The last run failed.
    Failed failed: "agentd:failed", "d93f0b", "agentd failed; the comment says why", end: true;
    /// A person is needed.
    Attention attention: "agentd:attention", "e99695", "agentd needs a person; the comment says for what", end: true;
    /// The last run ended without evidence.
    NoEvidence no_evidence: "agentd:no-evidence", "bfd4f2", "agentd found nothing that backs a result", end: true;
}

impl IssueState {
    /// The state that a run leaves an issue in; `None` = a shutdown stopped it, or another node has it: the labels stay, and whoever goes
    /// on with it sets them.
    pub fn after(stop: StopDetail) -> Option<Self> {
        if matches!(stop, StopDetail::Shutdown | StopDetail::Overtaken) {
            return None;
        }
        if stop.parks() {
            return Some(Self::NeedsInput);
        }
        Some(match stop.reason() {
            StopReason::ObjectiveAchieved => Self::Done,
            StopReason::NoEvidence => Self::NoEvidence,
            StopReason::HumanRequested => Self::Attention,
            StopReason::BudgetExceeded | StopReason::SystemError => Self::Failed,
        })
    }
}

impl LabelsTable {
    /// The labels of the states that are an end.
    pub fn ends(&self) -> impl Iterator<Item = &str> {
        IssueState::ALL.iter().filter(|state| state.is_end()).map(|state| self.of(*state))
    }

    /// The labels of all states but one.
    pub fn others(&self, than: IssueState) -> impl Iterator<Item = &str> {
        IssueState::ALL.iter().filter(move |state| **state != than).map(|state| self.of(*state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_one_key_which_is_its_word_in_json_and_in_the_configuration() {
        let labels = serde_json::to_value(LabelsTable::default()).unwrap();
        for state in IssueState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.key());
            assert_eq!(labels[state.key()], LabelsTable::default().of(*state));
        }
        let keys: Vec<&str> = LabelsTable::default().all().map(|(key, _)| key).collect();
        let listed: Vec<&str> = labels.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, listed);
    }
}
