//! From the registry's shape to the steps of a flow: gates, transitions, inputs and output schemas.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::backend_file;
use super::diagnostic::Severity;
use super::position::child;
use super::registry_file::{GateFile, InputFile, OldestInputsFile, OutputFieldFile, StepFile};
use super::schema_file::SchemaFolder;
use super::shape::{self, Codes, Format};
use super::source::Findings;
use super::step_check;
use crate::domain::agent_program::{Backend, StepExecutor};
use crate::domain::flow::{Gate, Intent, Step, StepAddress, StepKind, Subprocess, Transition};
use crate::domain::input_spec::{Input, InputSpec, OnMissing, split_reference};
use crate::domain::output_schema::{FieldKind, OutputField, OutputSchema, StepSchema};

/// Codes of a registry.
pub(super) const CODES: Codes =
    Codes { missing: "SR-LOAD-001", invalid: "SR-VALID-004", unknown: "SR-UNKNOWN-001" };

/// Codes of what a step takes from others.
const INPUT_CODES: Codes = Codes { missing: "SR-INPUT-001", invalid: "SR-INPUT-001", ..CODES };

static INPUT: LazyLock<Format> = LazyLock::new(Format::of::<InputFile>);
static OLDEST_INPUTS: LazyLock<Format> = LazyLock::new(Format::of::<OldestInputsFile>);
static OUTPUT_FIELD: LazyLock<Format> = LazyLock::new(Format::of::<OutputFieldFile>);

/// What reading a step needs beside the step.
pub struct StepReader<'a, 'f> {
    /// The agent's schemas.
    pub schemas: &'a SchemaFolder<'a>,
    /// See `AgentParts::inputs_optional`.
    pub inputs_optional: bool,
    /// The backend whose program the agent has.
    pub backend: Option<Backend>,
    /// Where problems go.
    pub findings: &'a mut Findings<'f>,
}

/// A step that was read, and what the checks need of its file.
#[derive(Debug, Clone)]
pub struct ReadStep {
    /// The step.
    pub step: Step,
    /// Pointer in the registry.
    pub at: String,
    /// `path` in place of an address.
    pub path: Option<String>,
    /// Why its output has no schema although it should have one: (pointer, code, message, fix).
    pub broken_schema: Option<(String, &'static str, String, String)>,
    /// `intentSchemaRef`.
    pub intent_schema_ref: Option<String>,
}

impl StepReader<'_, '_> {
    /// Reads one step of the registry's newest form.
    pub fn read(&mut self, id: &str, file: &StepFile) -> ReadStep {
        let at = child("/steps", id);
        self.id(id, file, &at);
        self.ignored(file, &at);
        let kind = file.step_kind.or_else(|| StepKind::from_c2(file.c2.as_deref()?));
        let gate = file.structured_gate.as_ref().and_then(|gate| self.gate(gate, kind, &at));
        let mut broken_schema = None;
        let mut output_schema = self.output_schema(id, file, &at).unwrap_or_else(|broken| {
            broken_schema = Some(broken);
            None
        });
        let intent_schema_ref = file.structured_gate.as_ref().and_then(|gate| gate.intent_schema_ref.clone());
        if let (Some(gate), Some(schema)) = (&gate, &mut output_schema) {
            self.intent_enum(gate, intent_schema_ref.as_deref(), schema, &at);
        }
        let missing = |key: &Option<String>| key.is_none() && file.path.is_none() && file.runner.is_none();
        for (name, key) in [("c2", &file.c2), ("c3", &file.c3)] {
            if missing(key) {
                self.findings.schema_error(
                    "SR-VALID-004",
                    &at,
                    format!("step \"{id}\" has no {name}"),
                    "write the level of the prompt's address",
                );
            }
        }
        let check = file.check.as_ref().filter(|_| file.structured_gate.is_none());
        let iterations =
            file.iterations.as_ref().map(|written| step_check::iterations(written, &at, self.findings));
        let check = check.and_then(|check| step_check::read(check, &at, self.findings));
        let executor = self.executor(id, file, &at);
        let step = Step {
            id: id.to_owned(),
            executor,
            check,
            iterations: iterations.unwrap_or_default(),
            name: file.name.clone().unwrap_or_else(|| id.to_owned()),
            description: file.description.clone().unwrap_or_default(),
            kind,
            address: StepAddress {
                c2: file.c2.clone().unwrap_or_default(),
                c3: file.c3.clone().unwrap_or_default(),
                edition: file.edition.clone().unwrap_or_else(|| "default".into()),
                adaptation: file.adaptation.clone(),
            },
            uv_variables: file.uv_variables.clone(),
            uses_stdin: file.uses_stdin,
            output_schema,
            inputs: file.inputs.as_ref().map(|inputs| self.inputs(inputs, &at)).unwrap_or_default(),
            gate,
            gates_plan: file.gate.is_some(),
            transitions: self.transitions(file, &at),
            permission_mode: file.permission_mode,
            runner: file.runner.as_ref().map(|runner| Subprocess {
                command: runner.command.clone(),
                args: runner.args.clone(),
                timeout: Duration::from_millis(runner.timeout.unwrap_or(30_000)),
                from_worktree: runner.from_worktree,
            }),
        };
        ReadStep { step, at, path: file.path.clone(), broken_schema, intent_schema_ref }
    }

