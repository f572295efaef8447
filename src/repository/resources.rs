//! Makes what sessions work with from the configuration: providers, policy, redactor, queues, the environment of
//! children.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::config::settings::Session;
use crate::config::{Config, Env, McpTransport};
use crate::definition::policy_file::{PolicyFileError, PolicySource, read_narrowing, read_policies};
use crate::domain::agent_program::AgentProgram;
use crate::domain::canonical::sha256_hex;
use crate::domain::redaction::{KnownSecret, Redactor};
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::engine::policy::Policy;
use crate::engine::policy_program::PolicyProgram;
use crate::engine::queue::Queues;
use crate::engine::shared_cap::SharedCap;
use crate::llm::Providers;
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::paths::AbsPath;
use crate::sys::sandbox;

/// What a child process inherits of the user's environment; everything else is left out.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "TERM",
    "SHELL",
    "CARGO_HOME",
    "RUSTUP_HOME",
];

/// Variable in the environment of each process that a run starts; its value is the run's id.
pub const RUN_MARK: &str = "AGENTD_RUN";

/// The mark of a run's processes, by which a successor finds what a killed run left running.
pub fn run_mark(run_id: RunId) -> (OsString, OsString) {
    (RUN_MARK.into(), run_id.to_string().into())
}

/// The whole environment of a child process: names that name nothing secret.
pub fn child_environment(env: &Env) -> Vec<(OsString, OsString)> {
    INHERITED.iter().filter_map(|name| Some((OsString::from(name), OsString::from(env.get(name)?)))).collect()
}

/// Rules and program of `[policy]`; relative paths start at `base`, or for a clone that agentd manages where the operator's
/// file is (D85). Of the clone's own policy files only the denials count.
pub async fn policy(
    config: &Config,
    base: &AbsPath,
    child_env: Vec<(OsString, OsString)>,
) -> Result<Policy, Refusal> {
    let start = config.paths_start("policy.files", base.as_path());
    let files: Vec<PathBuf> = config.policy.files.iter().map(|file| start.join(file)).collect();
    let own = config.clone_file().map(|clone| clone.policy_files.clone()).unwrap_or_default();
    let rules = blocking(move || {
        let read = |files: &[PathBuf]| -> Result<Vec<_>, _> {
            files.iter().map(|file| PolicySource::read(file)).collect()
        };
        Ok(read_policies(&read(&files)?)?.narrowed_by(read_narrowing(&read(&own)?)?))
    })
    .await?
    .map_err(|error: PolicyFileError| {
        Refusal::new(StopDetail::ConfigInvalid, format!("The policy cannot be used: {error}."))
    })?;
    let program = (!config.policy.program.is_empty()).then(|| PolicyProgram {
        argv: config.policy.program.clone(),
        cwd: program_folder(config, "policy.program", base),
        env: child_env,
        timeout: crate::engine::policy_program::TIME_LIMIT,
    });
    Ok(Policy::new(rules, program))
}

/// The policy files of these repositories as a hash, by which nodes see whether they have the same rules; `None` = no file is named.
/// Blocks.
pub fn policy_hash<'a>(repositories: impl IntoIterator<Item = (&'a Config, &'a AbsPath)>) -> Option<String> {
    let mut read = BTreeSet::new();
    for (config, base) in repositories {
        let start = config.paths_start("policy.files", base.as_path());
        let texts: Vec<String> = config
            .policy
            .files
            .iter()
            .map(|file| {
                std::fs::read(start.join(file)).map_or_else(|_| String::new(), |text| sha256_hex(&text))
            })
            .collect();
        read.insert(texts);
    }
    read.retain(|texts| !texts.is_empty());
    (!read.is_empty()).then(|| sha256_hex(format!("{read:?}").as_bytes()))
}

/// Where a program of the operator is started: in the main checkout. For a managed clone it is another folder, because
/// a relative name there would belong to the repository.
pub fn program_folder(config: &Config, key: &str, checkout: &AbsPath) -> AbsPath {
    AbsPath::new(config.paths_start(key, checkout.as_path())).unwrap_or_else(|_| checkout.clone())
}

/// A program of the operator that a configuration names and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramGone {
    /// The key that names it.
    pub key: String,
    /// As it stands there.
    pub program: String,
    /// Whether it was looked for in the PATH; else it is a path.
    pub by_name: bool,
}

impl fmt::Display for ProgramGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let where_it_is_not = if self.by_name { " in the PATH" } else { "" };
        write!(f, "{}: there is no program {}{where_it_is_not}", self.key, self.program)
    }
}

/// The programs of `policy`, `redaction` and `record` that are not where they are started from. None is started.
pub fn programs_gone(config: &Config, checkout: &AbsPath, env: &Env) -> Vec<ProgramGone> {
    let sinks = config.record.sinks.iter().enumerate();
    let sinks = sinks.map(|(index, argv)| ("record.sinks", format!("record.sinks[{index}]"), argv));
    let named =
        [("policy.program", &config.policy.program), ("redaction.program", &config.redaction.program)];
    let named = named.into_iter().map(|(key, argv)| (key, key.to_owned(), argv));
    let gone = |(key, place, argv): (&str, String, &Vec<String>)| {
        let folder = program_folder(config, key, checkout);
        ProgramGone::looked_for(place, argv.first()?, &folder, env)
    };
    named.chain(sinks).filter_map(gone).collect()
}

