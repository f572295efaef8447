//! `agentd config explain · check · schema`.

use std::collections::BTreeSet;

use serde_json::json;

use super::args::ConfigCommand;
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use crate::config::{self, Config, Source};
use crate::definition;
use crate::domain::schemas::record_schema;

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
    let rows: Vec<_> = config
        .explain()
        .into_iter()
        .filter(|row| key.is_none_or(|key| is_at_or_below(&row.key, key.trim_end_matches('.'))))
        .collect();
    if let (Some(key), true) = (key, rows.is_empty()) {
        return Err(CommandError::invalid(format!("no value is set at or below `{key}`"))
            .hint("`agentd config schema config` lists every key"));
    }
    if output.json() {
        let layers: Vec<_> = config.layers().collect();
        return output.document(&json!({ "layers": layers, "values": rows }));
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
    output.table(&["KEY", "VALUE", "FROM"], &told)
}

fn is_at_or_below(key: &str, root: &str) -> bool {
    key.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn check(context: &Context) -> Result<(), CommandError> {
    let config = context.config()?;
    let checked = check_for_use(&config)?;
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

/// What loading leaves to whoever uses it: targets, their providers, and GitHub's credentials.
fn check_for_use(config: &Config) -> Result<Vec<String>, CommandError> {
    let session = config.session()?;
    let mut checked = Vec::new();
    for target in &session.settings.targets {
        checked.push(format!("target {} of {}", target.model, target.provider));
    }
    let providers: BTreeSet<_> = session.settings.targets.iter().map(|target| &target.provider).collect();
    for provider in providers {
        config.provider(provider)?;
        checked.push(format!("provider {provider}"));
    }
    config.github_credentials()?;
    checked.push(format!("credentials for {}", config.github.api_url));
    Ok(checked)
}

/// The schemas that agentd publishes (D49).
fn schema(name: &str) -> Result<serde_json::Value, CommandError> {
    match name {
        "config" => Ok(config::schema().clone()),
        _ => record_schema(name).or_else(|| definition::format_schema(name)).ok_or_else(|| {
            CommandError::invalid(format!("there is no schema \"{name}\"")).hint(
                "write one of config, run-output, run-record, policy-input, policy-result, evidence, accounting, \
                 agent, steps-registry",
            )
        }),
    }
}
