//! The registry as a flow: entry, steps, validators, failure patterns and validation steps.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::agent_file::AgentParts;
use super::diagnostic::Severity;
use super::position::child;
use super::registry_file::{
    ConditionFile, FailurePatternFile, GateFile, OnFailureFile, PhaseWord, RegistryFile, StepFile,
    ValidationStepFile, ValidatorFile, ValidatorWord,
};
use super::schema_file::SchemaFolder;
use super::shape::{self, Format};
use super::source::Findings;
use super::steps::{CODES, ReadStep, StepReader};
use super::void_checks;
use crate::domain::check_output::{CheckOutput, EXTRACTORS};
use crate::domain::completion::{known_type_names, type_names};
use crate::domain::flow::{
    FailurePattern, Flow, OnFailure, SuccessWhen, ValidationCondition, ValidationStep, Validator,
    ValidatorKind,
};
use crate::domain::step_context::value_text;

/// A registry that was read, with what the checks need of its file.
#[derive(Debug, Clone)]
pub struct ReadRegistry {
    /// The flow; its entry is empty when none was found (and reported).
    pub flow: Flow,
    /// The steps as read, in file order.
    pub steps: Vec<ReadStep>,
    /// Every entry that some completion type has, the selected one first.
    pub entries: Vec<String>,
}

static FORMAT: LazyLock<Format> = LazyLock::new(Format::of::<RegistryFile>);
/// The key of `entryStepMapping` that counts for every completion type which is not listed.
const OTHERWISE: &str = "default";
const PATH_TEMPLATE: &str = "{c1}/{c2}/{c3}/f_{edition}_{adaptation}.md";
const PATH_TEMPLATE_NO_ADAPTATION: &str = "{c1}/{c2}/{c3}/f_{edition}.md";

/// Reads the newest form. `agent` is `None` when `agent.json` is too broken; then only the registry is checked.
pub fn read(
    value: &Value,
    agent: Option<&AgentParts>,
    schemas: &SchemaFolder<'_>,
    findings: &mut Findings<'_>,
) -> Option<ReadRegistry> {
    shape::check(&FORMAT, value, CODES, findings);
    // What is broken in one entry must not hide what is wrong in the others.
    let mut value = value.clone();
    if let Some(mapping) = value.get_mut("entryStepMapping").and_then(Value::as_object_mut) {
        mapping.retain(|_, target| target.is_string());
    }
    let file: RegistryFile = serde_json::from_value(value).ok()?;
    if let Some(agent) = agent
        && file.agent_id != agent.name
    {
        findings.add(
            Severity::Error,
            "SR-LOAD-002",
            "/agentId",
            format!("agentId is \"{}\", but the agent is called \"{}\"", file.agent_id, agent.name),
            "write the agent's name",
        );
    }
    for (key, written, fixed) in [
        ("pathTemplate", &file.path_template, PATH_TEMPLATE),
        ("pathTemplateNoAdaptation", &file.path_template_no_adaptation, PATH_TEMPLATE_NO_ADAPTATION),
    ] {
        if written.as_deref().is_some_and(|written| written != fixed) {
            findings.add(
                Severity::Warning,
                "SR-IGNORED-001",
                &child("", key),
                format!("\"{key}\" is ignored: prompts are always at {fixed}"),
                "remove it",
            );
        }
    }
    let mut reader = StepReader {
        schemas,
        inputs_optional: agent.is_some_and(|agent| agent.inputs_optional),
        backend: agent.and_then(|agent| agent.agentd.executor.as_ref()?.backend()),
        findings: &mut *findings,
    };
    let steps: Vec<ReadStep> =
        file.steps.iter().filter_map(|(id, step)| Some(reader.read(id, &sound_step(step)?))).collect();
    let entries = entries(&file, agent, findings);
    let failure_patterns = failure_patterns(&file.failure_patterns, findings);
    let validators = validators(&file.validators, &file.failure_patterns, findings);
    let validation_steps = validation_steps(&file, findings);
    Some(ReadRegistry {
        flow: Flow {
            c1: file.c1.clone().unwrap_or_else(|| "steps".into()),
            entry: entries.first().cloned().unwrap_or_default(),
            steps: steps.iter().map(|read| read.step.clone()).collect(),
            validators,
            failure_patterns,
            validation_steps,
        },
        steps,
        entries,
    })
}

