//! What every command starts from: the environment, the flags, the working directory, and the output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "nats")]
use std::sync::OnceLock;

use super::concealed;
use super::error::CommandError;
use super::global::Global;
use super::issue_arg::IssueArg;
use super::output::Output;
use super::transcript::Detail;
use crate::config::{Config, ConfigError, Entry, Env, Flag, Request};
#[cfg(feature = "nats")]
use crate::record::mirror::Mirror;
use crate::repository::managed;
#[cfg(feature = "nats")]
use crate::store::nats::NatsStore;
use crate::store::run_dir::StateDir;
use crate::sys::paths::AbsPath;
use crate::sys::private_place::{self, Fault};

/// One invocation.
#[derive(Debug, Clone)]
pub struct Context {
    /// The environment.
    pub env: Env,
    /// Flags of every command.
    pub global: Global,
    /// How it talks.
    pub output: Output,
    /// The repository's main checkout if the working directory is in one, else the working directory.
    pub base: PathBuf,
    /// Whether that is a clone that agentd manages. Its files do not decide how agentd works.
    pub in_clone: bool,
    /// The entry of the configuration whose checkout it stands at, without being there.
    pub stands_at: Option<StandsAt>,
    /// Whether this is the node's daemon, and no process beside it.
    pub is_daemon: bool,
    /// What this host shows of its cluster, once somebody asked.
    #[cfg(feature = "nats")]
    pub(super) mirror: Arc<OnceLock<Option<Arc<Mirror>>>>,
    /// The state directory of this host as a node's, and the store that it is on, once somebody asked.
    #[cfg(feature = "nats")]
    pub(super) node: Arc<OnceLock<(StateDir, NatsStore)>>,
}

/// An entry of `[[repositories]]`, with the configuration that it is written in.
#[derive(Debug, Clone)]
pub struct StandsAt {
    operator: Arc<Config>,
    index: usize,
}

impl StandsAt {
    fn entry(&self) -> Entry<'_> {
        Entry { operator: &self.operator, index: self.index }
    }
}

impl Context {
    /// Looks where the process stands.
    pub fn new(env: Env, global: Global, output: Output) -> Self {
        let base = main_checkout(env.working_dir()).unwrap_or_else(|| env.working_dir().to_owned());
        let state = env.state_dir(global.state_dir.as_deref());
        let in_clone = state.is_some_and(|state| is_below(&base, &state.join("repos")));
        Self {
            env,
            global,
            output,
            base,
            in_clone,
            stands_at: None,
            is_daemon: false,
            #[cfg(feature = "nats")]
            mirror: Arc::default(),
            #[cfg(feature = "nats")]
            node: Arc::default(),
        }
    }

    /// The same as that of the node's daemon.
    pub fn as_daemon(&self) -> Self {
        Self { is_daemon: true, ..self.clone() }
    }

    /// The invocation with the repository that an issue's name says.
    pub fn for_issue(&self, issue: &IssueArg) -> Result<Self, CommandError> {
        let mut context = self.clone();
        match (&issue.repo, &context.global.repo) {
            (Some(named), Some(flag)) if named != flag => {
                let what = format!("the issue is one of {named}, and --repo says {flag}");
                return Err(
                    CommandError::invalid(what).hint("leave --repo out, or name the issue by its number")
                );
            }
            (Some(named), _) => context.global.repo = Some(named.clone()),
            (None, _) => {}
        }
        Ok(context)
    }

