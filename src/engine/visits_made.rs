//! What later visits of a flow have to know of the visits made.

use std::collections::BTreeMap;

use crate::domain::flow::{Definition, PermissionMode, Step, StepId};
use crate::domain::run::VisitRecord;

/// What later visits have to know of the visits made.
#[derive(Debug, Default)]
pub(super) struct VisitsMade {
    /// How many.
    pub(super) visits: u32,
    /// Visits by step.
    pub(super) of: BTreeMap<StepId, u32>,
    /// The last visit's step.
    pub(super) last: Option<StepId>,
    /// How often it was visited in a row.
    pub(super) in_a_row: u32,
    /// The last visit's summary.
    pub(super) summary: String,
    /// The last visit's step that may change files.
    pub(super) last_writer: Option<StepId>,
}

impl VisitsMade {
    /// Takes a finished visit in.
    pub(super) fn add(&mut self, definition: &Definition, visit: &VisitRecord) {
        let writes =
            |step: &Step| step.runner.is_none() && definition.permission_mode(step) != PermissionMode::Plan;
        if definition.flow.step(&visit.step_id).is_some_and(writes) {
            self.last_writer = Some(visit.step_id.clone());
        }
        self.visits += 1;
        self.in_a_row = if self.last.as_ref() == Some(&visit.step_id) { self.in_a_row + 1 } else { 1 };
        *self.of.entry(visit.step_id.clone()).or_default() += 1;
        self.last = Some(visit.step_id.clone());
        self.summary.clone_from(&visit.summary);
    }
}
