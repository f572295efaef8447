//! The `uv-` variables of one visit: where each comes from, and who wins.

use std::collections::BTreeMap;

use crate::domain::completion::Completion;
use crate::domain::flow::{Definition, Step};
use crate::domain::step_context::{MissingRequiredInput, StepContext};

/// What a visit knows when its prompt is resolved.
#[derive(Debug, Clone, Copy)]
pub struct VisitFacts<'a> {
    /// 1-based visit of the run.
    pub visit: u32,
    /// 1-based visit of this step.
    pub step_visit: u32,
    /// What the visit before put out, in short; `None` in the first.
    pub previous_summary: Option<&'a str>,
}

/// Variables of a visit, without the `uv-` prefix. Values are data: nothing in them is looked at again.
///
/// Parameters and the host's names come first, then the runtime's, then earlier steps' outputs; a name that is there
/// already is kept (collisions are found when a definition is loaded, T17).
pub fn of_visit(
    definition: &Definition,
    step: &Step,
    parameters: &BTreeMap<String, String>,
    context: &StepContext,
    facts: VisitFacts<'_>,
) -> Result<BTreeMap<String, String>, MissingRequiredInput> {
    let mut variables = parameters.clone();
    let mut supply = |name: &str, value: String| {
        variables.entry(name.to_owned()).or_insert(value);
    };
    supply("agent_name", definition.name.clone());
    supply("iteration", facts.visit.to_string());
    supply("completed_iterations", facts.visit.saturating_sub(1).to_string());
    supply("previous_summary", facts.previous_summary.unwrap_or_default().to_owned());
    supply("check_count", facts.visit.to_string());
    supply("step_id", step.id.clone());
    supply("step_name", step.name.clone());
    supply("step_iteration", facts.step_visit.to_string());
    let criteria = definition.completion.criteria();
    supply("verdict_criteria", criteria.clone());
    supply("completion_criteria", criteria);
    if let Some(max) = definition.max_iterations {
        supply("max_iterations", max.to_string());
        supply("remaining", max.saturating_sub(facts.visit).to_string());
    }
    match &definition.completion {
        Completion::KeywordSignal { keyword } => {
            supply("completion_keyword", keyword.clone());
            supply("verdict_keyword", keyword.clone());
        }
        Completion::CheckBudget { checks } => supply("max_checks", checks.to_string()),
        Completion::StructuredSignal { signal, required } => {
            supply("signal_type", signal.clone());
            let names: Vec<&str> =
                required.present.iter().chain(required.equal.iter().map(|(path, _)| path)).map(String::as_str).collect();
            supply("required_fields", names.join(", "));
        }
        _ => {}
    }
    for (name, value) in context.to_uv_variables(&step.inputs)? {
        supply(name.strip_prefix("uv-").unwrap_or(&name), value);
    }
    Ok(variables)
}
