//! `steps_registry.json` in its newest form: its shape, and the plain parts of a flow.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::backend_file::StepAgentdFile;
use crate::domain::flow::OnFailure;
use crate::domain::intent::{PermissionMode, StepKind};

/// `steps_registry.json`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryFile {
    /// For editors.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// The agent's name.
    pub agent_id: String,
    /// Version of the registry; absent = "1.0".
    pub version: Option<String>,
    /// First level of every prompt address; absent = `steps`.
    pub c1: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Without effect: addresses have one form.
    pub path_template: Option<String>,
    /// Without effect: addresses have one form.
    pub path_template_no_adaptation: Option<String>,
    /// Where a run starts.
    pub entry_step: Option<String>,
    /// Where a run starts, by completion type; goes before `entryStep`.
    #[serde(default)]
    pub entry_step_mapping: BTreeMap<String, String>,
    /// What failed checks look like to the model.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, FailurePatternFile>")]
    pub failure_patterns: Map<String, Value>,
    /// Checks.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ValidatorFile>")]
    pub validators: Map<String, Value>,
    /// What must hold before closing.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ValidationStepFile>")]
    pub validation_steps: Map<String, Value>,
    /// The steps.
    #[schemars(with = "BTreeMap<String, StepFile>")]
    pub steps: Map<String, Value>,
}

/// One step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepFile {
    /// The step's key again.
    pub step_id: Option<String>,
    /// For people.
    pub name: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Decoration.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// What the step is for.
    pub step_kind: Option<StepKind>,
    /// Second level of the prompt's address.
    pub c2: Option<String>,
    /// Third level of the prompt's address.
    pub c3: Option<String>,
    /// Edition; absent = `default`.
    pub edition: Option<String>,
    /// Adaptation.
    pub adaptation: Option<String>,
    /// Path of the prompt in place of an address, relative to the agent's folder.
    pub path: Option<String>,
    /// Variables the prompt takes.
    #[serde(default)]
    pub uv_variables: Vec<String>,
    /// Whether the prompt takes `{input_text}`.
    #[serde(default)]
    pub uses_stdin: bool,
    /// Schema of the output.
    pub output_schema_ref: Option<SchemaRefFile>,
    /// Schema of the output, in place: the oldest form's field list, or a JSON Schema.
    pub output_schema: Option<Value>,
    /// What it takes from earlier steps.
    pub inputs: Option<Value>,
    /// How the output becomes an intent.
    pub structured_gate: Option<GateFile>,
    /// Whether people approve what the step puts out as `plan` before the flow goes on, where `plan.gate` asks for that.
    pub gate: Option<StepGateFile>,
    /// Where intents lead.
    #[schemars(with = "Option<BTreeMap<String, TransitionFile>>")]
    pub transitions: Option<Map<String, Value>>,
    /// Mode of the step's sessions.
    pub permission_mode: Option<PermissionMode>,
    /// A program in place of a model.
    pub runner: Option<SubprocessFile>,
    /// Settings of agentd's own.
    pub agentd: Option<StepAgentdFile>,
    /// Without meaning here.
    pub model: Option<Value>,
    /// Without meaning here.
    pub condition: Option<Value>,
    /// Without meaning here.
    pub priority: Option<Value>,
    /// Without meaning here.
    pub fallback_key: Option<Value>,
    /// How often in a row a step without gate is visited: `{min, max}`.
    #[schemars(with = "Option<IterationsFile>")]
    pub iterations: Option<Value>,
    /// A question after the step's work, in place of a gate: `{prompt, onPass, onFail}`.
    #[schemars(with = "Option<StepCheckFile>")]
    pub check: Option<Value>,
}

/// `iterations` of a step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct IterationsFile {
    pub min: Option<Value>,
    pub max: Option<Value>,
}

/// `check` of a step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepCheckFile {
    /// The question.
    pub prompt: Option<CheckPromptFile>,
    /// What the answer looks like: `result` is `ok` or `ng`; the rest is for people.
    pub response_format: Option<Value>,
    /// Where `ok` leads.
    pub on_pass: Option<OnPassFile>,
    /// What `ng` does.
    pub on_fail: Option<OnFailFile>,
}

/// `check.prompt`: a path, or an address.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the words of the format")]
pub enum CheckPromptFile {
    Path(String),
    Address {
        path: Option<String>,
        c2: Option<String>,
        c3: Option<String>,
        edition: Option<String>,
        adaptation: Option<String>,
    },
}

/// `check.onPass`: a step, `complete`, or one of the two as an object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the words of the format")]
pub enum OnPassFile {
    Word(String),
    Rule { next: Option<String>, complete: Option<bool> },
}

