//! `runner.verdict`: a completion type with its settings, read into a completion condition.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::diagnostic::Severity;
use super::position::child;
use super::shape::{self, Codes, Format};
use super::source::Findings;
use super::verdict_file::VerdictFile;
use crate::domain::completion::{Completion, CompositeMode, RequiredFields, known_type_names, type_names};

/// A key that means nothing here.
pub(super) const IGNORED: &str = "AC-IGNORED-001";

/// Codes of `agent.json`.
pub(super) const CODES: Codes =
    Codes { missing: "AC-LOAD-003", invalid: "AC-VALID-001", unknown: "AC-UNKNOWN-001" };

static FORMAT: LazyLock<Format> = LazyLock::new(Format::of::<VerdictFile>);

/// Whether the condition watches the issue.
pub fn needs_issue(completion: Option<&Completion>) -> bool {
    match completion {
        Some(Completion::ExternalState) => true,
        Some(Completion::Composite { conditions, .. }) => {
            conditions.iter().any(|condition| needs_issue(Some(condition)))
        }
        _ => false,
    }
}

/// Keys of `verdict.config`, by internal type name.
fn config_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "iterationBudget" => &["maxIterations"],
        "checkBudget" => &["maxIterations", "maxChecks"],
        "keywordSignal" => &["maxIterations", "verdictKeyword"],
        "structuredSignal" => &["maxIterations", "signalType", "requiredFields"],
        "stepMachine" => &["maxIterations", "registryPath", "entryStep"],
        "externalState" => &["maxIterations", "resourceType", "targetState"],
        "custom" => &["maxIterations", "handlerPath"],
        _ => &["maxIterations", "operator", "conditions"],
    }
}

/// Reads a completion condition; `None` = it is broken and told.
pub fn completion(verdict: &VerdictFile, at: &str, findings: &mut Findings<'_>) -> Option<Completion> {
    let config = &verdict.config;
    let config_at = child(at, "config");
    let Some((kind, newest)) = type_names(&verdict.kind) else {
        let nearest = shape::nearest(&verdict.kind, known_type_names().into_iter());
        findings.add(
            Severity::Error,
            "AC-VERDICT-005",
            &child(at, "type"),
            format!("\"{}\" is no completion type", verdict.kind),
            match nearest {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("write one of {}", known_type_names()[..8].join(", ")),
            },
        );
        return None;
    };
    unused_settings(kind, newest, config, &config_at, findings);
    let count = |key: &str, findings: &mut Findings<'_>| -> Option<u32> {
        let value = config.get(key)?;
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n >= 1);
        if number.is_none() {
            findings.schema_error(
                "AC-VALID-001",
                &child(&config_at, key),
                format!("{key} must be a whole number of at least 1"),
                "correct the number",
            );
        }
        number
    };
    let max_iterations = count("maxIterations", findings);
    let missing = |code: &'static str, key: &str, fix: &str, findings: &mut Findings<'_>| {
        if config.get(key).is_none() {
            findings.add(Severity::Error, code, at, format!("{newest} needs config.{key}"), fix);
        }
    };
    match kind {
        "iterationBudget" => {
            missing(
                "AC-VALID-001",
                "maxIterations",
                "say after how many iterations the run is done",
                findings,
            );
            Some(Completion::IterationBudget { iterations: max_iterations? })
        }
        "checkBudget" => {
            missing("AC-VALID-001", "maxChecks", "say after how many checks the run is done", findings);
            Some(Completion::CheckBudget { checks: count("maxChecks", findings)? })
        }
        "keywordSignal" => {
            let keyword =
                config.get("verdictKeyword").map_or("TASK_COMPLETE", |word| word.as_str().unwrap_or(""));
            if keyword.trim().is_empty() {
                let at = child(&config_at, "verdictKeyword");
                findings.schema_error(
                    "AC-VALID-001",
                    &at,
                    "the keyword is no text",
                    "write the word to look for",
                );
                return None;
            }
            Some(Completion::KeywordSignal { keyword: keyword.trim().to_owned() })
        }
        "structuredSignal" => {
            missing(
                "AC-VERDICT-002",
                "signalType",
                "name the signal that the output carries when done",
                findings,
            );
            let required = required_fields(config, &config_at, findings);
            let signal = text(config, "signalType", &config_at, findings)?;
            Some(Completion::StructuredSignal { signal, required })
        }
        "stepMachine" => Some(Completion::StepMachine),
        "externalState" => Some(Completion::ExternalState),
        "custom" => {
            missing("AC-VERDICT-004", "handlerPath", "name a program in the agent's folder", findings);
            Some(Completion::Custom { program: text(config, "handlerPath", &config_at, findings)? })
        }
        _ => composite(config, at, &config_at, findings),
    }
}

