//! `agentd config explain · check · schema`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::args::ConfigCommand;
use super::clones;
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use crate::config::{self, Config, Source};
use crate::daemon::cluster::shared_formats::{SHARED_FORMATS, SharedFormat};
use crate::definition;
use crate::domain::name::BranchName;
use crate::domain::schemas::record_schema;
use crate::lifecycle::plan;
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
        .filter(|(_, refused)| {
            key.is_none_or(|key| {
                refused.key == "*" || is_at_or_below(&refused.key, key.trim_end_matches('.'))
            })
        })
        .collect();
    // Of one repository that agentd cloned its own values are meant.
    let config = match clones.pop() {
        Some(clone) if context.global.repo.is_some() => clone.config,
        _ => config,
    };
    let rows: Vec<_> = config
        .explain()
        .into_iter()
        .filter(|row| key.is_none_or(|key| is_at_or_below(&row.key, key.trim_end_matches('.'))))
        .collect();
    if let (Some(key), true) = (key, rows.is_empty() && refused.is_empty()) {
        return Err(CommandError::invalid(format!("no value is set at or below `{key}`"))
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

fn is_at_or_below(key: &str, root: &str) -> bool {
    key.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn check(context: &Context) -> Result<(), CommandError> {
    let config = context.config()?;
    let checked = context.block_on(check_for_use(context, &config))??;
    if context.output.json() {
        let layers: Vec<_> = config.layers().collect();
        return context.output.document(&json!({ "ok": true, "layers": layers, "checked": checked }));
    }
    for layer in config.layers() {
        context.output.line(format!("read     {}", layer.display()))?;
    }
    for what in checked {
        context.output.line(format!("checked  {what}"))?;
    }
    context.output.line("The configuration can be used.")
}

/// Checks what loading does not check: targets, their providers, GitHub's credentials, origin branches, and in a
/// repository its policy and its agent. All errors are reported together.
async fn check_for_use(context: &Context, config: &Config) -> Result<Vec<String>, CommandError> {
    let mut checked = Vec::new();
    let mut wrong: Vec<CommandError> = Vec::new();
    let mut note = |what: String, result: Result<(), CommandError>| match result {
        Ok(()) => checked.push(what),
        Err(error) => wrong.push(error),
    };
    match config.session() {
        Ok(session) => {
            let targets = &session.settings.targets;
            for target in targets {
                note(format!("target {} of {}", target.model, target.provider), Ok(()));
            }
            for name in targets.iter().map(|target| &target.provider).collect::<BTreeSet<_>>() {
                let provider = config.provider(name).map(drop);
                note(format!("provider {name}"), provider.map_err(Into::into));
            }
        }
        Err(error) => note(String::new(), Err(error.into())),
    }
    for (key, secret) in
        [("daemon.webhook_secret", config.webhook_secret()), ("daemon.token", config.front_token())]
    {
        match secret {
            Ok(None) => {}
            secret => note(key.to_owned(), secret.map(drop).map_err(Into::into)),
        }
    }
    let credentials = config.github_credentials().map(drop);
    note(format!("credentials for {}", config.github.api_url), credentials.map_err(Into::into));
    for (index, entry) in config.repositories.iter().enumerate() {
        if let Some(branch) = entry.origin_branch.as_deref().filter(|branch| !branch.trim().is_empty()) {
            let parsed = BranchName::parse(branch).map(drop);
            let key = format!("repositories[{index}].origin_branch");
            let told = |error| CommandError::invalid(format!("{}: `{key}`: {error}", config.source(&key)));
            note(format!("origin branch {branch}"), parsed.map_err(told));
        }
    }
    if context.stands_in_checkout() {
        let root = context.base_path()?;
        let policy = resources::policy(config, &root, Vec::new()).await.map(drop);
        note("policy".to_owned(), policy.map_err(Into::into));
        let agent = config.repository(context.global.repo.as_ref(), Some(&context.base)).agent;
        let loaded = plan::load_definition(&root, &agent, &BTreeMap::new()).await.map(drop);
        note(format!("agent {agent}"), loaded.map_err(Into::into));
    }
    CommandError::all(wrong)?;
    Ok(checked)
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
                     steps-registry; of what nodes of a cluster share: {}",
                    shared.join(", ")
                ))
            })
        }
    }
}
