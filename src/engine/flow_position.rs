//! Where a flow stands: at its next visit, before a handoff that waits, or at its end.

use super::plan_gate;
use super::visit::FlowPlan;
use crate::domain::flow::StepId;
use crate::domain::run::VisitRecord;
use crate::domain::stop::FlowEnd;

/// How far a flow is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Position {
    /// The next visit is of this step.
    At(StepId),
    /// The handoff of the last visit waits for an approval, and is proposed again.
    Held(Box<VisitRecord>),
    /// There is no next visit.
    Ended(FlowEnd),
}

impl Position {
    /// Where a flow goes on behind its last finished visit.
    pub(super) fn behind(plan: &FlowPlan, last: &VisitRecord, forced_final: bool) -> Self {
        if last.carried.handoff.is_some() {
            return Self::Held(Box::new(last.clone()));
        }
        match (plan_gate::pending(plan, last).or_else(|| last.failed.clone()), &last.next) {
            (Some(stop), _) => Self::Ended(FlowEnd::failed(stop)),
            (None, Some(next)) => Self::At(next.clone()),
            (None, None) => Self::Ended(FlowEnd::completed("the flow reached its end", forced_final)),
        }
    }
}
