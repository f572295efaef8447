//! Prompts against the registry: every file, every variable and every input that a run will need.

use std::collections::{BTreeMap, BTreeSet};

use super::agent_file::AgentParts;
use super::diagnostic::{Diagnostic, Severity, in_prompt};
use super::graph::ReachableSteps;
use super::loaded::{address_of, check_address, check_key};
use super::registry::ReadRegistry;
use super::retry_check;
use super::source::Findings;
use super::steps::ReadStep;
use super::variables::{Supply, host_variable};
use crate::domain::flow::{GithubSettings, Step, Subprocess};
use crate::domain::step_check::StepCheck;
use crate::prompt::PromptError;
use crate::prompt::breakdown::PromptRoot;
use crate::prompt::library::{AbsentAdaptation, FoundTemplate, PromptLibrary};
use crate::prompt::template::{Placeholder, RESERVED, Template, is_variable_name};

/// What the checks look at.
pub struct PromptCheck<'a> {
    /// The registry.
    pub registry: &'a ReadRegistry,
    /// `agent.json`.
    pub agent: &'a AgentParts,
    /// Prompts of the registry's `c1`.
    pub library: &'a PromptLibrary,
    /// Their configuration.
    pub root: &'a PromptRoot,
    /// Prompts named by path: step id → template or error.
    pub by_path: &'a BTreeMap<String, Result<Template, PromptError>>,
    /// Names given on the command line.
    pub supplied: &'a BTreeSet<String>,
    /// What a run can reach.
    pub reach: &'a ReachableSteps,
}

