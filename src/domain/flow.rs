//! The one form of an agent's definition that all code uses, whatever generation of files it was read from.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agent_program::StepExecutor;
use super::budget::WantedBudgets;
use super::completion::Completion;
use super::dot_path::at;
use super::egress::Egress;
use super::input_spec::InputSpec;
pub use super::intent::{ClosureAction, Intent, PermissionMode, StepKind};
use super::output_schema::StepSchema;
use super::report::ClaimKind;
pub use super::step_address::{StepAddress, StepId};
use super::step_check::StepCheck;
use super::trace::CheckMoment;
use super::words::{words, words_of_a_format};

/// An agent: what it is, when it is done, what it may do, and its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Folder name and `agentId` of the registry.
    pub name: String,
    /// For people.
    pub display_name: String,
    /// The file's own version; absent = "1.0".
    pub version: String,
    /// For people; possibly empty.
    pub description: String,
    /// Declared parameters, in file order.
    pub parameters: Vec<Parameter>,
    /// Path of the system prompt relative to the agent's folder.
    pub system_prompt: String,
    /// When the run is done.
    pub completion: Completion,
    /// Visits after which the run fails with `max_iterations` when nothing completed it (D24); `None` = only budgets.
    pub max_iterations: Option<u32>,
    /// What its sessions may do.
    pub boundaries: Boundaries,
    /// What closing does on GitHub.
    pub github: GithubSettings,
    /// The steps.
    pub flow: Flow,
    /// Settings that only agentd knows (`runner.agentd`, D96).
    pub agentd: AgentdSettings,
}

impl Definition {
    /// The mode a step runs in: its own, else its kind's, else the agent's.
    pub fn permission_mode(&self, step: &Step) -> PermissionMode {
        step.permission_mode
            .or(step.kind.map(StepKind::permission_mode))
            .unwrap_or(self.boundaries.permission_mode)
    }

    /// Whether its closure changes the issue. It does where the issue's own state ends the run, and where the
    /// definition says so. All others only record their verdict (D102).
    pub fn closes_issues(&self) -> bool {
        self.github.enabled && (self.agentd.closes || self.completion == Completion::ExternalState)
    }

    /// Whether the flow has a closing step. The oldest flows have none: their steps go on until the issue is closed,
    /// and they ask for that in their output.
    pub fn has_closing_step(&self) -> bool {
        self.flow.steps.iter().any(|step| step.kind == Some(StepKind::Closure))
    }

    /// What the closing step's output asks to do to the issue: the model's word, else the definition's, else `close`,
    /// and never more than the definition allows (D64). Labels of both count. A label that only the model names is left
    /// out and reported, because a label can start other work.
    pub fn closure(&self, output: Option<&Map<String, Value>>) -> Closure {
        let said = output
            .and_then(|output| {
                output.get("closure_action").or_else(|| at(output, "next_action.closure_action"))
            })
            .and_then(Value::as_str);
        let unknown = said.filter(|word| ClosureAction::read(word).is_none());
        // An unknown word means that the model wants something unusual. The issue stays open.
        let asked = said.map(|word| ClosureAction::read(word).unwrap_or(ClosureAction::LabelOnly));
        let allowed = self.github.default_closure_action;
        let action = asked.unwrap_or(allowed).clamped_to(allowed);
        let mut refused_labels = Vec::new();
        let mut labels = |path: &str, configured: &[String]| {
            let mut all = configured.to_vec();
            let wanted = output.and_then(|output| at(output, path)).and_then(Value::as_array);
            for word in wanted.into_iter().flatten().filter_map(Value::as_str) {
                if !self.github.names(word) {
                    refused_labels.push(word.to_owned());
                } else if !all.iter().any(|known| known == word) {
                    all.push(word.to_owned());
                }
            }
            all
        };
        let [add_labels, remove_labels] = match action {
            ClosureAction::Close => [vec![], vec![]],
            ClosureAction::LabelOnly | ClosureAction::LabelAndClose => [
                labels("issue.labels.add", &self.github.completion_add),
                labels("issue.labels.remove", &self.github.completion_remove),
            ],
        };
        Closure {
            action,
            asked,
            unknown_action: unknown.map(str::to_owned),
            add_labels,
            remove_labels,
            refused_labels,
        }
    }

    /// The parameter of that name.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }
}

