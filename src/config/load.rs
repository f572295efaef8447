//! From the layers' files to one checked [`Config`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::{Table, Value};

use super::check;
use super::config_file::{ConfigFile, RepositoryTable};
use super::entry::Entry;
use super::env::Env;
use super::error::ConfigError;
use super::known_keys::join;
use super::layer::{self, Layer, Places};
use super::placeholder::{Placeholder, Scope, is_deferred};
use super::settings::{Config, Daemon, Github, McpServer, McpTransport, Repository, RestTool, Sweep};
use super::source_format::Source;
use super::tools_file::{McpServerTable, RestToolTable};
use super::tree::Tree;
use crate::domain::budget::Budgets;
use crate::domain::money::Money;
use crate::domain::name::RepoName;

/// A command-line flag that sets a key.
#[derive(Debug, Clone)]
pub struct Flag {
    /// As typed, `--max-steps`.
    pub name: &'static str,
    /// The key, `budgets.max_steps`.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
}

/// What a configuration is read for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `--config`.
    pub explicit: Option<&'a Path>,
    /// The working directory; for a run the repository's main checkout, never a worktree.
    pub base: &'a Path,
    /// `--repo`: whose entry names the agent.
    pub repo: Option<&'a RepoName>,
    /// `--agent`: whose directory holds a layer.
    pub agent: Option<&'a str>,
    /// Flags that set keys.
    pub flags: &'a [Flag],
    /// The entry of a repository among several, in the configuration that names them.
    pub entry: Option<Entry<'a>>,
    /// The environment.
    pub env: &'a Env,
}

impl Config {
    /// Finds, reads, merges and checks the layers (A-089…A-092). Everything here is exit code 4.
    ///
    /// # Errors
    /// Whatever is wrong, with file and line and what to do.
    pub fn load(request: Request<'_>) -> Result<Self, ConfigError> {
        let places = Places {
            explicit: request.explicit,
            base: request.base,
            beneath: request.entry.map(|entry| entry.operator.base()),
            agent_dir: None,
            env: request.env,
        };
        let layers = read(&layer::find(places)?, request.env)?;
        let tree = merge(&layers, request)?;
        // The layer of the agent is known only after the layers around it were read.
        let agent_dir = request.base.join(".agent").join(agent_name(&tree, request)?);
        let files = layer::find(Places { agent_dir: Some(&agent_dir), ..places })?;
        if files.len() == layers.len() {
            return Self::from_tree(tree, Arc::new(layers), request.base.to_owned(), request.env);
        }
        let layers = read(&files, request.env)?;
        let tree = merge(&layers, request)?;
        Self::from_tree(tree, Arc::new(layers), request.base.to_owned(), request.env)
    }

    /// Types and checks what was merged.
    pub(super) fn from_tree(
        tree: Tree,
        layers: Arc<Vec<Layer>>,
        base: PathBuf,
        env: &Env,
    ) -> Result<Self, ConfigError> {
        let mut values = Value::Table(tree.values.clone());
        resolve(&mut values, "", &tree)?;
        let file: ConfigFile = serde_path_to_error::deserialize(values).map_err(|error| {
            let key = error.path().to_string();
            ConfigError::Invalid { at: tree.source(&key), message: in_words(error.inner().message()), key }
        })?;
        check::check(&file, &tree, &base)?;
        let budgets = &file.budgets;
        let money = |dollars: f64| Money::from_dollars(dollars).unwrap_or_default();
        let config = Self {
            repositories: file.repositories.iter().map(|table| repository(table, &base, env)).collect(),
            github: github(&file),
            daemon: Daemon {
                poll_interval: file.daemon.poll_interval.0,
                max_concurrent_runs: file.daemon.max_concurrent_runs,
                max_runs_per_repository: file.daemon.max_runs_per_repository,
                max_follow_ups: file.daemon.max_follow_ups,
                listen: file.daemon.listen.trim().parse().ok(),
                webhook_secret: file
                    .daemon
                    .webhook_secret
                    .as_deref()
                    .map(|text| tree.placeholder("daemon.webhook_secret", text)),
                token: file.daemon.token.as_deref().map(|text| tree.placeholder("daemon.token", text)),
                hosts: file.daemon.hosts.iter().map(|host| host.trim().to_ascii_lowercase()).collect(),
            },
            budgets: Budgets {
                max_steps: budgets.max_steps,
                max_wall_time: budgets.max_wall_time.0,
                max_cost: money(budgets.max_cost),
                max_cost_is_explicit: tree.source("budgets.max_cost") != Source::Default,
                soft_ratio: budgets.soft_ratio,
                max_cost_per_day: Some(money(budgets.max_cost_per_day)).filter(|cap| *cap > Money::ZERO),
                max_cost_per_issue: Some(money(budgets.max_cost_per_issue)).filter(|cap| *cap > Money::ZERO),
            },
            max_extension: money(budgets.max_extension),
            policy: file.policy.clone(),
            sandbox: file.sandbox.clone(),
            redaction: file.redaction.clone(),
            record: file.record.clone(),
            worktree: file.worktree.clone(),
            verify: file.verify.clone(),
            program: file.program.configured().unwrap_or_default(),
            commit: file.commit.clone(),
            chat: file.chat.clone(),
            conversation: file.conversation.clone(),
            checks: file.checks.clone(),
            questions: file.questions.clone(),
            plan: file.plan.clone(),
            cluster: file.cluster.clone(),
            mcp_servers: file
                .mcp
                .servers
                .iter()
                .map(|(name, table)| (name.clone(), mcp_server(name, table, &tree)))
                .collect(),
            rest_tools: file
                .rest
                .tools
                .iter()
                .map(|(name, table)| (name.clone(), rest_tool(name, table, &tree)))
                .collect(),
            base,
            file,
            tree,
            layers,
            clone_file: None,
        };
        Ok(config)
    }
}