/// `check.onFail`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct OnFailFile {
    pub retry: Option<bool>,
    pub max_retries: Option<Value>,
    pub fallback: Option<String>,
}

/// One entry of `inputs`, or of its `variables` in the oldest form.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct InputFile {
    pub from: Option<String>,
    pub required: Option<bool>,
    pub default: Option<Value>,
    pub on_missing: Option<String>,
    pub description: Option<String>,
}

/// `inputs` in the oldest form.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct OldestInputsFile {
    pub from_step: Option<String>,
    #[serde(default)]
    pub from_steps: Vec<String>,
    #[serde(default)]
    pub variables: Map<String, Value>,
}

/// One field of an `outputSchema` in the oldest form.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct OutputFieldFile {
    #[serde(rename = "type")]
    pub kind: String,
    pub required: Option<bool>,
    pub description: Option<String>,
    pub default: Option<Value>,
}

/// For what a run may have to wait behind a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepGateFile {
    /// The approval of its plan.
    Plan,
}

/// `outputSchemaRef`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SchemaRefFile {
    /// File of the agent's schemas folder.
    pub file: String,
    /// Name of a definition, or a pointer `#/…`.
    pub schema: String,
}

/// `structuredGate`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateFile {
    /// Intents that pass.
    pub allowed_intents: Vec<String>,
    /// Pointer `#/…` to the intent in the output's schema.
    pub intent_schema_ref: Option<String>,
    /// Dot path of the intent.
    pub intent_field: Option<String>,
    /// Dot path of a jump's target.
    pub target_field: Option<String>,
    /// Dot paths for later steps.
    #[serde(default)]
    pub handoff_fields: Vec<String>,
    /// Without effect.
    pub target_mode: Option<Value>,
    /// Whether an intent that is not allowed ends the run; absent = true.
    pub fail_fast: Option<bool>,
    /// What counts instead.
    pub fallback_intent: Option<String>,
}

/// One transition: a target, or targets by the value of a handoff field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct TransitionFile {
    pub target: Option<String>,
    pub fallback: Option<Value>,
    pub condition: Option<String>,
    pub targets: Option<BTreeMap<String, Option<String>>>,
}

/// `runner` of a step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct SubprocessFile {
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Milliseconds; absent = 30000.
    pub timeout: Option<u64>,
    /// agentd's own: the program is executed also where the run changed it.
    #[serde(default, rename = "fromWorktree")]
    pub from_worktree: bool,
}

/// One entry of `failurePatterns`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct FailurePatternFile {
    pub description: Option<String>,
    pub edition: Option<String>,
    pub adaptation: Option<String>,
    #[serde(default)]
    pub params: Vec<String>,
    #[serde(default)]
    pub semantic_match: Vec<String>,
}

/// One entry of `validators`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct ValidatorFile {
    #[serde(rename = "type")]
    pub kind: ValidatorWord,
    pub command: Option<String>,
    pub path: Option<String>,
    pub semantic_config: Option<SemanticFile>,
    pub success_when: Option<String>,
    pub failure_pattern: Option<String>,
    #[serde(default)]
    pub extract_params: BTreeMap<String, String>,
    pub recoverable_by_default: Option<bool>,
    /// In which of the two lists of a validation step it may stand.
    pub phase: Option<PhaseWord>,
    /// agentd's own: what the command executes may be what the run changed.
    #[serde(default)]
    pub from_worktree: bool,
    pub description: Option<String>,
}

/// `type` of a validator.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum ValidatorWord {
    Command,
    File,
    Custom,
    Semantic,
}

/// `phase` of a validator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PhaseWord {
    /// In `preflightConditions`.
    Preflight,
    /// In `postLLMConditions`.
    PostLlm,
}

/// `semanticConfig`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct SemanticFile {
    pub check_type: String,
}

/// One entry of `validationSteps`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct ValidationStepFile {
    pub step_id: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub c2: Option<String>,
    pub c3: Option<String>,
    /// Asked before a closing step's work, and when the flow wants to end.
    #[serde(default)]
    pub validation_conditions: Vec<ConditionFile>,
    /// Asked before the step's work only; one that fails ends the run.
    #[serde(default)]
    pub preflight_conditions: Vec<ConditionFile>,
    /// Asked behind the step's work only.
    #[serde(default, rename = "postLLMConditions")]
    pub post_llm_conditions: Vec<ConditionFile>,
    pub on_failure: Option<OnFailureFile>,
    pub output_schema: Option<Value>,
    pub output_schema_ref: Option<SchemaRefFile>,
}

/// One entry of `validationConditions`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct ConditionFile {
    pub validator: String,
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// `onFailure`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct OnFailureFile {
    pub action: OnFailure,
    #[schemars(range(min = 1))]
    pub max_attempts: Option<u32>,
}
