//! Work whose pull request was merged while more of it was made: what came after that goes onto the origin as it is now, so that no pull
//! request brings again, in conflict, what a squash has in the origin already.

use super::commit::others;
use super::instance::briefing;
use super::run::Run;
use super::stage::StageError;
use crate::config::config_file::Publish;
use crate::domain::name::CommitId;
use crate::domain::origin::Origin;
use crate::domain::others_merged::OthersMerged;
use crate::domain::stop::{Stop, StopReason};
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::github::Pull;

/// Code of the warning that says so; people are told of it on the issue.
const MERGED_MEANWHILE: &str = "merged_meanwhile";

/// The commit to merge in where the branch is to have `origin`'s commit: that, or one that says as well what was squashed into it.
pub async fn to_merge_in(run: &Run<'_>, worktree: &Worktree, origin: &Origin) -> Result<CommitId, Stop> {
    let tip = &origin.commit;
    let Some(head) = worktree.head().await.map_err(broken)? else { return Ok(tip.clone()) };
    if run.context.replay.is_some() {
        return Ok(tip.clone());
    }
    let found = run.context.squashed((worktree.branch(), &head), (&origin.branch, tip), true).await;
    match found.map_err(|refusal| refusal.stop)? {
        None => Ok(tip.clone()),
        Some(merged) => joined(run, worktree, (&merged, tip)).await,
    }
}

async fn joined(
    run: &Run<'_>,
    worktree: &Worktree,
    (merged, tip): (&CommitId, &CommitId),
) -> Result<CommitId, Stop> {
    let author = run.context.identity().await.map_err(broken)?;
    let origin = &run.lease.mapping.origin.branch;
    let subject = format!("Merge {origin}, which has {} in other commits", merged.short());
    worktree.squashed_into((merged, tip), &subject, &author).await.map_err(broken)
}

fn broken(error: GitError) -> Stop {
    others::broken(error)
}

/// The pull request with which the run began, where it is not open any more. Where it cannot be asked for, what comes next cannot either,
/// and says so.
pub async fn pull_over(run: &Run<'_>) -> Option<Pull> {
    let github = run.context.github.as_ref().filter(|_| run.plan.publish != Publish::None)?;
    let number = briefing::recorded(run).await?.pull_request?;
    github.pull(&run.context.repo, number).await.ok().filter(|pull| !pull.open)
}

/// Brings the work of a run onto the origin, where the pull request that it began with was merged meanwhile. True = the branch has another
/// commit now. What conflicts is left as it was: then nothing is published, and the next run works the conflict out.
pub async fn bring_onto_origin(run: &Run<'_>, worktree: &Worktree, stop: &Stop) -> Result<bool, StageError> {
    let is_published = matches!(
        stop.reason(),
        StopReason::ObjectiveAchieved | StopReason::BudgetExceeded | StopReason::NoEvidence
    );
    if run.context.replay.is_some() || run.is_follow_up() || !is_published {
        return Ok(false);
    }
    let origin = &run.lease.mapping.origin;
    let Some(pull) = pull_over(run).await.filter(|pull| pull.merged && pull.base == origin.branch.as_str())
    else {
        return Ok(false);
    };
    let tip = run.context.origin_tip(&origin.branch, true).await.map_err(|refusal| refusal.stop)?;
    let (Some(tip), Some(head)) = (tip, worktree.head().await.map_err(broken)?) else { return Ok(false) };
    let found = run.context.squashed((worktree.branch(), &head), (&origin.branch, &tip), true).await;
    let Some(merged) = found.map_err(|refusal| refusal.stop)? else {
        // Its own commits are in the origin: what came after them follows on these.
        run.goes_onto(None);
        return Ok(false);
    };
    let commit = joined(run, worktree, (&merged, &tip)).await?;
    let files = others::merge(run, worktree, &commit).await?;
    if !files.is_empty() {
        worktree.leave_merge().await.map_err(broken)?;
        let text = format!(
            "{} as it is now conflicts with what came after the merge of {}, in {}",
            origin.branch,
            pull.url,
            files.join(", ")
        );
        run.journal.warn("conflicts", text);
        return Ok(false);
    }
    let told = format!(
        "The pull request {} was merged while the run worked; what came after that is brought onto {} as it is now ({})",
        pull.url,
        origin.branch,
        tip.short()
    );
    run.journal.warn(MERGED_MEANWHILE, told.clone());
    let visit = run.journal.facts().visits.len() as u32;
    let merged = OthersMerged { visit, commit, conflicts: Vec::new(), told, origin: Some(tip.clone()) };
    others::record(run, merged)?;
    run.goes_onto(Some(tip.clone()));
    others::commit(run, worktree, &format!("Merge {}", origin.branch)).await?;
    // The next run compares with it as well.
    if let Err(error) = run.lease.note(move |mapping| mapping.origin.commit = tip).await {
        tracing::warn!(%error, "the commit that the branch compares with could not be written into its lease");
    }
    Ok(true)
}
