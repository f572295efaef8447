//! The files of a commit in a scratch repository: of the origin's, where a failing verify command is tried again, or of the final one, where
//! all are run if nothing that the run left is to count.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::context::RepositoryContext;
use super::host_command;
use super::worktree_setup;
use crate::config::config_file::Auto;
use crate::domain::canonical::{canonical_sha256, sha256_hex};
use crate::domain::name::{BranchName, CommitId};
use crate::engine::stop::StopSignal;
use crate::git::error::GitError;
use crate::git::requirements::Population;
use crate::git::worktree::Worktree;
use crate::git::worktree_plan::WorktreePlan;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::{Exit, ProcessError};
use crate::sys::sandbox::{self, ProcessSandbox};

/// Branch of the scratch repository, and folder of its worktree.
const NAME: &str = "agentd-base";

/// The files; gone when this is dropped.
#[derive(Debug)]
pub struct BaseTree {
    folder: AbsPath,
    worktree: Worktree,
    sandbox: Option<ProcessSandbox>,
}

impl BaseTree {
    /// Checks a commit out below `folder` and sets it up as worktrees are, by the files of `base`. The error is a sentence.
    pub async fn prepare(
        context: &RepositoryContext,
        (commit, base): (&CommitId, &CommitId),
        folder: PathBuf,
        sandbox: Option<&ProcessSandbox>,
        (stop, left): (&StopSignal, &(dyn Fn() -> Duration + Sync)),
    ) -> Result<Self, String> {
        let folder = AbsPath::new(folder).map_err(|error| error.to_string())?;
        // One that a killed process left.
        remove(&folder);
        let root = folder.join("repository");
        files::create_private_dir(root.as_path()).map_err(|error| error.to_string())?;
        let made = Self::check_out(context, commit, &folder, &root, sandbox).await;
        let made = made.inspect_err(|_| remove(&folder))?;
        let quiet = |_, _| ();
        worktree_setup::set_up(context, &made.worktree, base, stop, left, &quiet)
            .await
            .map_err(|stop| stop.message)?;
        Ok(made)
    }

    async fn check_out(
        context: &RepositoryContext,
        commit: &CommitId,
        folder: &AbsPath,
        root: &AbsPath,
        sandbox: Option<&ProcessSandbox>,
    ) -> Result<Self, String> {
        let branch = BranchName::parse(NAME).map_err(|error| error.to_string())?;
        let refs = [(branch.full(), commit.clone())];
        let scratch = context.checkout.scratch(root, &refs).await.map_err(|error| error.to_string())?;
        let settings = &context.config.worktree;
        let plan = WorktreePlan {
            root: root.join(".worktrees"),
            name: NAME.to_owned(),
            branch,
            base: commit.clone(),
            remote: None,
            population: Population {
                submodules: settings.submodules == Auto::Auto,
                lfs: settings.lfs == Auto::Auto,
                sparse: settings.sparse.clone(),
            },
            elsewhere: None,
        };
        let worktree = scratch.prepare_worktree(&plan).await.map_err(|error| error.to_string())?.worktree;
        let sandbox = sandbox.map(|sandbox| moved(sandbox, folder, context));
        Ok(Self { folder: folder.clone(), worktree, sandbox })
    }

    /// Where the files are.
    pub fn worktree(&self) -> &Worktree {
        &self.worktree
    }

    /// Makes the files those of the commit again, after a command.
    pub async fn put_back(&self) -> Result<(), GitError> {
        self.worktree.put_back(&format!("refs/agentd/left/{NAME}")).await.map(drop)
    }

    /// From now on commands run in this sandbox, which is made for the tree's own folder.
    pub fn confine(&mut self, sandbox: Option<&ProcessSandbox>, context: &RepositoryContext) {
        self.sandbox = sandbox.map(|sandbox| moved(sandbox, &self.folder, context));
    }

    /// Runs a command there, in the sandbox.
    pub async fn run(
        &self,
        argv: &[String],
        environment: Vec<(OsString, OsString)>,
        longest: Duration,
        stop: &StopSignal,
    ) -> Result<Exit, ProcessError> {
        let spec =
            host_command::verify_spec(argv, &self.worktree, environment, longest, self.sandbox.as_ref());
        host_command::run(spec, stop).await
    }
}

impl Drop for BaseTree {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &AbsPath) {
    if let Err(error) = files::remove_dir(folder.as_path()) {
        tracing::warn!(%error, "a scratch folder stays");
    }
}

/// The sandbox of a run, for `folder` instead of the run's worktree.
fn moved(sandbox: &ProcessSandbox, folder: &AbsPath, context: &RepositoryContext) -> ProcessSandbox {
    let mut moved = sandbox.clone();
    let worktrees = context.worktree_root();
    let of_the_run = |path: &AbsPath| path.as_path().starts_with(worktrees.as_path());
    moved.walls.writable.retain(|path| !of_the_run(path));
    moved.walls.writable.push(folder.clone());
    moved.walls.shown_as.retain(|(_, place)| !of_the_run(place));
    moved
}

/// How a command ended on a commit, as it is remembered.
pub struct KnownEnd(PathBuf);

/// Where the result is remembered. The same commit, set-up, sandbox and command give the same result.
pub fn known_end(
    context: &RepositoryContext,
    commit: &CommitId,
    argv: &[String],
    sandbox: Option<&ProcessSandbox>,
) -> KnownEnd {
    let settings = &context.config.worktree;
    let key = canonical_sha256(&(argv, &settings.setup, &settings.copy, sandbox::name(sandbox)));
    let key = key.unwrap_or_else(|_| sha256_hex(argv.join("\0").as_bytes()));
    let name = format!("{commit}-{}", key.get(..16).unwrap_or_default());
    KnownEnd(context.state.repo(&context.repo).join("verify-on-base").join(name))
}

impl KnownEnd {
    /// Its exit code, if it was tried before.
    pub fn read(&self) -> Option<i32> {
        std::fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Remembers it. Where that fails it is tried again next time.
    pub fn keep(&self, code: i32) {
        let folder = self.0.parent().map_or(Ok(()), files::create_private_dir);
        let kept = folder.and_then(|()| files::write_private(&self.0, format!("{code}\n").as_bytes()));
        if let Err(error) = kept {
            tracing::warn!(%error, "the end of a command on the origin could not be kept");
        }
    }
}
