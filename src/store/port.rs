//! The port to agentd's state, in four parts: logs, cells, blobs, and who holds what.
//!
//! Two stand behind it: files (`files/`), and a NATS server that several nodes share (`nats/`, a feature of cargo). Each passes
//! `tests/it/store_contract.rs`, and is chosen where the state directory is opened. Calls block: whoever is on the runtime's
//! threads makes them on another one.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use futures::stream::BoxStream;
use serde_json::Value;

use super::assignments::Assignments;
pub use super::error::StoreError;
use super::requests::Requests;
use super::run_dir::{FindError, RunDir};
use crate::domain::artifact::Artifact;
use crate::domain::cluster::cells::{HeldTerm, SessionId};
use crate::domain::cluster::run_row::RunRow;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::sys::holder_format::{Holder, LeaseRecord};

/// Where agentd's state is kept.
pub trait Store: Cells + Holders + Debug + Send + Sync {
    /// The runs whose log has a line, of one repository or of all.
    fn runs(&self, only: Option<&RepoName>) -> Result<Vec<(RepoName, RunId)>, FindError>;

    /// The log of a run, for its one writer; made where it is missing.
    fn log(&self, run: &RunDir) -> Result<Arc<dyn Log>, StoreError>;

    /// What a run keeps beside its log.
    fn blobs(&self, run: &RunDir) -> Arc<dyn Blobs>;

    /// What this store shares with other nodes: logs, blobs and cells as all of them read it. `None` = nothing, it is this host's
    /// alone.
    fn shared(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// The runs of a repository whose records are not sealed as far as all nodes know, those under way among them. None where nothing
    /// is shared. Blocks.
    ///
    /// # Errors
    /// No answer, or what is there cannot be read.
    fn unsealed(&self, _repo: &RepoName) -> Result<Vec<RunRow>, StoreError> {
        Ok(Vec::new())
    }

    /// The name of this node among those that share it; `None` = nothing is shared.
    fn node(&self) -> Option<String> {
        None
    }

    /// The name of the cluster that shares it; `None` = nothing is shared.
    fn cluster(&self) -> Option<String> {
        None
    }

    /// How this node's daemon gives runs to those of other nodes, and takes theirs. `None` = there are no others.
    fn assignments(&self) -> Option<Arc<dyn Assignments>> {
        None
    }

    /// How people ask the nodes who may change nothing themselves. `None` = there are no nodes to ask.
    fn requests(&self) -> Option<Arc<dyn Requests>> {
        None
    }

    /// How its servers are now, as this node sees them; `None`: there are none. Blocks.
    ///
    /// # Errors
    /// No answer.
    fn servers(&self) -> Result<Option<Servers>, StoreError> {
        Ok(None)
    }

    /// Whether what it shares with other nodes can be used now, as far as this node can tell in a few seconds.
    ///
    /// # Errors
    /// It does not answer, or does not take this node's word.
    fn answers(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A position in a log: 0 is its beginning, every other one was given by the log.
pub type Place = u64;

/// What became of an append.
#[derive(Debug)]
pub enum Appended {
    /// The lines are there; the log ends here now.
    At(Place),
    /// The log does not end where the lines were to follow: somebody else has written. Nothing was added.
    Overtaken,
    /// Whether they are there, reading tells.
    Unknown(StoreError),
}

/// Lines of one run, only ever added to.
pub trait Log: Send + Sync {
    /// Adds whole lines behind `after`, where the log has to end. Half a line that a dying writer left there is cut off.
    /// After this they survive the death of the process.
    fn append(&self, after: Place, lines: &[u8]) -> Appended;

    /// The whole lines from a place on, and where they end. Half a line is left out.
    fn read(&self, from: Place) -> Result<(Vec<u8>, Place), StoreError>;

    /// Waits until what was appended survives the death of the machine. In a cluster: until the store has acknowledged it and this
    /// node may act.
    fn sync(&self) -> Result<(), StoreError>;

    /// Ends once it is known that another has written here; never where nobody else can.
    fn overtaken(&self) -> BoxFuture<'static, ()> {
        future::pending().boxed()
    }
}

/// Bytes of one run that its log names: each is there whole, or not at all.
pub trait Blobs: Send + Sync {
    /// Keeps bytes under a path, and gives their hash with it.
    fn put(&self, path: &str, bytes: &[u8]) -> Result<Artifact, StoreError>;

    /// Gives them back; an error where they are gone or are not those.
    fn get(&self, blob: &Artifact) -> Result<Vec<u8>, StoreError>;

    /// Waits until all that was put survives the death of the machine.
    fn sync(&self) -> Result<(), StoreError>;
}

/// A small document that several processes change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// A person's approval of one proposal.
    Approval {
        /// The repository.
        repo: RepoName,
        /// Which proposal.
        proposal_hash: String,
    },
    /// A person's decision against one proposal.
    Denial {
        /// The repository.
        repo: RepoName,
        /// Which proposal.
        proposal_hash: String,
    },
    /// What a UTC day has cost.
    Spend(NaiveDate),
    /// What all runs of an issue have cost.
    IssueSpend {
        /// The repository.
        repo: RepoName,
        /// The issue.
        issue: IssueKey,
    },
    /// What somebody asks of a live run: to stop.
    Stop {
        /// The repository.
        repo: RepoName,
        /// The run.
        run_id: RunId,
    },
    /// What was heard of an issue and its pull request.
    Inbox {
        /// The repository.
        repo: RepoName,
        /// The issue.
        issue: IssueKey,
    },
    /// For what an issue waits that a person has to do.
    Parked {
        /// The repository.
        repo: RepoName,
        /// The issue.
        issue: IssueKey,
    },
    /// What the daemon keeps over a restart.
    Daemon,
    /// What the daemon last said of itself.
    Status,
    /// The public keys of other hosts whose seals count.
    SealKeys,
    /// Limits of GitHub that were met with a credential, by its hash or installation.
    Quota(String),
}

/// Which value a cell has: two that are equal stand for the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision(u64);

impl Revision {
    /// Of a cell without a value.
    pub const ABSENT: Self = Self(0);

