//! `load`, `validate`, `build`: from an agent's folder to a definition that is ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;

use super::agent_file::{self, AgentParts};
use super::diagnostic::{Diagnostic, Refused, Severity, in_prompt};
use super::generations::{Newest, OlderForm, newest_agent, newest_registry_of};
use super::graph::{self, ReachableSteps};
use super::loaded::{Loaded, check_key, library_of};
use super::output_check;
use super::position::Position;
use super::program::AgentPrograms;
use super::prompt_check::PromptCheck;
use super::registry::{self, ReadRegistry};
use super::schema_file::{SchemaFolder, unknown_formats, unknown_keywords};
use super::source::{Files, Findings, JsonSource, Unreadable, below};
use super::steps::ReadStep;
use super::unused;
use super::variables::{Supply, host_variable};
use crate::domain::flow::Definition;
use crate::domain::output_schema::{OutputValidator, StepSchema};
use crate::domain::step_check::CheckPrompt;
use crate::prompt::PromptError;
use crate::prompt::breakdown::PromptRoot;
use crate::prompt::library::PromptLibrary;
use crate::prompt::template::{Placeholder, Template};

/// Begins the codes of what is wrong with prompts.
const OF_PROMPTS: &str = "PR-";

/// Loads an agent: reads every file once, turns it into the newest form, checks everything that can be known before a
/// model is asked, and keeps it in memory. `project` is the main checkout, `folder` the agent's folder below it;
/// `supplied` are the names given with `--uv`. Blocks on disk.
///
/// Errors: every finding at once, when at least one is an error. Findings that are not errors are in
/// [`Loaded::diagnostics`].
pub fn load(project: &Path, folder: &Path, supplied: &BTreeSet<String>) -> Result<Loaded, Refused> {
    load_unless(project, folder, supplied, |_| true)
}

/// The same to look at single prompts: what is wrong with prompts is in [`Loaded::diagnostics`], and refuses nothing, as one that is broken
/// is in the way of no other. Blocks on disk.
///
/// Errors: every finding, when something else is wrong.
pub fn load_for_prompts(
    project: &Path,
    folder: &Path,
    supplied: &BTreeSet<String>,
) -> Result<Loaded, Refused> {
    load_unless(project, folder, supplied, |found| !found.code.starts_with(OF_PROMPTS))
}

/// `refuses`: whether an error is in the way.
fn load_unless(
    project: &Path,
    folder: &Path,
    supplied: &BTreeSet<String>,
    refuses: impl Fn(&Diagnostic) -> bool,
) -> Result<Loaded, Refused> {
    let mut loader = Loader {
        project,
        folder,
        shown: shown_folder(project, folder),
        files: Files::of(project),
        diagnostics: Vec::new(),
    };
    let loaded = loader.load(supplied);
    let mut diagnostics = std::mem::take(&mut loader.diagnostics);
    sort(&mut diagnostics);
    match loaded {
        Some(mut loaded)
            if diagnostics.iter().all(|found| found.severity < Severity::Error || !refuses(found)) =>
        {
            loaded.diagnostics = diagnostics;
            Ok(loaded)
        }
        _ => Err(Refused(with_a_reason(diagnostics, &loader.shown))),
    }
}

/// Nothing is refused without a word, not even by a defect of the checks.
fn with_a_reason(mut diagnostics: Vec<Diagnostic>, shown: &str) -> Vec<Diagnostic> {
    if diagnostics.iter().all(|found| found.severity < Severity::Error) {
        diagnostics.push(Diagnostic {
            code: "AC-LOAD-004",
            severity: Severity::Error,
            file: format!("{shown}/agent.json"),
            pointer: String::new(),
            place: None,
            message: "the agent cannot be used, and no check says why".to_owned(),
            fix: "this is a defect of agentd: report it, with the agent's files".to_owned(),
            schema: false,
        });
        sort(&mut diagnostics);
    }
    diagnostics
}

