//! The resolved configuration, as the rest of agentd uses it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::config_file::{
    ChatTable, ChecksTable, ClusterTable, CommitTable, ConfigFile, ConversationTable, PlanTable, PolicyTable,
    Publish, QuestionsTable, RecordTable, RedactionTable, RepositoryTable, SweepSelect, VerifyTable,
    WorktreeTable,
};
use super::error::ConfigError;
use super::layer::Layer;
use super::placeholder::{Placeholder, is_deferred, variables_of};
use super::sandbox_file::SandboxTable;
use super::source_format::{RefusedKey, Source};
use super::tools_file::{BoundParam, HttpMethod};
use super::tree::Tree;
use crate::domain::agent_program::AgentProgram;
use crate::domain::budget::Budgets;
use crate::domain::clone_contents::CloneContents;
use crate::domain::image::ImageKind;
use crate::domain::issue_state::LabelsTable;
use crate::domain::model_target::{ModelTarget, SessionSettings};
use crate::domain::model_wire::{ModelWire, ProviderKind};
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::redaction::KnownSecret;

/// Characters of a part of an address's path that is no key.
const LONGEST_OPEN: usize = 16;

/// Fewest characters of a secret that strangers may try to guess.
const SHORTEST_SECRET: usize = 16;

/// A configuration that was checked. Sections that cost something to use (a provider's key, a server's environment)
/// are methods: they resolve placeholders, and can fail, only when they are used.
#[derive(Debug, Clone)]
pub struct Config {
    /// The repositories, in the file's order.
    pub repositories: Vec<Repository>,
    /// GitHub, without its credentials.
    pub github: Github,
    /// The daemon.
    pub daemon: Daemon,
    /// Hard caps of one run.
    pub budgets: Budgets,
    /// What comments add to an issue's budget at most, all together.
    pub max_extension: Money,
    /// What agents may do.
    pub policy: PolicyTable,
    /// The sandbox; see [`Config::endpoint`].
    pub sandbox: SandboxTable,
    /// What else is redacted.
    pub redaction: RedactionTable,
    /// What is kept of a run.
    pub record: RecordTable,
    /// Worktrees.
    pub worktree: WorktreeTable,
    /// What "tests pass" means.
    pub verify: VerifyTable,
    /// Commits that agentd makes.
    pub commit: CommitTable,
    /// Chat mode.
    pub chat: ChatTable,
    /// Whose words count, and what a run is told of them.
    pub conversation: ConversationTable,
    /// Which failed checks start a follow-up run, and how much of them is told.
    pub checks: ChecksTable,
    /// What becomes of an agent's questions.
    pub questions: QuestionsTable,
    /// Whether a plan has to be approved before it is carried out.
    pub plan: PlanTable,
    /// Several nodes that share their work; see [`Config::cluster_nkey`].
    pub cluster: ClusterTable,
    /// The agent program for agents whose definition names no backend; `None` = agentd's own session.
    pub program: Option<AgentProgram>,
    /// MCP servers, by name; their placeholders are resolved when a server is started.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// REST tools, by name.
    pub rest_tools: BTreeMap<String, RestTool>,
    pub(super) base: PathBuf,
    pub(super) file: ConfigFile,
    pub(super) tree: Tree,
    pub(super) layers: Arc<Vec<Layer>>,
    /// For a clone that agentd manages: what its own file came to.
    pub(super) clone_file: Option<Arc<CloneFile>>,
}

/// What the file of a clone came to.
#[derive(Debug, Clone, Default)]
pub struct CloneFile {
    /// What does not count.
    pub refused: Vec<RefusedKey>,
    /// Policy files of the clone, of which denials count.
    pub policy_files: Vec<PathBuf>,
    /// How many of `verify.commands`, at the end of the list, are from the clone. They run in the sandbox or not at
    /// all.
    pub verify_commands: usize,
}

/// One `[[repositories]]` entry, or the defaults for a checkout outside of any.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Name, where it is written down; else it comes from the remote's URL.
    pub name: Option<RepoName>,
    /// Absolute path of the main checkout; `None` = a clone that agentd manages.
    pub path: Option<PathBuf>,
    /// What a clone that agentd manages brings of files.
    pub clone: CloneContents,
    /// Name of the remote.
    pub remote: String,
    /// Whether the operator wrote that name down.
    pub is_remote_named: bool,
    /// Last link of the origin chain, as written; never blank.
    pub origin_branch: Option<String>,
    /// Agent that works on its issues.
    pub agent: String,
    /// Sweeps.
    pub sweep: Sweep,
    /// What becomes of the work.
    pub publish: Publish,
    /// Whether issues wait for what blocks them.
    pub depends: bool,
}