/// The step without its broken members. Those are already reported, and the other steps still need this one.
fn sound_step(step: &Value) -> Option<StepFile> {
    if let Ok(whole) = serde_json::from_value(step.clone()) {
        return Some(whole);
    }
    let mut members = step.as_object()?.clone();
    if let Some(gate) = members.get_mut("structuredGate").and_then(Value::as_object_mut) {
        let alone = |key: &String, value: &mut Value| {
            let mut gate = Map::from_iter([("allowedIntents".to_owned(), json!([]))]);
            gate.insert(key.clone(), value.clone());
            serde_json::from_value::<GateFile>(Value::Object(gate)).is_ok()
        };
        gate.retain(alone);
        gate.entry("allowedIntents").or_insert_with(|| json!([]));
    }
    members.retain(|key, value| serde_json::from_value::<StepFile>(json!({ key.as_str(): value })).is_ok());
    serde_json::from_value(Value::Object(members)).ok()
}

/// The entry of the agent's completion type, then every other entry. Unknown steps are told.
fn entries(file: &RegistryFile, agent: Option<&AgentParts>, findings: &mut Findings<'_>) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    let known = |id: &str| file.steps.contains_key(id);
    let names = agent.and_then(|agent| agent.completion.as_ref()).map(|completion| completion.all_names());
    let of_type = names.iter().flatten().find_map(|name| file.entry_step_mapping.get_key_value(*name));
    // The oldest mappings list what counts otherwise under this word.
    let otherwise = file.entry_step_mapping.get_key_value(OTHERWISE);
    let selected = of_type.or(otherwise.filter(|_| file.entry_step.is_none()));
    let nearest = |id: &str| match shape::nearest(id, file.steps.keys().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "name a step of the registry".to_owned(),
    };
    if let Some((name, target)) = selected {
        entries.push(target.clone());
        if !known(target) {
            findings.add(
                Severity::Error,
                "SR-ENTRY-003",
                &child("/entryStepMapping", name),
                format!("the entry step \"{target}\" is no step"),
                nearest(target),
            );
        }
    }
    if let Some(entry) = &file.entry_step {
        if !known(entry) {
            let severity = if entries.is_empty() { Severity::Error } else { Severity::Warning };
            findings.add(
                severity,
                "SR-ENTRY-002",
                "/entryStep",
                format!("the entry step \"{entry}\" is no step"),
                nearest(entry),
            );
        }
        entries.push(entry.clone());
    }
    if entries.is_empty() {
        findings.add(
            Severity::Error,
            "SR-ENTRY-001",
            "",
            "the registry says nowhere where a run starts",
            "write \"entryStep\": \"…\", or an entryStepMapping for the agent's completion type",
        );
        // An empty first entry means that none was found. The others still separate orphans from alternatives.
        entries.push(String::new());
    }
    for (name, target) in &file.entry_step_mapping {
        if name == OTHERWISE && file.entry_step.is_some() {
            findings.add(
                Severity::Warning,
                "SR-IGNORED-001",
                &child("/entryStepMapping", name),
                format!("\"{OTHERWISE}\" is ignored: what is not listed begins at entryStep"),
                "remove one of the two",
            );
        } else if name != OTHERWISE && type_names(name).is_none() {
            findings.add(
                Severity::Warning,
                "SR-IGNORED-001",
                &child("/entryStepMapping", name),
                format!("\"{name}\" is ignored: it is no completion type"),
                match shape::nearest(name, known_type_names().into_iter()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("write a completion type, or \"{OTHERWISE}\" for all others"),
                },
            );
        }
        if selected.is_some_and(|(chosen, _)| chosen == name) {
            continue;
        }
        if !known(target) {
            findings.add(
                Severity::Warning,
                "SR-ENTRY-003",
                &child("/entryStepMapping", name),
                format!(
                    "the entry step \"{target}\" is no step (the agent's completion type does not use it)"
                ),
                nearest(target),
            );
        }
        entries.push(target.clone());
    }
    entries
}

fn failure_patterns(
    file: &Map<String, Value>,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, FailurePattern> {
    let mut patterns = BTreeMap::new();
    for (name, value) in file {
        let at = child("/failurePatterns", name);
        let Ok(file) = serde_json::from_value::<FailurePatternFile>(value.clone()) else { continue };
        for (index, text) in file.semantic_match.iter().enumerate() {
            if let Some(pattern) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
                check_regex(pattern, &format!("{at}/semanticMatch/{index}"), findings);
            }
        }
        patterns.insert(
            name.clone(),
            FailurePattern {
                description: file.description.unwrap_or_default(),
                edition: file.edition.unwrap_or_else(|| "failed".into()),
                adaptation: file.adaptation,
                params: file.params,
                semantic_match: file.semantic_match,
            },
        );
    }
    patterns
}