/// Names of the agents that a project has: folders of `.agent` with an `agent.json` or, where that is missing (N01), a
/// registry; sorted. One that cannot be read is among them, so that somebody says why. Blocks on disk.
pub fn agents_of(project: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project.join(".agent")) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            let is_there = |file: &str| entry.path().join(file).symlink_metadata().is_ok();
            is_there("agent.json") || is_there("steps_registry.json")
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn shown_folder(project: &Path, folder: &Path) -> String {
    folder.strip_prefix(project).unwrap_or(folder).to_string_lossy().into_owned()
}

/// Errors first, then by file and place; the same finding once.
fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then_with(|| (&a.file, a.place, a.code).cmp(&(&b.file, b.place, b.code)))
    });
    diagnostics.dedup();
}

struct Loader<'a> {
    project: &'a Path,
    folder: &'a Path,
    shown: String,
    files: Files,
    diagnostics: Vec<Diagnostic>,
}

impl Loader<'_> {
    fn load(&mut self, supplied: &BTreeSet<String>) -> Option<Loaded> {
        let agent_source = self.agent_source()?;
        let newest = newest_agent(&agent_source.value);
        let agent = self.agent(&agent_source, &newest);
        let registry_name = agent.as_ref().map_or("steps_registry.json", |agent| agent.registry.as_str());
        let mut named = Findings::new(&agent_source, &newest.moves);
        let registry_source = self.registry_source(registry_name, &mut named);
        let system = agent.as_ref().map(|agent| self.system(agent, &mut named));
        self.diagnostics.extend(named.list);
        let registry_source = registry_source?;
        let mut of_agent = Findings::new(&agent_source, &newest.moves);
        let newest_registry = newest_registry_of(&agent_source.value, &registry_source.value);
        let mut findings = Findings::new(&registry_source, &newest_registry.moves);
        deprecated("SR-DEPRECATED-001", &newest_registry.changes, &mut findings);
        duplicates("SR-VALID-004", &registry_source, &mut findings);
        let schemas_shown = format!("{}/schemas", self.shown);
        let schemas_folder = self.folder.join("schemas");
        let schemas = SchemaFolder { folder: &schemas_folder, shown: &schemas_shown, files: &self.files };
        let registry = registry::read(&newest_registry.value, agent.as_ref(), &schemas, &mut findings);
        let found = registry.as_ref().zip(agent.as_ref()).map(|(registry, agent)| {
            let reach = ReachableSteps::of(registry);
            graph::check(registry, agent, &reach, &mut findings);
            output_check::check(registry, &reach, &mut findings);
            unused::check(&registry.flow, agent.completion.as_ref(), &mut findings);
            if newest.value.pointer(unused::PLAN_MODE).is_some_and(|mode| *mode == "plan") {
                unused::plan_mode(&registry.flow, &mut of_agent);
            }
            check_schemas(registry, &reach, &mut findings);
            let own = AgentPrograms { folder: self.folder, shown: &self.shown, files: &self.files };
            own.of_registry(registry, &reach, &mut findings);
            self.prompts(registry, agent, supplied, &reach, &mut findings)
        });
        let list = std::mem::take(&mut findings.list);
        self.diagnostics.extend(of_agent.list);
        self.diagnostics.extend(list);
        self.ignored_files();
        let (root, library, by_path) = found??;
        let (agent, registry, (system, system_shown)) = (agent?, registry?, system??);
        let by_path = by_path
            .into_iter()
            .filter_map(|(id, template)| {
                let path = registry.steps.iter().flat_map(prompt_paths).find(|(key, _)| *key == id)?.1;
                Some((id, (format!("{}/{path}", self.shown), template.ok()?)))
            })
            .collect();
        Some(Loaded {
            sha256: self.files.sha256(),
            definition: definition(agent, registry)?,
            diagnostics: Vec::new(),
            folder: self.folder.to_owned(),
            root,
            library,
            system,
            system_shown,
            system_resolved: OnceLock::new(),
            by_path,
        })
    }

    fn whole(&mut self, severity: Severity, code: &'static str, file: String, message: String, fix: &str) {
        self.diagnostics.push(Diagnostic {
            code,
            severity,
            file,
            pointer: String::new(),
            place: None,
            message,
            fix: fix.to_owned(),
            schema: false,
        });
    }

    fn not_json(&mut self, code: &'static str, file: String, place: Position, why: &str) {
        self.whole(
            Severity::Error,
            code,
            file,
            format!("is no JSON: {why}"),
            "correct the file at that place",
        );
        if let Some(last) = self.diagnostics.last_mut() {
            last.place = Some(place);
        }
    }

    fn agent_source(&mut self) -> Option<Rc<JsonSource>> {
        let shown = format!("{}/agent.json", self.shown);
        match self.files.json(&self.folder.join("agent.json"), &shown) {
            Ok(source) => return Some(source),
            Err(Unreadable::Absent) => {
                let mut others = agents_of(self.project);
                others.retain(|name| !self.folder.ends_with(name));
                let fix = if others.is_empty() {
                    "make one with `agentd agents new NAME` or `agentd init`".to_owned()
                } else {
                    format!("this project has: {}", others.join(", "))
                };
                self.whole(Severity::Error, "AC-LOAD-001", shown, "does not exist".into(), &fix);
            }
            Err(Unreadable::Failed(why)) => {
                self.whole(Severity::Error, "AC-LOAD-002", shown, format!("cannot be read: {why}"), "");
            }
            Err(Unreadable::NotJson(place, why)) => self.not_json("AC-LOAD-002", shown, place, &why),
        }
        None
    }

    fn agent(&mut self, source: &JsonSource, newest: &Newest) -> Option<AgentParts> {
        let mut findings = Findings::new(source, &newest.moves);
        deprecated("AC-DEPRECATED-001", &newest.changes, &mut findings);
        duplicates("AC-VALID-001", source, &mut findings);
        let agent = agent_file::read(&newest.value, &mut findings);
        if let Some(agent) = &agent {
            if self.folder.file_name().is_some_and(|name| name != agent.name.as_str()) {
                findings.add(
                    Severity::Error,
                    "AC-VALID-002",
                    "/name",
                    format!(
                        "the agent is called \"{}\", but its folder, by whose name it is found, is {}",
                        agent.name, self.shown
                    ),
                    "give both the same name",
                );
            }
            for parameter in &agent.parameters {
                if host_variable(&parameter.name).is_some_and(|host| host.when != Supply::Fact) {
                    findings.add(
                        Severity::Error,
                        "PR-RESOLVE-006",
                        &format!("/parameters/{}", parameter.name),
                        format!(
                            "parameter \"{}\" has the name of a variable that the run itself sets",
                            parameter.name
                        ),
                        "rename the parameter",
                    );
                }
            }
            let own = AgentPrograms { folder: self.folder, shown: &self.shown, files: &self.files };
            own.of_completion(agent.completion.as_ref(), &mut findings);
        }
        self.diagnostics.extend(findings.list);
        agent
    }

    /// A file that cannot be had is told where `agent.json` names it.
    fn registry_source(&mut self, name: &str, named: &mut Findings<'_>) -> Option<Rc<JsonSource>> {
        let shown = format!("{}/{name}", self.shown);
        let mut absent = |what: &str, fix: &str| {
            let message = format!("the registry {shown} {what}");
            named.add(Severity::Error, "SR-LOAD-003", "/runner/flow/prompts/registry", message, fix);
        };
        let Some(path) = below(self.folder, name) else {
            absent("leads out of the agent's folder", "name a file below the agent's folder");
            return None;
        };
        match self.files.json(&path, &shown) {
            Ok(source) => return Some(source),
            Err(Unreadable::Absent) => {
                absent("does not exist", "write it, or correct runner.flow.prompts.registry");
            }
            Err(Unreadable::Failed(why)) => {
                absent(&format!("cannot be read: {why}"), "correct the file, or name another");
            }
            Err(Unreadable::NotJson(place, why)) => self.not_json("SR-LOAD-001", shown, place, &why),
        }
        None
    }

    fn system(&mut self, agent: &AgentParts, named: &mut Findings<'_>) -> Option<(Template, String)> {
        let shown = format!("{}/{}", self.shown, agent.system_prompt);
        let mut absent = |code, what: &str, fix: &str| {
            let message = format!("the system prompt {shown} {what}");
            named.add(Severity::Error, code, "/runner/flow/systemPromptPath", message, fix);
        };
        let Some(path) = below(self.folder, &agent.system_prompt) else {
            let fix = "name a file below the agent's folder";
            absent("PR-SYSTEM-001", "leads out of the agent's folder", fix);
            return None;
        };
        let text = match self.files.text(&path, &shown) {
            Ok(text) => text,
            Err(Unreadable::Absent) => {
                let fix = "write it, or correct runner.flow.systemPromptPath";
                absent("PR-SYSTEM-002", "does not exist", fix);
                return None;
            }
            Err(Unreadable::Failed(why) | Unreadable::NotJson(_, why)) => {
                let fix = "correct the file, or name another";
                absent("PR-SYSTEM-001", &format!("cannot be read: {why}"), fix);
                return None;
            }
        };
        match Template::parse(&text) {
            Ok(template) => {
                for slot in template.slots() {
                    if let Placeholder::Uv(name) = &slot.what
                        && !["agent_name", "verdict_criteria", "completion_criteria"].contains(&name.as_str())
                    {
                        let message = format!(
                            "{{uv-{name}}} stays as it is written: a system prompt knows only agent_name and verdict_criteria"
                        );
                        let error = PromptError::new("PR-SYSTEM-003", message).on_line(slot.line);
                        self.diagnostics.push(in_prompt(Severity::Warning, &error, &shown));
                    }
                }
                Some((template, shown))
            }
            Err(error) => {
                let error = PromptError { code: "PR-SYSTEM-001", ..error };
                self.diagnostics.push(in_prompt(Severity::Error, &error, &shown));
                None
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "the three parts of a definition's prompts")]
    fn prompts(
        &self,
        registry: &ReadRegistry,
        agent: &AgentParts,
        supplied: &BTreeSet<String>,
        reach: &ReachableSteps,
        findings: &mut Findings<'_>,
    ) -> Option<(PromptRoot, PromptLibrary, BTreeMap<String, Result<Template, PromptError>>)> {
        let (root, library) = match library_of(self.project, self.folder, &agent.name, &registry.flow.c1) {
            Ok(read) => read,
            Err(error) => {
                findings.list.push(in_prompt(Severity::Error, &error, &self.shown));
                return None;
            }
        };
        for (file, bytes) in &root.files {
            self.files.keep(file, bytes);
        }
        for (file, line, message) in &root.notes {
            let error = PromptError::new("PR-FILE-002", message.clone()).on_line(*line);
            findings.list.push(in_prompt(Severity::Warning, &error, file));
        }
        for (file, sha256) in library.hashes() {
            self.files.keep_hash(&file, sha256);
        }
        let by_path = registry
            .steps
            .iter()
            .flat_map(|read| prompt_paths(read).map(|(key, path)| (key, self.prompt_by_path(path))))
            .collect();
        PromptCheck { registry, agent, library: &library, root: &root, by_path: &by_path, supplied, reach }
            .run(findings);
        Some((root, library, by_path))
    }

    fn prompt_by_path(&self, path: &str) -> Result<Template, PromptError> {
        let shown = format!("{}/{path}", self.shown);
        let outside = || {
            PromptError::new("PR-C3L-002", "the prompt's path leads out of the agent's folder")
                .in_file(&shown)
        };
        let file = below(self.folder, path).ok_or_else(outside)?;
        if let (Ok(real), Ok(folder)) = (file.canonicalize(), self.folder.canonicalize())
            && !real.starts_with(folder)
        {
            return Err(outside());
        }
        let text = self.files.text(&file, &shown).map_err(|why| {
            let (code, message) = match why {
                Unreadable::Absent => ("PR-C3L-004", "the prompt does not exist".to_owned()),
                Unreadable::Failed(why) | Unreadable::NotJson(_, why) => {
                    ("PR-FILE-001", format!("cannot be read: {why}"))
                }
            };
            PromptError::new(code, message).in_file(&shown)
        })?;
        Template::parse(&text).map_err(|error| error.in_file(&shown))
    }

    /// Files that other tools read and that mean nothing here.
    fn ignored_files(&mut self) {
        for name in ["config.json", "config.local.json"] {
            if self.folder.join(name).is_file() {
                let shown = format!("{}/{name}", self.shown);
                let message = "is ignored: settings stand in agent.json and agentd.toml".to_owned();
                self.whole(
                    Severity::Warning,
                    "AC-IGNORED-001",
                    shown,
                    message,
                    "remove it, or keep it for other tools",
                );
            }
        }
    }
}

