//! Where runs live: `<state>/repos/<owner>/<name>/runs/<run_id>/`, and how one is found.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::domain::name::RepoName;
use crate::domain::run::RunId;

/// The state directory, mode 0700.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

/// One run's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    /// Whose run.
    pub repo: RepoName,
    /// Which run.
    pub run_id: RunId,
    /// Absolute path.
    pub path: PathBuf,
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

    /// The private folder of the run's programs; gone when the run has ended.
    pub fn sandbox(&self) -> PathBuf {
        self.path.join("cage")
    }

    /// The file with a stop request for this run. It is outside of the run's directory, whose files are sealed.
    pub fn stop_file(&self) -> PathBuf {
        self.of_repository(&format!("stops/{}", self.run_id))
    }

    /// The lock for ending dead runs of this repository, one at a time.
    pub fn ending_lock(&self) -> PathBuf {
        self.of_repository("ending.lock")
    }

    /// The state directory it is in.
    pub fn state(&self) -> StateDir {
        StateDir::new(self.path.ancestors().nth(5).unwrap_or(&self.path).to_owned())
    }

    fn has_begun(&self) -> bool {
        std::fs::metadata(self.events()).is_ok_and(|events| events.len() > 0) || self.result().exists()
    }

    fn of_repository(&self, relative: &str) -> PathBuf {
        self.path.ancestors().nth(2).unwrap_or(&self.path).join(relative)
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

impl StateDir {
    /// Takes an absolute path; makes nothing yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Folder of one repository's state.
    pub fn repo(&self, repo: &RepoName) -> PathBuf {
        self.root.join("repos").join(repo.owner()).join(repo.name())
    }

    /// The directory of a run, whether it exists or not.
    pub fn run(&self, repo: &RepoName, run_id: RunId) -> RunDir {
        let path = self.repo(repo).join("runs").join(run_id.to_string());
        RunDir { repo: repo.clone(), run_id, path }
    }

    /// All runs, newest first (run ids sort by time), of one repository or of all. A run is there once its journal has an
    /// entry: a start that was cut off before left nothing to look at.
    pub fn runs(&self, only: Option<&RepoName>) -> Result<Vec<RunDir>, FindError> {
        let mut found = Vec::new();
        for repo in self.repositories()? {
            if only.is_some_and(|only| *only != repo) {
                continue;
            }
            for name in entries(&self.repo(&repo).join("runs"))? {
                if let Ok(id) = Uuid::parse_str(&name) {
                    found.extend(Some(self.run(&repo, RunId(id))).filter(RunDir::has_begun));
                }
            }
        }
        found.sort_by_key(|run| std::cmp::Reverse(run.run_id));
        Ok(found)
    }

    fn repositories(&self) -> Result<Vec<RepoName>, FindError> {
        let root = self.root.join("repos");
        let mut names = Vec::new();
        for owner in entries(&root)? {
            for name in entries(&root.join(&owner))? {
                names.extend(RepoName::parse(&format!("{owner}/{name}")));
            }
        }
        Ok(names)
    }
}

/// Names in a folder; a folder that is not there is empty.
fn entries(path: &Path) -> Result<Vec<String>, FindError> {
    let unreadable = |source| FindError::Unreadable { path: path.to_owned(), source };
    let read = match std::fs::read_dir(path) {
        Ok(read) => read,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in read {
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
