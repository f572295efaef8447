//! The `uv-` variables of one visit: where each comes from, and which value wins.

use crate::domain::flow::{Definition, Step};
use crate::domain::step_context::{MissingRequiredInput, StepContext};
use crate::prompt::template::Values;

/// What a visit knows when its prompt is resolved.
#[derive(Debug, Clone, Copy)]
pub struct VisitFacts<'a> {
    /// 1-based visit of the run.
    pub visit: u32,
    /// 1-based visit of this step.
    pub step_visit: u32,
    /// `budgets.max_steps`: the limit where the definition has none.
    pub max_steps: u32,
    /// What the visit before put out, in short; `None` in the first.
    pub previous_summary: Option<&'a str>,
}

/// Adds the values of a visit to those of the run (parameters, facts of the issue, the completion condition's). An
/// existing value is kept; collisions are found when a definition is loaded (T17). Values are not expanded again.
pub fn of_visit(
    definition: &Definition,
    step: &Step,
    of_run: &Values,
    context: &StepContext,
    facts: VisitFacts<'_>,
) -> Result<Values, MissingRequiredInput> {
    let mut values = of_run.clone();
    let limit = definition.max_iterations.unwrap_or(facts.max_steps);
    values.set("iteration", facts.visit.to_string());
    values.set("max_iterations", limit.to_string());
    values.set("remaining", limit.saturating_sub(facts.visit).to_string());
    values.set("check_count", facts.visit.to_string());
    values.set("previous_summary", facts.previous_summary.unwrap_or_default());
    values.set("step_id", step.id.clone());
    values.set("step_name", step.name.clone());
    values.set("step_iteration", facts.step_visit.to_string());
    if facts.visit > 1 {
        values.set("completed_iterations", (facts.visit - 1).to_string());
    }
    for (name, value) in context.to_uv_variables(&step.inputs)? {
        values.set(&name, value);
    }
    Ok(values)
}
