//! The last snapshot of a worktree, so that what is known is not looked for again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::snapshot::NotTaken;
use crate::domain::name::CommitId;

/// What a snapshot found.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// The tree of it.
    pub tree: String,
    /// Files that are in no tree.
    pub not_taken: Vec<(String, NotTaken)>,
}

/// The last snapshot of a worktree.
#[derive(Debug, Default)]
pub(super) struct LastSnapshot(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// A hash of the index, and the tree that was written from it. An index that says the same has the same tree.
    written: Option<([u8; 32], String)>,
    /// Only agentd changes files now, and says so.
    at_rest: bool,
    /// What was found since, beside which commits.
    found: Option<(Vec<CommitId>, Snapshot)>,
}

impl LastSnapshot {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree of an index with this hash.
    pub(super) fn tree_of(&self, said: &[u8; 32]) -> Option<String> {
        self.last().written.as_ref().filter(|(known, _)| known == said).map(|(_, tree)| tree.clone())
    }

    /// Remembers the tree of an index with this hash.
    pub(super) fn keep(&self, said: [u8; 32], tree: &str) {
        self.last().written = Some((said, tree.to_owned()));
    }

    /// From now on only agentd changes files, and says so.
    pub(super) fn rest(&self) {
        let mut last = self.last();
        (last.at_rest, last.found) = (true, None);
    }

    /// Files may have changed.
    pub(super) fn forget(&self) {
        self.last().found = None;
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