    fn executor(&mut self, id: &str, file: &StepFile, at: &str) -> Option<StepExecutor> {
        let file_agentd = file.agentd.clone()?;
        let at = child(at, "agentd");
        if file.runner.is_some() {
            self.findings.add(
                Severity::Error,
                "SR-VALID-004",
                &at,
                format!("step \"{id}\" has a `runner`: no backend works on it"),
                "take one of the two out",
            );
            return None;
        }
        let place = (at.as_str(), "SR-VALID-004");
        let backend = file_agentd.backend.as_deref();
        backend_file::executor(backend, file_agentd.program, self.backend, place, self.findings)
    }

    fn id(&mut self, id: &str, file: &StepFile, at: &str) {
        if let Some(written) = &file.step_id
            && written != id
        {
            self.findings.add(
                Severity::Error,
                "SR-VALID-004",
                &child(at, "stepId"),
                format!("stepId \"{written}\" differs from its key \"{id}\""),
                "write the key's name",
            );
        }
    }

    fn ignored(&mut self, file: &StepFile, at: &str) {
        let gate = file.structured_gate.as_ref();
        let runs = file.runner.is_some();
        let named = |path: &String, word: &str| {
            path.rsplit('/').next().is_some_and(|name| name.split(['_', '.']).any(|part| part == word))
        };
        let unnamed = |word: &str| file.path.as_ref().is_some_and(|path| !named(path, word));
        for (key, there, why) in [
            ("model", file.model.is_some(), "models are chosen by session.targets in agentd.toml"),
            ("condition", file.condition.is_some(), "steps are chosen by transitions alone"),
            ("priority", file.priority.is_some(), "steps are chosen by transitions alone"),
            ("fallbackKey", file.fallback_key.is_some(), "prompts are found by their address alone"),
            ("iterations", file.iterations.is_some() && gate.is_some(), "the gate says where the step leads"),
            ("check", file.check.is_some() && gate.is_some(), "the gate says where the step leads"),
            (
                "structuredGate/targetMode",
                gate.is_some_and(|gate| gate.target_mode.is_some()),
                "the transitions say it",
            ),
            (
                "structuredGate/fallbackIntent",
                gate.is_some_and(|gate| gate.fallback_intent.is_some() && gate.fail_fast != Some(false)),
                "an intent that is not allowed is told to the model, and then ends the run, unless failFast is false",
            ),
            (
                "structuredGate/targetField",
                gate.is_some_and(|gate| {
                    let jumps = |word: &String| Intent::read(word) == Some(Intent::Jump);
                    gate.target_field.is_some() && !gate.allowed_intents.iter().any(jumps)
                }),
                "only a jump has a target, and the gate lets none through",
            ),
            (
                "type",
                file.kind.as_ref().is_some_and(|kind| kind != "prompt"),
                "every step is worked on by its prompt",
            ),
            (
                "outputSchema",
                file.output_schema.is_some() && file.output_schema_ref.is_some(),
                "outputSchemaRef goes before it",
            ),
            (
                "adaptation",
                file.adaptation.as_ref().is_some_and(|word| unnamed(word)),
                "the prompt is named by its path",
            ),
            (
                "edition",
                file.edition.as_ref().is_some_and(|word| unnamed(word)),
                "the prompt is named by its path",
            ),
            ("path", runs && file.path.is_some(), "a program does the step"),
            ("usesStdin", runs && file.uses_stdin, "a program does the step"),
            ("permissionMode", runs && file.permission_mode.is_some(), "a program does the step"),
        ] {
            if there {
                self.findings.add(
                    Severity::Warning,
                    "SR-IGNORED-001",
                    &format!("{at}/{key}"),
                    format!("\"{}\" is ignored: {why}", key.replace('/', ".")),
                    "remove it",
                );
            }
        }
    }

