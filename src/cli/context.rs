//! What every command starts from: the environment, the flags, the place it stands in, and how it talks.

use std::path::{Path, PathBuf};

use super::args::Global;
use super::error::CommandError;
use super::logging;
use super::output::Output;
use crate::config::{Config, Env, Flag, Request};
use crate::sys::paths::AbsPath;

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
}

impl Context {
    /// Looks where the process stands.
    pub fn new(env: Env, global: Global, output: Output) -> Self {
        let base = main_checkout(env.working_dir()).unwrap_or_else(|| env.working_dir().to_owned());
        Self { env, global, output, base }
    }

    /// The configuration as flags, files and environment make it.
    pub fn config(&self) -> Result<Config, CommandError> {
        self.config_for(None, &[])
    }

    /// The configuration for an agent, with flags that set keys.
    pub fn config_for(&self, agent: Option<&str>, flags: &[Flag]) -> Result<Config, CommandError> {
        let request = Request {
            explicit: self.global.config.as_deref(),
            base: &self.base,
            repo: self.global.repo.as_ref(),
            agent,
            flags,
            entry: None,
            env: &self.env,
        };
        let config = Config::load(request)?;
        logging::conceal(&config);
        Ok(config)
    }

    /// The main checkout as an absolute path.
    pub fn base_path(&self) -> Result<AbsPath, CommandError> {
        AbsPath::new(&self.base).map_err(|error| CommandError::invalid(error.to_string()))
    }

    /// The state directory (interface §3).
    pub fn state_dir(&self) -> Result<AbsPath, CommandError> {
        let dir = self.env.state_dir(self.global.state_dir.as_deref()).ok_or_else(|| {
            CommandError::invalid("no state directory: neither --state-dir, AGENTD_STATE_DIR nor HOME is set")
                .hint("pass --state-dir DIR")
        })?;
        AbsPath::new(dir).map_err(|error| CommandError::invalid(error.to_string()))
    }

    /// Runs the asynchronous part of a command to its end.
    pub fn block_on<F: Future>(&self, work: F) -> Result<F::Output, CommandError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| CommandError::failed(format!("the runtime cannot be started: {error}")))?;
        Ok(runtime.block_on(work))
    }
}

/// The main checkout around `dir`: where `.git` is a directory, or where the repository of a linked worktree has its own.
/// Only reads, so that it works without git, too.
pub fn main_checkout(dir: &Path) -> Option<PathBuf> {
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
