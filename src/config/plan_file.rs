//! `[plan]` as people write it: whether a plan has to be approved before it is carried out.

use serde::Serialize;

use super::table_file::table;
use crate::domain::words::{words, words_of_a_format};

table! {
    /// `[plan]`.
    #[derive(PartialEq, Eq)]
    pub struct PlanTable {
        /// Which runs wait behind the step that is marked `"gate": "plan"` until a trusted person approves its plan. `off`: None.
        /// `always`: Every one. `label`: Those of issues with the label `plan.label`.
        pub gate: PlanGate = PlanGate::Off,
        /// The label of issues whose plan has to be approved, with `gate = "label"`.
        pub label: String = "agentd:plan".into(),
        /// The label with which a trusted person approves the plan that waits.
        pub approved_label: String = "agentd:approved".into(),
        /// How often in a row a plan is made again because it was rejected.
        pub max_rounds: u32 = 3,
    }
}

words! {
    /// Which runs wait for the approval of their plan.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PlanGate {
        /// None.
        #[default]
        Off = "off",
        /// Every one.
        Always = "always",
        /// Those of issues with the label `plan.label`.
        Label = "label",
    }
}
words_of_a_format!(PlanGate, "PlanGate", "Which runs wait for the approval of their plan.");