    fn gate(&mut self, file: &GateFile, kind: Option<StepKind>, at: &str) -> Option<Gate> {
        let at = child(at, "structuredGate");
        let mut allowed_intents = Vec::new();
        for (index, word) in file.allowed_intents.iter().enumerate() {
            let place = child(&child(&at, "allowedIntents"), &index.to_string());
            let Some(intent) = self.intent(word, &place) else { continue };
            self.legal(intent, kind, &place);
            allowed_intents.push(intent);
        }
        if allowed_intents.is_empty() {
            self.findings.add(
                Severity::Error,
                "SR-VALID-001",
                &child(&at, "allowedIntents"),
                "the gate lets no intent through",
                "list the intents that the step may emit",
            );
        }
        let fallback_intent = file.fallback_intent.as_ref().and_then(|word| {
            let place = child(&at, "fallbackIntent");
            let intent = self.intent(word, &place)?;
            if self.legal(intent, kind, &place) && !allowed_intents.contains(&intent) {
                self.findings.add(
                    Severity::Error,
                    "SR-VALID-001",
                    &place,
                    format!("the fallback \"{intent}\" is not among allowedIntents"),
                    "allow it, or fall back to an intent that is allowed",
                );
            }
            Some(intent)
        });
        let pointer_ok = file.intent_schema_ref.as_deref().is_some_and(|pointer| pointer.starts_with("#/"));
        if !pointer_ok {
            self.findings.add(
                Severity::Error,
                "SR-VALID-002",
                &child(&at, "intentSchemaRef"),
                match &file.intent_schema_ref {
                    Some(other) => {
                        format!("intentSchemaRef \"{other}\" is no pointer into the step's own schema")
                    }
                    None => "the gate has no intentSchemaRef".to_owned(),
                },
                "write a pointer such as \"#/properties/next_action/properties/action\"",
            );
        }
        let Some(intent_field) = file.intent_field.clone().filter(|field| !field.is_empty()) else {
            self.findings.add(
                Severity::Error,
                "SR-VALID-002",
                &child(&at, "intentField"),
                "the gate has no intentField",
                "write the dot path of the intent, such as \"next_action.action\"",
            );
            return None;
        };
        Some(Gate {
            allowed_intents,
            intent_field,
            target_field: file.target_field.clone(),
            handoff_fields: file.handoff_fields.clone(),
            fail_fast: file.fail_fast.unwrap_or(true),
            fallback_intent,
        })
    }

    fn intent(&mut self, word: &str, at: &str) -> Option<Intent> {
        let intent = Intent::read(word);
        if intent.is_none() {
            let words: Vec<&str> = Intent::ALL.iter().map(|intent| intent.as_str()).collect();
            self.findings.add(
                Severity::Error,
                "SR-VALID-001",
                at,
                format!("\"{word}\" is no intent"),
                format!("write one of {}", words.join(", ")),
            );
        }
        intent
    }