fn check_regex(pattern: &str, at: &str, findings: &mut Findings<'_>) {
    if let Err(error) = Regex::new(pattern) {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        findings.add(
            Severity::Error,
            "SR-REF-003",
            at,
            format!("\"{pattern}\" is no regular expression: {reason}"),
            "correct it, or escape what is meant literally",
        );
    }
}

fn validators(
    file: &Map<String, Value>,
    patterns: &Map<String, Value>,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, Validator> {
    let mut validators = BTreeMap::new();
    for (name, value) in file {
        let at = child("/validators", name);
        let Ok(file) = serde_json::from_value::<ValidatorFile>(value.clone()) else { continue };
        unused_of_validator(name, &file, value, &at, findings);
        let (kind, key) = match file.kind {
            ValidatorWord::Command => (file.command.clone().map(ValidatorKind::Command), "command"),
            ValidatorWord::File => (file.path.clone().map(ValidatorKind::File), "path"),
            ValidatorWord::Custom => {
                (file.command.clone().or_else(|| file.path.clone()).map(ValidatorKind::Custom), "path")
            }
            ValidatorWord::Semantic => (
                file.semantic_config
                    .as_ref()
                    .map(|config| ValidatorKind::Semantic(config.check_type.clone())),
                "semanticConfig",
            ),
        };
        let Some(kind) = kind else {
            findings.schema_error(
                "SR-VALID-004",
                &at,
                format!("validator \"{name}\" has no {key}"),
                format!("write \"{key}\""),
            );
            continue;
        };
        if let Some(pattern) = &file.failure_pattern
            && !patterns.contains_key(pattern)
        {
            findings.add(
                Severity::Error,
                "SR-REF-002",
                &child(&at, "failurePattern"),
                format!("failurePattern \"{pattern}\" is not defined"),
                match shape::nearest(pattern, patterns.keys().map(String::as_str)) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "define it under failurePatterns".to_owned(),
                },
            );
        }
        for (param, extractor) in &file.extract_params {
            if CheckOutput::default().extract(extractor).is_none() {
                let near = shape::nearest(extractor, EXTRACTORS.iter().copied());
                findings.add(
                    Severity::Warning,
                    "SR-REF-004",
                    &child(&child(&at, "extractParams"), param),
                    format!("\"{extractor}\" is no extractor; \"{param}\" stays empty"),
                    match near {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => format!("write one of {}", EXTRACTORS.join(", ")),
                    },
                );
            }
        }
        let success = success_when(file.success_when.as_deref(), &child(&at, "successWhen"), findings);
        void_checks::tell(name, &kind, &success, &at, findings);
        validators.insert(
            name.clone(),
            Validator {
                kind,
                success,
                failure_pattern: file.failure_pattern,
                extract_params: file.extract_params,
                recoverable: file.recoverable_by_default.unwrap_or(true),
                from_worktree: file.from_worktree,
            },
        );
    }
    validators
}

/// Keys of a validator that its type does not have.
fn unused_of_validator(
    name: &str,
    file: &ValidatorFile,
    value: &Value,
    at: &str,
    findings: &mut Findings<'_>,
) {
    const OF_PROGRAMS: [&str; 2] = ["successWhen", "fromWorktree"];
    let (kind, others): (&str, &[&[&str]]) = match file.kind {
        ValidatorWord::Command => ("command", &[&["path", "semanticConfig"]]),
        ValidatorWord::File => ("file", &[&["command", "semanticConfig"], &OF_PROGRAMS]),
        ValidatorWord::Custom if file.command.is_some() => ("custom", &[&["path", "semanticConfig"]]),
        ValidatorWord::Custom => ("custom", &[&["semanticConfig"]]),
        ValidatorWord::Semantic => ("semantic", &[&["command", "path", "extractParams"], &OF_PROGRAMS]),
    };
    for key in others.iter().copied().flatten().filter(|key| value.get(**key).is_some()) {
        findings.add(
            Severity::Warning,
            "SR-IGNORED-001",
            &child(at, key),
            format!("\"{key}\" of the validator \"{name}\" is ignored: its type is {kind}"),
            "remove it, or correct the type",
        );
    }
}

