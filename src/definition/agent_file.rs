//! `agent.json` in its newest form: read, checked, and turned into the parts of a definition.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::backend_file::{self, ProgramFile};
use super::diagnostic::Severity;
use super::parameter_value;
use super::position::child;
use super::shape::{self, Format};
use super::source::Findings;
use super::verdict::{CODES, IGNORED, completion, needs_issue};
use super::verdict_file::VerdictFile;
use crate::config::duration::Span;
use crate::domain::budget::WantedBudgets;
use crate::domain::completion::Completion;
use crate::domain::egress::{Egress, TRUSTED};
use crate::domain::flow::{
    AgentdSettings, Boundaries, ClosureAction, EvidenceMode, GithubSettings, Parameter, ParameterKind,
    ParameterLimits, PermissionMode, Sandbox,
};
use crate::domain::money::Money;
use crate::domain::report::ClaimKind;
use crate::domain::step_context::value_text;

/// `agent.json`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentFile {
    /// For editors.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// Version of the file; absent = "1.0".
    #[schemars(extend("pattern" = r"^\d+\.\d+(\.\d+)?$"))]
    pub version: Option<String>,
    /// Name of the agent and of its folder.
    #[schemars(extend("pattern" = "^[a-z][a-z0-9-]*$"))]
    pub name: String,
    /// Name for people.
    #[schemars(extend("minLength" = 1))]
    pub display_name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Values that a run takes as `uv-` variables.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ParameterFile>")]
    pub parameters: Map<String, Value>,
    /// How it runs.
    pub runner: RunnerFile,
}

/// One declared parameter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterFile {
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: ParameterKind,
    /// For people.
    pub description: Option<String>,
    /// Whether a run needs it.
    #[serde(default)]
    pub required: bool,
    /// Value where none is given.
    pub default: Option<Value>,
    /// Name as a command line flag.
    #[schemars(extend("pattern" = "^--[a-z][a-z0-9-]*$"))]
    pub cli: String,
    /// Limits on the value.
    pub validation: Option<LimitsFile>,
}

/// `validation` of a parameter.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct LimitsFile {
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub pattern: Option<String>,
    #[serde(rename = "enum", default)]
    pub allowed: Vec<Value>,
}

/// `runner`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct RunnerFile {
    /// Prompts and steps.
    pub flow: FlowFile,
    /// When a run is done.
    pub verdict: VerdictFile,
    /// What sessions may do.
    pub boundaries: Option<BoundariesFile>,
    /// What closing does on GitHub.
    pub integrations: Option<IntegrationsFile>,
    /// Without meaning here.
    pub actions: Option<Value>,
    /// Without meaning here.
    pub execution: Option<Value>,
    /// Without meaning here, but checked.
    pub logging: Option<LoggingFile>,
    /// Settings of agentd's own.
    pub agentd: Option<AgentdFile>,
}

/// `runner.flow`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowFile {
    /// Relative to the agent's folder; absent = `prompts/system.md`.
    pub system_prompt_path: Option<String>,
    /// Where the registry is.
    pub prompts: Option<PromptsFile>,
    /// Without meaning here.
    pub schemas: Option<Value>,
    /// Without meaning here.
    pub default_model: Option<Value>,
    /// Without meaning here.
    pub ask_user_auto_response: Option<Value>,
    /// Without meaning here.
    pub pre_close_validation: Option<Value>,
}

/// `runner.flow.prompts`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptsFile {
    /// Relative to the agent's folder; absent = `steps_registry.json`.
    pub registry: Option<String>,
    /// Without meaning here.
    pub fallback_dir: Option<Value>,
}

/// `runner.boundaries`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoundariesFile {
    /// Reported, not binding: policy decides.
    pub allowed_tools: Option<Vec<String>>,
    /// Mode of steps without kind; absent = `plan`.
    pub permission_mode: Option<PermissionMode>,
    /// What is asked of the sandbox.
    pub sandbox: Option<SandboxFile>,
}

