//! Commits of others on the branch: merged into the run's work before it is verified and pushed. Nothing of theirs
//! is ever overwritten; where that cannot be, the work stays here on a ref of its own.

use super::message;
use crate::config::config_file::Publish;
use crate::domain::name::CommitId;
use crate::domain::refusal::Refusal;
use crate::domain::stop::{Stop, StopDetail};
use crate::git::commit::CommitMessage;
use crate::git::worktree::Worktree;
use crate::lifecycle::run::Run;

/// Code of the warning that says what others pushed.
pub const OTHERS_COMMITS: &str = "others_commits";
/// Files of others' commits that are named.
const NAMED: usize = 20;

/// Merges in what others pushed to the branch since. True = the branch has another commit now. `Err` = it cannot be done,
/// and nothing is pushed.
pub async fn merge_in(run: &Run<'_>, worktree: &Worktree) -> Result<bool, Stop> {
    if run.plan.publish == Publish::None || run.context.replay.is_some() {
        return Ok(false);
    }
    let failed = |refusal: Refusal| refusal.stop;
    let broken = |error: crate::git::error::GitError| {
        Stop::new(StopDetail::GitError, format!("What others pushed could not be merged in: {error}."))
    };
    let branch = &run.lease.mapping.branch;
    let Some(remote) = run.context.authorised_remote().await.map_err(failed)? else { return Ok(false) };
    let Some(tip) = run.context.remote_tip(&remote, branch, true).await.map_err(failed)? else {
        return Ok(false);
    };
    let Some(head) = worktree.head().await.map_err(broken)? else { return Ok(false) };
    let checkout = &run.context.checkout;
    if checkout.is_ancestor(&tip, &head).await.map_err(broken)? {
        return Ok(false);
    }
    if let Some(pushed) = checkout.last_pushed(&remote, branch).await.map_err(broken)?
        && !checkout.is_ancestor(&pushed, &tip).await.map_err(broken)?
    {
        let why = format!(
            "The branch {branch} on the remote is at {}, without what agentd pushed last ({})",
            tip.short(),
            pushed.short()
        );
        return Err(displaced(run, &head, &why).await);
    }
    told(run, worktree, (&head, &tip)).await;
    let author = run.context.identity().await.map_err(broken)?;
    let files = worktree.merge_base_in(&tip, &author).await.map_err(broken)?;
    if !files.is_empty() {
        worktree.leave_merge().await.map_err(broken)?;
        let why = format!(
            "Others pushed {} to the branch {branch}, which conflicts in {}",
            tip.short(),
            files.join(", ")
        );
        return Err(displaced(run, &head, &why).await);
    }
    let merge = CommitMessage { subject: format!("Merge {branch} of the remote"), ..message(run, "") };
    worktree.commit_all(&merge, &author).await.map_err(broken)?;
    Ok(true)
}

/// Keeps the work on a ref that is never pushed, and gives the end that says so.
pub async fn displaced(run: &Run<'_>, head: &CommitId, why: &str) -> Stop {
    let reference = format!("refs/agentd/displaced/{}", run.lease.run_id);
    match run.context.checkout.keep_at(&reference, head).await {
        Ok(()) => Stop::new(
            StopDetail::BranchMoved,
            format!("{why}. Nothing was pushed; the work is kept on {reference} ({}).", head.short()),
        ),
        Err(error) => {
            Stop::new(StopDetail::GitError, format!("{why}. The work could not be kept on a ref: {error}."))
        }
    }
}

/// Says what others pushed: who, and which files.
pub async fn told(run: &Run<'_>, worktree: &Worktree, (from, to): (&CommitId, &CommitId)) {
    let Ok(found) = worktree.between(from, to).await else { return };
    let mut authors: Vec<&str> = found.commits.iter().map(|commit| commit.author.as_str()).collect();
    authors.sort_unstable();
    authors.dedup();
    let mut files: Vec<String> = found
        .files
        .iter()
        .take(NAMED)
        .map(|file| format!("{} +{} \u{2212}{}", file.path, file.added, file.removed))
        .collect();
    if found.files.len() > NAMED {
        files.push(format!("and {} more", found.files.len() - NAMED));
    }
    let text = format!("{} pushed to the branch: {}", authors.join(", "), files.join(", "));
    run.journal.warn(OTHERS_COMMITS, run.without_secrets(&text));
}
