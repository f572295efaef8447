//! The last snapshot of a worktree, so that what is known is not looked for again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::differences::ReadIndex;
use super::not_taken::NotInSnapshot;
use crate::domain::name::CommitId;
use crate::sys::files::Stamp;

/// agentd's own index of a worktree. The index of the user and the agent is neither read nor changed.
pub(super) const INDEX: &str = "agentd-index";

/// What a snapshot found.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// The tree of it.
    pub tree: String,
    /// Files that are in no tree.
    pub not_taken: Vec<(String, NotInSnapshot)>,
}

/// What agentd's index of a worktree describes: files are compared with it.
#[derive(Debug, Clone)]
pub(super) struct Base {
    /// The tree of the index.
    pub tree: String,
    /// Files of the commits beside it that the index does not have. If one comes back, it is tracked.
    pub absent: Vec<String>,
}

/// The last snapshot of a worktree.
#[derive(Debug, Default)]
pub(super) struct LastSnapshot(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// A hash of the index, and what it describes. An index that says the same has the same tree.
    written: Option<([u8; 32], Base)>,
    /// The same for the index that stands there, beside which commits it was written, and which file it is.
    base: Option<(Vec<CommitId>, Stamp, Base)>,
    /// That index, as it was read.
    read: Option<(Stamp, Arc<ReadIndex>)>,
    /// Only agentd changes files now, and says so.
    at_rest: bool,
    /// What was found since, beside which commits.
    found: Option<(Vec<CommitId>, Snapshot)>,
}

impl LastSnapshot {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an index with this hash describes.
    pub(super) fn described(&self, said: &[u8; 32]) -> Option<Base> {
        self.last().written.as_ref().filter(|(known, _)| known == said).map(|(_, base)| base.clone())
    }

    /// Remembers what an index with this hash describes.
    pub(super) fn keep(&self, said: [u8; 32], base: &Base) {
        self.last().written = Some((said, base.clone()));
    }

    /// What the index describes that stands there, if it is the one that was written beside these commits; with it the index, if it
    /// was read since.
    pub(super) fn base(
        &self,
        beside: &[CommitId],
        stamp: Option<Stamp>,
    ) -> Option<(Base, Option<Arc<ReadIndex>>)> {
        let last = self.last();
        let known = last.base.as_ref().filter(|(known, at, _)| known == beside && Some(*at) == stamp);
        let read = last.read.as_ref().filter(|(at, _)| Some(*at) == stamp);
        known.map(|(_, _, base)| (base.clone(), read.map(|(_, read)| Arc::clone(read))))
    }

    /// Remembers the index with this stamp as it was read, so that the next look need not read it.
    pub(super) fn keep_read(&self, stamp: Option<Stamp>, read: Arc<ReadIndex>) {
        self.last().read = stamp.map(|stamp| (stamp, read));
    }

    /// Remembers what the index describes that stands there now. `None`: something that only git can compare.
    pub(super) fn keep_base(&self, beside: Vec<CommitId>, stamp: Option<Stamp>, base: Option<Base>) {
        let mut last = self.last();
        (last.base, last.read) = (stamp.zip(base).map(|(stamp, base)| (beside, stamp, base)), None);
    }

    /// From now on only agentd changes files, and says so.
    pub(super) fn rest(&self) {
        let mut last = self.last();
        (last.at_rest, last.found, last.read) = (true, None, None);
    }

    /// Whether only agentd changes files now.
    pub(super) fn is_at_rest(&self) -> bool {
        self.last().at_rest
    }

    /// Files may have changed.
    pub(super) fn forget(&self) {
        self.last().found = None;
    }

    /// What commits leave out has changed: the same files are another tree.
    pub(super) fn forget_trees(&self) {
        let mut last = self.last();
        (last.written, last.base, last.found) = (None, None, None);
    }

    /// What is there beside these commits, where nothing has changed since it was found.
    pub(super) fn found(&self, beside: &[CommitId]) -> Option<Snapshot> {
        let last = self.last();
        last.found.as_ref().filter(|(known, _)| known == beside).map(|(_, snapshot)| snapshot.clone())
    }

    /// What was found is beside this commit now.
    pub(super) fn stands_on(&self, commit: CommitId) {
        if let Some((beside, _)) = &mut self.last().found {
            *beside = vec![commit];
        }
    }

    /// Remembers what was found.
    pub(super) fn keep_found(&self, beside: Vec<CommitId>, snapshot: Snapshot) {
        let mut last = self.last();
        last.found = last.at_rest.then_some((beside, snapshot));
    }
}
