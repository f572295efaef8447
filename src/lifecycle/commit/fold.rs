//! Commits that an agent made itself and that may not leave, although the files as they stand now may: one commit of these takes their place.

use super::review;
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
            "commits that the agent made were not taken: {why}; its files were. They are kept here on {kept}"
        ),
    );
    Ok(true)
}