    fn legal(&mut self, intent: Intent, kind: Option<StepKind>, at: &str) -> bool {
        let Some(kind) = kind else { return true };
        let legal = kind.intents().contains(&intent);
        if !legal {
            let words: Vec<&str> = kind.intents().iter().map(|intent| intent.as_str()).collect();
            self.findings.add(
                Severity::Error,
                "SR-VALID-001",
                at,
                format!("a {kind} step cannot emit \"{intent}\""),
                format!("a {kind} step may emit {}", words.join(", ")),
            );
        }
        legal
    }

    fn transitions(&mut self, file: &StepFile, at: &str) -> BTreeMap<Intent, Transition> {
        let gated = file.structured_gate.is_some();
        let mut transitions = BTreeMap::new();
        for (word, rule) in file.transitions.iter().flatten() {
            let at = child(&child(at, "transitions"), word);
            let Some(intent) = Intent::read(word) else {
                self.findings.add(
                    Severity::Warning,
                    "SR-TRANS-011",
                    &at,
                    format!("\"{word}\" is no intent; the transition is never taken"),
                    "remove it or correct the word",
                );
                continue;
            };
            if rule.get("fallback").is_some() {
                self.findings.add(
                    Severity::Warning,
                    "SR-IGNORED-001",
                    &child(&at, "fallback"),
                    "\"fallback\" of a transition is ignored: an unknown target is an error",
                    "remove it",
                );
            }
            let conditional = rule.get("condition").is_some() || rule.get("targets").is_some();
            let names_step = rule.get("target").is_some_and(|target| !target.is_null());
            let dead = match intent {
                Intent::Closing | Intent::Abort if names_step || conditional => {
                    Some("it ends the flow, wherever it is said to lead")
                }
                Intent::Next | Intent::Repeat | Intent::Jump | Intent::Handoff | Intent::Escalate
                    if !gated && intent != Intent::Next =>
                {
                    Some("a step without gate says no intent; it goes to \"next\"")
                }
                Intent::Next | Intent::Repeat | Intent::Jump | Intent::Handoff | Intent::Escalate
                    if conditional && rule.get("target").is_some() =>
                {
                    Some("of \"target\" and \"targets\", the latter count")
                }
                Intent::Next
                | Intent::Repeat
                | Intent::Jump
                | Intent::Handoff
                | Intent::Escalate
                | Intent::Closing
                | Intent::Abort => None,
            };
            if let Some(why) = dead {
                let at = if conditional && names_step { child(&at, "target") } else { at.clone() };
                let message = format!("what \"{word}\" says here is ignored: {why}");
                self.findings.add(Severity::Warning, "SR-IGNORED-001", &at, message, "remove it");
            }
            let target = |value: &Value| value.as_str().map(str::to_owned);
            let transition = match (rule.get("condition").and_then(Value::as_str), rule.get("targets")) {
                (Some(condition), Some(Value::Object(targets))) => {
                    let mut by_value: BTreeMap<String, Option<String>> =
                        targets.iter().map(|(value, step)| (value.clone(), target(step))).collect();
                    let default = by_value.remove("default");
                    Transition::Conditional { condition: condition.to_owned(), targets: by_value, default }
                }
                (None, None) => Transition::Target(rule.get("target").and_then(target)),
                _ => {
                    self.findings.schema_error(
                        "SR-VALID-004",
                        &at,
                        "a conditional transition needs both \"condition\" and \"targets\"",
                        "write {\"condition\": field, \"targets\": {value: step, \"default\": step}}",
                    );
                    continue;
                }
            };
            transitions.insert(intent, transition);
        }
        transitions
    }