/// A planned closure effect. The publish stage carries it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closure {
    /// What will be done.
    pub action: ClosureAction,
    /// What the model asked for, if it did. It differs from `action` when the definition allows less.
    pub asked: Option<ClosureAction>,
    /// What the model asked for, when that is not a known action. The issue is then only labelled.
    pub unknown_action: Option<String>,
    /// Labels to put on.
    pub add_labels: Vec<String>,
    /// Labels to take off.
    pub remove_labels: Vec<String>,
    /// Labels that the model named and the definition does not.
    pub refused_labels: Vec<String>,
}

/// A declared parameter; its value becomes a `uv-` variable (D68).
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Key, and name of the variable.
    pub name: String,
    /// Type its value must have.
    pub kind: ParameterKind,
    /// For people.
    pub description: String,
    /// Whether a value must be given.
    pub required: bool,
    /// Value where none is given.
    pub default: Option<Value>,
    /// `--flag` as the definition writes it.
    pub cli: String,
    /// Limits on the value.
    pub limits: ParameterLimits,
}

words! {
    /// Type of a parameter's value.
    pub enum ParameterKind {
        /// Text.
        String = "string",
        /// A JSON number.
        Number = "number",
        /// `true` or `false`.
        Boolean = "boolean",
        /// A JSON array.
        Array = "array",
    }
}

words_of_a_format!(ParameterKind, "ParameterWord", "`type` of a parameter.");

impl ParameterKind {
    /// Whether the value is of the type.
    pub fn fits(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
        }
    }
}

/// Limits on a parameter's value (`validation`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParameterLimits {
    /// Smallest number, shortest text or array.
    pub min: Option<f64>,
    /// Largest number, longest text or array.
    pub max: Option<f64>,
    /// Regular expression that the text must match.
    pub pattern: Option<String>,
    /// The only values allowed.
    pub allowed: Vec<Value>,
}

/// What an agent's sessions may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Boundaries {
    /// Mode of steps without kind.
    pub permission_mode: PermissionMode,
    /// As written; reported, not binding (D63).
    pub allowed_tools: Vec<String>,
    /// What is asked of the sandbox.
    pub sandbox: Sandbox,
}

/// What the definition asks of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Whether sessions run in the sandbox.
    pub enabled: bool,
    /// What commands reach of the network.
    pub network: Egress,
    /// Further paths that may be written.
    pub allowed_paths: Vec<String>,
}

/// `integrations.github`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubSettings {
    /// Whether the agent's closure may touch the issue at all.
    pub enabled: bool,
    /// Named labels (`requirements`, `inProgress`, `blocked`, …).
    pub labels: BTreeMap<String, String>,
    /// Labels put on at completion.
    pub completion_add: Vec<String>,
    /// Labels taken off at completion.
    pub completion_remove: Vec<String>,
    /// What closing does, and the most that a model may ask for.
    pub default_closure_action: ClosureAction,
    /// Whether the definition wrote `defaultClosureAction` itself.
    pub closure_action_set: bool,
}

impl GithubSettings {
    /// Whether the definition names the label, anywhere.
    pub fn names(&self, label: &str) -> bool {
        let listed = self.completion_add.iter().chain(&self.completion_remove);
        self.labels.values().chain(listed).any(|known| known == label)
    }
}

/// `runner.agentd`: keys of ours (D12, D4, D96).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentdSettings {
    /// Claims without which a run is no success, e.g. `change_made`.
    pub requires: Vec<ClaimKind>,
    /// Whether its closure touches the issue whatever completes the run.
    pub closes: bool,
    /// Whether claims without evidence fail the run.
    pub evidence: EvidenceMode,
    /// Keep the conversation when a step repeats (D4).
    pub continue_session: bool,
    /// What works on steps that do not name a backend. `None` = the backend of the configuration.
    pub executor: Option<StepExecutor>,
    /// Caps of its runs, where the configuration's do not fit.
    pub budgets: WantedBudgets,
}

words! {
    /// What happens to claims that nothing backs.
    #[derive(Default)]
    pub enum EvidenceMode {
        /// A report without verified claims passes.
        #[default]
        Optional = "optional",
        /// It does not.
        Required = "required",
    }
}

words_of_a_format!(EvidenceMode, "EvidenceWord", "`runner.agentd.evidence`.");

