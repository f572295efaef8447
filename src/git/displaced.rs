//! A branch that a person moved on the remote away from what agentd pushed: what is here gives way to it, where nothing of it is here alone.

use super::checkout::Checkout;
use super::error::GitError;
use super::worktree_plan::WorktreePlan;
use crate::domain::name::CommitId;

/// Refs that keep what a person's push displaced; they are never pushed.
const DISPLACED: &str = "refs/agentd/displaced/";

/// Where commits are besides on the branch.
pub(super) enum KeptAt {
    /// On a ref of a run whose work was displaced.
    Ref(String),
    /// On the remote once, from where the person took them.
    Pushed,
}

impl Checkout {
    /// Whether the branch may leave `local` for `tip`, the remote's commit, and where `local` is kept. `None` = it holds commits of its own.
    /// Only looks.
    pub(super) async fn displaced(
        &self,
        plan: &WorktreePlan,
        local: &CommitId,
        tip: &CommitId,
    ) -> Result<Option<KeptAt>, GitError> {
        let Some(remote) = &plan.remote else { return Ok(None) };
        let Some(pushed) = self.last_pushed(remote, &plan.branch).await? else { return Ok(None) };
        if self.is_ancestor(&pushed, tip).await? {
            return Ok(None);
        }
        if self.is_ancestor(local, &pushed).await? {
            return Ok(Some(KeptAt::Pushed));
        }
        let holding =
            ["for-each-ref", "--count=1", "--format=%(refname)", "--contains", local.as_str(), DISPLACED];
        let found = self.call(holding).await?.text().await?;
        Ok(Some(found).filter(|found| !found.is_empty()).map(KeptAt::Ref))
    }

    /// Makes sure that `local` stays when the branch leaves it. Gives the words for it.
    pub(super) async fn keep_displaced(
        &self,
        plan: &WorktreePlan,
        (local, kept): (&CommitId, KeptAt),
        tip: &CommitId,
    ) -> Result<String, GitError> {
        let reference = match kept {
            KeptAt::Ref(reference) => reference,
            KeptAt::Pushed => {
                let reference = format!("{DISPLACED}{local}");
                self.keep_at(&reference, local).await?;
                reference
            }
        };
        Ok(format!(
            "{} was moved on the remote to {}, without what agentd had made of it; that is kept on {reference} ({})",
            plan.branch,
            tip.short(),
            local.short()
        ))
    }
}
