//! Commits that an agent made itself and that may not leave, although the files as they stand now may: one commit of these takes their place.

use super::review;
use crate::domain::name::CommitId;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::lifecycle::run::Run;
use crate::record::file_mentions::FileMentions;

/// Takes the branch back to where the run found it, where all that stands in the worktree may leave as one commit on that. The commits stay
/// on a ref that is never pushed. False = nothing was done.
pub async fn fold(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
    why: &str,
) -> Result<bool, GitError> {
    let Some(base) = run.journal.facts().first_head.clone() else { return Ok(false) };
    let pushed = run.context.last_seen(worktree.branch()).await?;
    // With merges, others' commits would be among them.
    if !worktree.is_line_from(&base, pushed.as_ref()).await?
        || !review::may_leave(run, (worktree, mentions), &base).await?
    {
        return Ok(false);
    }
    let kept = format!("refs/agentd/refused/{}/commits", run.lease.run_id);
    worktree.fold(&base, &kept).await?;
    run.journal.warn(
        "commits_left",
        format!(
            "commits that the agent made were not taken: {why}; what stands in the worktree takes their place. They are kept here on \
             {kept}"
        ),
    );
    Ok(true)
}

/// The same with what the remote refused, which has the branch at `there`: all that it does not have becomes edits again, so that what was
/// refused is in no history that is pushed later. Gives the ref that keeps the commits. `None` = others' commits are among them, and
/// nothing was done.
pub async fn refused(
    run: &Run<'_>,
    worktree: &Worktree,
    there: Option<&CommitId>,
) -> Result<Option<String>, GitError> {
    let checkout = &run.context.checkout;
    let origin = run.base();
    let onto = there.unwrap_or(origin);
    let Some(head) = worktree.head().await?.filter(|head| head != onto) else { return Ok(None) };
    // Newer commits of the origin that were merged in are not the work's.
    if !checkout.is_ancestor(onto, &head).await? || !checkout.is_ancestor(origin, onto).await? {
        return Ok(None);
    }
    let kept = format!("refs/agentd/refused/{}/commits", run.lease.run_id);
    worktree.fold(onto, &kept).await?;
    Ok(Some(kept))
}
