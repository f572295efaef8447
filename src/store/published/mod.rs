//! The store of a node: its own files, whose runs are published in its cluster's store as they are written.
//!
//! A journal is a file here and a subject there, byte for byte the same; what is not published yet is on this disk. Cells that people
//! and nodes share are in the cluster's store alone, what is of this node in its files. A lease on an issue is held in both: there
//! among the nodes, here so that whoever looks at this state directory without the cluster sees that somebody works.

mod log;
mod progress;
mod sender;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

use self::log::PublishedLog;
use super::assignments::Assignments;
use super::files::FileStore;
use super::nats::NatsStore;
use super::port::{
    Blobs, Cell, CellChange, Cells, CommitOutcome, HeldLease, Holders, LeaseKey, LeaseNotTaken, Log,
    Revision, Servers, Store, StoreError,
};
use super::requests::Requests;
use super::run_dir::{FindError, RunDir, StateDir};
use crate::domain::cluster::cells::HeldTerm;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::sys::holder_format::{Holder, LeaseRecord};

/// Files below a state directory, and the store of the cluster that its node is in.
#[derive(Debug, Clone)]
pub struct PublishedStore {
    root: PathBuf,
    files: FileStore,
    nats: NatsStore,
}

impl StateDir {
    /// The state directory of a node whose runs are published. Takes an absolute path; makes nothing yet.
    pub fn of_node(root: PathBuf, nats: &NatsStore) -> Self {
        let store = PublishedStore { files: FileStore::new(&root), nats: nats.waiting(), root: root.clone() };
        Self { root, store: Arc::new(store), only_reads: false }
    }
}

impl PublishedStore {
    /// Where a cell is: what a node keeps and says of itself is in its files.
    fn of(&self, cell: &Cell) -> &dyn Cells {
        match cell {
            Cell::Daemon | Cell::Status => &self.files,
            _ => &self.nats,
        }
    }
}

impl Store for PublishedStore {
    fn runs(&self, only: Option<&RepoName>) -> Result<Vec<(RepoName, RunId)>, FindError> {
        self.files.runs(only)
    }

    fn log(&self, run: &RunDir) -> Result<Arc<dyn Log>, StoreError> {
        // Chats are this node's own.
        match run.path.starts_with(self.root.join("repos")) {
            true => Ok(Arc::new(PublishedLog::open(&self.files, &self.nats, run)?)),
            false => self.files.log(run),
        }
    }

    fn blobs(&self, run: &RunDir) -> Arc<dyn Blobs> {
        self.files.blobs(run)
    }

    fn shared(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.nats.clone()))
    }

    fn unsealed(&self, repo: &RepoName) -> Result<Vec<RunRow>, StoreError> {
        self.nats.unsealed(repo)
    }

    fn node(&self) -> Option<String> {
        self.nats.node()
    }

    fn cluster(&self) -> Option<String> {
        self.nats.cluster()
    }

    fn assignments(&self) -> Option<Arc<dyn Assignments>> {
        self.nats.assignments()
    }

    fn requests(&self) -> Option<Arc<dyn Requests>> {
        self.nats.requests()
    }

    fn servers(&self) -> Result<Option<Servers>, StoreError> {
        self.nats.servers()
    }

    fn answers(&self) -> Result<(), StoreError> {
        self.nats.answers()
    }
}

impl Cells for PublishedStore {
    fn get(&self, cell: &Cell) -> Result<(Revision, Option<String>), StoreError> {
        self.of(cell).get(cell)
    }

    fn commit(&self, changes: &[CellChange]) -> Result<CommitOutcome, StoreError> {
        let own = changes.iter().filter(|change| matches!(change.cell, Cell::Daemon | Cell::Status)).count();
        match own {
            0 => self.nats.commit(changes),
            all if all == changes.len() => {
                let committed = self.files.commit(changes)?;
                for change in changes.iter().filter(|change| change.cell == Cell::Status) {
                    self.nats.tell(change.value.clone());
                }
                Ok(committed)
            }
            _ => Err(StoreError::Failed {
                action: "change",
                place: "the cells".to_owned(),
                words: "some are this node's own, and some are shared".to_owned(),
            }),
        }
    }

    fn watch(&self, cell: &Cell) -> BoxStream<'static, Option<String>> {
        self.of(cell).watch(cell)
    }

    fn cells(&self) -> Result<Vec<Cell>, StoreError> {
        let mut found = self.nats.cells()?;
        found.retain(|cell| !matches!(cell, Cell::Daemon | Cell::Status));
        let own = [Cell::Daemon, Cell::Status];
        found.extend(own.into_iter().filter(|cell| self.files.place(cell).exists()));
        Ok(found)
    }

    fn parked(&self) -> Result<Vec<(RepoName, IssueKey)>, StoreError> {
        self.nats.parked()
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        self.of(cell).place(cell)
    }
}

/// A lease that is held among the nodes, and in the file that this host's processes look at.
#[derive(Debug)]
struct HeldTwice {
    shared: Box<dyn HeldLease>,
    here: Box<dyn HeldLease>,
}

impl Holders for PublishedStore {
    fn take(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        match lease {
            LeaseKey::Daemon => return self.files.take(lease, instance, lasts),
            LeaseKey::Poller(_) => return self.nats.take(lease, instance, lasts),
            LeaseKey::Issue { .. } => {}
        }
        // If the second is another's, the first is given back as it is dropped.
        let shared = self.nats.take(lease, instance, lasts)?;
        let here = self.files.take(lease, instance, lasts)?;
        Ok(Box::new(HeldTwice { shared, here }))
    }

    fn take_for_run(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let shared = self.nats.take_for_run(lease, instance, lasts)?;
        let here = self.files.take(lease, instance, lasts)?;
        Ok(Box::new(HeldTwice { shared, here }))
    }

    fn look(&self, lease: &LeaseKey) -> Option<LeaseRecord> {
        match lease {
            LeaseKey::Issue { .. } | LeaseKey::Poller(_) => self.nats.look(lease),
            LeaseKey::Daemon => self.files.look(lease),
        }
    }

    fn leases(&self, repo: &RepoName, folder: &Path) -> Vec<LeaseKey> {
        self.nats.leases(repo, folder)
    }

    fn lives(&self, holder: &Holder) -> bool {
        self.nats.lives(holder)
    }
}

impl HeldLease for HeldTwice {
    fn holder(&self) -> Option<&Holder> {
        self.shared.holder()
    }

    fn record(&self) -> Option<&Value> {
        self.shared.record()
    }

    fn set_record(&mut self, record: Value) -> Result<(), StoreError> {
        self.shared.set_record(record)
    }

    fn renew(&mut self, lasts: Duration) -> Result<(), StoreError> {
        self.here.renew(lasts)?;
        self.shared.renew(lasts)
    }

    fn release(self: Box<Self>) -> Result<(), StoreError> {
        let shared = self.shared.release();
        self.here.release()?;
        shared
    }

    fn term(&self) -> Option<HeldTerm> {
        self.shared.term()
    }

    fn taken_from(&self) -> Option<&Holder> {
        self.shared.taken_from()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        self.shared.lost()
    }
}