/// When a repository is swept, and which issues a sweep takes.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Cron expression of five fields, valid; `None` = only `agentd sweep`.
    pub schedule: Option<String>,
    /// Its time zone.
    pub timezone: chrono_tz::Tz,
    /// Which issues.
    pub select: SweepSelect,
    /// All of these labels.
    pub labels: Vec<String>,
    /// This milestone, by its title.
    pub milestone: Option<String>,
    /// Most issues; `None` = all.
    pub limit: Option<u32>,
}

/// `[github]` without credentials; see [`Config::github_credentials`].
#[derive(Debug, Clone)]
pub struct Github {
    /// Base of the REST API, without a slash at its end.
    pub api_url: String,
    /// The GraphQL endpoint.
    pub graphql_url: String,
    /// Issue field that names the origin branch.
    pub issue_field: String,
    /// Project field that names the origin branch.
    pub project_field: String,
    /// Requests of one credential in any minute, at most.
    pub max_requests_per_minute: u32,
    /// Least permission of whoever triggers a run.
    pub min_permission: ActorPermission,
    /// Names of the labels.
    pub labels: LabelsTable,
}

/// How agentd proves to GitHub who it is.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// A token.
    Token(SecretString),
    /// An installation of a GitHub App.
    App {
        /// App id.
        id: u64,
        /// Installation id.
        installation_id: u64,
        /// PEM.
        private_key: SecretString,
    },
}

/// `[daemon]`.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// Time from one poll to the next.
    pub poll_interval: Duration,
    /// Runs at a time.
    pub max_concurrent_runs: u32,
    /// Runs at a time in one repository.
    pub max_runs_per_repository: u32,
    /// Follow-up runs of one pull request; 0 = none.
    pub max_follow_ups: u32,
    /// Address of the HTTP front.
    pub listen: Option<SocketAddr>,
    /// Secret of the webhooks, unresolved; see [`Config::webhook_secret`].
    pub webhook_secret: Option<Placeholder>,
    /// Token of the HTTP front, unresolved; see [`Config::front_token`].
    pub token: Option<Placeholder>,
    /// Further names of the HTTP front, in lower case, each with its port where one is named.
    pub hosts: Vec<String>,
}

/// What a session needs to know; see [`Config::session`].
#[derive(Debug, Clone)]
pub struct Session {
    /// Limits and targets.
    pub settings: SessionSettings,
    /// First pause before a retry; it doubles.
    pub retry_backoff: Duration,
    /// Longest pause before a retry.
    pub retry_backoff_max: Duration,
}

/// A provider, ready to use; see [`Config::provider`].
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name under `[providers]`.
    pub name: String,
    /// The wire it speaks.
    pub kind: ProviderKind,
    /// The part before the provider's own path (D51), without a slash at its end.
    pub base_url: String,
    /// The key; `None` = none is sent.
    pub api_key: Option<SecretString>,
    /// Headers sent with each request.
    pub headers: Vec<(String, SecretString)>,
}

/// An address that agent programs reach by name, ready to use; see [`Config::endpoint`].
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Headers added to each request.
    pub headers: Vec<(String, SecretString)>,
    /// Whether it is one of the providers, whose models cost money.
    pub is_provider: bool,
    /// Variable that is set to its address inside the sandbox.
    pub url_variable: Option<String>,
    /// Variable that is set to a word in the place of the key.
    pub key_variable: Option<String>,
}

/// `[mcp.servers.NAME]`.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// How it is reached.
    pub transport: McpTransport,
    /// Whether a run cannot start without it.
    pub required: bool,
    /// Globs of bare tool names that are offered.
    pub allow: Vec<String>,
    /// Globs of bare tool names that are not.
    pub deny: Vec<String>,
    /// Bare names of tools that are known to change nothing.
    pub reads: Vec<String>,
    /// Queue of its tools.
    pub queue: Option<String>,
    /// Parameters that the host sets.
    pub bound_params: Vec<BoundParam>,
    /// Whether the model sees them.
    pub hide_bound_params: bool,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum McpTransport {
    /// A child process.
    Stdio {
        /// Program.
        command: Placeholder,
        /// Arguments.
        args: Vec<Placeholder>,
        /// Environment, beside PATH, HOME and LANG.
        env: BTreeMap<String, Placeholder>,
    },
    /// Streamable HTTP.
    Http {
        /// Address.
        url: Placeholder,
        /// Headers.
        headers: BTreeMap<String, Placeholder>,
    },
}