/// What serde expected, in the words of somebody who writes TOML.
fn in_words(message: &str) -> String {
    let Some((before, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, zero or more",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list, such as [\"…\"]",
        "a map" => "a table",
        _ => return message.to_owned(),
    };
    format!("{before}expected {expected}")
}

fn read(files: &[PathBuf], env: &Env) -> Result<Vec<Layer>, ConfigError> {
    files.iter().map(|file| Layer::read(file, env)).collect()
}

fn merge(layers: &[Layer], request: Request<'_>) -> Result<Tree, ConfigError> {
    let mut tree = Tree::new(defaults()?, Scope::of_process(request.env));
    for (variable, key) in
        [("GITHUB_API_URL", "github.api_url"), ("GITHUB_GRAPHQL_URL", "github.graphql_url")]
    {
        if let Some(url) = request.env.filled(variable) {
            tree.set(key, Value::String(url.to_owned()), Source::Env { name: variable.to_owned() });
        }
    }
    for layer in layers.iter().rev() {
        tree.lay_file(layer);
    }
    if let Some(entry) = request.entry {
        entry.merge_into(&mut tree, layers, request.base);
    }
    for flag in request.flags {
        tree.set(flag.key, flag.value.clone(), Source::Flag { name: flag.name.to_owned() });
    }
    Ok(tree)
}

/// The published defaults as a table.
pub(super) fn defaults() -> Result<Table, ConfigError> {
    Table::try_from(ConfigFile::default()).map_err(|error| ConfigError::Invalid {
        at: Source::Default,
        key: "defaults".to_owned(),
        message: error.to_string(),
    })
}

/// The agent whose directory holds a layer: the flag's, else the one of the repository's entry.
fn agent_name(tree: &Tree, request: Request<'_>) -> Result<String, ConfigError> {
    let written = || {
        let entries = tree.values.get("repositories")?.as_array()?;
        let named = |entry: &&Value| {
            request.repo.is_some_and(|repo| {
                let name = entry.get("name").and_then(Value::as_str);
                name.is_some_and(|name| name.eq_ignore_ascii_case(&repo.to_string()))
            })
        };
        let here = |entry: &&Value| match entry.get("path").and_then(Value::as_str) {
            Some(path) => is_same(&place(Path::new(path), request.base, request.env), request.base),
            None => entry.get("name").is_none(),
        };
        let of = |wanted: &dyn Fn(&&Value) -> bool| entries.iter().position(|entry| wanted(&entry));
        let index = of(&named).or_else(|| of(&here)).or_else(|| (entries.len() == 1).then_some(0))?;
        let name = entries.get(index)?.get("agent")?.as_str()?;
        Some((format!("repositories[{index}].agent"), name))
    };
    let (at, key, name) = match (request.agent, written()) {
        (Some(name), _) => (Source::Flag { name: "--agent".to_owned() }, "agent".to_owned(), name.to_owned()),
        (None, Some((key, name))) => {
            (tree.source(&key), key.clone(), tree.placeholder(&key, name).resolve()?)
        }
        (None, None) => return Ok(RepositoryTable::default().agent),
    };
    if check::is_agent_name(&name) {
        return Ok(name);
    }
    Err(ConfigError::Invalid { at, key, message: format!("\"{name}\" {}", check::AGENT_NAME_RULE) })
}

/// Replaces the placeholders of everything that is not deferred.
fn resolve(value: &mut Value, path: &str, tree: &Tree) -> Result<(), ConfigError> {
    match value {
        Value::String(text) if text.contains("${") && !is_deferred(path) => {
            *text = tree.placeholder(path, text).resolve()?;
        }
        Value::Table(table) => {
            for (name, value) in table.iter_mut() {
                resolve(value, &join(path, name), tree)?;
            }
        }
        Value::Array(array) => {
            for (index, value) in array.iter_mut().enumerate() {
                resolve(value, &format!("{path}[{index}]"), tree)?;
            }
        }
        _ => {}
    }
    Ok(())
}

impl Repository {
    /// An entry without its name and path.
    pub(super) fn unnamed(table: &RepositoryTable) -> Self {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        Self {
            name: None,
            path: None,
            clone: table.clone,
            remote: table.remote.clone().unwrap_or_else(|| "origin".to_owned()),
            is_remote_named: table.remote.is_some(),
            origin_branch: filled(&table.origin_branch),
            agent: table.agent.clone(),
            sweep: Sweep {
                schedule: filled(&table.sweep),
                timezone: table.timezone.parse().unwrap_or(chrono_tz::UTC),
                select: table.sweep_select,
                labels: table.sweep_labels.clone(),
                milestone: filled(&table.sweep_milestone),
                limit: Some(table.sweep_limit).filter(|limit| *limit > 0),
            },
            publish: table.publish,
            depends: table.depends,
        }
    }
}

fn repository(table: &RepositoryTable, base: &Path, env: &Env) -> Repository {
    let path = table.path.as_ref().map(|path| place(path, base, env));
    // An entry without name and path is about the checkout of the working directory.
    let path = path.or_else(|| table.name.is_none().then(|| base.to_owned()));
    Repository { name: table.name.clone(), path, ..Repository::unnamed(table) }
}

/// Where a path of an entry leads.
fn place(path: &Path, base: &Path, env: &Env) -> PathBuf {
    match (path.strip_prefix("~"), env.home()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => base.join(path).components().collect(),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn github(file: &ConfigFile) -> Github {
    let table = &file.github;
    let api_url = table.api_url.trim_end_matches('/').to_owned();
    let graphql_url = table.graphql_url.clone().unwrap_or_else(|| graphql_url_of(&api_url));
    Github {
        api_url,
        graphql_url,
        issue_field: table.issue_field.clone(),
        project_field: table.project_field.clone(),
        max_requests_per_minute: table.max_requests_per_minute,
        min_permission: table.min_permission,
        labels: table.labels.clone(),
    }
}

/// `https://HOST/api/v3` → `https://HOST/api/graphql`; anything else gets `/graphql` at its end.
pub(super) fn graphql_url_of(api_url: &str) -> String {
    match api_url.strip_suffix("/v3") {
        Some(base) => format!("{base}/graphql"),
        None => format!("{api_url}/graphql"),
    }
}

fn mcp_server(name: &str, table: &McpServerTable, tree: &Tree) -> McpServer {
    let key = format!("mcp.servers.{name}");
    let text = |field: &str, text: &str| tree.placeholder(&format!("{key}.{field}"), text);
    let all = |field: &str, map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(name, value)| (name.clone(), text(&format!("{field}.{name}"), value))).collect()
    };
    let transport = match (&table.url, &table.command) {
        (Some(url), _) => {
            McpTransport::Http { url: text("url", url), headers: all("headers", &table.headers) }
        }
        (None, command) => McpTransport::Stdio {
            command: text("command", command.as_deref().unwrap_or_default()),
            args: table
                .args
                .iter()
                .enumerate()
                .map(|(index, arg)| text(&format!("args[{index}]"), arg))
                .collect::<Vec<Placeholder>>(),
            env: all("env", &table.env),
        },
    };
    McpServer {
        transport,
        required: table.required,
        allow: table.allow.clone(),
        deny: table.deny.clone(),
        reads: table.reads.clone(),
        queue: table.queue.clone(),
        bound_params: table.bound_params.clone(),
        hide_bound_params: table.hide_bound_params,
    }
}

fn rest_tool(name: &str, table: &RestToolTable, tree: &Tree) -> RestTool {
    let text = |field: &str, text: &str| tree.placeholder(&format!("rest.tools.{name}.{field}"), text);
    RestTool {
        method: table.method,
        url: text("url", &table.url),
        headers: table
            .headers
            .iter()
            .map(|(header, value)| (header.clone(), text(&format!("headers.{header}"), value)))
            .collect(),
        body: table.body.as_deref().map(|body| text("body", body)),
        timeout: table.timeout.map(|span| span.0),
        description: table.description.clone(),
        parameters: table.parameters.clone(),
        queue: table.queue.clone(),
    }
}
