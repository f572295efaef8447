//! The store in files: run directories, one file a cell, and leases that the kernel holds.

mod blobs;
mod cells;
mod holders;
mod log;
mod redo_format;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::blobs::FileBlobs;
use self::log::FileLog;
use super::port::{Blobs, Log, Store, StoreError};
use super::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::host::Host;

/// Files below a state directory.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
    host: Host,
    clock: Clock,
}

impl FileStore {
    /// The store of a state directory, for this process; nothing is made yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), host: Host::current(), clock: Clock::system() }
    }
}

impl StateDir {
    /// A state directory that has all of the state. Takes an absolute path; makes nothing yet.
    pub fn new(root: PathBuf) -> Self {
        let store = Arc::new(FileStore::new(&root));
        Self { root, store }
    }
}

impl Store for FileStore {
    fn log(&self, run: &RunDir) -> Result<Arc<dyn Log>, StoreError> {
        files::create_private_dir(&run.path)?;
        Ok(Arc::new(FileLog::open(run.events())?))
    }

    fn blobs(&self, run: &RunDir) -> Arc<dyn Blobs> {
        Arc::new(FileBlobs::below(run.path.clone()))
    }
}