fn success_when(word: Option<&str>, at: &str, findings: &mut Findings<'_>) -> SuccessWhen {
    let Some(word) = word else { return SuccessWhen::ExitCode(0) };
    match word.split_once(':') {
        None if word == "empty" => return SuccessWhen::Empty,
        Some(("contains", text)) => return SuccessWhen::Contains(text.to_owned()),
        Some(("matches", pattern)) => {
            check_regex(pattern, at, findings);
            return SuccessWhen::Matches(pattern.to_owned());
        }
        Some(("exitCode", code)) => {
            if let Ok(code) = code.trim().parse() {
                return SuccessWhen::ExitCode(code);
            }
        }
        _ => {}
    }
    findings.schema_error(
        "SR-VALID-004",
        at,
        format!("\"{word}\" is no condition"),
        "write empty, exitCode:N, contains:TEXT or matches:REGEX",
    );
    SuccessWhen::ExitCode(0)
}

/// The conditions of one list; their validators exist, and are meant for it.
fn conditions(
    list: Vec<ConditionFile>,
    at: &str,
    phase: Option<PhaseWord>,
    validators: &Map<String, Value>,
    findings: &mut Findings<'_>,
) -> Vec<ValidationCondition> {
    let mut conditions = Vec::new();
    for (index, condition) in list.into_iter().enumerate() {
        let at = format!("{at}/{index}/validator");
        let declared = validators.get(&condition.validator).and_then(|validator| validator.get("phase"));
        let declared = declared.and_then(|word| serde_json::from_value::<PhaseWord>(word.clone()).ok());
        if !validators.contains_key(&condition.validator) {
            findings.add(
                Severity::Error,
                "SR-REF-001",
                &at,
                format!("validator \"{}\" is not defined", condition.validator),
                match shape::nearest(&condition.validator, validators.keys().map(String::as_str)) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "define it under validators".to_owned(),
                },
            );
        } else if phase.is_some() && declared.is_some() && phase != declared {
            findings.add(
                Severity::Error,
                "SR-REF-006",
                &at,
                format!(
                    "validator \"{}\" is declared for the other moment by its phase",
                    condition.validator
                ),
                "name another validator, or correct its phase",
            );
        }
        let params = condition.params.iter().map(|(name, value)| (name.clone(), value_text(value))).collect();
        conditions.push(ValidationCondition { validator: condition.validator, params });
    }
    conditions
}

fn validation_steps(registry: &RegistryFile, findings: &mut Findings<'_>) -> Vec<ValidationStep> {
    let validators = &registry.validators;
    let mut steps = Vec::new();
    for (id, value) in &registry.validation_steps {
        let at = child("/validationSteps", id);
        let Ok(file) = serde_json::from_value::<ValidationStepFile>(value.clone()) else { continue };
        let of_step = registry.steps.get(id);
        for key in ["outputSchema", "outputSchemaRef"] {
            // A schema equal to the step's is not ignored, because the step's output is checked against it.
            let written = value.get(key);
            if written.is_some() && written != of_step.and_then(|step| step.get(key)) {
                findings.add(
                    Severity::Warning,
                    "SR-IGNORED-001",
                    &child(&at, key),
                    format!("\"{key}\" of a validation step is ignored: an output is held to its step's own schema"),
                    "write it at the step",
                );
            }
        }
        let mut of = |key: &str, phase, list| conditions(list, &child(&at, key), phase, validators, findings);
        let conditions = of("validationConditions", None, file.validation_conditions);
        let before = of("preflightConditions", Some(PhaseWord::Preflight), file.preflight_conditions);
        let after = of("postLLMConditions", Some(PhaseWord::PostLlm), file.post_llm_conditions);
        let on_failure = file.on_failure;
        if let Some(OnFailureFile { action: OnFailure::Abort | OnFailure::Skip, max_attempts: Some(_) }) =
            &on_failure
        {
            findings.add(
                Severity::Warning,
                "SR-IGNORED-001",
                &format!("{at}/onFailure/maxAttempts"),
                "\"maxAttempts\" is ignored: only the action \"retry\" makes attempts",
                "remove it, or write the action \"retry\"",
            );
        }
        if file.step_id.as_ref().is_some_and(|written| written != id) {
            findings.add(
                Severity::Warning,
                "SR-IGNORED-001",
                &child(&at, "stepId"),
                format!("\"stepId\" is ignored: a validation step goes by its key \"{id}\""),
                "write the key's name",
            );
        }
        steps.push(ValidationStep {
            id: id.clone(),
            name: file.name.unwrap_or_else(|| id.clone()),
            c2: file.c2.unwrap_or_else(|| "retry".into()),
            c3: file.c3.unwrap_or_default(),
            conditions,
            before,
            after,
            on_failure: on_failure.as_ref().map_or(OnFailure::Retry, |on_failure| on_failure.action),
            max_attempts: on_failure.and_then(|on_failure| on_failure.max_attempts).unwrap_or(3),
        });
    }
    steps
}
