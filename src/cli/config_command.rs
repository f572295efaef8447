//! `agentd config explain · check · schema`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::args::ConfigCommand;
use super::clones;
use super::context::Context;
use super::doctor;
use super::error::CommandError;
use super::output::Tone;
use super::remote::Remote;
use super::repositories;
use crate::config::{self, Config, Source};
use crate::daemon::cluster::shared_formats::{SHARED_FORMATS, SharedFormat};
use crate::definition;
use crate::domain::name::BranchName;
use crate::domain::schemas::record_schema;
use crate::domain::step_executors::StepExecutors;
use crate::github;
use crate::lifecycle::plan;
use crate::record::seal;
use crate::repository::open::another_repository;
use crate::repository::resources;

/// Does what was asked.
pub fn run(context: &Context, command: &ConfigCommand) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Explain { key } => explain(context, key.as_deref()),
        ConfigCommand::Check => check(context),
        ConfigCommand::Schema { name } => context.output.document(&schema(name)?),
    }
}

fn explain(context: &Context, key: Option<&str>) -> Result<(), CommandError> {
    let output = context.output;
    let config = context.config()?;
    let mut clones = clones::of(context, &config, context.global.repo.as_ref())?;
    let refused: Vec<_> = clones
        .iter()
        .flat_map(|clone| clone.config.clone_file().map(|file| (&clone.repo, &file.refused)))
        .flat_map(|(repo, keys)| keys.iter().map(|key| (repo.clone(), key.clone())))
        .filter(|(_, refused)| key.is_none_or(|key| refused.key == "*" || refused.key.starts_with(key)))
        .collect();
    // Of one repository that agentd cloned its own values are meant.
    let config = match clones.pop() {
        Some(clone) if context.global.repo.is_some() => clone.config,
        _ => config,
    };
    let rows: Vec<_> =
        config.explain().into_iter().filter(|row| key.is_none_or(|key| row.key.starts_with(key))).collect();
    if let (Some(key), true) = (key, rows.is_empty() && refused.is_empty()) {
        return Err(CommandError::invalid(format!("no key that has a value begins with `{key}`"))
            .hint("`agentd config schema config` lists every key"));
    }
    if output.json() {
        let layers: Vec<_> = config.layers().collect();
        let refused: Vec<_> = refused
            .iter()
            .map(|(repo, refused)| {
                json!({ "repository": repo, "key": refused.key, "source": refused.source, "why": refused.why })
            })
            .collect();
        return output.document(&json!({ "layers": layers, "values": rows, "refused": refused }));
    }
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let source = row.source.to_string();
            let source =
                if row.source == Source::Default { output.toned(&source, Tone::Dim) } else { source };
            vec![row.key.clone(), row.value.to_string(), source]
        })
        .collect();
    output.table(&["KEY", "VALUE", "FROM"], &told)?;
    if refused.is_empty() {
        return Ok(());
    }
    output
        .line("\nNot followed, because agentd manages the clone and its own file may only narrow yours:")?;
    let told: Vec<_> = refused
        .into_iter()
        .map(|(repo, refused)| vec![repo.to_string(), refused.key, refused.source.to_string(), refused.why])
        .collect();
    output.table(&["REPOSITORY", "KEY", "FROM", "WHY"], &told)
}

fn check(context: &Context) -> Result<(), CommandError> {
    let config = context.config()?;
    let (checked, warnings) = context.block_on(check_for_use(context, &config))??;
    if context.output.json() {
        let layers: Vec<_> = config.layers().collect();
        return context
            .output
            .document(&json!({ "ok": true, "layers": layers, "checked": checked, "warnings": warnings }));
    }
    for layer in config.layers() {
        context.output.line(format!("read     {}", layer.display()))?;
    }
    for what in checked {
        context.output.line(format!("checked  {what}"))?;
    }
    for told in warnings {
        context.output.entry(&format!("{} ", context.output.toned("warning", Tone::Warn)), &told)?;
    }
    context.output.line("The configuration can be used.")
}