/// `sandbox`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct SandboxFile {
    pub enabled: Option<bool>,
    pub network: Option<NetworkFile>,
    pub filesystem: Option<FilesystemFile>,
    #[serde(default)]
    pub excluded_commands: Vec<String>,
    #[serde(default)]
    pub allow_unsandboxed_commands: bool,
}

/// `sandbox.network`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct NetworkFile {
    pub mode: Option<NetworkWord>,
    #[serde(default)]
    pub trusted_domains: Vec<String>,
}

/// `sandbox.network.mode`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum NetworkWord {
    Trusted,
    None,
    Custom,
}

/// `sandbox.filesystem`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct FilesystemFile {
    #[serde(default)]
    pub allowed_paths: Vec<String>,
}

/// `runner.integrations`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the words of the format")]
pub struct IntegrationsFile {
    pub github: Option<GithubFile>,
}

/// `runner.integrations.github`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct GithubFile {
    pub enabled: Option<bool>,
    #[serde(default)]
    pub labels: Map<String, Value>,
    pub default_closure_action: Option<ClosureAction>,
}

/// `runner.logging`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the words of the format")]
pub struct LoggingFile {
    pub directory: Option<String>,
    pub format: Option<LogFormatWord>,
    pub max_files: Option<u32>,
}

/// `runner.logging.format`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum LogFormatWord {
    Jsonl,
    Text,
}

/// `runner.agentd` (D96).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentdFile {
    /// Kinds of claims without which a run is no success. `tests_pass` and `change_made` are what agentd knows itself; of every
    /// other kind it finds that what is cited stands there, no more.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The agent closes and labels its issue, whatever the type of its verdict. Without it, only `poll:state` does
    /// (D102).
    #[serde(default)]
    pub closes: bool,
    /// `optional` or `required`.
    pub evidence: Option<EvidenceMode>,
    /// Keep the conversation when a step repeats.
    #[serde(default)]
    pub continue_session: bool,
    /// What works on the steps: `session` (the default) is agentd's own; `claude-code`, `codex`, `gemini`, `opencode`,
    /// `acp` and `command` start a program.
    pub backend: Option<String>,
    /// How that program is started and what it may reach.
    pub program: Option<ProgramFile>,
    /// Caps of its runs: above the configuration's, below the issue's and the flags.
    pub budgets: Option<BudgetsFile>,
}

/// `runner.agentd.budgets`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetsFile {
    /// Step visits, from 1.
    pub max_steps: Option<u32>,
    /// Such as `15m`.
    pub max_wall_time: Option<Span>,
    /// US dollars.
    pub max_cost: Option<f64>,
}

/// What `agent.json` says, in the words of the domain.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentParts {
    /// `name`.
    pub name: String,
    /// `displayName`.
    pub display_name: String,
    /// `version`, "1.0" where absent.
    pub version: String,
    /// `description`.
    pub description: String,
    /// `parameters`.
    pub parameters: Vec<Parameter>,
    /// `systemPromptPath`.
    pub system_prompt: String,
    /// `prompts.registry`.
    pub registry: String,
    /// `verdict`; `None` = it is broken and reported.
    pub completion: Option<Completion>,
    /// `verdict.config.maxIterations`.
    pub max_iterations: Option<u32>,
    /// `boundaries`.
    pub boundaries: Boundaries,
    /// `integrations.github`.
    pub github: GithubSettings,
    /// `agentd`.
    pub agentd: AgentdSettings,
    /// Whether an omitted `required` means optional. It does in definitions that are written for climpt's newest format
    /// (D9).
    pub inputs_optional: bool,
}

static FORMAT: LazyLock<Format> = LazyLock::new(Format::of::<AgentFile>);