impl PromptCheck<'_> {
    /// Adds every finding.
    pub fn run(&self, findings: &mut Findings<'_>) {
        for read in &self.registry.steps {
            self.declared_names(read, findings);
            self.inputs(read, findings);
            match &read.step.runner {
                None => self.prompt(read, findings),
                Some(runner) => self.arguments(read, runner, findings),
            }
            if let Some(check) = &read.step.check {
                self.question(read, check, findings);
            }
        }
        retry_check::tell(&self.registry.flow, self.library, &self.root.shown, findings);
    }

    /// The question of a step's check: it exists, is complete, and has a value for every variable.
    fn question(&self, read: &ReadStep, check: &StepCheck, findings: &mut Findings<'_>) {
        let severity = self.reach.severity(&read.step.id);
        let found = match check_address(&self.registry.flow.c1, check) {
            Some(address) => self
                .library
                .find(&address, AbsentAdaptation::FallBack)
                .map(|found| (found.template, self.library.shown(found.path))),
            None => match self.by_path.get(&check_key(&read.step.id)) {
                Some(Ok(template)) => Ok((template, self.root.shown.clone())),
                Some(Err(error)) => Err(error.clone()),
                None => return,
            },
        };
        let (template, shown) = match found {
            Ok(found) => found,
            Err(error) => {
                let at = format!("{}/check/prompt", read.at);
                findings.add(
                    severity,
                    error.code,
                    &at,
                    error.told(),
                    "write the file, or correct the address",
                );
                return;
            }
        };
        for slot in template.slots() {
            if let Placeholder::Uv(name) = &slot.what
                && let Some((severity, why, fix)) = self.unsupplied(&read.step, name)
            {
                let message = format!("the check of step \"{}\" uses {{uv-{name}}}, {why}", read.step.id);
                let error = PromptError::new("PR-RESOLVE-005", message).on_line(slot.line);
                findings.list.push(Diagnostic { fix, ..in_prompt(severity, &error, &shown) });
            }
        }
    }

    /// The variables that the arguments of a step's program take.
    fn arguments(&self, read: &ReadStep, runner: &Subprocess, findings: &mut Findings<'_>) {
        for (index, arg) in runner.args.iter().enumerate() {
            for name in arg.split("${context.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)) {
                let Some((severity, why, fix)) = self.unsupplied(&read.step, name) else { continue };
                findings.add(
                    severity,
                    "PR-RESOLVE-005",
                    &format!("{}/runner/args/{index}", read.at),
                    format!("step \"{}\" uses ${{context.{name}}}, {why}", read.step.id),
                    fix,
                );
            }
        }
    }

    fn declared_names(&self, read: &ReadStep, findings: &mut Findings<'_>) {
        for (index, name) in read.step.uv_variables.iter().enumerate() {
            if !is_variable_name(name) || RESERVED.contains(&name.as_str()) {
                findings.add(
                    self.reach.severity(&read.step.id),
                    "PR-C3L-002",
                    &format!("{}/uvVariables/{index}", read.at),
                    format!("\"{name}\" cannot be the name of a variable"),
                    "begin with an ASCII letter; use letters, digits, \"_\" and \"-\"; input_text and its like are reserved",
                );
            }
        }
    }

    fn inputs(&self, read: &ReadStep, findings: &mut Findings<'_>) {
        let severity = self.reach.severity(&read.step.id);
        let at = format!("{}/inputs", read.at);
        let mut names: BTreeMap<String, (String, String)> = BTreeMap::new();
        for input in &read.step.inputs.inputs {
            let variable = input.variable();
            let source = (input.step.clone(), input.key.clone());
            if let Some(other) = names.insert(variable.clone(), source.clone())
                && other != source
            {
                findings.add(
                    severity,
                    "SR-INPUT-002",
                    &at,
                    format!(
                        "\"{}.{}\" and \"{}.{}\" both become the variable {variable}",
                        other.0, other.1, source.0, source.1
                    ),
                    "rename one of the keys",
                );
            }
            if host_variable(&variable).is_some()
                || self.agent.parameters.iter().any(|known| known.name == variable)
            {
                findings.add(
                    severity,
                    "SR-INPUT-002",
                    &at,
                    format!(
                        "the input {}.{} becomes {variable}, which the run supplies already",
                        input.step, input.key
                    ),
                    "rename the key",
                );
            }
            let Some(from) = self.registry.flow.step(&input.step) else {
                findings.add(
                    severity,
                    "SR-INPUT-003",
                    &at,
                    format!(
                        "the input {}.{} comes from \"{}\", which is no step",
                        input.step, input.key, input.step
                    ),
                    "name a step of the registry; the last dot splits the step from its key",
                );
                continue;
            };
            if may_put_out(from, &input.key) {
                continue;
            }
            let severity = if input.required { severity } else { Severity::Warning };
            findings.add(
                severity,
                "SR-INPUT-003",
                &at,
                format!(
                    "step \"{}\" is not asked for \"{}\": its schema has no such field",
                    input.step, input.key
                ),
                "add the field to the schema or correct the key",
            );
        }
    }

    fn prompt(&self, read: &ReadStep, findings: &mut Findings<'_>) {
        let step = &read.step;
        let severity = self.reach.severity(&step.id);
        if let Some(by_path) = self.by_path.get(&step.id) {
            match by_path {
                Ok(template) => {
                    let shown = read.path.clone().unwrap_or_default();
                    self.template(read, template, &shown, findings);
                }
                Err(error) if error.line.is_some() => {
                    findings.list.push(in_prompt(severity, error, &self.root.shown));
                }
                Err(error) => {
                    let fix = "write the file, or correct the path";
                    findings.add(severity, error.code, &format!("{}/path", read.at), error.told(), fix);
                }
            }
            return;
        }
        if step.address.c2.is_empty() || step.address.c3.is_empty() {
            return;
        }
        let (address, absent) = address_of(&self.registry.flow.c1, step, &self.agent.github);
        if let Err(error) = self.root.allows(&address) {
            let fix = "widen the pattern, or correct c2 and c3";
            findings.add(severity, error.code, &format!("{}/c2", read.at), error.told(), fix);
        }
        match self.library.find(&address, absent) {
            Ok(found) => {
                self.fallback(read, &found, &self.agent.github, findings);
                let shown = self.library.shown(found.path);
                self.template(read, found.template, &shown, findings);
            }
            Err(error) if error.line.is_some() => {
                findings.list.push(in_prompt(severity, &error, &self.root.shown));
            }
            Err(error) => findings.add(
                severity,
                error.code,
                &read.at,
                format!("step \"{}\": {}", step.id, error.told()),
                "write the file, or correct c2, c3, edition or adaptation",
            ),
        }
    }

    fn fallback(
        &self,
        read: &ReadStep,
        found: &FoundTemplate<'_>,
        github: &GithubSettings,
        findings: &mut Findings<'_>,
    ) {
        if !found.fell_back {
            return;
        }
        let (wanted, why) = match &read.step.address.adaptation {
            Some(adaptation) => (adaptation.as_str(), "the step's adaptation"),
            None => (github.default_closure_action.as_str(), "the agent's defaultClosureAction"),
        };
        findings.add(
            Severity::Warning,
            "PR-C3L-005",
            &read.at,
            format!(
                "step \"{}\": there is no prompt for {why} \"{wanted}\"; {} is used",
                read.step.id,
                self.library.shown(found.path)
            ),
            format!("write f_{}_{wanted}.md", read.step.address.edition),
        );
    }

    fn template(&self, read: &ReadStep, template: &Template, shown: &str, findings: &mut Findings<'_>) {
        let step = &read.step;
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for slot in template.slots() {
            let Placeholder::Uv(name) = &slot.what else {
                self.built_in(step, &slot.what, slot.line, shown, findings);
                continue;
            };
            if !told.insert(name) {
                continue;
            }
            let declared = step.uv_variables.iter().any(|known| known == name);
            if let Some((severity, why, fix)) = self.unsupplied(step, name) {
                let code = if declared { "PR-RESOLVE-003" } else { "PR-RESOLVE-005" };
                let error = PromptError::new(code, format!("step \"{}\" uses {{uv-{name}}}, {why}", step.id));
                findings
                    .list
                    .push(Diagnostic { fix, ..in_prompt(severity, &error.on_line(slot.line), shown) });
            } else if !declared && !step.inputs.inputs.iter().any(|input| input.variable() == *name) {
                let error = PromptError::new(
                    "PR-UV-001",
                    format!("{{uv-{name}}} is not among the uvVariables of step \"{}\"", step.id),
                );
                let fix = format!("add \"{name}\" to uvVariables");
                findings.list.push(Diagnostic {
                    fix,
                    ..in_prompt(Severity::Warning, &error.on_line(slot.line), shown)
                });
            }
        }
        for (index, name) in step.uv_variables.iter().enumerate() {
            let at = format!("{}/uvVariables/{index}", read.at);
            if told.contains(name.as_str()) {
                continue;
            }
            // What no prompt asks for is missed by nobody.
            let optional = self.agent.parameters.iter().any(|parameter| parameter.name == *name);
            if let Some((severity, why, fix)) = self.unsupplied(step, name).filter(|_| !optional) {
                let message = format!("step \"{}\" declares \"{name}\", {why}", step.id);
                findings.add(severity, "PR-RESOLVE-003", &at, message, fix);
            } else {
                findings.add(
                    Severity::Warning,
                    "PR-UV-002",
                    &at,
                    format!(
                        "step \"{}\" declares \"{name}\", but its prompt ({shown}) does not use it",
                        step.id
                    ),
                    "use it or remove it",
                );
            }
        }
        let mut literal: BTreeSet<&str> = BTreeSet::new();
        for (name, line) in template.literal_names() {
            if literal.insert(name) {
                let message = format!(
                    "step \"{}\": {{{{{name}}}}} is no placeholder here and reaches the model as it stands",
                    step.id
                );
                let error = PromptError::new("PR-UV-004", message).on_line(line);
                let fix = format!("write {{uv-{name}}}, and \"{name}\" in uvVariables");
                findings.list.push(Diagnostic { fix, ..in_prompt(Severity::Warning, &error, shown) });
            }
        }
        self.head(read, template, shown, findings);
    }

    fn built_in(&self, step: &Step, what: &Placeholder, line: u32, shown: &str, findings: &mut Findings<'_>) {
        let severity = self.reach.severity(&step.id);
        let custom;
        let (severity, code, message, fix) = match what {
            Placeholder::InputText if !step.uses_stdin => (
                Severity::Warning,
                "PR-UV-001",
                "{input_text} is used, but the step does not say usesStdin",
                "write \"usesStdin\": true",
            ),
            Placeholder::InputTextFile | Placeholder::DestinationPath => (
                severity,
                "PR-RESOLVE-005",
                "{input_text_file} and {destination_path} have no value in a run",
                "remove the placeholder",
            ),
            Placeholder::SchemaFile if step.output_schema.is_none() && self.root.schema_folder.is_none() => (
                severity,
                "PR-RESOLVE-005",
                "{schema_file} is used, but the step has no schema",
                "give the step an outputSchemaRef",
            ),
            Placeholder::Custom(name) => {
                custom = format!(
                    "{{{name}}} of customVariables has no value here and is left out (the issue itself is shown below the prompt)"
                );
                (Severity::Warning, "PR-UV-003", custom.as_str(), "remove it")
            }
            _ => return,
        };
        let error = PromptError::new(code, format!("step \"{}\": {message}", step.id)).on_line(line);
        findings.list.push(Diagnostic { fix: fix.to_owned(), ..in_prompt(severity, &error, shown) });
    }

    fn head(&self, read: &ReadStep, template: &Template, shown: &str, findings: &mut Findings<'_>) {
        let step = &read.step;
        let mut note = |line: u32, message: String| {
            let error = PromptError::new("PR-FILE-002", message).on_line(line);
            findings.list.push(in_prompt(Severity::Warning, &error, shown));
        };
        for (line, text) in &template.head.notes {
            note(*line, text.clone());
        }
        if let Some(id) = &template.head.step_id
            && *id != step.id
        {
            note(1, format!("the frontmatter says stepId \"{id}\", but step \"{}\" uses the file", step.id));
        }
        let levels = [&self.registry.flow.c1, &step.address.c2, &step.address.c3];
        for (index, (written, used)) in template.head.levels.iter().zip(levels).enumerate() {
            if let Some(written) = written
                && written != used
            {
                note(
                    1,
                    format!(
                        "the frontmatter says c{} \"{written}\", but the file is used as \"{used}\"",
                        index + 1
                    ),
                );
            }
        }
        for name in &template.head.uv_variables {
            if !step.uv_variables.contains(name) {
                note(
                    1,
                    format!(
                        "the frontmatter lists the variable \"{name}\", which step \"{}\" does not declare",
                        step.id
                    ),
                );
            }
        }
    }

    /// Why a variable may have no value in a run, how bad that is, and what to do. `None` = it always has one.
    fn unsupplied(&self, step: &Step, name: &str) -> Option<(Severity, String, String)> {
        let severity = self.reach.severity(&step.id);
        if let Some(host) = host_variable(name) {
            return match host.when {
                Supply::Always | Supply::Fact => None,
                Supply::AfterFirstVisit if step.id == self.registry.flow.entry => Some((
                    severity,
                    "which has no value in the first visit of a run".into(),
                    "use it in later steps only".into(),
                )),
                Supply::AfterFirstVisit => None,
                Supply::Completion(kind) => {
                    let has = self.agent.completion.as_ref().is_none_or(|completion| {
                        super::variables::completion_variables(completion)
                            .iter()
                            .any(|(known, _)| *known == name)
                    });
                    (!has).then(|| {
                        (
                            severity,
                            format!("which only the completion type {kind} supplies"),
                            "remove it".into(),
                        )
                    })
                }
            };
        }
        if self.supplied.contains(name)
            || step.inputs.inputs.iter().any(|input| input.variable() == name && !input.may_be_absent())
        {
            return None;
        }
        if let Some(parameter) = self.agent.parameters.iter().find(|parameter| parameter.name == name) {
            let given = parameter.required || parameter.default.is_some();
            return (!given).then(|| {
                (
                    Severity::Warning,
                    "an optional parameter without default: a run without it fails".into(),
                    format!("give the parameter a default, or run with --uv {name}=…"),
                )
            });
        }
        if step.inputs.inputs.iter().any(|input| input.variable() == name) {
            return Some((
                Severity::Warning,
                "an input that may be missing: a visit without it fails".into(),
                "give the input a default".into(),
            ));
        }
        Some((
            severity,
            "which nothing supplies".into(),
            format!(
                "declare the parameter \"{name}\", take it from a step with inputs, or run with --uv {name}=…"
            ),
        ))
    }
}

/// Whether the schema of a step names a key. A field that it does not name is kept if a model writes it, but a later
/// step cannot rely on it.
fn may_put_out(step: &Step, key: &str) -> bool {
    if step.gate.as_ref().is_some_and(|gate| gate.handoff_names().iter().any(|(_, name)| name == key)) {
        return true;
    }
    let Some(schema) = &step.output_schema else { return true };
    let Some(json) = schema.json.as_object() else { return true };
    // One that speaks of further fields, or of other shapes, has them.
    const OPEN: [&str; 6] = ["patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if"];
    let opens = OPEN.iter().any(|word| json.contains_key(*word))
        || json.get("additionalProperties").is_some_and(|further| further != false);
    (opens && schema.fields.is_none())
        || json.get("properties").is_none_or(|properties| properties.get(key).is_some())
}