/// Checks what loading does not check: targets, their providers, GitHub's credentials, origin branches, and in a
/// repository its policy and its agent. All errors are reported together. What is there beside it is about this machine: it can be used
/// elsewhere.
async fn check_for_use(
    context: &Context,
    config: &Config,
) -> Result<(Vec<String>, Vec<String>), CommandError> {
    let mut checked = Vec::new();
    let mut wrong: Vec<CommandError> = Vec::new();
    let mut note = |what: String, result: Result<(), CommandError>| match result {
        Ok(()) => checked.push(what),
        Err(error) => wrong.push(error),
    };
    let standings = looked_at(context, config).await?;
    // A clone that agentd manages works with the models that are named here.
    let is_for_clones = config.repositories.iter().any(|entry| entry.path.is_none());
    let none_is_here = standings.iter().all(|standing| standing.stands_at.is_some());
    if standings.is_empty() || none_is_here && is_for_clones {
        of_session(config, true).into_iter().for_each(|(what, result)| note(what, result));
    }
    // Only a daemon that listens needs these.
    let listens = config.daemon.listen.is_some();
    for (key, secret) in
        [("daemon.webhook_secret", config.webhook_secret()), ("daemon.token", config.front_token())]
            .into_iter()
            .filter(|_| listens)
    {
        match secret {
            Ok(None) => {}
            secret => note(key.to_owned(), secret.map(drop).map_err(Into::into)),
        }
    }
    if listens && !config.chat.users.is_empty() {
        note("chat.users".to_owned(), config.chat_users().map(drop).map_err(Into::into));
    }
    let client = repositories::client(config);
    note(
        format!("credentials for {}", config.github.api_url),
        client.as_ref().map(drop).map_err(Clone::clone),
    );
    for (index, entry) in config.repositories.iter().enumerate() {
        if let Some(branch) = entry.origin_branch.as_deref().filter(|branch| !branch.trim().is_empty()) {
            let parsed = BranchName::parse(branch).map(drop);
            let key = format!("repositories[{index}].origin_branch");
            let told = |error| CommandError::invalid(format!("{}: `{key}`: {error}", config.source(&key)));
            note(format!("origin branch {branch}"), parsed.map_err(told));
        }
    }
    for standing in &standings {
        let of_remote = of_remote(standing, client.as_ref().ok()).await;
        for (what, result) in of_checkout(standing).await.into_iter().chain(of_remote) {
            let named = standing.stands_at.as_ref().and(standing.global.repo.as_ref());
            let named = named.map(|repo| format!("{repo}: ")).unwrap_or_default();
            let told =
                |error: CommandError| CommandError { message: format!("{named}{}", error.message), ..error };
            note(format!("{named}{what}"), result.map_err(told));
        }
    }
    CommandError::all(wrong)?;
    let mut warnings: Vec<String> = config.budgets.asks_nothing().map(str::to_owned).into_iter().collect();
    for standing in &standings {
        warnings.extend(programs_gone(standing).await);
        let idle = doctor::idle_rules(standing).into_iter();
        warnings
            .extend(idle.map(|told| format!("a policy rule decides nothing, or less than it says: {told}")));
        let own = standing.config().ok();
        warnings.extend(own.and_then(|own| own.budgets.asks_nothing()).map(str::to_owned));
    }
    let mut seen = BTreeSet::new();
    warnings.retain(|told| seen.insert(told.clone()));
    Ok((checked, warnings))
}

/// The programs of the work and of the agent that are not on this machine.
async fn programs_gone(standing: &Context) -> Vec<String> {
    let (Ok(root), Ok(config)) = (standing.base_path(), standing.config()) else { return Vec::new() };
    let agent = config.repository(standing.global.repo.as_ref(), Some(&standing.base)).agent;
    let mut gone = resources::programs_of_the_work_gone(&config, &root, &standing.env);
    if let Ok(loaded) = plan::load_definition(&root, &agent, &BTreeMap::new()).await
        && let Ok(executors) = StepExecutors::of(&loaded.definition, config.program.as_ref())
    {
        gone.extend(resources::agent_programs_gone(executors.programs(), &root, &standing.env));
    }
    gone.iter().map(|gone| format!("{gone}: a run here would stumble over it")).collect()
}

/// The checkouts and clones whose own files count: those that a daemon here would work on.
async fn looked_at(context: &Context, config: &Config) -> Result<Vec<Context>, CommandError> {
    let mut all = match context.global.repo {
        Some(_) => repositories::standings(context).await?,
        None if context.in_clone => return Ok(Vec::new()),
        None => repositories::each(context, &Arc::new(config.clone()))?,
    };
    // The checkout here counts for `agentd run`, whatever the entries are about.
    if context.global.repo.is_none() && all.iter().all(|standing| standing.stands_at.is_some()) {
        all.insert(0, context.clone());
    }
    // A clone that was not made yet has no files; what is wrong with a path is told.
    let has_files = |standing: &Context| match standing.stands_at {
        Some(_) => !standing.in_clone || standing.base.is_dir(),
        None => standing.stands_in_checkout(),
    };
    Ok(all.into_iter().filter(has_files).collect())
}