/// `[rest.tools.NAME]`; resolving its texts leaves `${parameters.x}` for the call.
#[derive(Debug, Clone)]
pub struct RestTool {
    /// Method.
    pub method: HttpMethod,
    /// Address.
    pub url: Placeholder,
    /// Headers.
    pub headers: BTreeMap<String, Placeholder>,
    /// Body.
    pub body: Option<Placeholder>,
    /// Overrides the session's tool timeout.
    pub timeout: Option<Duration>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Its queue.
    pub queue: Option<String>,
}

impl Config {
    /// The directory that the configuration was read for: relative paths start there (D85).
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The files that were read, highest layer first.
    pub fn layers(&self) -> impl Iterator<Item = &Path> {
        self.layers.iter().map(|layer| layer.path.as_path())
    }

    /// The source of the value of a key. For a key inside a replaced table, the source of the table.
    pub fn source(&self, key: &str) -> Source {
        self.tree.source(key)
    }

    /// The entry for a repository: by name, else by the path of its main checkout, else the defaults.
    pub fn repository(&self, name: Option<&RepoName>, checkout: Option<&Path>) -> Repository {
        let same_path = |entry: &&Repository| match (&entry.path, checkout) {
            (Some(path), Some(checkout)) => {
                path == checkout
                    || matches!((path.canonicalize(), checkout.canonicalize()), (Ok(a), Ok(b)) if a == b)
            }
            _ => false,
        };
        self.repositories
            .iter()
            .find(|entry| entry.name.is_some() && entry.name.as_ref() == name)
            .or_else(|| self.repositories.iter().find(same_path))
            .cloned()
            .unwrap_or_else(|| Repository {
                name: name.cloned(),
                path: checkout.map(Path::to_path_buf),
                ..Repository::unnamed(&RepositoryTable::default())
            })
    }

    /// The credentials for GitHub.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`].
    pub fn github_credentials(&self) -> Result<Credentials, ConfigError> {
        if let Some(app) = &self.file.github.app {
            let private_key = self.tree.placeholder("github.app.private_key", &app.private_key).secret()?;
            return Ok(Credentials::App { id: app.id, installation_id: app.installation_id, private_key });
        }
        let token = self.tree.placeholder("github.token", &self.file.github.token);
        if token.raw().trim().is_empty() {
            return Err(self.invalid("github.token", "is empty; write \"${GITHUB_TOKEN}\""));
        }
        Ok(Credentials::Token(token.secret()?))
    }

