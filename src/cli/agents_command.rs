//! `agentd agents list · check · new · migrate` and `agentd prompt`: definitions, without asking any model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{AgentsCommand, PromptArgs};
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use super::repositories;
use crate::definition::diagnostic::exit_code;
use crate::definition::migration;
use crate::definition::scaffold::{ScaffoldError, new_agent};
use crate::definition::variables::{HOST_VARIABLES, Supply, host_variable};
use crate::definition::{self, Diagnostic, Loaded, Refused, Severity};
use crate::domain::step_executors::StepExecutors;
use crate::lifecycle::plan::handoffs::{self, DeniedHandoff};
use crate::prompt::PromptError;
use crate::prompt::address::PromptAddress;
use crate::record::summary_text::counted;
use crate::repository::resources;

/// `agentd agents …`. Gives the exit code.
pub fn agents(context: &Context, command: &AgentsCommand) -> Result<u8, CommandError> {
    let writes = matches!(command, AgentsCommand::New { .. } | AgentsCommand::Migrate { .. });
    let context = &standing(context, writes)?;
    match command {
        AgentsCommand::List => list(context).map(|()| 0),
        AgentsCommand::Check { name } => check(context, name.as_deref()),
        AgentsCommand::New { name } => new(context, name).map(|()| 0),
        AgentsCommand::Migrate { name } => migrate(context, name.as_deref()).map(|()| 0),
    }
}

/// The command as it stands in the checkout whose agents are meant.
fn standing(context: &Context, writes: bool) -> Result<Context, CommandError> {
    let standing = context.block_on_one_thread(repositories::standing(context))??;
    if standing.stands_at.is_none() || !standing.in_clone {
        return Ok(standing);
    }
    let place = standing.base.display();
    if writes {
        return Err(CommandError::invalid(format!(
            "{place} is a clone that agentd manages: its files are not yours"
        ))
        .hint("change the agent in a checkout of your own, and push it"));
    }
    if !standing.base.is_dir() {
        return Err(CommandError::invalid(format!("agentd has not cloned it yet: there is no {place}"))
            .hint("the daemon makes the clone at its start, and `agentd run` before its first run"));
    }
    Ok(standing)
}

fn load(context: &Context, name: &str, supplied: &BTreeSet<String>) -> Result<Loaded, Refused> {
    definition::load(&context.base, &folder(context, name), supplied)
}

fn folder(context: &Context, name: &str) -> PathBuf {
    context.base.join(".agent").join(name)
}

/// Refuses a name that no folder has.
fn known(context: &Context, name: &str) -> Result<(), CommandError> {
    let all = definition::agents_of(&context.base);
    if all.iter().any(|known| known == name) {
        return Ok(());
    }
    let error = CommandError::invalid(format!(
        "AC-LOAD-001: there is no agent \"{name}\" in {}",
        context.base.join(".agent").display()
    ));
    Err(if all.is_empty() {
        error.hint("`agentd init` writes one")
    } else {
        error.hint(format!("known agents: {}", all.join(", ")))
    })
}

fn list(context: &Context) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    let mut told = Vec::new();
    for name in definition::agents_of(&context.base) {
        let (state, version, steps, about) = match load(context, &name, &BTreeSet::new()) {
            Ok(loaded) => {
                let definition = loaded.definition;
                ("ok", definition.version, definition.flow.steps.len(), definition.description)
            }
            Err(_) => ("broken", String::new(), 0, format!("see `agentd agents check {name}`")),
        };
        told.push(
            json!({ "name": name, "state": state, "version": version, "steps": steps, "description": about }),
        );
        rows.push(vec![name, version, state.to_owned(), steps.to_string(), about]);
    }
    if context.output.json() {
        return context.output.document(&told);
    }
    if rows.is_empty() {
        return context.output.advice("No agents here. `agentd init` writes one.");
    }
    context.output.table(&["AGENT", "VERSION", "STATE", "STEPS", "DESCRIPTION"], &rows)
}