/// What a checkout's own files have to say: its configuration, its models, its policy and its agent.
async fn of_checkout(standing: &Context) -> Vec<(String, Result<(), CommandError>)> {
    let root_and_config = standing.base_path().and_then(|root| Ok((root, standing.config()?)));
    let (root, config) = match root_and_config {
        Ok(found) => found,
        Err(error) => return vec![("configuration".to_owned(), Err(error))],
    };
    if standing.stands_at.is_some() && !standing.in_clone && !standing.stands_in_checkout() {
        let none = || {
            let what = format!("{root} is not in a git repository");
            CommandError::invalid(what).hint("correct the `path` of its [[repositories]] entry")
        };
        let error = repositories::checkout_at(root.as_path()).err().unwrap_or_else(none);
        return vec![("checkout".to_owned(), Err(error))];
    }
    let policy = resources::policy(&config, &root, Vec::new()).await.map(drop);
    let agent = config.repository(standing.global.repo.as_ref(), Some(&standing.base)).agent;
    let loaded = plan::load_definition(&root, &agent, &BTreeMap::new()).await;
    let wants_a_model = loaded.as_ref().map_or(true, |loaded| {
        let executors = StepExecutors::of(&loaded.definition, config.program.as_ref());
        executors.map_or(true, |executors| executors.leave_a_step_to_the_session(&loaded.definition))
    });
    let loaded = loaded.map(drop);
    let mut checked = of_session(&config, wants_a_model);
    checked.push(("policy".to_owned(), policy.map_err(Into::into)));
    if let Some(key) = &config.record.seal_key {
        let told = |error| CommandError::invalid(format!("record.seal_key cannot be used: {error}"));
        checked.push((format!("seal key {}", key.display()), seal::check(Some(key)).map_err(told)));
    }
    for gone in resources::programs_gone(&config, &root, &standing.env) {
        let error = CommandError::invalid(gone.to_string()).hint("install it, or correct the key");
        checked.push((gone.key, Err(error)));
    }
    checked.push((format!("agent {agent}"), loaded.map_err(Into::into)));
    checked
}

/// Whether the remote that counts is there and is the one that is meant. It asks nobody but git.
async fn of_remote(
    standing: &Context,
    client: Option<&github::Client>,
) -> Option<(String, Result<(), CommandError>)> {
    let root = standing.base_path().ok().filter(|_| standing.stands_in_checkout())?;
    let entry = standing.config().ok()?.repository(standing.global.repo.as_ref(), Some(&standing.base));
    let names = Remote::names(&root, &standing.env).await;
    let what = format!("remote {} of {root}", entry.remote);
    let Some(found) = Remote::named(&root, &standing.env, &entry.remote).await else {
        // Without any remote it is a repository of this machine alone.
        let others = (!names.is_empty()).then(|| names.join(", "))?;
        let told = format!("{root} has no remote \"{}\", but {others}", entry.remote);
        return Some((
            what,
            Err(CommandError::invalid(told).hint("`remote` of its [[repositories]] entry names it")),
        ));
    };
    let hosted = client.is_some_and(|client| client.endpoint().hosts(&found.url));
    match (standing.global.repo.as_ref().or(entry.name.as_ref()), found.repo) {
        (Some(meant), Some(other)) if hosted && other != *meant => {
            Some((what, Err(another_repository(&entry.remote, &root, &other, meant).into())))
        }
        _ => Some((what, Ok(()))),
    }
}

/// The targets of a configuration and their providers. Where programs work on every step, there need be none.
fn of_session(config: &Config, wants_a_model: bool) -> Vec<(String, Result<(), CommandError>)> {
    let session = if wants_a_model { config.session() } else { config.session_of_programs() };
    let session = match session {
        Ok(session) => session,
        Err(error) => return vec![("targets".to_owned(), Err(error.into()))],
    };
    let targets = &session.settings.targets;
    let mut checked: Vec<_> = targets
        .iter()
        .map(|target| (format!("target {} of {}", target.model, target.provider), Ok(())))
        .collect();
    for name in targets.iter().map(|target| &target.provider).collect::<BTreeSet<_>>() {
        let provider = config.provider(name).map(drop);
        checked.push((format!("provider {name}"), provider.map_err(Into::into)));
    }
    checked
}

/// The schemas that agentd publishes (D49).
fn schema(name: &str) -> Result<serde_json::Value, CommandError> {
    match name {
        "config" => Ok(config::schema().clone()),
        _ => {
            let shared =
                || SHARED_FORMATS.iter().find(|format| format.name == name).map(SharedFormat::schema);
            let schema = record_schema(name).or_else(|| definition::format_schema(name)).or_else(shared);
            schema.ok_or_else(|| {
                let shared: Vec<&str> = SHARED_FORMATS.iter().map(|format| format.name).collect();
                CommandError::invalid(format!("there is no schema \"{name}\"")).hint(format!(
                    "write one of config, run-output, run-record, run-row, policy-input, policy-result, evidence, accounting, agent, \
                     steps-registry, policy; of what nodes of a cluster share: {}",
                    shared.join(", ")
                ))
            })
        }
    }
}
