//! Git. The library git2 reads; the hardened git program does network, worktrees, filters and signing.

pub mod error;
pub mod hardening;
pub mod program;
pub mod output;
pub mod checkout;
pub mod remote;
pub mod push;
pub mod place;
pub mod needs;
pub mod submodules;
pub mod prepare;
mod compared;
pub mod uncarried;
pub mod worktree;
mod exclude;
pub mod snapshot;
pub mod scratch;
pub mod take_in;
pub mod commit;
pub mod brought;
pub mod caged;
pub mod prune;
pub mod tools;

pub use checkout::{Checkout, RefConflict};
pub use commit::CommitMessage;
pub use error::GitError;
pub use needs::Population;
pub use prepare::{PreparedWorktree, WorktreeError, WorktreePlan};
pub use program::{GitProgram, Identity};
pub use prune::{ListedWorktree, PruneOutcome, PrunePlan, Pruned};
pub use push::PushOutcome;
pub use remote::{Remote, RemoteAuth};
pub use snapshot::Restored;
pub use worktree::{Change, ChangeKind, LogEntry, PatchText, Worktree};
