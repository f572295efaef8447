//! What a worktree is to be, before anything is made.

use super::remote::Remote;
use super::requirements::Population;
use super::worktree_state::resolved;
use crate::domain::name::{BranchName, CommitId};
use crate::sys::paths::AbsPath;

/// What a worktree is to be.
#[derive(Debug, Clone)]
pub struct WorktreePlan {
    /// Directory that holds the worktrees (`worktree.root`, absolute).
    pub root: AbsPath,
    /// Folder in it, `issue-N`.
    pub name: String,
    /// The branch.
    pub branch: BranchName,
    /// Commit that the branch starts from, where it has to be made.
    pub base: CommitId,
    /// Where the branch may already be.
    pub remote: Option<Remote>,
    /// Submodules and LFS.
    pub population: Population,
    /// In a cluster: what another node made of the branch, where that counts.
    pub elsewhere: Option<Elsewhere>,
}

impl WorktreePlan {
    /// Where it is to stand.
    pub(super) fn path(&self) -> AbsPath {
        resolved(&self.root).join(&self.name)
    }
}

/// What another node made of a branch: what is only here gives way to it.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    /// A commit of it that is here by now, and not on the remote; the branch goes on from it.
    pub unpushed: Option<CommitId>,
    /// Full name of the ref that keeps what has to give way.
    pub rescue: String,
}