/// (pointer, why it means nothing here).
const DEAD_KEYS: [(&str, &str); 9] = [
    ("/runner/flow/schemas", "schemas are read from the agent's schemas folder"),
    ("/runner/flow/defaultModel", "models are chosen by session.targets in agentd.toml"),
    ("/runner/flow/askUserAutoResponse", "sessions have no tool that asks a person"),
    (
        "/runner/flow/preCloseValidation",
        "what must hold before closing stands in the registry's validationSteps",
    ),
    ("/runner/flow/prompts/fallbackDir", "prompts are found by their address alone"),
    ("/runner/actions", "actions are the tools that policy allows"),
    (
        "/runner/execution",
        "every issue has its own worktree and is published as `publish` in agentd.toml says",
    ),
    ("/runner/logging", "logs and records go to agentd's state directory"),
    ("/runner/boundaries/allowedTools", "it is not binding: the policy decides which tools may be called"),
];

/// Reads the newest form; every problem becomes a finding. `None` = the shape is too broken to go on.
pub fn read(value: &Value, findings: &mut Findings<'_>) -> Option<AgentParts> {
    let clean = shape::check(&FORMAT, value, CODES, findings);
    for (pointer, why) in DEAD_KEYS {
        if value.pointer(pointer).is_some() {
            findings.add(
                Severity::Warning,
                IGNORED,
                pointer,
                format!("\"{}\" is ignored: {why}", pointer.trim_start_matches('/').replace('/', ".")),
                "remove it, or keep it for other tools",
            );
        }
    }
    if !clean {
        return None;
    }
    let file: AgentFile = match serde_json::from_value(value.clone()) {
        Ok(file) => file,
        Err(error) => {
            findings.schema_error("AC-LOAD-003", "", error.to_string(), "correct the file");
            return None;
        }
    };
    let version = file.version.clone().unwrap_or_else(|| "1.0".into());
    if version.split('.').next() != Some("1") {
        findings.add(
            Severity::Error,
            "AC-VALID-001",
            "/version",
            format!("version {version} is of another major than 1, the only one that is read"),
            "use an agentd that knows it, or write the file in version 1",
        );
    }
    if file.description.as_deref().is_none_or(|text| text.trim().is_empty()) {
        findings.add(
            Severity::Warning,
            "AC-VALID-002",
            "",
            "the agent has no description",
            "add \"description\": one sentence on what it is for",
        );
    }
    let runner = &file.runner;
    let parameters = parameters(&file.parameters, findings);
    let completion = completion(&runner.verdict, "/runner/verdict", findings);
    if needs_issue(completion.as_ref()) && !parameters.iter().any(|parameter| parameter.name == "issue") {
        findings.add(
            Severity::Error,
            "AC-VERDICT-001",
            "/runner/verdict/type",
            "poll:state watches the issue, but no parameter \"issue\" is declared",
            "declare the parameter \"issue\" (type number, required)",
        );
    }
    let max_iterations = runner.verdict.config.get("maxIterations").and_then(Value::as_u64);
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0);
    Some(AgentParts {
        name: file.name.clone(),
        display_name: file.display_name.clone(),
        inputs_optional: minor >= 13 && runner.agentd.is_none(),
        version,
        description: file.description.clone().unwrap_or_default(),
        parameters,
        system_prompt: runner.flow.system_prompt_path.clone().unwrap_or_else(|| "prompts/system.md".into()),
        registry: runner
            .flow
            .prompts
            .as_ref()
            .and_then(|prompts| prompts.registry.clone())
            .unwrap_or_else(|| "steps_registry.json".into()),
        completion,
        max_iterations: max_iterations.and_then(|n| u32::try_from(n).ok()),
        boundaries: boundaries(runner.boundaries.clone().unwrap_or_default(), findings),
        github: github(runner.integrations.clone().unwrap_or_default().github.unwrap_or_default(), findings),
        agentd: agentd(runner.agentd.clone().unwrap_or_default(), findings),
    })
}

