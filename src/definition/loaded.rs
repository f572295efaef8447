//! A definition that is ready to run: everything read, checked, hashed and kept in memory (D1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use super::diagnostic::{Diagnostic, Severity};
use super::graph;
use super::parameter_value;
use super::variables::{Supply, completion_variables, host_variable};
use crate::domain::canonical::sha256_hex;
use crate::domain::flow::{
    ClosureAction, Definition, GithubSettings, Step, StepId, StepKind, ValidationStep,
};
use crate::domain::step_check::{CheckPrompt, StepCheck};
use crate::domain::step_context::value_text;
use crate::prompt::PromptError;
use crate::prompt::address::PromptAddress;
use crate::prompt::breakdown::PromptRoot;
use crate::prompt::library::{AbsentAdaptation, PromptLibrary, ResolvedPrompt};
use crate::prompt::template::{Placeholder, RESERVED, Template, Values, is_variable_name};
use crate::sys::files::leads_out;

/// A loaded definition. It is never read again, so a run keeps what it started with.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The definition.
    pub definition: Definition,
    /// Warnings and defects; never errors.
    pub diagnostics: Vec<Diagnostic>,
    /// Hash over every file read.
    pub sha256: String,
    /// The agent's folder.
    pub folder: PathBuf,
    pub(super) root: PromptRoot,
    pub(super) library: PromptLibrary,
    pub(super) system: Template,
    pub(super) system_shown: String,
    /// See [`Loaded::system_prompt`].
    pub(super) system_resolved: OnceLock<ResolvedPrompt>,
    pub(super) by_path: BTreeMap<String, (String, Template)>,
}

/// The address of a step's prompt, and what a missing adaptation means. A closure step without its own adaptation takes
/// the one of `defaultClosureAction`, which may fall back (D64). A step that names its own may not.
pub fn address_of(c1: &str, step: &Step, github: &GithubSettings) -> (PromptAddress, AbsentAdaptation) {
    let closure = step.kind == Some(StepKind::Closure);
    let implied =
        (closure && github.closure_action_set && github.default_closure_action != ClosureAction::Close)
            .then(|| github.default_closure_action.as_str().to_owned());
    let absent = match &step.address.adaptation {
        Some(_) if closure => AbsentAdaptation::Fail,
        _ => AbsentAdaptation::FallBack,
    };
    let address = PromptAddress {
        c1: c1.to_owned(),
        c2: step.address.c2.clone(),
        c3: step.address.c3.clone(),
        edition: step.address.edition.clone(),
        adaptation: step.address.adaptation.clone().or(implied),
    };
    (address, absent)
}

/// Every prompt of an agent's `c1`, and where they are. Blocks on disk.
pub(super) fn library_of(
    project: &Path,
    folder: &Path,
    agent: &str,
    c1: &str,
) -> Result<(PromptRoot, PromptLibrary), PromptError> {
    let root = PromptRoot::read(project, folder, agent, c1)?;
    if let Some(real) = leads_out(project, &root.folder) {
        let message =
            format!("a link leads out of the repository, to {}; put the folder itself there", real.display());
        return Err(PromptError::new("PR-C3L-002", message).in_file(&root.shown));
    }
    let library = PromptLibrary::read(&root.folder, &root.shown).map_err(|error| {
        PromptError::new("PR-FILE-001", format!("cannot be read: {error}")).in_file(&root.shown)
    })?;
    Ok((root, library))
}

/// Key of a check's prompt among the prompts named by path.
pub fn check_key(step: &str) -> String {
    format!("{step}#check")
}

/// The address of a check's question; `None` = it is named by path.
pub fn check_address(c1: &str, check: &StepCheck) -> Option<PromptAddress> {
    match &check.prompt {
        CheckPrompt::Path(_) => None,
        CheckPrompt::Address(address) => Some(PromptAddress {
            c1: c1.to_owned(),
            c2: address.c2.clone(),
            c3: address.c3.clone(),
            edition: address.edition.clone(),
            adaptation: address.adaptation.clone(),
        }),
    }
}

impl Loaded {
    /// The handoffs that the flow names: the step that is left, and the step that is entered.
    pub fn handoffs(&self) -> Vec<(StepId, StepId)> {
        let named = graph::handoffs(&self.definition.flow);
        named.into_iter().map(|(from, to)| (from.id.clone(), to)).collect()
    }

    /// Whether a model may name any step as the next one.
    pub fn jumps_anywhere(&self) -> bool {
        self.definition.flow.steps.iter().any(graph::jumps_anywhere)
    }

    /// The question of a step's check.
    pub fn resolve_check(
        &self,
        step: &Step,
        check: &StepCheck,
        values: &Values,
    ) -> Result<ResolvedPrompt, PromptError> {
        match check_address(self.c1(), check) {
            Some(address) => self.library.resolve(&address, AbsentAdaptation::FallBack, values),
            None => self.resolve_path(&check_key(&step.id), values).unwrap_or_else(|| {
                Err(PromptError::new("PR-C3L-004", format!("the check of \"{}\" has no question", step.id)))
            }),
        }
    }