    /// Like [`Self::github_credentials`] for work that needs no GitHub (D30): `None` when the token's variable is not set,
    /// or nobody configured any.
    ///
    /// # Errors
    /// As there, when credentials are configured.
    pub fn github_credentials_if_any(&self) -> Result<Option<Credentials>, ConfigError> {
        match self.github_credentials() {
            Err(ConfigError::MissingVariable { .. } | ConfigError::Empty { .. })
                if self.file.github.app.is_none() =>
            {
                Ok(None)
            }
            Err(_) if self.file.github.app.is_none() && self.source("github.token") == Source::Default => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The secret of the webhooks; where others than this machine reach the front, one that can be guessed is refused.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`], or it is too short.
    pub fn webhook_secret(&self) -> Result<Option<SecretString>, ConfigError> {
        let is_public = self.daemon.listen.is_some_and(|address| !address.ip().is_loopback());
        let secret = self.daemon.webhook_secret.as_ref();
        secret.map(|secret| if is_public { self.long_enough(secret) } else { secret.secret() }).transpose()
    }

    /// Whether somebody may guess the secret of the webhooks that is taken nevertheless.
    pub fn has_weak_webhook_secret(&self) -> bool {
        self.daemon.webhook_secret.as_ref().is_some_and(|secret| self.long_enough(secret).is_err())
    }

    /// The bearer token of the HTTP front; one that can be guessed is refused.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`], or it is too short.
    pub fn front_token(&self) -> Result<Option<SecretString>, ConfigError> {
        let token = self.daemon.token.as_ref();
        token.map(|token| self.long_enough(token)).transpose()
    }

    fn long_enough(&self, secret: &Placeholder) -> Result<SecretString, ConfigError> {
        let value = secret.secret()?;
        let length = secrecy::ExposeSecret::expose_secret(&value).trim().chars().count();
        if length < SHORTEST_SECRET {
            let message = format!(
                "the value has {length} characters, and everybody on the network may guess; at least {SHORTEST_SECRET} are \
                 needed (openssl rand -hex 32 makes one)"
            );
            return Err(self.invalid(secret.key(), &message));
        }
        Ok(value)
    }

    /// The seed of this node's nkey, where it has one.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`].
    pub fn cluster_nkey(&self) -> Result<Option<SecretString>, ConfigError> {
        let text = &self.file.cluster.nkey;
        let given = !text.trim().is_empty();
        given.then(|| self.tree.placeholder("cluster.nkey", text).secret()).transpose()
    }

    /// A provider by the name that targets use, resolved.
    ///
    /// # Errors
    /// No such table, no kind, or a placeholder without a value.
    pub fn provider(&self, name: &str) -> Result<Provider, ConfigError> {
        let key = format!("providers.{name}");
        let table = self.file.providers.get(name).ok_or_else(|| {
            self.invalid(
                "session.targets",
                &format!("names the provider \"{name}\", but there is no [providers.{name}]"),
            )
        })?;
        let kind = table.kind.or_else(|| ProviderKind::parse(name)).ok_or_else(|| {
            let words: Vec<&str> = ProviderKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let (last, others) = words.split_last().unwrap_or((&"", &[]));
            self.invalid(&key, &format!("needs `kind`: {} or {last}", others.join(", ")))
        })?;
        let text = |field: &str, text: &str| self.tree.placeholder(&format!("{key}.{field}"), text);
        let base_url = match &table.base_url {
            Some(url) => text("base_url", url).resolve()?,
            None => kind.wire().base_url.to_owned(),
        };
        if !is_http(&base_url) {
            let message = format!("\"{base_url}\" is not an http(s) address");
            return Err(self.invalid(&format!("{key}.base_url"), &message));
        }
        let api_key = match table.api_key.as_deref() {
            None | Some("") => None,
            Some(key) => Some(text("api_key", key).secret()?),
        };
        let headers = table.headers.iter().map(|(header, value)| {
            Ok((header.clone(), SecretString::from(text(&format!("headers.{header}"), value).resolve()?)))
        });
        Ok(Provider {
            name: name.to_owned(),
            kind,
            base_url: base_url.trim_end_matches('/').to_owned(),
            api_key,
            headers: headers.collect::<Result<_, ConfigError>>()?,
        })
    }

    /// An endpoint of `[sandbox.endpoints]`, else a provider used as one: with its key, and the variables in which
    /// programs of its kind expect address and key. `None`: there is neither.
    ///
    /// # Errors
    /// A placeholder without a value.
    pub fn endpoint(&self, name: &str) -> Result<Option<Endpoint>, ConfigError> {
        let key = format!("sandbox.endpoints.{name}");
        if let Some(table) = self.file.sandbox.endpoints.get(name) {
            let text = |field: &str, text: &str| self.tree.placeholder(&format!("{key}.{field}"), text);
            let headers = table.headers.iter().map(|(header, value)| {
                Ok((header.clone(), SecretString::from(text(&format!("headers.{header}"), value).resolve()?)))
            });
            return Ok(Some(Endpoint {
                name: name.to_owned(),
                url: text("url", &table.url).resolve()?,
                headers: headers.collect::<Result<_, ConfigError>>()?,
                is_provider: false,
                url_variable: table.url_variable.clone(),
                key_variable: table.key_variable.clone(),
            }));
        }
        if !self.file.providers.contains_key(name) {
            return Ok(None);
        }
        let Provider { kind, base_url, api_key, mut headers, .. } = self.provider(name)?;
        let wire = kind.wire();
        if let Some(api_key) = api_key {
            let value = format!("{}{}", wire.key_prefix, secrecy::ExposeSecret::expose_secret(&api_key));
            headers.push((wire.key_header.to_owned(), value.into()));
        }
        Ok(Some(Endpoint {
            name: name.to_owned(),
            url: base_url,
            headers,
            is_provider: true,
            url_variable: Some(wire.url_variable.to_owned()),
            key_variable: Some(wire.key_variable.to_owned()),
        }))
    }

    /// The kinds of images that each of these models takes which takes images; none = no model takes any.
    pub fn image_kinds(&self, targets: &[ModelTarget]) -> Vec<ImageKind> {
        let kind = |name: &str| {
            let table = self.file.providers.get(name)?;
            table.kind.or_else(|| ProviderKind::parse(name))
        };
        let seeing = targets.iter().filter(|target| target.images);
        let wires: Vec<&ModelWire> =
            seeing.filter_map(|target| Some(kind(&target.provider)?.wire())).collect();
        let taken = |image: &ImageKind| {
            !wires.is_empty() && wires.iter().all(|wire| wire.image_kinds.contains(image))
        };
        ImageKind::ALL.into_iter().filter(taken).collect()
    }

    /// Every value that must never be shown: of the layers' `.agentd.env` files, and of every secret key that can be
    /// resolved now. For the redactor (P-031). A path that is there is none: what a run records names its folders, and has to be read again.
    pub fn secret_values(&self) -> Vec<KnownSecret> {
        let files = self.layers.iter().flat_map(|layer| layer.scope.file_values());
        let mut secrets: Vec<KnownSecret> = files
            .map(|(name, value)| KnownSecret { kind: name.to_owned(), value: value.to_owned() })
            .collect();
        for (key, value) in self.tree.leaves() {
            let Some(text) = value.as_str().filter(|text| text.contains("${")) else { continue };
            if is_deferred(&key)
                && let Ok(value) = self.tree.placeholder(&key, text).resolve()
            {
                let kind = variables_of(text).into_iter().next().unwrap_or(key);
                secrets.push(KnownSecret { kind, value });
            }
        }
        secrets.retain(|secret| !is_path(&secret.value));
        secrets
    }

    /// What nothing that is printed may show: the values of the layers' `.agentd.env` files, and of the variables in secret keys. Not
    /// among them are addresses and paths that say nothing secret: they stand in what is printed for their own sake.
    pub fn concealed_values(&self) -> Vec<KnownSecret> {
        let files = self.layers.iter().flat_map(|layer| layer.scope.file_values());
        let mut secrets: Vec<KnownSecret> = files
            .map(|(name, value)| KnownSecret { kind: name.to_owned(), value: value.to_owned() })
            .collect();
        for (key, value) in self.tree.leaves().into_iter().filter(|(key, _)| is_deferred(key)) {
            for name in value.as_str().map(variables_of).unwrap_or_default() {
                if let Ok(value) = self.tree.placeholder(&key, &format!("${{{name}}}")).resolve() {
                    secrets.push(KnownSecret { kind: name, value });
                }
            }
        }
        secrets.retain(|secret| !is_open(&secret.value));
        secrets
    }

    /// An error about a key's value, located.
    pub(super) fn invalid(&self, key: &str, message: &str) -> ConfigError {
        ConfigError::Invalid { at: self.tree.source(key), key: key.to_owned(), message: message.to_owned() }
    }
}

/// Whether a value is an address without credentials, parameters and long names, or a path that is there.
fn is_open(value: &str) -> bool {
    if value.starts_with('/') {
        return is_path(value);
    }
    let Some(url) = is_http(value).then(|| url::Url::parse(value).ok()).flatten() else { return false };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    is_plain && url.path().split('/').all(|name| name.len() <= LONGEST_OPEN)
}

/// Whether it is a path that is there.
fn is_path(value: &str) -> bool {
    value.starts_with('/') && Path::new(value).exists()
}

/// Whether it is the address of something on the web.
pub(super) fn is_http(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with(['/', '?', '#']) && !url.contains(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_no_secrets_and_keys_in_them_are() {
        for open in ["http://127.0.0.1:8080/api/v3", "https://models.example.org/v1/", "/tmp"] {
            assert!(is_open(open), "{open}");
        }
        for secret in [
            "sk-12345678",
            "/abc+DEF123==",
            "https://u:p@models.example.org/v1",
            "https://hooks.example.org/services/T0/B0/abcdefghijklmnopqrstuvwx",
            "https://models.example.org/v1?key=x",
            "eu-central-1",
        ] {
            assert!(!is_open(secret), "{secret}");
        }
    }
}