    /// Of a store that numbers values from 1.
    #[cfg(feature = "nats")]
    pub(super) fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// The number again.
    #[cfg(feature = "nats")]
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Of a store that compares values.
    pub(super) fn of(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self::ABSENT };
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(hasher.finish().max(1))
    }
}

/// One change of a commit.
#[derive(Debug, Clone)]
pub struct CellChange {
    /// What is changed.
    pub cell: Cell,
    /// The value that it must still have.
    pub after: Revision,
    /// The value that it gets; `None` = none any more.
    pub value: Option<String>,
}

/// How servers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Servers {
    /// What their clock says.
    pub time: Option<DateTime<Utc>>,
    /// How long that was under way at most.
    pub under_way: Duration,
    /// What has no room for a run that begins.
    pub full: Option<String>,
    /// How long writes take, 99 of 100 of them, where that is long.
    pub slow: Option<Duration>,
    /// The form of what nodes share that is in force, where this version does not know it.
    pub later_form: Option<u32>,
    /// How long ago this node saw that nothing is there any more of what was.
    pub begun_anew: Option<Duration>,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum CommitOutcome {
    /// All of it is there.
    Done,
    /// A cell has another value than was expected: nothing was changed.
    Overtaken,
}

/// How many cells one commit changes at most.
pub const MOST_CHANGES: usize = 16;

/// Documents with compare-and-set.
pub trait Cells {
    /// What a cell says now.
    fn get(&self, cell: &Cell) -> Result<(Revision, Option<String>), StoreError>;

    /// Changes up to [`MOST_CHANGES`] cells, all or none, if each still has the value that its change comes after. After an
    /// error, reading tells whether it was done.
    fn commit(&self, changes: &[CellChange]) -> Result<CommitOutcome, StoreError>;

    /// As [`Cells::commit`] for one change, which a loss of the machine may take back until the cell is committed again or
    /// [`Cells::sync_cell`] was called. For what may be lost because the value before errs on the safe side.
    fn commit_for_now(&self, change: &CellChange) -> Result<CommitOutcome, StoreError> {
        self.commit(std::slice::from_ref(change))
    }

    /// Waits until what a cell says survives the death of the machine.
    fn sync_cell(&self, _cell: &Cell) -> Result<(), StoreError> {
        Ok(())
    }

    /// What a cell says now, and then each time that it has changed; of several changes in a moment, the last is given.
    fn watch(&self, cell: &Cell) -> BoxStream<'static, Option<String>>;

    /// The cells that say something, in no order. Of what each node has for itself, this node's.
    fn cells(&self) -> Result<Vec<Cell>, StoreError>;

    /// The issues of which it is, or was, kept for what they wait, in no order; nothing of it is read. Blocks.
    fn parked(&self) -> Result<Vec<(RepoName, IssueKey)>, StoreError>;

    /// Where a cell is, for messages.
    fn place(&self, cell: &Cell) -> PathBuf;
}

