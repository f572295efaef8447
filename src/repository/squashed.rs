//! Work of a branch that its origin has in other commits: that of a merged pull request that was squashed or rebased.

use super::context::RepositoryContext;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::refusal::Refusal;

impl RepositoryContext {
    /// The head of a merged pull request of the branch that began as `head` did, where the origin, which is at `tip`, has not these commits.
    /// Merged as it is, the origin would conflict with what it has of the branch.
    pub async fn squashed(
        &self,
        (branch, head): (&BranchName, &CommitId),
        (onto, tip): (&BranchName, &CommitId),
        bring: bool,
    ) -> Result<Option<CommitId>, Refusal> {
        let checkout = &self.checkout;
        // A branch that only the remote has is not known here yet.
        if !checkout.has_commit(head).await? || !checkout.has_commit(tip).await? {
            return Ok(None);
        }
        let Some(begin) = checkout.fork(head, tip).await?.filter(|begin| begin != tip) else {
            return Ok(None);
        };
        for merged in self.merged_heads(branch, Some(onto), bring).await? {
            if checkout.has_commit(&merged).await?
                && checkout.is_ancestor(&begin, &merged).await?
                && !checkout.is_ancestor(&merged, tip).await?
                && checkout.fork(head, &merged).await?.is_some_and(|shared| shared != begin)
            {
                return Ok(Some(merged));
            }
        }
        Ok(None)
    }
}