    fn inputs(&mut self, file: &Value, at: &str) -> InputSpec {
        let at = child(at, "inputs");
        let Some(map) = file.as_object() else {
            self.findings.schema_error(
                "SR-INPUT-001",
                &at,
                "inputs is no object",
                "write {name: {from: \"step.key\"}}",
            );
            return InputSpec::default();
        };
        let mut spec = InputSpec::default();
        match map.get("variables").and_then(Value::as_object) {
            Some(variables)
                if ["from_step", "from_steps"].iter().any(|key| map.contains_key(*key)) || map.len() == 1 =>
            {
                shape::check_at(&OLDEST_INPUTS, file, &at, INPUT_CODES, self.findings);
                let from = map.get("from_step").and_then(Value::as_str);
                for (reference, rule) in variables {
                    let place = child(&child(&at, "variables"), reference);
                    let reference = match (split_reference(reference), from) {
                        (None, Some(step)) => format!("{step}.{reference}"),
                        _ => reference.clone(),
                    };
                    spec.inputs.extend(self.input(&reference, rule, true, &place));
                }
            }
            _ => {
                for (name, rule) in map {
                    let place = child(&at, name);
                    let from = rule.get("from").and_then(Value::as_str).unwrap_or(name).to_owned();
                    let unsaid = rule.is_object() && rule.get("required").is_none();
                    if unsaid && self.inputs_optional {
                        self.findings.add(
                            Severity::Warning,
                            "SR-INPUT-004",
                            &place,
                            format!("input \"{name}\" does not say \"required\"; in this format that means optional"),
                            "write \"required\": true or false",
                        );
                    }
                    spec.inputs.extend(self.input(&from, rule, !self.inputs_optional, &place));
                }
            }
        }
        spec
    }

    fn input(&mut self, reference: &str, value: &Value, default_required: bool, at: &str) -> Option<Input> {
        let Some(mut input) = Input::required(reference) else {
            self.findings.add(
                Severity::Error,
                "SR-INPUT-001",
                at,
                format!("\"{reference}\" names no output of a step"),
                "write \"stepId.key\": the last dot splits the step from its key",
            );
            return None;
        };
        match value {
            Value::Bool(required) => input.required = *required,
            Value::Object(rule) => {
                shape::check_at(&INPUT, value, at, INPUT_CODES, self.findings);
                input.required = rule.get("required").and_then(Value::as_bool).unwrap_or(default_required);
                input.default = rule.get("default").cloned();
                input.on_missing = match rule.get("onMissing").and_then(Value::as_str) {
                    Some(word) => OnMissing::parse(word).unwrap_or_else(|| {
                        self.findings.schema_error(
                            "SR-INPUT-001",
                            &child(at, "onMissing"),
                            format!("\"{word}\" is no way to handle a missing input"),
                            "write error, default or skip",
                        );
                        OnMissing::Error
                    }),
                    // The newest form has no `onMissing`; a default is always used.
                    None if input.default.is_some() && rule.contains_key("from") => OnMissing::Default,
                    None => OnMissing::Error,
                };
                if input.on_missing == OnMissing::Default && input.default.is_none() {
                    self.findings.add(
                        Severity::Error,
                        "SR-INPUT-001",
                        at,
                        "onMissing \"default\" without a default",
                        "write the default",
                    );
                }
            }
            _ => self.findings.schema_error(
                "SR-INPUT-001",
                at,
                "an input is true, false or an object",
                "correct it",
            ),
        }
        Some(input)
    }

