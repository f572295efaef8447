//! What gates, transitions and later steps take from outputs, and what validators take from parameters: told before a model
//! is asked, where it cannot be there.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::diagnostic::Severity;
use super::graph::{ReachableSteps, after};
use super::position::child;
use super::registry::ReadRegistry;
use super::source::Findings;
use super::steps::ReadStep;
use crate::domain::flow::{Flow, Intent, Step, Transition, ValidatorKind};

/// Whether an output may have something at a dot path, as far as its schema says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The schema names it, or leaves open what there is.
    Yes,
    /// The schema has fields, and not this one; it does not forbid others, so that a prompt may ask for it.
    Unsaid,
    /// The schema forbids it.
    No,
}

impl Asked {
    /// How bad it is where a step needs it. `None` = it is there. `usual`: where it cannot be there.
    fn severity(self, usual: Severity) -> Option<Severity> {
        match self {
            Self::Yes => None,
            Self::Unsaid => Some(usual.min(Severity::Defect)),
            Self::No => Some(usual),
        }
    }
}

/// Adds every finding.
pub fn check(registry: &ReadRegistry, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    for read in &registry.steps {
        gate(read, reach, findings);
        conditions(read, reach, findings);
        plan(read, reach, findings);
        order(&registry.flow, read, reach, findings);
    }
    for entry in registry.entries.iter().take(1) {
        if let Some(read) = registry.steps.iter().find(|read| read.step.id == *entry) {
            entered(read, findings);
        }
    }
    validators(&registry.flow, findings);
}

/// Whether the schema of a step names a dot path.
fn asked(step: &Step, path: &str) -> Asked {
    // Where further fields are spoken of, or other shapes, there may be more than the properties.
    const OPEN: [&str; 7] =
        ["patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if", "$ref"];
    let Some(mut schema) = step.output_schema.as_ref().map(|schema| &schema.json) else { return Asked::Yes };
    for key in path.split('.') {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Asked::Yes };
        match properties.get(key) {
            Some(inner) => schema = inner,
            None if OPEN.iter().any(|word| schema.get(*word).is_some()) => return Asked::Yes,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => return Asked::No,
            None => return Asked::Unsaid,
        }
    }
    Asked::Yes
}

fn gate(read: &ReadStep, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    let step = &read.step;
    let Some(gate) = &step.gate else { return };
    let at = format!("{}/structuredGate", read.at);
    let severity = reach.severity(&step.id);
    // The schema says where the intent is, so that another place is a mistake.
    if step.runner.is_none() && asked(step, &gate.intent_field) != Asked::Yes {
        findings.add(
            severity,
            "SR-VALID-002",
            &format!("{at}/intentField"),
            format!(
                "step \"{}\" is not asked for an intent at \"{}\": its schema has no such field",
                step.id, gate.intent_field
            ),
            "write the dot path of the place that intentSchemaRef points to",
        );
    }
    let usual = if step.transitions.contains_key(&Intent::Jump) { Severity::Warning } else { severity };
    if let Some(path) = &gate.target_field
        && gate.allowed_intents.contains(&Intent::Jump)
        && let Some(severity) = asked(step, path).severity(usual)
    {
        findings.add(
            severity,
            "SR-VALID-002",
            &format!("{at}/targetField"),
            format!("step \"{}\" is not asked for the target of a jump at \"{path}\": its schema has no such field", step.id),
            "add the field to the schema, or correct the dot path",
        );
    }
    for (index, path) in gate.handoff_fields.iter().enumerate() {
        if asked(step, path) != Asked::Yes {
            findings.add(
                Severity::Warning,
                "SR-OUTPUT-001",
                &format!("{at}/handoffFields/{index}"),
                format!("step \"{}\" is not asked for \"{path}\": its schema has no such field", step.id),
                "add the field to the schema, or correct the dot path",
            );
        }
    }
}

/// Transitions that depend on a value of the output.
fn conditions(read: &ReadStep, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    let step = &read.step;
    for (intent, rule) in &step.transitions {
        let Transition::Conditional { condition, targets, default } = rule else { continue };
        let Some(gate) = step.gate.as_ref().filter(|gate| gate.lets(*intent)) else { continue };
        let at = child(&child(&read.at, "transitions"), intent.as_str());
        let handed = gate.handoff_names();
        let path =
            handed.iter().find(|(_, name)| name == condition).map_or(condition.as_str(), |(path, _)| path);
        let severity = if default.is_none() { reach.severity(&step.id) } else { Severity::Warning };
        if let Some(severity) = asked(step, path).severity(severity) {
            findings.add(
                severity,
                "SR-OUTPUT-001",
                &child(&at, "condition"),
                format!("{intent} of step \"{}\" depends on \"{condition}\", for which nobody is asked: it is no handoff field, and the schema has no such field", step.id),
                "add the field to the schema, or correct the condition",
            );
        } else if default.is_none()
            && let Some(word) = values(step, path).into_iter().find(|word| !targets.contains_key(word))
        {
            findings.add(
                severity,
                "SR-OUTPUT-001",
                &child(&at, "targets"),
                format!("{intent} of step \"{}\" leads nowhere when {condition} is \"{word}\", which the schema allows", step.id),
                "add a target for it, or a \"default\"",
            );
        }
    }
}