/// Prompts that a step names by path, its own and its check's, by the key under which they are kept.
fn prompt_paths(read: &ReadStep) -> impl Iterator<Item = (String, &str)> {
    let of_check = read.step.check.as_ref().and_then(|check| match &check.prompt {
        CheckPrompt::Path(path) => Some((check_key(&read.step.id), path.as_str())),
        CheckPrompt::Address(_) => None,
    });
    let own = read.path.as_deref().map(|path| (read.step.id.clone(), path));
    own.into_iter().chain(of_check)
}

fn definition(agent: AgentParts, registry: ReadRegistry) -> Option<Definition> {
    Some(Definition {
        name: agent.name,
        display_name: agent.display_name,
        version: agent.version,
        description: agent.description,
        parameters: agent.parameters,
        system_prompt: agent.system_prompt,
        completion: agent.completion?,
        max_iterations: agent.max_iterations,
        boundaries: agent.boundaries,
        github: agent.github,
        flow: registry.flow,
        agentd: agent.agentd,
    })
}

fn deprecated(code: &'static str, changes: &[OlderForm], findings: &mut Findings<'_>) {
    for change in changes {
        // Changes carry pointers of the file itself.
        let place = change.old.clone();
        findings.add_written(Severity::Warning, code, &place, change.what.clone(), change.instead.clone());
    }
}

