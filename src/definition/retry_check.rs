//! Retry prompts against the registry: they are where their validation step looks for them, and have what they name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::diagnostic::{Diagnostic, Severity, in_prompt};
use super::position::child;
use super::shape::nearest;
use super::source::Findings;
use crate::domain::flow::{Flow, ValidationStep, ValidatorKind};
use crate::prompt::address::PromptAddress;
use crate::prompt::library::{AbsentAdaptation, FoundTemplate, PromptLibrary};
use crate::prompt::template::Placeholder;
use crate::prompt::{PromptError, retry};

/// Retry prompts are optional, but one that is there must be whole.
pub(super) fn tell(flow: &Flow, library: &PromptLibrary, root: &str, findings: &mut Findings<'_>) {
    for validation in &flow.validation_steps {
        let mut found_any = false;
        let mut seen = BTreeSet::new();
        for address in addresses(flow, validation) {
            let error = match library.find(&address, AbsentAdaptation::FallBack) {
                Ok(found) => {
                    found_any = true;
                    if !seen.insert(found.path.to_owned()) {
                        continue;
                    }
                    let shown = library.shown(found.path);
                    match retry::render(found.template.body(), &Value::Null) {
                        Ok(_) => {
                            names(flow, validation, &found, &shown, findings);
                            None
                        }
                        Err(error) => Some(error.in_file(&shown)),
                    }
                }
                // One that is not there is in no file.
                Err(error) => {
                    found_any |= error.file.is_some();
                    Some(error).filter(|error| error.file.is_some())
                }
            };
            if let Some(error) = error {
                findings.list.push(in_prompt(Severity::Error, &error, root));
            }
        }
        if !found_any {
            elsewhere(flow, validation, library, findings);
        }
    }
}

/// Where the retry prompts of a validation step are looked for: one for each failure pattern, and the general one.
fn addresses(flow: &Flow, validation: &ValidationStep) -> Vec<PromptAddress> {
    let patterns = flow.failure_patterns.values();
    let own = patterns.map(|pattern| (pattern.edition.clone(), pattern.adaptation.clone()));
    let of = |(edition, adaptation): (String, Option<String>)| PromptAddress {
        c1: flow.c1.clone(),
        c2: validation.c2.clone(),
        c3: validation.c3.clone(),
        edition,
        adaptation,
    };
    own.chain([("failed".to_owned(), None)]).map(of).collect()
}

/// A validation step without any retry prompt, where one lies in a folder of nearly its name.
fn elsewhere(flow: &Flow, validation: &ValidationStep, library: &PromptLibrary, findings: &mut Findings<'_>) {
    let (c2, c3) = (validation.c2.as_str(), validation.c3.as_str());
    let folders: BTreeSet<(&str, &str)> = library
        .folders()
        .filter_map(|folder| folder.split_once('/'))
        .filter(|(other_c2, other_c3)| {
            let is_near =
                |one: &str, other: &str| one == other || nearest(one, [other].into_iter()).is_some();
            is_near(c2, other_c2) && is_near(c3, other_c3)
        })
        .collect();
    let holds_one = |(c2, c3): &(&str, &str)| {
        let other = ValidationStep { c2: (*c2).to_owned(), c3: (*c3).to_owned(), ..validation.clone() };
        let there = |address: &PromptAddress| library.find(address, AbsentAdaptation::FallBack).is_ok();
        addresses(flow, &other).iter().any(there)
    };
    let Some((other_c2, other_c3)) = folders.into_iter().find(holds_one) else { return };
    let (key, near) = if c2 == other_c2 { ("c3", other_c3) } else { ("c2", other_c2) };
    findings.add(
        Severity::Warning,
        "PR-C3L-006",
        &child(&child("/validationSteps", &validation.id), key),
        format!(
            "the validation step \"{}\" has no retry prompt in {c2}/{c3}, but {other_c2}/{other_c3} has one; agentd's own words are told",
            validation.id
        ),
        format!("did you mean \"{near}\"?"),
    );
}

/// What a retry prompt names and nothing gives it a value.
fn names(
    flow: &Flow,
    validation: &ValidationStep,
    found: &FoundTemplate<'_>,
    shown: &str,
    findings: &mut Findings<'_>,
) {
    let mut tell = |line: u32, message: String, fix: String| {
        let error = PromptError::new("PR-UV-004", message).on_line(line);
        findings.list.push(Diagnostic { fix, ..in_prompt(Severity::Warning, &error, shown) });
    };
    let mut told = BTreeSet::new();
    for slot in found.template.slots() {
        if let Placeholder::Uv(name) = &slot.what
            && told.insert(name.clone())
        {
            tell(
                slot.line,
                format!("{{uv-{name}}} is no placeholder in a retry prompt and reaches the model as it stands"),
                "take it out: a retry prompt has what the check found, as {{error}} or a name of extractParams".to_owned(),
            );
        }
    }
    let Some(known) = supplied(flow, validation) else { return };
    told.clear();
    let outer = retry::names(found.template.body());
    for (name, line) in found.template.literal_names() {
        if outer.contains(name) && !known.contains(name) && told.insert(name.to_owned()) {
            let fix = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {{{{{near}}}}}?"),
                None => format!("write one of {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            tell(line, format!("{{{{{name}}}}} has no value in this retry prompt and is left out"), fix);
        }
    }
}

/// The names that the checks of a validation step give its retry prompts; `None` where one of them says more than is written: a program
/// of the agent, or a session.
fn supplied<'f>(flow: &'f Flow, validation: &'f ValidationStep) -> Option<BTreeSet<&'f str>> {
    let mut known = BTreeSet::from(["validator", "error", "details"]);
    let lists = [&validation.conditions, &validation.before, &validation.after];
    for condition in lists.into_iter().flatten() {
        let validator = flow.validators.get(&condition.validator)?;
        if matches!(validator.kind, ValidatorKind::Custom(_) | ValidatorKind::Semantic(_)) {
            return None;
        }
        known.extend(validator.extract_params.keys().map(String::as_str));
    }
    Some(known)
}
