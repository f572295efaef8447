//! Several commits of a worktree's branch become edits again, so that one commit can take their place.

use super::checkout::oid;
use super::error::GitError;
use super::worktree::Worktree;
use crate::domain::name::CommitId;

impl Worktree {
    /// Whether the branch continues `base` by at least one commit, and by no merge; nor does one wait, nor is `pushed` among these commits.
    pub async fn is_line_from(&self, base: &CommitId, pushed: Option<&CommitId>) -> Result<bool, GitError> {
        let Some(head) = self.head().await?.filter(|head| head != base && !self.is_merging()) else {
            return Ok(false);
        };
        let (base, pushed) = (base.clone(), pushed.cloned());
        let look = move |repository: &git2::Repository| {
            let (base, mut at) = (oid(&base)?, repository.find_commit(oid(&head)?)?);
            let pushed = pushed.as_ref().map(oid).transpose()?;
            while at.id() != base {
                if at.parent_count() != 1 || Some(at.id()) == pushed {
                    return Ok(false);
                }
                at = at.parent(0)?;
            }
            Ok(true)
        };
        self.checkout().library(look).await
    }

    /// Sets the branch back to `base` and leaves the files as they are. The commits stay on the ref `kept`.
    pub async fn fold(&self, base: &CommitId, kept: &str) -> Result<(), GitError> {
        self.return_to_branch().await?;
        let head = self.head().await?;
        if let Some(head) = &head {
            self.checkout().set_ref(kept, head).await?;
        }
        self.checkout().update_ref(&self.branch().full(), head.as_ref(), base).await?;
        self.call(["reset", "--mixed", "--quiet", "--no-refresh"]).await?.done().await
    }
}
