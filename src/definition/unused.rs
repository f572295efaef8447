//! Parts of a registry that no run uses: validators, failure patterns and validation steps that nothing leads to.

use std::collections::BTreeSet;

use super::diagnostic::Severity;
use super::position::child;
use super::source::Findings;
use crate::domain::completion::Completion;
use crate::domain::flow::{Flow, PermissionMode, Step, StepKind, ValidatorKind};

/// What every retry prompt gets, whatever was asked.
const ALWAYS: [&str; 3] = ["validator", "error", "details"];

/// Where an agent says how its steps may work that have no kind.
pub const PLAN_MODE: &str = "/runner/boundaries/permissionMode";

/// Warns of an agent that is to plan alone, and has steps that may write all the same: a step's kind comes before it.
pub fn plan_mode(flow: &Flow, findings: &mut Findings<'_>) {
    let writes = |step: &&Step| {
        let of_kind = step.kind.map(StepKind::permission_mode);
        step.runner.is_none()
            && step.permission_mode.is_none()
            && of_kind.is_some_and(|mode| mode != PermissionMode::Plan)
    };
    let writing: Vec<_> = flow.steps.iter().filter(writes).map(|step| format!("\"{}\"", step.id)).collect();
    if writing.is_empty() {
        return;
    }
    findings.add(
        Severity::Warning,
        "SR-UNUSED-001",
        PLAN_MODE,
        format!(
            "\"plan\" does not count for {}: the mode of a step's kind comes before it",
            writing.join(", ")
        ),
        "set permissionMode at these steps, where they are to plan alone too",
    );
}

/// Adds a warning for each.
pub fn check(flow: &Flow, completion: Option<&Completion>, findings: &mut Findings<'_>) {
    let mut told = |at: &str, message: String, fix: String| {
        findings.add(Severity::Warning, "SR-UNUSED-001", at, message, fix);
    };
    let of_type = completion.map(Completion::validation_step);
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    for validation in &flow.validation_steps {
        let lists = [&validation.conditions, &validation.before, &validation.after];
        asked.extend(lists.into_iter().flatten().map(|condition| condition.validator.as_str()));
        if flow.step(&validation.id).is_none() && of_type.is_some_and(|id| id != validation.id) {
            told(
                &child("/validationSteps", &validation.id),
                format!(
                    "the validation step \"{}\" is never asked: it has the id of no step, and belongs to another completion type",
                    validation.id
                ),
                format!("give it the id of the step that closes, or \"{}\"", of_type.unwrap_or_default()),
            );
        }
    }
    // Where the flow ends only at its end, what is asked before that is asked of the steps that lead there alone.
    if completion == Some(&Completion::StepMachine) {
        let is_own = |step: &Step| flow.validation_steps.iter().any(|known| known.id == step.id);
        let mut closing = flow.steps.iter().filter(|step| step.may_end()).peekable();
        let all_have_own = closing.peek().is_some() && closing.all(is_own);
        for validation in &flow.validation_steps {
            let at = child("/validationSteps", &validation.id);
            let around = !validation.before.is_empty() || !validation.after.is_empty();
            let passes = flow.step(&validation.id).is_some_and(|step| !step.may_end());
            if passes && !around && !validation.conditions.is_empty() {
                told(
                    &format!("{at}/validationConditions"),
                    format!("the flow never ends in the step \"{}\", so that these are never asked", validation.id),
                    "give them the id of the step that closes, or call them postLLMConditions: those are asked behind each visit"
                        .to_owned(),
                );
            }
            if all_have_own && of_type == Some(validation.id.as_str()) {
                told(
                    &at,
                    format!(
                        "the validation step \"{}\" is never asked: each step that ends the flow has one of its own",
                        validation.id
                    ),
                    "name its validators there, or remove it".to_owned(),
                );
            }
        }
    }
    for name in flow.validators.keys().filter(|name| !asked.contains(name.as_str())) {
        let message = format!("the validator \"{name}\" is never asked");
        told(&child("/validators", name), message, "name it in a validation step, or remove it".to_owned());
    }
    for (name, pattern) in &flow.failure_patterns {
        let at = child("/failurePatterns", name);
        let naming = || flow.validators.values().filter(|known| known.failure_pattern.as_ref() == Some(name));
        if pattern.semantic_match.is_empty() && naming().next().is_none() {
            let message = format!("no validator leads to the failure pattern \"{name}\"");
            told(&at, message, "name it as the failurePattern of a validator, or remove it".to_owned());
            continue;
        }
        // What these say beside their verdict is known only when they are asked.
        let says_more =
            |kind: &ValidatorKind| matches!(kind, ValidatorKind::Custom(_) | ValidatorKind::Semantic(_));
        if !pattern.semantic_match.is_empty() || naming().any(|known| says_more(&known.kind)) {
            continue;
        }
        for (index, param) in pattern.params.iter().enumerate() {
            let given = naming().any(|known| known.extract_params.contains_key(param));
            if !given && !ALWAYS.contains(&param.as_str()) {
                told(
                    &format!("{at}/params/{index}"),
                    format!("no validator gives the parameter \"{param}\" of the failure pattern \"{name}\""),
                    "give it in the extractParams of its validator, or remove it".to_owned(),
                );
            }
        }
    }
}