/// The named agent, or all; never none.
fn chosen(context: &Context, name: Option<&str>) -> Result<Vec<String>, CommandError> {
    let names = match name {
        Some(name) => {
            known(context, name)?;
            vec![name.to_owned()]
        }
        None => definition::agents_of(&context.base),
    };
    if names.is_empty() {
        return Err(CommandError::invalid(format!("no agents in {}", context.base.join(".agent").display()))
            .hint("`agentd init` writes one"));
    }
    Ok(names)
}

fn new(context: &Context, name: &str) -> Result<(), CommandError> {
    let written = new_agent(&context.base, name).map_err(|error| match error {
        ScaffoldError::Write(error) => CommandError::failed(error.to_string()),
        refused => CommandError::invalid(refused.to_string()),
    })?;
    let written: Vec<String> = written.iter().map(|path| shown(context, path)).collect();
    if context.output.json() {
        return context.output.document(&json!({ "agent": name, "written": written }));
    }
    for path in written {
        context.output.line(format!("{}  {path}", context.output.toned("wrote", Tone::Good)))?;
    }
    context
        .output
        .advice(format!("`agentd agents check {name}` checks it; its handoffs need a rule in the policy."))
}

fn migrate(context: &Context, name: Option<&str>) -> Result<(), CommandError> {
    // Everything is planned before anything is written. If one agent cannot be migrated, all stay as they are.
    let mut planned = Vec::new();
    for name in chosen(context, name)? {
        let migrations = migration::plan(&context.base, &folder(context, &name))
            .map_err(|error| CommandError::invalid(error.to_string()))?;
        planned.push((name, migrations));
    }
    for (_, migrations) in &planned {
        migration::apply(migrations).map_err(|error| CommandError::failed(error.to_string()))?;
    }
    let mut told = Vec::new();
    for (name, migrations) in planned {
        for migration in &migrations {
            let path = shown(context, &migration.path);
            let changes: Vec<String> = migration
                .changes
                .iter()
                .map(|change| format!("{}: {}: {}", change.old, change.what, change.instead))
                .collect();
            if !context.output.json() {
                context.output.line(format!("{}  {path}", context.output.toned("rewrote", Tone::Good)))?;
                changes.iter().try_for_each(|change| context.output.line(format!("  {change}")))?;
            }
            told.push(json!({ "agent": name, "file": path, "changes": changes }));
        }
        if migrations.is_empty() && !context.output.json() {
            context.output.line(format!("{name} is in the newest form"))?;
        }
    }
    if context.output.json() { context.output.document(&told) } else { Ok(()) }
}

/// A path as people know it: relative to the main checkout where it is below it.
fn shown(context: &Context, path: &Path) -> String {
    path.strip_prefix(&context.base).unwrap_or(path).display().to_string()
}

fn check(context: &Context, name: Option<&str>) -> Result<u8, CommandError> {
    let names = chosen(context, name)?;
    let mut code = 0;
    let mut told = Vec::new();
    for name in names {
        let findings = match load(context, &name, &BTreeSet::new()) {
            Ok(loaded) => {
                let mut here = denied_handoffs(context, &name, &loaded);
                here.extend(programs_gone(context, &name, &loaded));
                loaded.diagnostics.into_iter().chain(here).collect()
            }
            Err(Refused(findings)) => findings,
        };
        // 5 says more than 4.
        code = code.max(exit_code(&findings, Severity::Defect));
        if context.output.json() {
            let findings: Vec<Value> = findings.iter().map(document).collect();
            told.push(json!({ "agent": name, "findings": findings }));
        } else {
            tell(context, &name, &findings)?;
        }
    }
    if context.output.json() {
        context.output.document(&json!({ "ok": code == 0, "agents": told }))?;
    }
    Ok(code)
}