/// The kinds of claims that a success needs. An unknown word is reported with the nearest known one.
fn requires(words: &[String], findings: &mut Findings<'_>) -> Vec<ClaimKind> {
    let known = ClaimKind::ALL.map(ClaimKind::as_str);
    let mut kinds = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let Some(kind) = ClaimKind::parse(word) else {
            let fix = match shape::nearest(word, known.into_iter()) {
                Some(near) => format!("write \"{near}\""),
                None => format!("write one of {}", known.join(", ")),
            };
            let at = format!("/runner/agentd/requires/{place}");
            let message = format!("\"{word}\" is no kind of claim");
            findings.add(Severity::Error, "AC-VALID-001", &at, message, fix);
            continue;
        };
        if !kind.is_known_to_agentd() {
            let at = format!("/runner/agentd/requires/{place}");
            let message = format!(
                "a claim of kind \"{word}\" is verified where what it cites stands there; whether its words are true agentd does not judge"
            );
            let fix = "require \"tests_pass\" for what a verify command can say; keep it where a place to look at is enough";
            findings.add(Severity::Warning, "AC-VALID-002", &at, message, fix);
        }
        kinds.push(kind);
    }
    kinds
}

fn agentd(file: AgentdFile, findings: &mut Findings<'_>) -> AgentdSettings {
    AgentdSettings {
        requires: requires(&file.requires, findings),
        closes: file.closes,
        evidence: file.evidence.unwrap_or_default(),
        continue_session: file.continue_session,
        executor: backend_file::executor(
            file.backend.as_deref(),
            file.program,
            None,
            ("/runner/agentd", "AC-VALID-001"),
            findings,
        ),
        budgets: budgets(file.budgets.unwrap_or_default(), findings),
    }
}

fn budgets(file: BudgetsFile, findings: &mut Findings<'_>) -> WantedBudgets {
    let mut refuse = |key: &str, wrong: bool, fix: &str| {
        if wrong {
            let at = format!("/runner/agentd/budgets/{key}");
            findings.add(Severity::Error, "AC-VALID-001", &at, format!("budgets.{key} is no cap"), fix);
        }
    };
    let cost = file.max_cost.map(Money::from_dollars);
    refuse("maxSteps", file.max_steps == Some(0), "write a number from 1");
    refuse(
        "maxWallTime",
        file.max_wall_time.is_some_and(|span| span.0.is_zero()),
        "write a time such as 15m",
    );
    refuse("maxCost", cost == Some(None), "write US dollars from 0");
    if cost.flatten() == Some(Money::ZERO) {
        findings.add(
            Severity::Warning,
            "AC-VALID-002",
            "/runner/agentd/budgets/maxCost",
            "budgets.maxCost is 0: no model that has a price can be asked anything, and a run ends at its first request",
            "write US dollars, or leave it out",
        );
    }
    WantedBudgets {
        max_steps: file.max_steps,
        max_wall_time: file.max_wall_time.map(|span| span.0),
        max_cost: cost.flatten(),
    }
}

fn boundaries(file: BoundariesFile, findings: &mut Findings<'_>) -> Boundaries {
    let sandbox = file.sandbox.unwrap_or_default();
    if !sandbox.excluded_commands.is_empty() || sandbox.allow_unsandboxed_commands {
        findings.add(
            Severity::Warning,
            "AC-VALID-001",
            "/runner/boundaries/sandbox",
            "excludedCommands and allowUnsandboxedCommands have no effect: every command runs in the sandbox",
            "take them out; what must reach further is named in filesystem.allowedPaths and network.trustedDomains",
        );
    }
    let network = egress(&sandbox.network.unwrap_or_default(), findings);
    Boundaries {
        permission_mode: file.permission_mode.unwrap_or(PermissionMode::Plan),
        allowed_tools: file.allowed_tools.unwrap_or_else(|| vec!["*".into()]),
        sandbox: Sandbox {
            enabled: sandbox.enabled.unwrap_or(true),
            network,
            allowed_paths: sandbox.filesystem.unwrap_or_default().allowed_paths,
        },
    }
}