/// The values that the schema lists for a dot path.
fn values(step: &Step, path: &str) -> Vec<String> {
    let mut schema = step.output_schema.as_ref().map(|schema| &schema.json);
    for key in path.split('.') {
        schema = schema.and_then(|schema| schema.get("properties")?.get(key));
    }
    let listed = schema.and_then(|schema| schema.get("enum")?.as_array());
    listed.into_iter().flatten().map(crate::domain::step_context::value_text).collect()
}

/// A plan that people approve stands in the output.
fn plan(read: &ReadStep, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    if read.step.gates_plan
        && let Some(severity) = asked(&read.step, "plan").severity(reach.severity(&read.step.id))
    {
        findings.add(
            severity,
            "SR-OUTPUT-001",
            &child(&read.at, "gate"),
            format!(
                "step \"{}\" is not asked for the plan that people approve: its schema has no field \"plan\"",
                read.step.id
            ),
            "add the field \"plan\" to the schema, or take \"gate\" out",
        );
    }
}

/// What a step must have from a step that cannot come before it.
fn order(flow: &Flow, read: &ReadStep, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    let mut told = BTreeSet::new();
    for input in read.step.inputs.inputs.iter().filter(|input| input.required && !input.may_be_absent()) {
        let Some(from) = flow.step(&input.step).filter(|from| from.id != read.step.id) else { continue };
        if input.default.is_none() && !after(flow, from).contains(&read.step.id) && told.insert(&from.id) {
            findings.add(
                reach.severity(&read.step.id),
                "SR-INPUT-005",
                &child(&read.at, "inputs"),
                format!(
                    "step \"{}\" needs {}.{}, but no way leads from \"{}\" to it",
                    read.step.id, input.step, input.key, input.step
                ),
                "take it from a step that comes before, or write a default",
            );
        }
    }
}

/// The first visit of a run has nothing behind it.
fn entered(read: &ReadStep, findings: &mut Findings<'_>) {
    let needs = read
        .step
        .inputs
        .inputs
        .iter()
        .find(|input| input.required && !input.may_be_absent() && input.default.is_none());
    if let Some(input) = needs {
        findings.add(
            Severity::Error,
            "SR-INPUT-005",
            &child(&read.at, "inputs"),
            format!(
                "a run begins with the step \"{}\", which needs {}.{}: nothing has put that out yet",
                read.step.id, input.step, input.key
            ),
            "write \"required\": false, or a default",
        );
    }
}

/// Names in the lines and paths of validators that no parameter gives.
fn validators(flow: &Flow, findings: &mut Findings<'_>) {
    #[expect(clippy::unwrap_used, reason = "a fixed pattern, tested below")]
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").unwrap());
    for validation in &flow.validation_steps {
        for (list, key) in [
            (&validation.conditions, "validationConditions"),
            (&validation.before, "preflightConditions"),
            (&validation.after, "postLLMConditions"),
        ] {
            for (index, condition) in list.iter().enumerate() {
                let Some(validator) = flow.validators.get(&condition.validator) else { continue };
                let (text, in_a_shell) = match &validator.kind {
                    ValidatorKind::Command(line) => (line, true),
                    ValidatorKind::File(path) => (path, false),
                    ValidatorKind::Custom(_) | ValidatorKind::Semantic(_) => continue,
                };
                for name in NAME.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str())) {
                    let given = condition.params.iter().any(|(known, _)| known == name);
                    if given || (in_a_shell && shell_has(text, name)) {
                        continue;
                    }
                    findings.add(
                        Severity::Warning,
                        "SR-REF-007",
                        &format!("{}/{key}/{index}", child("/validationSteps", &validation.id)),
                        format!(
                            "validator \"{}\" uses ${{{name}}}, which no parameter gives: it is empty",
                            condition.validator
                        ),
                        format!("write \"params\": {{\"{name}\": …}} beside the validator"),
                    );
                }
            }
        }
    }
}

/// Whether a shell has the variable by itself: its line sets it, or it is named as the environment's are.
fn shell_has(line: &str, name: &str) -> bool {
    let sets = |before: &str| line.contains(&format!("{before}{name}"));
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        || line.contains(&format!("{name}="))
        || ["for ", "read ", "read -r "].into_iter().any(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_has_what_its_line_sets_and_what_the_environment_calls_so() {
        for (line, name, has) in [
            ("git log ${base}..HEAD", "base", false),
            ("base=main; git log ${base}..HEAD", "base", true),
            ("for f in *; do test -f ${f}; done", "f", true),
            ("test -d ${HOME}/x", "HOME", true),
        ] {
            assert_eq!(shell_has(line, name), has, "{line}");
        }
    }
}
