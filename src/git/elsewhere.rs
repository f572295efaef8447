//! In a cluster: the branch of an issue that another node worked on last. What is only here gives way to what that one made of it.

use super::checkout::Checkout;
use super::error::GitError;
use super::worktree_plan::{Elsewhere, WorktreePlan};
use crate::domain::name::CommitId;

/// The commit that a branch goes on from.
pub(super) struct Tip {
    pub commit: CommitId,
    /// Whether the remote does not have it.
    is_unpushed: bool,
}

impl Tip {
    pub(super) fn brought_forward(&self, plan: &WorktreePlan) -> String {
        let whose = if self.is_unpushed { "what another node had left unpushed," } else { "the remote's" };
        format!("{} was brought forward to {whose} {}", plan.branch, self.commit.short())
    }

    /// Words behind the branch's name.
    pub(super) fn is_already_there(&self) -> String {
        match self.is_unpushed {
            true => format!("goes on from what another node had left unpushed, {}", self.commit.short()),
            false => "was on the remote already".to_owned(),
        }
    }
}

impl Checkout {
    /// Where the branch goes on from, if there is more than what is here: what the remote has, or what another node left unpushed on
    /// top of it. Where others pushed something else meanwhile that cannot be merged in, theirs counts, and the other is kept.
    pub(super) async fn tip(
        &self,
        plan: &WorktreePlan,
        remote_tip: Option<CommitId>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Tip>, GitError> {
        let on_remote = |commit: CommitId| Tip { commit, is_unpushed: false };
        let unpushed =
            plan.elsewhere.as_ref().and_then(|elsewhere| Some((elsewhere.unpushed.clone()?, elsewhere)));
        let Some((commit, elsewhere)) = unpushed else { return Ok(remote_tip.map(on_remote)) };
        if let Some(theirs) = remote_tip {
            let has_theirs = self.is_ancestor(&theirs, &commit).await?;
            if !has_theirs && self.is_ancestor(&commit, &theirs).await? {
                return Ok(Some(on_remote(theirs)));
            }
            if !has_theirs && !self.was_pushed_below(plan, &theirs).await? {
                warnings.push(self.give_way(plan, elsewhere, &commit, &theirs).await?);
                return Ok(Some(on_remote(theirs)));
            }
        }
        Ok(Some(Tip { commit, is_unpushed: true }))
    }

    /// Keeps a commit that is in no history of the one that counts. Gives the words for it.
    pub(super) async fn give_way(
        &self,
        plan: &WorktreePlan,
        elsewhere: &Elsewhere,
        commit: &CommitId,
        to: &CommitId,
    ) -> Result<String, GitError> {
        let kept = self.reference(&elsewhere.rescue).await?;
        let has_it = match &kept {
            Some(kept) => self.is_ancestor(commit, kept).await?,
            None => false,
        };
        // Two things may have to give way: each has a ref of its own.
        let reference = match kept.is_some() && !has_it {
            true => format!("{}-{}", elsewhere.rescue, commit.short()),
            false => elsewhere.rescue.clone(),
        };
        if !has_it {
            self.keep_at(&reference, commit).await?;
        }
        Ok(format!(
            "{} had commits that {} does not have; they are kept on {reference} ({})",
            plan.branch,
            to.short(),
            commit.short()
        ))
    }

    /// Whether what agentd pushed last is below the remote's commit: others pushed on top of it, and their commits can be
    /// merged in.
    pub(super) async fn was_pushed_below(
        &self,
        plan: &WorktreePlan,
        tip: &CommitId,
    ) -> Result<bool, GitError> {
        let Some(remote) = &plan.remote else { return Ok(false) };
        match self.last_pushed(remote, &plan.branch).await? {
            Some(pushed) => self.is_ancestor(&pushed, tip).await,
            None => Ok(false),
        }
    }
}
