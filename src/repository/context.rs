//! A repository that agentd works for: configuration, checkout, tracker and state. Made once, used by every run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::last_known_good::LastKnownGood;
use super::resources::{self, blocking};
use crate::config::config_file::Auto;
use crate::config::env::Env;
use crate::config::settings::{Config, Repository};
use crate::domain::host_paths::{HostPaths, Shown};
use crate::domain::issue::IssueKey;
use crate::domain::mapping::worktree_of;
use crate::domain::name::{BranchName, CommitId, RepoName};
use crate::domain::refusal::Refusal;
use crate::engine::redaction_program::RedactionProgram;
use crate::git::checkout::Checkout;
use crate::git::error::GitError;
use crate::git::program::Identity;
use crate::git::remote::{Remote, RemoteAuth};
use crate::git::requirements::Population;
use crate::github;
use crate::record::sinks::Sinks;
use crate::replay::recorded_run::RecordedRun;
use crate::store::port::{HeldLease, LeaseKey, LeaseNotTaken, StoreError};
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::holder_format::LeaseRecord;
use crate::sys::paths::AbsPath;

/// A repository that agentd works for.
#[derive(Clone)]
pub struct RepositoryContext {
    /// The effective configuration.
    pub config: Arc<Config>,
    /// The repository's entry.
    pub repository: Repository,
    /// `owner/name`.
    pub repo: RepoName,
    /// The main checkout; its files, index, HEAD and stash are never touched.
    pub checkout: Checkout,
    /// URL of the remote; `None` = the checkout has no remote of that name.
    pub remote: Option<String>,
    /// The tracker; `None` where nobody configured credentials and none are needed (D30).
    pub github: Option<github::Client>,
    /// The state directory.
    pub state: StateDir,
    /// Where the money of days and issues is counted: that state directory; for a replay, which has one of its own, the run's.
    pub money: StateDir,
    /// Wall time.
    pub clock: Clock,
    /// What children may inherit is taken from here.
    pub env: Env,
    /// A recorded run that is replayed; `None` for a real run (P-040).
    pub replay: Option<Arc<RecordedRun>>,
    /// The last known good policy and definitions, for a process that outlives changes of them; `None` = broken ones
    /// are refused.
    pub last_known_good: Option<Arc<LastKnownGood>>,
    /// Whether agentd manages the checkout. Then its files are those of the origin branch and are updated for each run.
    pub managed: bool,
}

impl RepositoryContext {
    /// Whether what models cost here is money of the day and the issue: what a replay takes from the record costs nothing.
    pub fn counts_money(&self) -> bool {
        self.replay.as_ref().is_none_or(|recorded_run| recorded_run.asks_anew())
    }

    /// The lease on an issue.
    pub fn lease(&self, key: &IssueKey) -> LeaseKey {
        self.lease_of(&worktree_of(key))
    }

    /// The lease on the issue of a worktree.
    pub fn lease_of(&self, worktree: &str) -> LeaseKey {
        let file = self.checkout.lease_file(worktree).as_path().to_owned();
        LeaseKey::Issue { repo: self.repo.clone(), file }
    }

    /// Every lease that was ever taken on an issue here. Blocks.
    pub fn leases(&self) -> Vec<LeaseKey> {
        self.state.store().leases(&self.repo, self.checkout.lease_folder().as_path())
    }

    /// What a lease says, off the runtime's threads.
    pub async fn look(&self, lease: LeaseKey) -> Result<Option<LeaseRecord>, Refusal> {
        let state = self.state.clone();
        blocking(move || state.store().look(&lease)).await
    }

    /// Takes a lease for `instance`, off the runtime's threads. `lasts`: how long it counts for other hosts.
    pub async fn take(
        &self,
        lease: LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let (state, instance) = (self.state.clone(), instance.to_owned());
        Self::taken(move || state.store().take(&lease, &instance, lasts)).await
    }

    /// The same for a run.
    pub async fn take_for_run(
        &self,
        lease: LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let (state, instance) = (self.state.clone(), instance.to_owned());
        Self::taken(move || state.store().take_for_run(&lease, &instance, lasts)).await
    }