    /// Refuses a `--config` that names no file, also for commands that read no configuration: what is named is meant.
    pub fn check_config_flag(&self) -> Result<(), CommandError> {
        let Some(path) = self.global.config.as_ref().map(|path| self.env.working_dir().join(path)) else {
            return Ok(());
        };
        match path.metadata() {
            Ok(meta) if meta.is_dir() => {
                let what = format!("--config {}: is a directory, not a file", path.display());
                Err(CommandError::invalid(what).hint("name the agentd.toml in it"))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ConfigError::Missing { path }.into())
            }
            Err(source) => Err(ConfigError::Unreadable { path, source }.into()),
        }
    }

    /// The configuration as flags, files and environment make it.
    pub fn config(&self) -> Result<Config, CommandError> {
        self.config_for(None, &[])
    }

    /// The configuration for an agent, with flags that set keys.
    pub fn config_for(&self, agent: Option<&str>, flags: &[Flag]) -> Result<Config, CommandError> {
        let entry = self.stands_at.as_ref().map(StandsAt::entry);
        if let (true, Some(entry), Some(name)) = (self.in_clone, entry, &self.global.repo) {
            return Ok(managed::configuration(entry.operator, &self.base_path()?, name, &self.env));
        }
        let base = self.config_base();
        let request = Request {
            explicit: self.global.config.as_deref(),
            base: &base,
            repo: self.global.repo.as_ref(),
            agent,
            flags,
            entry,
            env: &self.env,
        };
        let config = Config::load(request)?;
        concealed::conceal(&config);
        Ok(config)
    }

    /// Where configuration is looked for: here, but not in a clone that agentd manages.
    pub fn config_base(&self) -> PathBuf {
        let state = self.env.state_dir(self.global.state_dir.as_deref());
        state.filter(|_| self.in_clone).unwrap_or_else(|| self.base.clone())
    }

    /// Whether it stands in a main checkout of the user's own.
    pub fn stands_in_checkout(&self) -> bool {
        !self.in_clone && main_checkout(&self.base).is_some()
    }

    /// The same as if it stood in the checkout of an entry, or in the clone that agentd manages for it.
    pub fn at(&self, operator: &Arc<Config>, index: usize) -> Result<Self, CommandError> {
        let named = &operator.repositories[index];
        let mut global = self.global.clone();
        global.repo = named.name.clone().or(global.repo);
        let base = match (&named.path, &global.repo) {
            (Some(path), _) => {
                let base = main_checkout(path).unwrap_or_else(|| path.clone());
                base.canonicalize().unwrap_or(base)
            }
            (None, Some(name)) => {
                managed::place(&StateDir::new(self.state_place()?.as_path().to_owned()), name)
            }
            (None, None) => return Err(CommandError::invalid("a repository needs a name")),
        };
        let stands_at = Some(StandsAt { operator: Arc::clone(operator), index });
        Ok(Self { global, base, in_clone: named.path.is_none(), stands_at, ..self.clone() })
    }

    /// The main checkout as an absolute path.
    pub fn base_path(&self) -> Result<AbsPath, CommandError> {
        AbsPath::new(&self.base).map_err(|error| CommandError::invalid(error.to_string()))
    }

    /// The state directory. agentd trusts its content, so one that others can change is refused.
    pub fn state_dir(&self) -> Result<AbsPath, CommandError> {
        let dir = self.state_place()?;
        private_place::ensure(dir.as_path()).map_err(|fault| {
            CommandError::invalid(format!("the state directory {dir} {fault}"))
                .hint(fault.remedy(dir.as_path()))
        })?;
        Ok(dir)
    }

    /// The same where a turn of a conversation is answered, whatever breaks: a file in the directory's place is nobody's to read, and
    /// what cannot be written there is the answer.
    pub fn state_or_file(&self) -> Result<StateDir, CommandError> {
        let dir = self.state_place()?;
        match private_place::fault(dir.as_path()) {
            Some(Fault::NoDirectory) => Ok(StateDir::new(dir.as_path().to_owned())),
            _ => self.state(),
        }
    }

    /// The state directory with its own files, if nobody else may reach it.
    pub fn state(&self) -> Result<StateDir, CommandError> {
        Ok(StateDir::new(self.state_dir()?.as_path().to_owned()))
    }

    /// Where the state directory is, whoever else may reach it.
    pub fn state_place(&self) -> Result<AbsPath, CommandError> {
        let dir = self.env.state_dir(self.global.state_dir.as_deref()).ok_or_else(|| {
            CommandError::invalid("no state directory: neither --state-dir, AGENTD_STATE_DIR nor HOME is set")
                .hint("pass --state-dir DIR")
        })?;
        AbsPath::new(dir).map_err(|error| CommandError::invalid(error.to_string()))
    }

    /// How much of a run its progress tells.
    pub fn detail(&self) -> Detail {
        if self.global.verbose > 0 { Detail::Words } else { Detail::Calls }
    }

    /// Runs the asynchronous part of a command to its end.
    pub fn block_on<F: Future>(&self, work: F) -> Result<F::Output, CommandError> {
        block_on(tokio::runtime::Builder::new_multi_thread(), work)
    }

    /// The same on this thread alone, for a single run: it waits more than it works, and of what it waits for, most would
    /// come on another thread. What blocks is on threads of its own anyway.
    pub fn block_on_one_thread<F: Future>(&self, work: F) -> Result<F::Output, CommandError> {
        block_on(tokio::runtime::Builder::new_current_thread(), work)
    }
}

fn block_on<F: Future>(mut runtime: tokio::runtime::Builder, work: F) -> Result<F::Output, CommandError> {
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| CommandError::failed(format!("the runtime cannot be started: {error}")))?;
    Ok(runtime.block_on(work))
}

/// Whether a path is below a folder, whatever links lead to either.
pub fn is_below(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.starts_with(folder) || real(path).starts_with(real(folder))
}

/// The main checkout around `dir`: the folder whose `.git` is a directory, or the main checkout of a linked worktree.
/// It only reads files, so it works without git. A folder that is not there is in none, whatever is around its place.
pub fn main_checkout(dir: &Path) -> Option<PathBuf> {
    if !dir.is_dir() {
        return None;
    }
    let root = dir.ancestors().find(|dir| dir.join(".git").exists())?;
    let dot_git = root.join(".git");
    if dot_git.is_dir() {
        return Some(root.to_owned());
    }
    let text = std::fs::read_to_string(&dot_git).ok()?;
    let git_dir = root.join(text.strip_prefix("gitdir:")?.trim());
    // A submodule has no `commondir`: it is its own main checkout.
    let Ok(common) = std::fs::read_to_string(git_dir.join("commondir")) else { return Some(root.to_owned()) };
    let common = git_dir.join(common.trim()).canonicalize().ok()?;
    let main = common.parent().filter(|_| common.file_name().is_some_and(|name| name == ".git"));
    Some(main.map_or_else(|| root.to_owned(), Path::to_path_buf))
}
