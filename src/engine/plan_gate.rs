//! The plan gate: behind the step that is marked for it the flow ends, until a person has approved its plan.

use super::visit::FlowPlan;
use crate::domain::plan::plan_of;
use crate::domain::run::VisitRecord;
use crate::domain::stop::{Stop, StopDetail};

/// How the flow ends behind a visit whose plan is not approved yet; `None` = it goes on. Nothing is asked where no other step
/// would carry the plan out.
pub fn pending(plan: &FlowPlan, visit: &VisitRecord) -> Option<Stop> {
    let leads_on = visit.next.as_ref().is_some_and(|next| *next != visit.step_id);
    if !plan.gates_plans || !leads_on || visit.carried.approved_plan == Some(visit.visit) {
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