    fn output_schema(
        &mut self,
        id: &str,
        file: &StepFile,
        at: &str,
    ) -> Result<Option<StepSchema>, (String, &'static str, String, String)> {
        if let Some(reference) = &file.output_schema_ref {
            let source = format!("{}/{}#{}", self.schemas.shown, reference.file, reference.schema);
            return match self.schemas.resolve(&reference.file, &reference.schema) {
                Ok(json) => Ok(Some(StepSchema { json, fields: None, source })),
                Err(error) => Err((child(at, "outputSchemaRef"), error.code, error.message, error.fix)),
            };
        }
        let Some(inline) = &file.output_schema else { return Ok(None) };
        let at = child(at, "outputSchema");
        let source = format!("steps_registry.json#{at}");
        let Some(map) = inline.as_object() else {
            return Err((at, "SR-VALID-004", "outputSchema is no object".into(), "write the fields".into()));
        };
        if map.contains_key("properties") || map.get("type").is_some_and(Value::is_string) {
            return Ok(Some(StepSchema { json: inline.clone(), fields: None, source }));
        }
        let mut fields = Vec::new();
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with('$')) {
            let at = child(&at, name);
            match (name.as_str(), value) {
                ("$namespace", Value::String(_)) | ("$schema" | "$comment", _) => {}
                ("$namespace", _) => {
                    self.findings.schema_error(
                        "SR-VALID-004",
                        &at,
                        "$namespace is no text",
                        "write the step's id",
                    );
                }
                (key, value) => {
                    let message = shape::unknown(key, value);
                    self.findings.add(Severity::Warning, CODES.unknown, &at, message, "remove it");
                }
            }
        }
        for (name, field) in map.iter().filter(|(name, _)| !name.starts_with('$')) {
            if field.is_object() {
                shape::check_at(&OUTPUT_FIELD, field, &child(&at, name), CODES, self.findings);
            }
            let word = field.as_str().or_else(|| field.get("type").and_then(Value::as_str)).unwrap_or("");
            let Some(kind) = FieldKind::parse(word) else {
                return Err((
                    child(&at, name),
                    "SR-VALID-004",
                    format!("field \"{name}\" has no type that is known"),
                    "write string, number, boolean, object or array".into(),
                ));
            };
            let field = OutputField {
                name: name.clone(),
                kind,
                required: field.get("required").and_then(Value::as_bool).unwrap_or(true),
                description: field.get("description").and_then(Value::as_str).map(str::to_owned),
                default: field.get("default").cloned(),
            };
            if let Some(default) = &field.default
                && !kind.fits(default)
            {
                return Err((
                    child(&at, name),
                    "SR-VALID-004",
                    format!("the default of \"{name}\" is no {}", kind.as_str()),
                    "write a default of the field's type".into(),
                ));
            }
            fields.push(field);
        }
        let namespace = map.get("$namespace").and_then(Value::as_str).unwrap_or(id).to_owned();
        let fields = OutputSchema { namespace, fields };
        Ok(Some(StepSchema { json: fields.to_json_schema(false), fields: Some(fields), source }))
    }

    /// Compares the enum of the schema at the gate's pointer with the allowed intents, as sets. Then lets the schema
    /// accept the canonical words, because outputs are normalised to them.
    fn intent_enum(&mut self, gate: &Gate, pointer: Option<&str>, schema: &mut StepSchema, at: &str) {
        let Some(pointer) =
            pointer.and_then(|pointer| pointer.strip_prefix('#')).filter(|p| p.starts_with('/'))
        else {
            return;
        };
        let place = child(&child(at, "structuredGate"), "intentSchemaRef");
        let Some(found) = schema.json.pointer_mut(pointer) else {
            self.findings.add(
                Severity::Error,
                "SCHEMA_POINTER_ERROR",
                &place,
                format!("the step's schema ({}) has nothing at #{pointer}", schema.source),
                "correct the pointer or the schema",
            );
            return;
        };
        let words: Vec<String> = match (found.get("enum").and_then(Value::as_array), found.get("const")) {
            (Some(words), _) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            (None, Some(word)) => word.as_str().map(str::to_owned).into_iter().collect(),
            (None, None) => Vec::new(),
        };
        // A word of an intent that the gate does not let through is one more than allowed.
        let read = |word: &String| gate.read(word).or_else(|| Intent::read(word));
        let said: std::collections::BTreeSet<Intent> = words.iter().filter_map(read).collect();
        let allowed: std::collections::BTreeSet<Intent> = gate.allowed_intents.iter().copied().collect();
        let unknown = words.iter().any(|word| read(word).is_none());
        if said != allowed || unknown {
            let list = |intents: &std::collections::BTreeSet<Intent>| {
                intents.iter().map(|intent| intent.as_str()).collect::<Vec<_>>().join(", ")
            };
            self.findings.add(
                Severity::Error,
                "SR-VALID-003",
                &place,
                format!(
                    "the schema's enum at #{pointer} is [{}], but allowedIntents is [{}]",
                    words.join(", "),
                    list(&allowed)
                ),
                "make both list the same intents",
            );
        } else if words.iter().any(|word| read(word).is_some_and(|intent| intent.as_str() != word))
            && let Some(object) = found.as_object_mut()
        {
            object.shift_remove("const");
            object.insert(
                "enum".into(),
                json!(allowed.iter().map(|intent| intent.as_str()).collect::<Vec<_>>()),
            );
        }
    }
}