    /// A prompt named by path.
    fn resolve_path(&self, key: &str, values: &Values) -> Option<Result<ResolvedPrompt, PromptError>> {
        let (shown, template) = self.by_path.get(key)?;
        Some(template.render(values).map_err(|error| error.in_file(shown)).map(|text| ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: shown.clone(),
            fell_back: false,
            template_sha256: template.sha256.clone(),
            template_blob: template.blob.clone(),
            variables: template.variable_names(),
        }))
    }

    /// The prompt of a step. `adaptation` replaces the step's own; if it is missing in a closure step, that is an
    /// error. Reads no file and takes microseconds.
    pub fn resolve_prompt(
        &self,
        step: &Step,
        adaptation: Option<&str>,
        values: &Values,
    ) -> Result<ResolvedPrompt, PromptError> {
        if let Some(resolved) = self.resolve_path(&step.id, values) {
            return resolved;
        }
        let flow = &self.definition.flow;
        let (mut address, mut absent) = address_of(&flow.c1, step, &self.definition.github);
        if let Some(adaptation) = adaptation {
            address.adaptation = Some(adaptation.to_owned());
            if step.kind == Some(StepKind::Closure) {
                absent = AbsentAdaptation::Fail;
            }
        }
        self.root.allows(&address)?;
        if step.uses_stdin && values.input_text.is_none() {
            return Err(PromptError::new(
                "PR-RESOLVE-004",
                format!("step \"{}\" takes {{input_text}}, but none was given", step.id),
            ));
        }
        let found = self.library.find(&address, absent)?;
        if values.schema_file.is_some() || !found.template.uses(&Placeholder::SchemaFile) {
            return self.library.render(&found, values);
        }
        let mut values = values.clone();
        values.schema_file = self.schema_file(step);
        self.library.render(&found, &values)
    }

    /// A prompt by address, as `agentd prompt` shows it. Steps use only the `c1` of the registry; prompts of another
    /// `c1` are read from disk here.
    pub fn resolve_address(
        &self,
        project: &Path,
        address: &PromptAddress,
        values: &Values,
    ) -> Result<ResolvedPrompt, PromptError> {
        let others;
        let (root, library) = if address.c1 == self.c1() {
            (&self.root, &self.library)
        } else {
            others = library_of(project, &self.folder, &self.definition.name, &address.c1)?;
            (&others.0, &others.1)
        };
        root.allows(address)?;
        let absent = match StepKind::from_c2(&address.c2) {
            Some(StepKind::Closure) => AbsentAdaptation::Fail,
            _ => AbsentAdaptation::FallBack,
        };
        library.resolve(address, absent, values)
    }

    /// The addresses that have prompts, without editions, of the `c1` of its steps.
    pub fn addresses(&self) -> BTreeSet<String> {
        let below = self.library.folders().map(|folder| format!("{}/{folder}", self.c1()));
        below.collect()
    }

    /// The first level of the addresses of its steps' prompts.
    pub fn c1(&self) -> &str {
        &self.definition.flow.c1
    }

    /// The system prompt: `{uv-agent_name}`, `{uv-verdict_criteria}` and `{uv-completion_criteria}` are inserted;
    /// everything else stays as it is written.
    pub fn system_prompt(&self) -> &ResolvedPrompt {
        self.system_resolved.get_or_init(|| self.resolve_system_prompt())
    }

    fn resolve_system_prompt(&self) -> ResolvedPrompt {
        let criteria = self.definition.completion.criteria();
        let values: Values = [
            ("agent_name", self.definition.name.clone()),
            ("verdict_criteria", criteria.clone()),
            ("completion_criteria", criteria),
        ]
        .into_iter()
        .collect();
        let text = self.system.render_known(&values);
        ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: self.system_shown.clone(),
            fell_back: false,
            template_sha256: self.system.sha256.clone(),
            template_blob: self.system.blob.clone(),
            variables: BTreeSet::new(),
        }
    }

    /// What the model reads when a check failed: the retry prompt of the pattern, else the general one, else `None`
    /// (the engine then uses its own words).
    pub fn retry_prompt(
        &self,
        validation: &ValidationStep,
        pattern: Option<&str>,
        params: &Value,
    ) -> Result<Option<ResolvedPrompt>, PromptError> {
        let pattern = pattern.and_then(|name| self.definition.flow.failure_patterns.get(name));
        let address = PromptAddress {
            c1: self.c1().to_owned(),
            c2: validation.c2.clone(),
            c3: validation.c3.clone(),
            edition: pattern.map_or_else(|| "failed".to_owned(), |pattern| pattern.edition.clone()),
            adaptation: pattern.and_then(|pattern| pattern.adaptation.clone()),
        };
        let general = PromptAddress { edition: "failed".into(), adaptation: None, ..address.clone() };
        let found = self
            .library
            .find(&address, AbsentAdaptation::FallBack)
            .or_else(|_| self.library.find(&general, AbsentAdaptation::FallBack));
        let Ok(found) = found else { return Ok(None) };
        let shown = self.library.shown(found.path);
        let text = crate::prompt::retry::render(found.template.body(), params)
            .map_err(|error| error.in_file(&shown))?;
        Ok(Some(ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: shown,
            fell_back: found.fell_back,
            template_sha256: found.template.sha256.clone(),
            template_blob: found.template.blob.clone(),
            variables: BTreeSet::new(),
        }))
    }

    /// The variables that stay the same for a whole run: parameters (given or default), the completion's variables, the
    /// agent's name. The caller adds the facts of the issue and of each visit. All problems with the given values are
    /// reported together (D68, T17).
    pub fn run_values(&self, given: &BTreeMap<String, String>) -> Result<Values, Vec<Diagnostic>> {
        let mut values = Values::default();
        let mut wrong = Vec::new();
        let mut problem = |code, message: String, fix: String| {
            wrong.push(Diagnostic {
                code,
                severity: Severity::Error,
                file: "--uv".into(),
                pointer: String::new(),
                place: None,
                message,
                fix,
                schema: false,
            });
        };
        for (name, text) in given {
            if !is_variable_name(name) || RESERVED.contains(&name.as_str()) {
                problem(
                    "PR-C3L-002",
                    format!("\"{name}\" cannot be the name of a variable"),
                    "begin with an ASCII letter; use letters, digits, \"_\" and \"-\"; input_text and its like are reserved"
                        .into(),
                );
            } else if host_variable(name).is_some() {
                problem(
                    "PR-RESOLVE-006",
                    format!("\"{name}\" is set by the run itself and cannot be given"),
                    format!("leave --uv {name}=… out"),
                );
            } else if let Some(parameter) = self.definition.parameter(name)
                && let Err(why) = parameter_value::fits(parameter, text)
            {
                problem(
                    "AC-VALID-003",
                    format!("--uv {name}={text}: {why}"),
                    "give a value that fits".into(),
                );
            } else {
                values.set(name, text.clone());
            }
        }
        for parameter in &self.definition.parameters {
            let fact = host_variable(&parameter.name).is_some_and(|host| host.when == Supply::Fact);
            if fact || values.get(&parameter.name).is_some() {
                continue;
            }
            match &parameter.default {
                Some(default) => {
                    values.set(&parameter.name, value_text(default));
                }
                None if parameter.required && !given.contains_key(&parameter.name) => problem(
                    "PR-RESOLVE-003",
                    format!("the agent's parameter \"{}\" is required and was not given", parameter.name),
                    format!(
                        "add --uv {}=…, or give it a default in agent.json: a daemon gives none",
                        parameter.name
                    ),
                ),
                None => {}
            }
        }
        for (name, value) in completion_variables(&self.definition.completion) {
            values.set(name, value);
        }
        let criteria = self.definition.completion.criteria();
        values.set("agent_name", self.definition.name.clone());
        values.set("verdict_criteria", criteria.clone());
        values.set("completion_criteria", criteria);
        if wrong.is_empty() { Ok(values) } else { Err(wrong) }
    }

    /// The parameters that only whoever starts a run can give: they are required, and have no default. A daemon gives none.
    pub fn left_to_whoever_asks(&self) -> Vec<&str> {
        let parameters = self.definition.parameters.iter();
        let is_left = parameters.filter(|parameter| {
            let fact = host_variable(&parameter.name).is_some_and(|host| host.when == Supply::Fact);
            parameter.required && parameter.default.is_none() && !fact
        });
        is_left.map(|parameter| parameter.name.as_str()).collect()
    }

    /// Names that were given and that nothing uses: no parameter, no prompt, no argument of a step's program.
    pub fn unused<'a>(&self, given: &'a BTreeMap<String, String>) -> Vec<&'a str> {
        let by_path = self.by_path.values().map(|(_, template)| template);
        let used: BTreeSet<&str> =
            self.library.templates().chain(by_path).flat_map(Template::uv_variables).collect();
        let taken = |name: &str| {
            let argument = format!("${{context.{name}}}");
            used.contains(name)
                || self.definition.parameter(name).is_some()
                || self.definition.flow.steps.iter().any(|step| {
                    let args = step.runner.iter().flat_map(|runner| &runner.args);
                    step.uv_variables.iter().any(|known| known == name)
                        || args.into_iter().any(|arg| arg.contains(&argument))
                })
        };
        given.keys().map(String::as_str).filter(|name| !taken(name)).collect()
    }

    fn schema_file(&self, step: &Step) -> Option<String> {
        if let Some(schema) = &step.output_schema {
            return schema.source.split_once('#').map(|(file, _)| file.to_owned());
        }
        let folder = self.root.schema_folder.as_ref()?;
        Some(format!("{folder}/{}/{}/base.schema.md", step.address.c2, step.address.c3))
    }
}