/// What commands reach: in mode `trusted` registries and the listed hosts, in mode `custom` the listed ones.
fn egress(file: &NetworkFile, findings: &mut Findings<'_>) -> Egress {
    let known: &[&str] = match file.mode {
        Some(NetworkWord::None) => return Egress::Nothing,
        Some(NetworkWord::Custom) => &[],
        None | Some(NetworkWord::Trusted) => &TRUSTED,
    };
    let listed = file.trusted_domains.iter().map(String::as_str);
    Egress::of(known.iter().copied().chain(listed)).unwrap_or_else(|bad| {
        let at = "/runner/boundaries/sandbox/network/trustedDomains";
        findings.add(Severity::Error, "AC-VALID-001", at, bad.to_string(), "correct the list");
        Egress::Nothing
    })
}

const LABELS: &str = "/runner/integrations/github/labels";

/// A label beside `completion`: nobody puts it on but a model that names it as it closes.
fn named_label(name: &str, label: &str, findings: &mut Findings<'_>) {
    let fix = match shape::nearest(name, ["completion"].into_iter()) {
        Some(near) => format!("did you mean \"{near}\": {{\"add\": [\"{label}\"]}}?"),
        None => {
            "leave it if a model is to name it; else remove it, or write it into \"completion\"".to_owned()
        }
    };
    findings.add(
        Severity::Warning,
        IGNORED,
        &child(LABELS, name),
        format!(
            "\"{name}\" has little effect: agentd itself never puts the label \"{label}\" on; a model may name it as it closes"
        ),
        fix,
    );
}

fn github(file: GithubFile, findings: &mut Findings<'_>) -> GithubSettings {
    let off = file.enabled == Some(false);
    for (key, there) in
        [("labels", !file.labels.is_empty()), ("defaultClosureAction", file.default_closure_action.is_some())]
    {
        if off && there {
            findings.add(
                Severity::Warning,
                IGNORED,
                &format!("/runner/integrations/github/{key}"),
                format!("\"{key}\" is ignored: with \"enabled\": false the issue is left alone"),
                "remove it, or write \"enabled\": true",
            );
        }
    }
    let mut settings = GithubSettings {
        enabled: file.enabled.unwrap_or(true),
        labels: BTreeMap::new(),
        completion_add: Vec::new(),
        completion_remove: Vec::new(),
        closure_action_set: file.default_closure_action.is_some(),
        default_closure_action: file.default_closure_action.unwrap_or_default(),
    };
    for (name, value) in &file.labels {
        match value {
            Value::String(label) if name != "completion" => {
                named_label(name, label, findings);
                settings.labels.insert(name.clone(), label.clone());
            }
            Value::Object(change) if name == "completion" => {
                for (key, value) in change {
                    let labels: Option<Vec<String>> = value.as_array().and_then(|list| {
                        list.iter().map(|label| label.as_str().map(str::to_owned)).collect()
                    });
                    let at = child(&child(LABELS, name), key);
                    if labels.iter().flatten().any(|label| label.trim().is_empty()) {
                        let message = format!("\"{key}\" of the completion labels has a blank one");
                        findings.add(Severity::Error, "AC-VALID-001", &at, message, "write names of labels");
                    }
                    match (key.as_str(), labels) {
                        ("add", Some(labels)) => settings.completion_add = labels,
                        ("remove", Some(labels)) => settings.completion_remove = labels,
                        _ => findings.schema_error(
                            "AC-VALID-001",
                            &at,
                            format!("\"{key}\" is no list of completion labels: they are {{\"add\": [texts], \"remove\": [texts]}}"),
                            "write lists of label names",
                        ),
                    }
                }
            }
            _ => findings.schema_error(
                "AC-VALID-001",
                &child(LABELS, name),
                match name.as_str() {
                    "completion" => {
                        "the completion labels are no {\"add\": [texts], \"remove\": [texts]}".to_owned()
                    }
                    name => format!("the label \"{name}\" is no text"),
                },
                "write names of labels",
            ),
        }
    }
    settings
}

