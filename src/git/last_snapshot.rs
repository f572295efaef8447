//! The last snapshot of a worktree, so that an index that says the same is not written as a tree again.

use std::sync::{Mutex, PoisonError};

/// The last snapshot of a worktree: a hash of its index, and the tree that was written from it.
#[derive(Debug, Default)]
pub(super) struct LastSnapshot(Mutex<Option<([u8; 32], String)>>);

impl LastSnapshot {
    pub(super) fn tree_of(&self, said: &[u8; 32]) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(known, _)| known == said).map(|(_, tree)| tree.clone())
    }

    pub(super) fn keep(&self, said: [u8; 32], tree: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((said, tree.to_owned()));
    }
}
