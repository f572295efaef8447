//! Room 3, worktree: the issue's branch and its files, apart from everybody else's. What fits is used again; what does
//! not fit is never deleted.

use super::furnish;
use super::plan::Plan;
use super::recovery::Predecessor;
use super::refusal::Refusal;
use super::run::Run;
use super::site::Site;
use crate::config::config_file::{Auto, Publish};
use crate::domain::event::Event;
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::name::CommitId;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal as _, JournalError};
use crate::git::error::GitError;
use crate::git::needs::Population;
use crate::git::prepare::{WorktreeError, WorktreePlan};
use crate::git::take_in::Forward;
use crate::git::worktree::Worktree;

/// Refuses, before anything is made, a branch name that makes the issue's impossible (D34).
pub async fn check_branch(plan: &Plan, site: &Site) -> Result<(), Refusal> {
    let branch = branch_of(&plan.issue.key);
    let conflict = match site.checkout.ref_conflict(&branch).await? {
        Some(conflict) => Some(conflict),
        None if plan.publish == Publish::None => None,
        None => match site.authorised_remote().await? {
            Some(remote) => site.checkout.remote_ref_conflict(&remote, &branch).await?,
            None => None,
        },
    };
    conflict.map_or(Ok(()), |conflict| {
        Err(Refusal::new(StopDetail::MappingConflict, format!("{conflict}."))
            .hint(format!("rename the branch \"{}\": git branch -m {0} {0}-old", conflict.existing)))
    })
}

/// Makes the worktree, or finds it; brings a killed predecessor's worktree back to its last finished visit (D70).
/// `Err` inside: the run ends here.
pub async fn prepare(run: &Run<'_>, site: &Site) -> Result<Result<Worktree, Stop>, JournalError> {
    let key = &run.plan.issue.key;
    let origin = &run.lease.mapping.origin;
    run.record(Event::WorktreePlanned {
        path: run.plan.worktree_shown(site),
        branch: branch_of(key),
        base: origin.commit.clone(),
    })?;
    run.journal().flush().await?;
    let settings = &site.config.worktree;
    let remote = match site.authorised_remote().await {
        Ok(remote) => remote,
        Err(refusal) => return Ok(Err(refusal.stop)),
    };
    let plan = WorktreePlan {
        root: site.worktree_root(),
        name: worktree_of(key),
        branch: branch_of(key),
        base: origin.commit.clone(),
        remote,
        population: Population {
            submodules: settings.submodules == Auto::Auto,
            lfs: settings.lfs == Auto::Auto,
            sparse: settings.sparse.clone(),
        },
    };
    let prepared = match site.checkout.prepare_worktree(&plan).await {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(stop_of(&error))),
    };
    for warning in prepared.warnings {
        run.warn("worktree", warning);
    }
    if let Some(predecessor) = &run.lease.predecessor
        && let Err(stop) = bring_back(run, &prepared.worktree, predecessor).await
    {
        return Ok(Err(stop));
    }
    let head = match take_in(run, site, &prepared.worktree).await {
        Ok(head) => head.unwrap_or(prepared.head),
        Err(error) => return Ok(Err(not_taken_in(run, &prepared.worktree, &error))),
    };
    if let Err(stop) = furnish::furnish(run, site, &prepared.worktree).await {
        return Ok(Err(stop));
    }
    run.record(Event::WorktreeReady { state: prepared.state, head })?;
    Ok(Ok(prepared.worktree))
}

/// Sees to it that the commit which the run's changes are told against is in the branch: it is newer than the branch where
/// the run is to catch up (interface §4). What cannot be merged is the run's work. Gives the branch's commit.
async fn take_in(run: &Run<'_>, site: &Site, worktree: &Worktree) -> Result<Option<CommitId>, GitError> {
    let origin = &run.lease.mapping.origin;
    if worktree.forward(&origin.commit).await? == Forward::Apart {
        let files = worktree.take_in(&origin.commit, &site.identity().await?).await?;
        if !files.is_empty() {
            run.warn(
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
                run.warn(
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