/// A setting that has to be a text with something in it; another value is told.
fn text(
    config: &Map<String, Value>,
    key: &str,
    config_at: &str,
    findings: &mut Findings<'_>,
) -> Option<String> {
    let value = config.get(key)?;
    let word = value.as_str().map(str::trim).filter(|word| !word.is_empty());
    if word.is_none() {
        let message = format!("{key} is {value}, and has to be a text");
        findings.schema_error("AC-VALID-001", &child(config_at, key), message, "write it in quotes");
    }
    word.map(str::to_owned)
}

/// Settings that the type does not have, and settings that mean nothing here.
fn unused_settings(
    kind: &str,
    newest: &str,
    config: &Map<String, Value>,
    config_at: &str,
    findings: &mut Findings<'_>,
) {
    for key in config.keys() {
        if !config_keys(kind).contains(&key.as_str()) {
            findings.add(
                Severity::Warning,
                "AC-UNKNOWN-001",
                &child(config_at, key),
                format!("{newest} has no setting \"{key}\"; it is ignored"),
                format!("{newest} has: {}", config_keys(kind).join(", ")),
            );
        }
    }
    for (key, why) in [
        ("registryPath", "the registry is named by runner.flow.prompts.registry"),
        ("entryStep", "the entry stands in the registry"),
        ("resourceType", "only the issue itself is watched"),
        ("targetState", "the state waited for is always \"closed\""),
    ] {
        if config.contains_key(key) && config_keys(kind).contains(&key) {
            findings.add(
                Severity::Warning,
                IGNORED,
                &child(config_at, key),
                format!("\"{key}\" is ignored: {why}"),
                "remove it",
            );
        }
    }
}

fn required_fields(config: &Map<String, Value>, at: &str, findings: &mut Findings<'_>) -> RequiredFields {
    match config.get("requiredFields") {
        None => RequiredFields::default(),
        Some(Value::Array(names)) => {
            for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_string()) {
                findings.schema_error(
                    "AC-VALID-001",
                    &format!("{at}/requiredFields/{index}"),
                    format!("{name} is no name of a field"),
                    "write the field's name, or a dot path",
                );
            }
            let present = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            RequiredFields { present, equal: Vec::new() }
        }
        Some(Value::Object(values)) => RequiredFields {
            present: Vec::new(),
            equal: values.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        },
        Some(_) => {
            findings.schema_error(
                "AC-VALID-001",
                &child(at, "requiredFields"),
                "requiredFields is a list of names, or a map from name to value",
                "correct it",
            );
            RequiredFields::default()
        }
    }
}

fn composite(
    config: &Map<String, Value>,
    at: &str,
    config_at: &str,
    findings: &mut Findings<'_>,
) -> Option<Completion> {
    let mut wrong = |code: &'static str, at: &str, message: &str, fix: &str| {
        findings.add(Severity::Error, code, at, message, fix);
    };
    let mode = match config.get("operator").map(Value::as_str) {
        Some(Some("and")) => Some(CompositeMode::All),
        Some(Some("or")) => Some(CompositeMode::Any),
        Some(Some("first")) => Some(CompositeMode::First),
        Some(_) => {
            wrong(
                "AC-VERDICT-009",
                &child(config_at, "operator"),
                "the operator is unknown",
                "write and, or, or first",
            );
            None
        }
        None => {
            wrong("AC-VERDICT-003", at, "meta:composite needs config.operator", "write and, or, or first");
            None
        }
    };
    let conditions_at = child(config_at, "conditions");
    let fix = "list the conditions: [{type, config}]";
    let list = match config.get("conditions") {
        Some(Value::Array(list)) => list,
        Some(_) => {
            wrong("AC-VERDICT-003", &conditions_at, "the conditions are no list", fix);
            return None;
        }
        None => {
            wrong("AC-VERDICT-003", at, "meta:composite needs config.conditions", fix);
            return None;
        }
    };
    if list.is_empty() {
        wrong("AC-VERDICT-008", &conditions_at, "meta:composite has no condition", "list at least one");
    }
    let mut conditions = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let at = child(&conditions_at, &index.to_string());
        match serde_json::from_value::<VerdictFile>(value.clone()) {
            Ok(part) => {
                shape::check_at(&FORMAT, value, &at, CODES, findings);
                if type_names(&part.kind).is_some_and(|(kind, _)| kind != "iterationBudget")
                    && part.config.contains_key("maxIterations")
                {
                    findings.add(
                        Severity::Warning,
                        IGNORED,
                        &format!("{at}/config/maxIterations"),
                        "\"maxIterations\" is ignored here: a part of a composite does not limit the run",
                        "write it into the config of the composite",
                    );
                }
                conditions.extend(completion(&part, &at, findings));
            }
            Err(_) => {
                findings.add(
                    Severity::Error,
                    "AC-VERDICT-010",
                    &at,
                    "the condition is no {type, config}",
                    "write it like a verdict of its own",
                );
            }
        }
    }
    (!list.is_empty() && conditions.len() == list.len())
        .then_some(Completion::Composite { mode: mode?, conditions })
}
