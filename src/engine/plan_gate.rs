//! The plan gate: behind the step that is marked for it the flow ends, until a person has approved its plan.

use super::visit::FlowPlan;
use crate::domain::plan::plan_of;
use crate::domain::run::VisitRecord;
use crate::domain::stop::{Stop, StopDetail};

/// How the flow ends behind a visit whose plan is not approved yet; `None` = it goes on. What a step did that also ends the flow
/// waits for approval as well, before it is published; a step that is visited again has not made its plan yet.
pub fn pending(plan: &FlowPlan, visit: &VisitRecord) -> Option<Stop> {
    let is_over = visit.failed.is_none() && visit.carried.handoff.is_none();
    let is_again = visit.next.as_ref() == Some(&visit.step_id);
    if !plan.gates_plans || !is_over || is_again || visit.carried.approved_plan == Some(visit.visit) {
        return None;
    }
    let step = plan.definition().flow.step(&visit.step_id).filter(|step| step.gates_plan)?;
    Some(match plan_of(&visit.output) {
        Some(_) => Stop::new(
            StopDetail::PlanPending,
            format!("The plan of the step \"{}\" waits for approval.", step.id),
        ),
        None => {
            let message = format!("The output of the step \"{}\" has no plan to be approved.", step.id);
            Stop::new(StopDetail::SchemaInvalid, message)
        }
    })
}
