//! Git. The library git2 reads; the hardened git program does network, worktrees, filters and signing.

pub mod error;
pub mod hardening;
pub mod program;
pub mod output;
pub mod blob;
pub mod checkout;
pub mod remote;
pub mod push;
pub mod worktree_state;
pub mod requirements;
pub mod submodules;
pub mod prepare;
mod tree_diff;
pub mod uncarried;
mod last_snapshot;
pub mod worktree;
mod exclude;
pub mod snapshot;
pub mod scratch;
pub mod merge_base_in;
pub mod commit;
pub mod outgoing;
pub mod sandbox_git;
pub mod prune;
pub mod tools;

pub use checkout::{Checkout, RefConflict};
pub use commit::CommitMessage;
pub use error::GitError;
pub use prepare::{PreparedWorktree, WorktreeError, WorktreePlan};
pub use program::{GitProgram, Identity};
pub use prune::{ListedWorktree, PruneOutcome, PrunePlan, Pruned};
pub use push::PushOutcome;
pub use remote::{Remote, RemoteAuth};
pub use requirements::Population;
pub use snapshot::Restored;
pub use worktree::{Change, ChangeKind, LogEntry, PatchText, Worktree};