    async fn taken(
        take: impl FnOnce() -> Result<Box<dyn HeldLease>, LeaseNotTaken> + Send + 'static,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        tokio::task::spawn_blocking(take).await.unwrap_or_else(|panic| {
            let words = panic.to_string();
            Err(StoreError::Failed { action: "take", place: "a lease".to_owned(), words }.into())
        })
    }

    /// The directory that holds the worktrees.
    pub fn worktree_root(&self) -> AbsPath {
        self.checkout.root().join(&self.config.worktree.root)
    }

    /// How worktrees are checked out.
    pub fn population(&self) -> Population {
        let settings = &self.config.worktree;
        Population {
            submodules: settings.submodules == Auto::Auto,
            lfs: settings.lfs == Auto::Auto,
            sparse: settings.sparse.clone(),
        }
    }

    /// Places of this machine that nothing names that leaves it.
    pub fn host_paths(&self) -> HostPaths {
        host_paths(&self.config, self.checkout.root(), self.state.path(), &self.env)
    }

    /// The whole environment of a child process: names that name nothing secret.
    pub fn child_environment(&self) -> Vec<(OsString, OsString)> {
        resources::child_environment(&self.env)
    }

    /// `redaction.program`, if there is one.
    pub fn redaction_program(&self) -> Option<RedactionProgram> {
        let argv = self.config.redaction.program.clone();
        let cwd = resources::program_folder(&self.config, "redaction.program", self.checkout.root());
        (!argv.is_empty()).then(|| RedactionProgram::new(argv, cwd, self.child_environment()))
    }

    /// `record.sinks`, as they are started for this repository.
    pub fn sinks(&self) -> Sinks {
        Sinks {
            programs: self.config.record.sinks.clone(),
            folder: resources::program_folder(&self.config, "record.sinks", self.checkout.root()),
            environment: self.child_environment(),
        }
    }

    /// The remote with its present credentials: the GitHub token if the remote is on GitHub's host, else what the
    /// user's git would use (D28). `None` = no remote.
    pub async fn authorised_remote(&self) -> Result<Option<Remote>, Refusal> {
        let Some(url) = &self.remote else { return Ok(None) };
        let auth = match &self.github {
            Some(github) if self.takes_token(github, url) => {
                RemoteAuth::Token(github.git_token().await?.token)
            }
            _ => RemoteAuth::User,
        };
        Ok(Some(Remote::new(&self.repository.remote, url, auth)))
    }

    /// The remote, where it is reached over HTTP and is not given GitHub's token, because it is not on GitHub's host.
    pub fn is_without_token(&self) -> Option<&str> {
        let (github, url) = (self.github.as_ref()?, self.remote.as_deref()?);
        (is_over_http(url) && !self.takes_token(github, url)).then_some(url)
    }

    /// HTTP remotes on GitHub's host, and the one that the operator named, get the token.
    fn takes_token(&self, github: &github::Client, url: &str) -> bool {
        is_over_http(url) && (github.endpoint().serves_remote(url) || self.repository.is_remote_named)
    }

    /// The commit of the origin branch: fetched from the remote, or without a remote the local branch's.
    pub async fn origin_commit(&self, branch: &BranchName) -> Result<Option<CommitId>, Refusal> {
        self.origin_tip(branch, true).await
    }

    /// The same. With `bring` false the remote is only asked, so the commit may be missing here.
    pub async fn origin_tip(&self, branch: &BranchName, bring: bool) -> Result<Option<CommitId>, Refusal> {
        match self.authorised_remote().await? {
            Some(remote) => self.remote_tip(&remote, branch, bring).await,
            None => Ok(self.checkout.local_branch(branch).await?),
        }
    }

    /// The commit of a branch on the remote, brought here or only asked for.
    pub async fn remote_tip(
        &self,
        remote: &Remote,
        branch: &BranchName,
        bring: bool,
    ) -> Result<Option<CommitId>, Refusal> {
        if !bring {
            return Ok(self.checkout.remote_branch(remote, branch).await?);
        }
        Ok(self.checkout.fetch(remote, branch).await?)
    }

    /// The commit that a branch had on the remote when it was last seen there.
    pub async fn last_seen(&self, branch: &BranchName) -> Result<Option<CommitId>, GitError> {
        let Some(url) = &self.remote else { return Ok(None) };
        let remote = Remote::new(&self.repository.remote, url, RemoteAuth::User);
        self.checkout.last_seen(&remote, branch).await
    }

    /// The commit that agentd pushed last to a branch.
    pub async fn last_pushed(&self, branch: &BranchName) -> Result<Option<CommitId>, GitError> {
        let Some(url) = &self.remote else { return Ok(None) };
        let remote = Remote::new(&self.repository.remote, url, RemoteAuth::User);
        self.checkout.last_pushed(&remote, branch).await
    }

    /// Where [`RepositoryContext::origin_commit`] looks, for messages.
    pub fn origin_place(&self) -> String {
        match &self.remote {
            Some(_) => format!("on the remote \"{}\"", self.repository.remote),
            None => format!("in {}", self.checkout.root()),
        }
    }

    /// The commit of a branch, here or else on the remote.
    pub async fn branch_commit(&self, branch: &BranchName) -> Result<Option<CommitId>, Refusal> {
        if let Some(commit) = self.checkout.local_branch(branch).await? {
            return Ok(Some(commit));
        }
        match self.authorised_remote().await? {
            Some(remote) => Ok(self.checkout.remote_branch(&remote, branch).await?),
            None => Ok(None),
        }
    }

    /// The heads of a branch's merged pull requests. What is in the history of one is merged, though it is in no other history where
    /// it was squashed. `onto`: only of those that went there. People may have committed more than this checkout has: with `bring` that is fetched.
    pub async fn merged_heads(
        &self,
        branch: &BranchName,
        onto: Option<&BranchName>,
        bring: bool,
    ) -> Result<Vec<CommitId>, Refusal> {
        let Some(github) = &self.github else { return Ok(Vec::new()) };
        let merged = github.merged_heads(&self.repo, branch, onto).await?;
        let remote = if bring { self.authorised_remote().await? } else { None };
        if let Some(remote) = remote {
            for (number, head) in &merged {
                if self.checkout.has_commit(head).await? {
                    continue;
                }
                // Then nothing here is known to be in it.
                if let Err(error) = self.checkout.fetch_pull(&remote, *number).await {
                    tracing::info!(%branch, number, %error, "the commits of a merged pull request cannot be fetched");
                }
            }
        }
        Ok(merged.into_iter().map(|(_, head)| head).collect())
    }

    /// Author and committer of agentd's commits (D13).
    pub async fn identity(&self) -> Result<Identity, GitError> {
        let own = self.checkout.identity().await?.unwrap_or_else(Identity::agentd);
        let commit = &self.config.commit;
        Ok(Identity {
            name: commit.author_name.clone().unwrap_or(own.name),
            email: commit.author_email.clone().unwrap_or(own.email),
        })
    }

    /// A path of the configuration; relative ones start at the main checkout (D85).
    pub fn configured_path(&self, path: &Path) -> PathBuf {
        self.checkout.root().join(path).as_path().to_owned()
    }
}

/// The main checkout, the folder of the worktrees, the state directory and the home, each with its names.
pub fn host_paths(config: &Config, root: &AbsPath, state: &Path, env: &Env) -> HostPaths {
    let places = [
        (Some(root.as_path().to_owned()), Shown::Inside),
        (Some(root.join(&config.worktree.root).as_path().to_owned()), Shown::Folders),
        (Some(state.to_owned()), Shown::As("$AGENTD_STATE_DIR")),
        (env.home(), Shown::As("~")),
    ];
    let named = |(place, shown): (Option<PathBuf>, Shown)| {
        let place = place?;
        let real = place.canonicalize().unwrap_or_else(|_| place.clone());
        Some([place, real].map(|place| (place.display().to_string(), shown.clone())))
    };
    HostPaths::new(places.into_iter().filter_map(named).flatten())
}

fn is_over_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}
