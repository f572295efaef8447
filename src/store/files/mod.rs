//! The store in files: run directories, one file a cell, and leases that the kernel holds.

mod blobs;
mod cells;
mod holders;
mod log;
mod redo_format;
mod runs;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use self::blobs::FileBlobs;
use self::log::FileLog;
use super::port::{Blobs, Log, Store, StoreError};
use super::run_dir::{FindError, RunDir, StateDir, repo_folder};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::host::Host;
use crate::sys::in_place::OnDisk;

/// Files below a state directory.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
    host: Host,
    clock: Clock,
    /// Of the cells that are changed often, those that this process has changed: what of each it knows to be on the disk, `None` where
    /// that is the file.
    on_disk: Arc<Mutex<HashMap<PathBuf, Option<OnDisk>>>>,
}

impl FileStore {
    /// The store of a state directory, for this process; nothing is made yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), host: Host::current(), clock: Clock::system(), on_disk: Arc::default() }
    }

    /// The folder of a repository's state.
    fn repo(&self, repo: &RepoName) -> PathBuf {
        repo_folder(&self.root, repo)
    }
}

impl StateDir {
    /// A state directory that has all of the state. Takes an absolute path; makes nothing yet.
    pub fn new(root: PathBuf) -> Self {
        let store = Arc::new(FileStore::new(&root));
        Self { root, store, only_reads: false }
    }

    /// Files with runs of a cluster's nodes, of which readers end none. Takes an absolute path; makes nothing yet.
    pub fn for_reading(root: PathBuf) -> Self {
        Self { only_reads: true, ..Self::new(root) }
    }
}

impl Store for FileStore {
    fn runs(&self, only: Option<&RepoName>) -> Result<Vec<(RepoName, RunId)>, FindError> {
        self.list(only)
    }

    fn log(&self, run: &RunDir) -> Result<Arc<dyn Log>, StoreError> {
        files::create_private_dir(&run.path)?;
        Ok(Arc::new(FileLog::open(run.events())?))
    }

    fn blobs(&self, run: &RunDir) -> Arc<dyn Blobs> {
        Arc::new(FileBlobs::below(run.path.clone()))
    }
}