/// A default is held to what its parameter says of every other value.
fn fitting_default(parameter: &Parameter, at: &str, findings: &mut Findings<'_>) {
    let Some(default) = parameter.default.as_ref().filter(|default| parameter.kind.fits(default)) else {
        return;
    };
    if let Err(why) = parameter_value::fits(parameter, &value_text(default)) {
        findings.add(
            Severity::Error,
            "AC-VALID-001",
            &child(at, "default"),
            format!("the default of \"{}\" breaks its own validation: {default} {why}", parameter.name),
            "correct one of the two",
        );
    }
}

fn parameters(file: &Map<String, Value>, findings: &mut Findings<'_>) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = Vec::new();
    for (name, value) in file {
        let at = child("/parameters", name);
        let Ok(parameter) = serde_json::from_value::<ParameterFile>(value.clone()) else { continue };
        let kind = parameter.kind;
        let mut invalid = |at: &str, message: String, fix: &str| {
            findings.add(Severity::Error, "AC-VALID-001", at, message, fix);
        };
        if let Some(other) = parameters.iter().find(|known| known.cli == parameter.cli) {
            let message =
                format!("parameters \"{}\" and \"{name}\" share the flag {}", other.name, parameter.cli);
            invalid(&child(&at, "cli"), message, "give each its own flag");
        }
        if let Some(default) = &parameter.default
            && !kind.fits(default)
        {
            invalid(
                &child(&at, "default"),
                format!("the default of \"{name}\" is no {}", kind.as_str()),
                "write a default of the parameter's type",
            );
        }
        let limits = parameter.validation.clone().unwrap_or_default();
        if let Some(pattern) = &limits.pattern
            && let Err(error) = regex::Regex::new(pattern)
        {
            invalid(
                &format!("{at}/validation/pattern"),
                format!("the pattern of \"{name}\" is no regular expression: {error}"),
                "correct it",
            );
        }
        if let (Some(min), Some(max)) = (limits.min, limits.max)
            && min > max
        {
            let message = format!("no value of \"{name}\" fits: min {min} is more than max {max}");
            invalid(&format!("{at}/validation"), message, "correct one of the two");
        }
        for (index, value) in limits.allowed.iter().enumerate().filter(|(_, value)| !kind.fits(value)) {
            invalid(
                &format!("{at}/validation/enum/{index}"),
                format!("{value} can be no value of \"{name}\": it is no {}", kind.as_str()),
                "write values of the parameter's type",
            );
        }
        let bounds = [("min", limits.min.is_some()), ("max", limits.max.is_some())];
        for (key, _) in bounds.iter().filter(|(_, there)| *there && kind == ParameterKind::Boolean) {
            findings.add(
                Severity::Warning,
                IGNORED,
                &format!("{at}/validation/{key}"),
                format!("\"{key}\" is ignored: true and false have no size"),
                "remove it",
            );
        }
        if parameter.required && parameter.default.is_some() {
            findings.add(
                Severity::Warning,
                "AC-VALID-002",
                &at,
                format!("parameter \"{name}\" is required and has a default, so it never has to be given"),
                "remove one of the two",
            );
        }
        let parameter = Parameter {
            name: name.clone(),
            kind,
            description: parameter.description.unwrap_or_default(),
            required: parameter.required,
            default: parameter.default,
            cli: parameter.cli,
            limits: ParameterLimits {
                min: limits.min,
                max: limits.max,
                pattern: limits.pattern,
                allowed: limits.allowed,
            },
        };
        fitting_default(&parameter, &at, findings);
        parameters.push(parameter);
    }
    parameters
}