/// The steps of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// First level of every prompt address, usually `steps`.
    pub c1: String,
    /// Where a run starts.
    pub entry: StepId,
    /// In file order.
    pub steps: Vec<Step>,
    /// Checks by name.
    pub validators: BTreeMap<String, Validator>,
    /// What a failed check looks like to the model, by name.
    pub failure_patterns: BTreeMap<String, FailurePattern>,
    /// What must hold before closing.
    pub validation_steps: Vec<ValidationStep>,
}

impl Flow {
    /// The step of that id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// Why a run that was cut off cannot go on with a step that its definition has no more, and what comes next.
    pub fn lost(&self, step: &str) -> String {
        format!(
            "The run goes on with the step \"{step}\", which its definition has no more. Its work is kept on the branch: run the issue again, and the flow begins there at \"{}\"; for that step, put it back into steps_registry.json first.",
            self.entry
        )
    }

    /// The checks that must hold before `step` may close: the validation step with the same id, else the one of the
    /// completion type.
    pub fn validation_for(&self, step: &Step, completion: &Completion) -> Option<&ValidationStep> {
        let by_id = |id: &str| self.validation_steps.iter().find(|validation| validation.id == id);
        by_id(&step.id).or_else(|| by_id(completion.validation_step()))
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Key in the registry.
    pub id: StepId,
    /// For people; the id where the file has none.
    pub name: String,
    /// For people; possibly empty.
    pub description: String,
    /// What it is for; `None` = intents are not restricted.
    pub kind: Option<StepKind>,
    /// Where its prompt is.
    pub address: StepAddress,
    /// Variables it declares, without `uv-`.
    pub uv_variables: Vec<String>,
    /// Whether its prompt takes `{input_text}`.
    pub uses_stdin: bool,
    /// Shape of its output.
    pub output_schema: Option<StepSchema>,
    /// What it takes from earlier steps.
    pub inputs: InputSpec,
    /// How its output is read; `None` = a linear step.
    pub gate: Option<Gate>,
    /// Whether people may have to approve its plan before the flow goes on.
    pub gates_plan: bool,
    /// Where intents lead.
    pub transitions: BTreeMap<Intent, Transition>,
    /// Its own mode.
    pub permission_mode: Option<PermissionMode>,
    /// A program that does the step instead of a model.
    pub runner: Option<Subprocess>,
    /// What works on it, where the step says so itself.
    pub executor: Option<StepExecutor>,
    /// A question that decides where a step without gate leads.
    pub check: Option<StepCheck>,
    /// How often in a row a step without gate is visited.
    pub iterations: Iterations,
}

impl Step {
    /// Whether the flow may reach its end in it: a closing step, one without gate, or one whose gate lets `closing` through.
    pub fn may_end(&self) -> bool {
        let closes = |gate: &Gate| gate.allowed_intents.contains(&Intent::Closing);
        self.kind == Some(StepKind::Closure) || self.gate.as_ref().is_none_or(closes)
    }
}

/// The limits that the oldest registries set for the visits of a step in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iterations {
    /// It leads on, or ends the flow, after that many.
    pub min: u32,
    /// It is not visited again after that many; `None` = no bound of its own.
    pub max: Option<u32>,
}

impl Default for Iterations {
    fn default() -> Self {
        Self { min: 1, max: None }
    }
}

impl Iterations {
    /// Whether the step has to be visited again, whatever it put out.
    pub fn wants_more(self, in_a_row: u32) -> bool {
        in_a_row < self.min
    }

    /// Whether the step may be visited again.
    pub fn allows_more(self, in_a_row: u32) -> bool {
        self.max.is_none_or(|max| in_a_row < max)
    }
}

/// How a step's output becomes an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The intents it lets through.
    pub allowed_intents: Vec<Intent>,
    /// Dot path of the intent.
    pub intent_field: String,
    /// Dot path of a jump's target.
    pub target_field: Option<String>,
    /// Dot paths of what later steps may take by a short name.
    pub handoff_fields: Vec<String>,
    /// Whether an intent that is not allowed ends the run.
    pub fail_fast: bool,
    /// What counts instead, where it does not.
    pub fallback_intent: Option<Intent>,
}

/// Where an intent leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// One step; `None` = the end of the flow.
    Target(Option<StepId>),
    /// By the value of a handoff field.
    Conditional {
        /// Name of the handoff field.
        condition: String,
        /// Value → step; `None` = the end of the flow.
        targets: BTreeMap<String, Option<StepId>>,
        /// Step for every other value.
        default: Option<Option<StepId>>,
    },
}