impl dyn Store {
    /// Changes a cell until nobody came in between: `change` is given what it says, and gives what it is to say.
    pub fn update<E: From<StoreError>>(
        &self,
        cell: &Cell,
        change: impl FnMut(Option<String>) -> Result<Option<String>, E>,
    ) -> Result<(), E> {
        self.update_by(cell, change, |change| self.commit(std::slice::from_ref(change)))
    }

    /// The same with [`Cells::commit_for_now`].
    pub fn update_for_now<E: From<StoreError>>(
        &self,
        cell: &Cell,
        change: impl FnMut(Option<String>) -> Result<Option<String>, E>,
    ) -> Result<(), E> {
        self.update_by(cell, change, |change| self.commit_for_now(change))
    }

    fn update_by<E: From<StoreError>>(
        &self,
        cell: &Cell,
        mut change: impl FnMut(Option<String>) -> Result<Option<String>, E>,
        commit: impl Fn(&CellChange) -> Result<CommitOutcome, StoreError>,
    ) -> Result<(), E> {
        loop {
            let (after, value) = self.get(cell)?;
            let value = change(value)?;
            match commit(&CellChange { cell: cell.clone(), after, value })? {
                CommitOutcome::Done => return Ok(()),
                CommitOutcome::Overtaken => {}
            }
        }
    }

    /// Makes a cell say this, whatever it said.
    pub fn put(&self, cell: &Cell, value: Option<&str>) -> Result<(), StoreError> {
        self.update(cell, |_| Ok(value.map(str::to_owned)))
    }
}

/// What one process at a time holds, and what is known of it from holder to holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseKey {
    /// The work on an issue.
    Issue {
        /// The repository.
        repo: RepoName,
        /// Its file in the checkout, named as the issue's worktree is.
        file: PathBuf,
    },
    /// The state directory, by a daemon.
    Daemon,
    /// In a cluster: a repository, by the daemon that polls it.
    Poller(RepoName),
}

/// Why a lease was not given.
#[derive(Debug, thiserror::Error)]
pub enum LeaseNotTaken {
    /// Someone has it.
    #[error("held by {}", .0.as_ref().map_or_else(|| "a process that has not said who it is".into(), |holder| holder.to_string()))]
    Busy(Option<Box<Holder>>),
    /// As many runs as may are at work in the cluster.
    #[error("as many runs as may are at work: {cap} (`{setting}`)")]
    Full {
        /// How many may be.
        cap: usize,
        /// The key of the configuration that says so.
        setting: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who holds what, and who lives.
pub trait Holders {
    /// Takes a lease for this process, or says who has it; a dead holder's is taken over. `lasts`: how long it counts for
    /// those who cannot see whether this process lives.
    fn take(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken>;

    /// The same for a run, which counts against the caps of a cluster.
    fn take_for_run(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        self.take(lease, instance, lasts)
    }

    /// What a lease says: its holder, if one lives as far as can be told from here, and what is recorded. `None` = nothing.
    fn look(&self, lease: &LeaseKey) -> Option<LeaseRecord>;

    /// The leases that were ever taken on a repository's issues; `folder` is where its checkout has them.
    fn leases(&self, repo: &RepoName, folder: &Path) -> Vec<LeaseKey>;

    /// Whether a holder lives, as far as can be told from here.
    fn lives(&self, holder: &Holder) -> bool;
}

/// A held lease. Dropping it gives it back.
pub trait HeldLease: Debug + Send + Sync {
    /// This holder.
    fn holder(&self) -> Option<&Holder>;

    /// What holders recorded.
    fn record(&self) -> Option<&Value>;

    /// Records something that outlives this holder.
    fn set_record(&mut self, record: Value) -> Result<(), StoreError>;

    /// Makes it count for so long from now.
    fn renew(&mut self, lasts: Duration) -> Result<(), StoreError>;

    /// Gives it back; what was recorded stays.
    fn release(self: Box<Self>) -> Result<(), StoreError>;

    /// Gives it to another session, which has it from then on; where sessions have no leases it is given back.
    fn hand_to(self: Box<Self>, _to: &SessionId) -> Result<(), StoreError> {
        self.release()
    }

    /// Which taking of the lease this is, where nodes share it.
    fn term(&self) -> Option<HeldTerm> {
        None
    }

    /// Who had it and has died, where nodes share it.
    fn taken_from(&self) -> Option<&Holder> {
        None
    }

    /// Ends once this holder does not have it any more, without having given it back; never where nobody can take it away.
    fn lost(&self) -> BoxFuture<'static, ()> {
        future::pending().boxed()
    }
}
