//! Room 3, worktree: the issue's branch and its files, apart from everybody else's. What fits is used again; what does
//! not fit is never deleted.

use super::plan::Plan;
use super::recovery::Predecessor;
use super::run::Run;
use crate::config::config_file::{Auto, Publish};
use crate::domain::event::Event;
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::name::CommitId;
use crate::domain::origin::Origin;
use crate::domain::refusal::Refusal;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::merge_base_in::Forward;
use crate::git::prepare::{WorktreeError, WorktreePlan};
use crate::git::requirements::Population;
use crate::git::worktree::Worktree;
use crate::repository::context::RepositoryContext;
use crate::repository::worktree_setup;

/// Refuses, before anything is made, a branch name that makes the issue's branch impossible, and a place or branch that
/// is taken (D34). A change after this check is found again when the worktree is made.
pub async fn check(plan: &Plan, origin: &Origin, context: &RepositoryContext) -> Result<(), Refusal> {
    let wanted = wanted(plan, origin, context).await?;
    let conflict = match (context.checkout.ref_conflict(&wanted.branch).await?, &wanted.remote) {
        (None, Some(remote)) if plan.publish != Publish::None => {
            context.checkout.remote_ref_conflict(remote, &wanted.branch).await?
        }
        (conflict, _) => conflict,
    };
    if let Some(conflict) = conflict {
        return Err(refusal(&conflict.into()));
    }
    // A branch that is not here cannot have diverged.
    let remote_tip = match (&wanted.remote, context.checkout.local_branch(&wanted.branch).await?) {
        (Some(remote), Some(_)) => context.remote_tip(remote, &wanted.branch, !plan.request.dry_run).await?,
        _ => None,
    };
    let checked = context.checkout.check_worktree(&wanted, remote_tip.as_ref()).await;
    checked.map_err(|error| refusal(&error))
}

/// The worktree that an issue is to have.
async fn wanted(plan: &Plan, origin: &Origin, context: &RepositoryContext) -> Result<WorktreePlan, Refusal> {
    let settings = &context.config.worktree;
    Ok(WorktreePlan {
        root: context.worktree_root(),
        name: worktree_of(&plan.issue.key),
        branch: branch_of(&plan.issue.key),
        base: origin.commit.clone(),
        remote: context.authorised_remote().await?,
        population: Population {
            submodules: settings.submodules == Auto::Auto,
            lfs: settings.lfs == Auto::Auto,
            sparse: settings.sparse.clone(),
        },
    })
}

fn refusal(error: &WorktreeError) -> Refusal {
    let stop = stop_of(error);
    Refusal::new(stop.detail, stop.message)
}

/// Makes the worktree or finds it. The worktree of a killed predecessor is restored to its last finished visit (D70).
/// `Err` inside: the run ends here.
pub async fn prepare(
    run: &Run<'_>,
    context: &RepositoryContext,
) -> Result<Result<Worktree, Stop>, JournalError> {
    let key = &run.plan.issue.key;
    let origin = &run.lease.mapping.origin;
    run.journal.record(Event::WorktreePlanned {
        path: run.plan.worktree_shown(context),
        branch: branch_of(key),
        base: origin.commit.clone(),
    })?;
    run.journal.flush().await?;
    let plan = match wanted(run.plan, origin, context).await {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal.stop)),
    };
    let prepared = match context.checkout.prepare_worktree(&plan).await {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(stop_of(&error))),
    };
    for warning in prepared.warnings {
        run.journal.warn("worktree", warning);
    }
    if run.lease.given_up.is_some() {
        // It is kept as it was left: nobody works in it.
        run.journal.record(Event::WorktreeReady { state: prepared.state, head: prepared.head })?;
        return Ok(Ok(prepared.worktree));
    }
    if let Some(predecessor) = &run.lease.predecessor
        && let Err(stop) = bring_back(run, &prepared.worktree, predecessor).await
    {
        return Ok(Err(stop));
    }
    let head = match merge_base_in(run, context, &prepared.worktree).await {
        Ok(head) => head.unwrap_or(prepared.head),
        Err(error) => return Ok(Err(not_taken_in(run, &prepared.worktree, &error))),
    };
    if let Err(stop) = set_up(run, context, &prepared.worktree).await {
        return Ok(Err(stop));
    }
    run.journal.record(Event::WorktreeReady { state: prepared.state, head })?;
    Ok(Ok(prepared.worktree))
}

/// Makes sure that the branch contains the commit that the run's changes are compared with. If the run is to catch up,
/// that commit is newer than the branch. Merging what conflicts is the work of the run. Gives the branch's commit.
async fn merge_base_in(
    run: &Run<'_>,
    context: &RepositoryContext,
    worktree: &Worktree,
) -> Result<Option<CommitId>, GitError> {
    let origin = &run.lease.mapping.origin;
    if worktree.forward(&origin.commit).await? == Forward::Apart {
        let files = worktree.merge_base_in(&origin.commit, &context.identity().await?).await?;
        if !files.is_empty() {
            run.journal.warn(
                "conflicts",
                format!("{} was merged into the branch; it conflicts in {}", origin.branch, files.join(", ")),
            );
        }
    }
    worktree.head().await
}

fn not_taken_in(run: &Run<'_>, worktree: &Worktree, error: &GitError) -> Stop {
    let origin = &run.lease.mapping.origin.branch;
    let message = format!("{origin} could not be merged into {}: {error}.", worktree.display());
    Stop::new(StopDetail::GitError, message)
}

async fn bring_back(run: &Run<'_>, worktree: &Worktree, predecessor: &Predecessor) -> Result<(), Stop> {
    let Some((visit, commit)) = &predecessor.facts.checkpoint else { return Ok(()) };
    if predecessor.facts.committed.is_some() {
        // Its flow was over and its work committed: there is nothing half done.
        return Ok(());
    }
    let rescue = format!("refs/agentd/rescue/{}", predecessor.run_id);
    match worktree.restore(commit, &rescue, false).await {
        Ok(restored) => {
            if let Some(rescued) = restored.rescued {
                run.journal.warn(
                    "edits_rescued",
                    format!(
                        "edits that the killed run made after visit {visit} are kept on {rescue} ({})",
                        rescued.short()
                    ),
                );
            }
            Ok(())
        }
        Err(error) => Err(Stop::new(
            StopDetail::GitError,
            format!("The worktree could not be brought back to the last finished visit: {error}."),
        )),
    }
}

fn stop_of(error: &WorktreeError) -> Stop {
    let detail = if error.is_conflict() { StopDetail::MappingConflict } else { StopDetail::GitError };
    Stop::new(detail, format!("The worktree cannot be made: {error}."))
}

/// Sets it up, once.
async fn set_up(run: &Run<'_>, context: &RepositoryContext, worktree: &Worktree) -> Result<(), Stop> {
    let left = || run.wall_time_left();
    let note = |note: String| run.journal.warn("worktree_copy", note);
    worktree_setup::set_up(context, worktree, &run.stop(), &left, &note).await.map_err(|stop| {
        let out_of_time = run.out_of_time().filter(|_| stop.detail == StopDetail::ConfigInvalid);
        out_of_time.unwrap_or(stop)
    })
}