fn duplicates(code: &'static str, source: &JsonSource, findings: &mut Findings<'_>) {
    for pointer in &source.positions.duplicates {
        findings.add_written(
            Severity::Error,
            code,
            pointer,
            "the key is written twice in one object".to_owned(),
            "keep one of the two".to_owned(),
        );
    }
}

/// What nothing heeds in a schema that was read from a file.
fn unheeded(schema: &StepSchema, at: &str, findings: &mut Findings<'_>) {
    let source = &schema.source;
    let keywords = unknown_keywords(&schema.json).into_iter();
    let keywords = keywords.map(|(word, meant)| {
        (format!("\"{word}\" in {source} is no keyword of JSON Schema; it is ignored"), meant)
    });
    let formats = unknown_formats(&schema.json).into_iter();
    let formats = formats.map(|(format, meant)| {
        (
            format!("the format \"{format}\" in {source} is none of those that are checked; it is ignored"),
            meant,
        )
    });
    for (message, meant) in keywords.chain(formats) {
        let fix = meant.map_or_else(|| "remove it".to_owned(), |meant| format!("did you mean \"{meant}\"?"));
        findings.add(Severity::Warning, "SR-SCHEMA-002", at, message, fix);
    }
}

/// Schemas that could not be resolved, and files that are not JSON Schemas.
fn check_schemas(registry: &ReadRegistry, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    for read in &registry.steps {
        let severity = reach.severity(&read.step.id);
        if let Some((pointer, code, message, fix)) = &read.broken_schema {
            findings.add(severity, code, pointer, message.clone(), fix.clone());
        }
        let whole = read.step.output_schema.as_ref().filter(|schema| schema.fields.is_none());
        if let Some(schema) = whole {
            unheeded(schema, &format!("{}/outputSchemaRef", read.at), findings);
        }
        if let Some(schema) = &read.step.output_schema
            && let Err(broken) = OutputValidator::new(schema)
        {
            findings.add(
                severity,
                "SR-SCHEMA-001",
                &format!("{}/outputSchemaRef", read.at),
                format!("{} is no JSON Schema: {broken}", schema.source),
                "correct the schema",
            );
            if let Some(last) = findings.list.last_mut() {
                last.schema = severity == Severity::Error;
            }
        }
    }
}