/// The handoffs of its flow that the policy here denies. A policy that cannot be read is told by other commands, and where there
/// is none, nothing is held against it.
fn denied_handoffs(context: &Context, name: &str, loaded: &Loaded) -> Vec<Diagnostic> {
    let read = || {
        let config = context.config_for(Some(name), &[])?;
        let base = context.base_path()?;
        let policy = context.block_on_one_thread(resources::policy(&config, &base, Vec::new()))??;
        Ok::<_, CommandError>((config, policy))
    };
    let (config, policy) = match read() {
        Ok((config, _)) if config.policy.files.is_empty() && config.policy.program.is_empty() => {
            return Vec::new();
        }
        Ok(read) => read,
        Err(error) => {
            let told = format!("the handoffs of {name} are not held against the policy: {}", error.message);
            context.output.note(told);
            return Vec::new();
        }
    };
    let files: Vec<String> = config.policy.files.iter().map(|file| file.display().to_string()).collect();
    let file = if files.is_empty() { "policy.files".to_owned() } else { files.join(", ") };
    let denied = handoffs::denied(loaded, &policy).into_iter();
    let finding = |denied: DeniedHandoff| Diagnostic {
        code: "SR-POLICY-001",
        // The definition itself is sound: what cannot begin here, `run` refuses.
        severity: Severity::Warning,
        file: file.clone(),
        pointer: String::new(),
        place: None,
        message: denied.to_string(),
        fix: denied.remedy(),
        schema: false,
    };
    denied.map(finding).collect()
}

/// The programs of its steps that are not on this machine. Who the steps are left to by a configuration that cannot be read is told by
/// other commands.
fn programs_gone(context: &Context, name: &str, loaded: &Loaded) -> Vec<Diagnostic> {
    let (Ok(config), Ok(base)) = (context.config_for(Some(name), &[]), context.base_path()) else {
        return Vec::new();
    };
    let Ok(executors) = StepExecutors::of(&loaded.definition, config.program.as_ref()) else {
        return Vec::new();
    };
    let gone = resources::agent_programs_gone(executors.programs(), &base, &context.env).into_iter();
    let finding = |gone: resources::ProgramGone| Diagnostic {
        code: "SR-PROGRAM-001",
        // The definition itself is sound, and another machine may have it.
        severity: Severity::Warning,
        file: shown(context, &folder(context, name).join("agent.json")),
        pointer: String::new(),
        place: None,
        message: gone.to_string(),
        fix: "install it, or name it in argv of its `program`".to_owned(),
        schema: false,
    };
    gone.map(finding).collect()
}

fn document(finding: &Diagnostic) -> Value {
    json!({
        "code": finding.code,
        "severity": finding.severity.as_str(),
        "file": finding.file,
        "line": finding.place.as_ref().map(|place| place.line),
        "column": finding.place.as_ref().map(|place| place.column),
        "pointer": finding.pointer,
        "message": finding.message,
        "fix": finding.fix,
    })
}

fn tell(context: &Context, name: &str, findings: &[Diagnostic]) -> Result<(), CommandError> {
    let output = context.output;
    for finding in findings {
        output.line(finding.to_string())?;
    }
    let count = |severity: Severity| findings.iter().filter(|found| found.severity == severity).count();
    let (errors, defects, warnings) =
        (count(Severity::Error), count(Severity::Defect), count(Severity::Warning));
    let (word, tone) =
        if errors + defects > 0 { ("not in order", Tone::Bad) } else { ("in order", Tone::Good) };
    output.line(format!(
        "{name}: {} ({}, {}, {})",
        output.toned(word, tone),
        counted(errors, "error"),
        counted(defects, "defect"),
        counted(warnings, "warning")
    ))
}