impl Transition {
    /// Every step it can lead to.
    pub fn targets(&self) -> Vec<&StepId> {
        match self {
            Self::Target(target) => target.iter().collect(),
            Self::Conditional { targets, default, .. } => {
                targets.values().chain(default).filter_map(Option::as_ref).collect()
            }
        }
    }
}

/// A program in place of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subprocess {
    /// Program.
    pub command: String,
    /// Arguments; `${context.key}` takes a variable's value.
    pub args: Vec<String>,
    /// Longest run.
    pub timeout: Duration,
    /// Whether a file that the run changed may be what is executed.
    pub from_worktree: bool,
}

/// A check that a program or the files of the worktree answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validator {
    /// How it is asked.
    pub kind: ValidatorKind,
    /// When it holds.
    pub success: SuccessWhen,
    /// Pattern that explains its failure to the model.
    pub failure_pattern: Option<String>,
    /// Parameter of the pattern → extractor.
    pub extract_params: BTreeMap<String, String>,
    /// Whether a failure can be repaired.
    pub recoverable: bool,
    /// Whether a file that the run changed may be what is executed.
    pub from_worktree: bool,
}

/// How a validator is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidatorKind {
    /// A shell line, run in the worktree (D90).
    Command(String),
    /// A path of the worktree that must exist.
    File(String),
    /// A program of the agent.
    Custom(String),
    /// A question about the change.
    Semantic(String),
}

/// When a validator holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuccessWhen {
    /// Nothing on stdout.
    Empty,
    /// That exit code.
    ExitCode(i32),
    /// Stdout contains the text.
    Contains(String),
    /// Stdout matches the regular expression.
    Matches(String),
}

/// What a failed check looks like to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePattern {
    /// For people.
    pub description: String,
    /// Edition of the retry prompt.
    pub edition: String,
    /// Adaptation of the retry prompt.
    pub adaptation: Option<String>,
    /// Parameters the retry prompt takes.
    pub params: Vec<String>,
    /// Texts, or `/regular expressions/`, that select the pattern.
    pub semantic_match: Vec<String>,
}

/// What must hold before a flow may close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationStep {
    /// Key in the registry.
    pub id: String,
    /// For people.
    pub name: String,
    /// Second level of the retry prompts' address.
    pub c2: String,
    /// Third level of the retry prompts' address.
    pub c3: String,
    /// Validators asked before a closing step's work and when the flow wants to end, in order, with their parameters.
    pub conditions: Vec<ValidationCondition>,
    /// Validators asked before the step's work only. What they look for is nothing that the step could repair.
    pub before: Vec<ValidationCondition>,
    /// Validators asked behind the step's work only.
    pub after: Vec<ValidationCondition>,
    /// What a failure does.
    pub on_failure: OnFailure,
    /// Most attempts.
    pub max_attempts: u32,
}

impl ValidationStep {
    /// Whether it is asked before the step's work: before a closing step's always, before another's if it belongs to that
    /// very step.
    pub fn asks_before(&self, step: &Step) -> bool {
        step.kind == Some(StepKind::Closure) || (self.id == step.id && !self.before.is_empty())
    }

    /// Whether it belongs to that very step and has something to ask behind its work, wherever the step leads.
    pub fn asks_after(&self, step: &Step) -> bool {
        self.id == step.id && !self.after.is_empty()
    }

    /// What is asked at that moment, and whether the step could repair it.
    pub fn asked(&self, moment: CheckMoment) -> impl Iterator<Item = (&ValidationCondition, bool)> {
        let (own, reparable) = match moment {
            CheckMoment::Before => (&self.before, false),
            CheckMoment::After => (&self.after, true),
        };
        let both = self.conditions.iter().map(|condition| (condition, true));
        own.iter().map(move |condition| (condition, reparable)).chain(both)
    }
}

/// One validator asked by a validation step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationCondition {
    /// Name of the validator.
    pub validator: String,
    /// Values for its command, in file order.
    pub params: Vec<(String, String)>,
}

words! {
    /// What a failed validation does.
    pub enum OnFailure {
        /// The model hears of it and tries again.
        Retry = "retry",
        /// The run fails.
        Abort = "abort",
        /// It is noted.
        Skip = "skip",
    }
}

words_of_a_format!(OnFailure, "OnFailureWord", "`onFailure.action`.");