/// The programs of `worktree.setup`, `verify.commands` and the MCP servers that are not there. None is started. What is named by a path in
/// the worktree is looked for by the run, and what has variables in it is not known here.
pub fn programs_of_the_work_gone(config: &Config, checkout: &AbsPath, env: &Env) -> Vec<ProgramGone> {
    let listed = |key: &'static str, commands: &[Vec<String>]| -> Vec<(String, String)> {
        let first = commands.iter().filter_map(|argv| argv.first().cloned());
        first.map(|program| (key.to_owned(), program)).collect()
    };
    let servers = config.mcp_servers.iter().filter_map(|(name, server)| match &server.transport {
        McpTransport::Stdio { command, .. } => {
            Some((format!("mcp.servers.{name}"), command.raw().to_owned()))
        }
        McpTransport::Http { .. } => None,
    });
    let commands = listed("worktree.setup", &config.worktree.setup);
    let all = commands.into_iter().chain(listed("verify.commands", &config.verify.commands)).chain(servers);
    let is_known =
        |program: &str| !program.contains("${") && (!program.contains('/') || program.starts_with('/'));
    all.filter(|(_, program)| is_known(program))
        .filter_map(|(key, program)| ProgramGone::looked_for(key, &program, checkout, env))
        .collect()
}

/// The agent programs that are not there. None is started. What is named by a path in the worktree is looked for by the run.
pub fn agent_programs_gone(programs: &[AgentProgram], checkout: &AbsPath, env: &Env) -> Vec<ProgramGone> {
    let named = programs.iter().filter_map(|program| Some((program.backend, program.argv.first()?)));
    let known = named.filter(|(_, program)| !program.contains('/') || program.starts_with('/'));
    let gone = known.filter_map(|(backend, program)| {
        ProgramGone::looked_for(backend.as_str().to_owned(), program, checkout, env)
    });
    gone.collect()
}

impl ProgramGone {
    /// `None` = it is there: in the PATH, or at its path, which starts at `folder`.
    fn looked_for(key: String, program: &str, folder: &AbsPath, env: &Env) -> Option<Self> {
        let by_name = Path::new(program).components().count() == 1 && !program.contains('/');
        let looked_for = match by_name {
            true => OsString::from(program),
            false => folder.join(program).as_path().into(),
        };
        let path = OsString::from(env.get("PATH").unwrap_or_default());
        let is_gone = sandbox::which(&looked_for, &path).is_none();
        is_gone.then(|| Self { key, program: program.to_owned(), by_name })
    }
}

/// The providers that the session's targets name, and no others.
pub fn providers(config: &Config, session: &Session, clock: &Clock) -> Result<Providers, Refusal> {
    let names: BTreeSet<&str> =
        session.settings.targets.iter().map(|target| target.provider.as_str()).collect();
    providers_of(config, names, clock)
}

/// None at all, for what asks no model.
pub fn no_providers(config: &Config, clock: &Clock) -> Result<Providers, Refusal> {
    providers_of(config, BTreeSet::new(), clock)
}

fn providers_of(config: &Config, names: BTreeSet<&str>, clock: &Clock) -> Result<Providers, Refusal> {
    let used = names.into_iter().map(|name| config.provider(name)).collect::<Result<Vec<_>, _>>()?;
    Providers::new(used, clock).map_err(|error| Refusal::new(StopDetail::ConfigInvalid, format!("{error}.")))
}

/// A redactor that knows every secret of the configuration and the given ones. It has its own key.
pub fn redactor(config: &Config, further: Vec<KnownSecret>) -> Result<Redactor, Refusal> {
    let mut key = [0; 32];
    key[..16].copy_from_slice(Uuid::new_v4().as_bytes());
    key[16..].copy_from_slice(Uuid::new_v4().as_bytes());
    let mut secrets = config.secret_values();
    secrets.extend(further);
    Redactor::new(key, secrets, &config.redaction.patterns)
        .map_err(|error| Refusal::new(StopDetail::ConfigInvalid, format!("redaction.patterns: {error}.")))
}

/// The tool queues of this process.
pub fn queues(config: &Config) -> Queues {
    let declared = config.queues().iter().map(|(name, size)| (name.clone(), *size as usize)).collect();
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    Queues::new(&declared, cpus)
}

/// The cap on what all runs of a day cost, kept in the store (D87); `None` = no cap.
pub fn day_cap(config: &Config, state: &StateDir) -> Option<SharedCap> {
    let cap = config.budgets.max_cost_per_day?;
    Some(SharedCap::of_days(Arc::clone(state.store()), cap))
}

/// Disk work off the runtime's threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| {
        Refusal::new(StopDetail::Internal, "agentd has a defect; the log has the details.")
            .technical(panic.to_string())
    })
}
