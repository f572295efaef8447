//! Where runs live: `<state>/repos/<owner>/<name>/runs/<run_id>/`, and how one is found.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::port::Store;
use crate::domain::canonical::sha256_hex;
use crate::domain::name::{NameError, RepoName};
use crate::domain::run::RunId;
use crate::sys::host::Host;

/// The file of [`RunDir::overtaken`]. It is not of the run: no seal names it.
pub const OVERTAKEN: &str = "overtaken.jsonl";

/// The folder of [`RunDir::sandbox`]. No seal names what is in it.
pub const SANDBOX: &str = "cage";

/// The state directory, mode 0700, and the store of what is in it.
#[derive(Debug, Clone)]
pub struct StateDir {
    pub(super) root: PathBuf,
    pub(super) store: Arc<dyn Store>,
    pub(super) only_reads: bool,
}

/// One run's directory.
#[derive(Debug, Clone)]
pub struct RunDir {
    /// Whose run.
    pub repo: RepoName,
    /// Which run.
    pub run_id: RunId,
    /// Absolute path.
    pub path: PathBuf,
    state: StateDir,
}

impl RunDir {
    /// The write-ahead journal.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// The run output.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// The final report.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.md")
    }

    /// The run record.
    pub fn record(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// The ledger.
    pub fn accounting(&self) -> PathBuf {
        self.path.join("accounting.jsonl")
    }

    /// The evidence ledger.
    pub fn evidence(&self) -> PathBuf {
        self.path.join("evidence.jsonl")
    }

    /// Lines that this node wrote when another had the run already.
    pub fn overtaken(&self) -> PathBuf {
        self.path.join(OVERTAKEN)
    }

    /// The private folder of the run's programs; gone when the run has ended.
    pub fn sandbox(&self) -> PathBuf {
        self.path.join(SANDBOX)
    }

    /// The lock for ending dead runs of this repository, one at a time.
    pub fn ending_lock(&self) -> PathBuf {
        self.state.repo(&self.repo).join("ending.lock")
    }

    /// The state directory it is in.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// The store of its log and its blobs.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.state.store
    }
}

/// A run that could not be found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing matches.
    #[error("no run matches \"{0}\"; `agentd runs list` shows all")]
    None(String),
    /// The prefix is not unique.
    #[error("\"{query}\" matches {count} runs; give more of the run id")]
    Several {
        /// What was asked.
        query: String,
        /// How many match.
        count: usize,
    },
    /// The state directory cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}

/// Where the state of a repository stands below a state directory's root. Whoever writes its name in other letters finds the same.
pub(super) fn repo_folder(root: &Path, repo: &RepoName) -> PathBuf {
    let repos = root.join("repos");
    let written = repos.join(repo.owner()).join(repo.name());
    if written.is_dir() {
        return written;
    }
    let alike = |folder: &Path, name: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_alike = |entry: &std::fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|known| known.eq_ignore_ascii_case(name))
        };
        let mut found: Vec<PathBuf> = entries.filter(is_alike).map(|entry| entry.path()).collect();
        found.sort();
        found
    };
    let owners = alike(&repos, repo.owner());
    let mut known = owners.iter().flat_map(|owner| alike(owner, repo.name())).filter(|path| path.is_dir());
    known.next().unwrap_or(written)
}

impl StateDir {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The store of what is in it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// By what issues tell it from other ones, without telling anybody where it is. The nodes of a cluster have one.
    pub fn state_name(&self) -> String {
        let place = match self.store.cluster() {
            Some(cluster) => format!("cluster:{cluster}"),
            None => format!("{}:{}", Host::current().name, self.root.display()),
        };
        sha256_hex(place.as_bytes()).chars().take(16).collect()
    }

    /// What it shares with other nodes; `None` = nothing.
    pub fn shared(&self) -> Option<Self> {
        Some(Self { root: self.root.clone(), store: self.store.shared()?, only_reads: false })
    }

    /// Whether its runs are those of nodes of a cluster: whoever reads them here ends none, and there is no index of their seals.
    pub fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// Folder of one repository's state.
    pub fn repo(&self, repo: &RepoName) -> PathBuf {
        repo_folder(&self.root, repo)
    }

    /// The directory of a run, whether it exists or not.
    pub fn run(&self, repo: &RepoName, run_id: RunId) -> RunDir {
        self.run_in(&self.repo(repo).join("runs"), repo, run_id)
    }

    /// What users of the service have: a folder for each of them, by id.
    pub fn users(&self) -> PathBuf {
        self.path().join("users")
    }

    /// The turns of a user's conversations, each as a run.
    pub fn user_runs(&self, user: Uuid) -> PathBuf {
        self.users().join(user.to_string()).join("runs")
    }

    /// The directory of one of them. A run directory names a repository; a conversation has none.
    pub fn user_run(&self, user: Uuid, run_id: RunId) -> Result<RunDir, NameError> {
        Ok(self.run_in(&self.user_runs(user), &RepoName::parse("local/chat")?, run_id))
    }

    /// The directory of a run, among the runs in `folder`.
    pub fn run_in(&self, folder: &Path, repo: &RepoName, run_id: RunId) -> RunDir {
        RunDir { repo: repo.clone(), run_id, path: folder.join(run_id.to_string()), state: self.clone() }
    }

    /// All runs, newest first (run ids sort by time), of one repository or of all. A run is there once its journal has an
    /// entry: a start that was cut off before left nothing to look at.
    pub fn runs(&self, only: Option<&RepoName>) -> Result<Vec<RunDir>, FindError> {
        let mut found = self.store.runs(only)?;
        found.sort_by_key(|(_, run_id)| std::cmp::Reverse(*run_id));
        Ok(found.into_iter().map(|(repo, run_id)| self.run(&repo, run_id)).collect())
    }
}