/// Why there is no text. What the checks found in the same file says more.
fn not_resolved(loaded: &Loaded, error: &PromptError) -> CommandError {
    let of_file =
        |found: &&Diagnostic| found.severity == Severity::Error && error.file.as_ref() == Some(&found.file);
    let found: Vec<Diagnostic> = loaded.diagnostics.iter().filter(of_file).cloned().collect();
    if !found.is_empty() {
        return CommandError::invalid(Refused(found).to_string());
    }
    let told = CommandError::invalid(error.to_string());
    let known: Vec<String> = loaded.addresses().into_iter().collect();
    // What is in a file has its place; what is in none is about the address.
    match error.file {
        None if !known.is_empty() => told.hint(format!(
            "this agent's prompts: {}; --edition and --adaptation name the file",
            known.join(", ")
        )),
        _ => told,
    }
}

/// `agentd prompt`: the text exactly as a step would see it (D47).
pub fn prompt(context: &Context, args: &PromptArgs) -> Result<(), CommandError> {
    let context = &standing(context, false)?;
    let config = context.config_for(args.agent.as_deref(), &[])?;
    let configured = || config.repository(context.global.repo.as_ref(), Some(&context.base)).agent;
    let name = args.agent.clone().unwrap_or_else(configured);
    known(context, &name)?;
    let given: BTreeMap<String, String> = args.uv.iter().cloned().collect();
    let refused = |refused: Refused| CommandError {
        exit_code: refused.exit_code(),
        ..CommandError::invalid(refused.to_string())
    };
    let supplied: BTreeSet<String> = given.keys().cloned().collect();
    let loaded =
        definition::load_for_prompts(&context.base, &folder(context, &name), &supplied).map_err(refused)?;
    // What a run sets by itself can be given here, since there is no run.
    let (of_host, own): (BTreeMap<_, _>, BTreeMap<_, _>) =
        given.into_iter().partition(|(name, _)| host_variable(name).is_some());
    let mut values = loaded.run_values(&own).map_err(|problems| {
        let told: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect();
        problems
            .into_iter()
            .fold(CommandError::invalid(told.join("; ")), |error, problem| error.hint(problem.fix))
    })?;
    for (name, value) in of_host {
        values.set(&name, value);
    }
    // What a visit has is empty where it is not given here.
    let mut left_empty = Vec::new();
    for variable in HOST_VARIABLES.iter().filter(|one| matches!(one.when, Supply::Fact | Supply::Always)) {
        if values.get(variable.name).is_none() {
            values.set(variable.name, "");
            left_empty.push(variable.name);
        }
    }
    let mut address = PromptAddress::parse(&args.address).map_err(|error| not_resolved(&loaded, &error))?;
    if let Some(edition) = &args.edition {
        address.edition.clone_from(edition);
    }
    address.adaptation.clone_from(&args.adaptation);
    let resolved = loaded
        .resolve_address(&context.base, &address, &values)
        .map_err(|error| not_resolved(&loaded, &error))?;
    let unused: Vec<&String> = supplied.iter().filter(|name| !resolved.variables.contains(*name)).collect();
    for name in &unused {
        context.output.note(format!("uv_unused: --uv {name} is used nowhere in this prompt"));
    }
    if context.output.json() {
        return context.output.document(&json!({
            "agent": name,
            "path": resolved.path,
            "fell_back": resolved.fell_back,
            "template_sha256": resolved.template_sha256,
            "text_sha256": resolved.text_sha256,
            "text": resolved.text,
            "uv_unused": unused,
        }));
    }
    if resolved.fell_back {
        context.output.note(format!("the adaptation has no file of its own; {} was used", resolved.path));
    }
    left_empty.retain(|name| resolved.variables.contains(*name));
    if !left_empty.is_empty() {
        let names: Vec<String> = left_empty.iter().map(|name| format!("uv-{name}")).collect();
        let told = format!("empty here, since only a run has them: {}; give them by --uv", names.join(", "));
        context.output.note(told);
    }
    context.output.file(resolved.text.as_bytes())?;
    if resolved.text.ends_with('\n') { Ok(()) } else { context.output.line("") }
}
