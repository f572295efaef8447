//! Stage worktree: the issue's branch and its files, apart from everybody else's. What fits is used again; what does not
//! fit is never deleted.
//!
//! Takes a run that holds its lease. Leaves its worktree, set up. After a crash in it the next run finds the worktree as it
//! is, and sets it up again where that was not finished.

use super::commit::others;
use super::found_edits;
use super::lease::recovery::{self, Predecessor};
use super::merged;
use super::parked;
use super::plan::Plan;
use super::run::Run;
use super::shared_work;
use super::stage::{Stage, StageError, Worked};
use crate::config::config_file::Publish;
use crate::domain::event::{Event, WorktreeState};
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::name::CommitId;
use crate::domain::origin::Origin;
use crate::domain::refusal::Refusal;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::merge_base_in::Forward;
use crate::git::prepare::WorktreeError;
use crate::git::remote::RemotePlace;
use crate::git::sandbox_git::SandboxGit;
use crate::git::worktree::Worktree;
use crate::git::worktree_plan::{Elsewhere, WorktreePlan};
use crate::repository::context::RepositoryContext;
use crate::repository::worktree_setup;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Refuses, before anything is made, a branch name that makes the issue's branch impossible, and a place or branch that
/// is taken (D34). A change after this check is found again when the worktree is made.
pub async fn check(plan: &Plan, origin: &Origin, context: &RepositoryContext) -> Result<(), Refusal> {
    let mut wanted = wanted(plan, origin, context).await?;
    if recovery::was_elsewhere(context, plan.lease_record.as_ref()).await {
        // What is here gives way, and is kept, once the run has the issue.
        wanted.elsewhere = Some(Elsewhere { unpushed: None, rescue: String::new() });
    }
    if let Some(conflict) = context.checkout.ref_conflict(&wanted.branch).await? {
        return Err(refusal(&conflict.into()));
    }
    let remote_tip = remote_tip(plan, &wanted, context).await?;
    let checked = context.checkout.check_worktree(&wanted, remote_tip.as_ref()).await;
    checked.map_err(|error| refusal(&error))
}

/// The commit of the issue's branch on the remote, brought here unless the run only looks.
async fn remote_tip(
    plan: &Plan,
    wanted: &WorktreePlan,
    context: &RepositoryContext,
) -> Result<Option<CommitId>, Refusal> {
    let Some(remote) = &wanted.remote else { return Ok(None) };
    let checkout = &context.checkout;
    // A branch that is not here cannot have diverged.
    let is_here = checkout.local_branch(&wanted.branch).await?.is_some();
    if !is_here && plan.publish == Publish::None {
        return Ok(None);
    }
    match checkout.remote_place(remote, &wanted.branch).await? {
        RemotePlace::Impossible(conflict) if plan.publish != Publish::None => Err(refusal(&conflict.into())),
        RemotePlace::Taken(tip) if is_here && !plan.request.dry_run && !checkout.has_commit(&tip).await? => {
            context.remote_tip(remote, &wanted.branch, true).await
        }
        RemotePlace::Taken(tip) => Ok(Some(tip)),
        RemotePlace::Free | RemotePlace::Impossible(_) => Ok(None),
    }
}

/// The worktree that an issue is to have.
async fn wanted(plan: &Plan, origin: &Origin, context: &RepositoryContext) -> Result<WorktreePlan, Refusal> {
    Ok(WorktreePlan {
        root: context.worktree_root(),
        name: worktree_of(&plan.issue.key),
        branch: branch_of(&plan.issue.key),
        base: origin.commit.clone(),
        remote: context.authorised_remote().await?,
        population: context.population(),
        elsewhere: None,
    })
}

fn refusal(error: &WorktreeError) -> Refusal {
    let stop = stop_of(error);
    Refusal::new(stop.detail, stop.message)
}

/// A run with its worktree.
pub struct Prepared<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// The issue's worktree, on its branch.
    pub worktree: Worktree,
}

/// Makes the worktree or finds it. The worktree of a killed predecessor is restored to its last finished visit (D70).
pub async fn prepare<'a>(run: &'a Run<'a>) -> Result<Stage<'a, Prepared<'a>>, JournalError> {
    match make(run).await {
        Ok(worktree) => Ok(Stage::Next(Prepared { run, worktree })),
        Err(error) => {
            let stop = error.stop()?;
            // Git was cancelled with everything else: that is why.
            let stop = run.aborted().unwrap_or(stop);
            Ok(Stage::Over(Box::new(Worked { run, stop, workspace: None })))
        }
    }
}

async fn make(run: &Run<'_>) -> Result<Worktree, StageError> {
    let key = &run.plan.issue.key;
    let origin = &run.lease.mapping.origin;
    run.journal.record(Event::WorktreePlanned {
        path: run.plan.worktree_shown(run.context),
        branch: branch_of(key),
        base: origin.commit.clone(),
    })?;
    run.journal.flush().await?;
    let elsewhere = shared_work::elsewhere(run).await.map_err(not_set_aside)?;
    if elsewhere.is_some() {
        set_aside(run).await?;
    }
    let wanted = wanted(run.plan, origin, run.context).await.map_err(|refusal| refusal.stop)?;
    let plan = WorktreePlan { elsewhere, ..wanted };
    // What agentd pushed last; others may have pushed since.
    let before = match &plan.remote {
        Some(remote) => run.context.checkout.last_pushed(remote, &plan.branch).await.ok().flatten(),
        None => None,
    };
    let prepared = run.context.checkout.prepare_worktree(&plan).await.map_err(|error| stop_of(&error))?;
    for warning in prepared.warnings {
        run.journal.warn("worktree", warning);
    }
    let mut theirs = None;
    if let (Some(before), Some(remote)) = (before, &plan.remote)
        && let Ok(Some(tip)) = run.context.checkout.last_seen(remote, &plan.branch).await
        && tip != before
    {
        let found = others::Theirs { head: before, tip };
        others::tell(run, &prepared.worktree, &found).await;
        theirs = Some(found.tip);
    }
    if run.lease.given_up.is_some() {
        // It is kept as it was left: nobody works in it.
        run.journal.record(Event::WorktreeReady { state: prepared.state, head: prepared.head })?;
        return Ok(prepared.worktree);
    }
    if prepared.state == WorktreeState::Reused {
        found_edits::keep_apart(run, &prepared.worktree).await?;
    }
    // Before anything of an agent's comes back: its commands run outside of the sandbox.
    set_up(run, &prepared.worktree).await?;
    if let Some(predecessor) = &run.lease.predecessor {
        keep_left(run, &prepared.worktree, predecessor).await;
        bring_back(run, &prepared.worktree, predecessor).await?;
    }
    if let Some(tip) = theirs.filter(|_| run.context.replay.is_none()) {
        others::merge_at_start(run, &prepared.worktree, &tip).await?;
    }
    let head = merge_base_in(run, &prepared.worktree).await?.unwrap_or(prepared.head);
    run.journal.record(Event::WorktreeReady { state: prepared.state, head })?;
    Ok(prepared.worktree)
}

/// What this node had begun before another went on with the issue is kept on a ref, and gives way to the other's.
async fn set_aside(run: &Run<'_>) -> Result<(), Stop> {
    let failed = not_set_aside;
    let (checkout, root) = (&run.context.checkout, run.context.worktree_root());
    let found = checkout.find_worktree(&root, &worktree_of(&run.plan.issue.key)).map_err(failed)?;
    let Some(worktree) = found else { return Ok(()) };
    let reference = format!("refs/agentd/rescue/{}", run.lease.run_id);
    if let Some(kept) = worktree.give_way(&reference).await.map_err(failed)? {
        run.journal.warn(
            "edits_rescued",
            format!("what this node had begun before is kept on {reference} ({})", kept.short()),
        );
    }
    Ok(())
}

fn not_set_aside(error: GitError) -> Stop {
    let message = format!("What this node had begun on the issue could not be set aside: {error}.");
    Stop::new(StopDetail::GitError, message)
}

/// Makes sure that the branch contains the commit that the run's changes are compared with. If the run is to catch up,
/// that commit is newer than the branch. Merging what conflicts is the work of the run. Gives the branch's commit.
async fn merge_base_in(run: &Run<'_>, worktree: &Worktree) -> Result<Option<CommitId>, Stop> {
    let origin = &run.lease.mapping.origin;
    let failed = |error: GitError| not_merged_in(run, worktree, &error);
    if worktree.forward(&origin.commit).await.map_err(failed)? == Forward::Apart {
        let commit = merged::to_merge_in(run, worktree, origin).await?;
        let author = run.context.identity().await.map_err(failed)?;
        let files = worktree.merge_base_in(&commit, &author).await.map_err(failed)?;
        if !files.is_empty() {
            run.journal.warn(
                "conflicts",
                format!("{} was merged into the branch; it conflicts in {}", origin.branch, files.join(", ")),
            );
        }
    }
    worktree.head().await.map_err(failed)
}

fn not_merged_in(run: &Run<'_>, worktree: &Worktree, error: &GitError) -> Stop {
    let origin = &run.lease.mapping.origin.branch;
    let message = format!("{origin} could not be merged into {}: {error}.", worktree.display());
    Stop::new(StopDetail::GitError, message)
}

/// What the programs of a killed run had put aside in their own git directory is kept, and the directory goes.
async fn keep_left(run: &Run<'_>, worktree: &Worktree, predecessor: &Predecessor) {
    let dir = run.context.state.run(&run.context.repo, predecessor.run_id);
    let Ok(folder) = AbsPath::new(dir.sandbox()) else { return };
    let own = SandboxGit::of(&folder);
    if !own.dir().as_path().is_dir() {
        return;
    }
    let prefix = format!("refs/agentd/left/{}", predecessor.run_id);
    match worktree.keep_left(&own, &prefix, std::slice::from_ref(&run.lease.mapping.origin.commit)).await {
        Ok(kept) => {
            for left in kept {
                let text =
                    format!("the killed run had put work aside: {} is kept on {}", left.what, left.reference);
                run.journal.warn("earlier_work_kept", text);
            }
            let removed = tokio::task::spawn_blocking(move || files::remove_dir(folder.as_path())).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "the private folder of a dead run's programs stays");
            }
        }
        Err(why) => run.journal.warn(
            "earlier_work_kept",
            format!("what the killed run had put aside in {} could not be taken over: {why}", own.dir()),
        ),
    }
}

async fn bring_back(run: &Run<'_>, worktree: &Worktree, predecessor: &Predecessor) -> Result<(), Stop> {
    let Some((visit, commit)) = &predecessor.facts.checkpoint else { return Ok(()) };
    if predecessor.facts.committed.is_some() {
        // Its flow was over and its work committed: there is nothing half done.
        return Ok(());
    }
    if parked::is_given_back(run, predecessor.run_id).await {
        return Ok(());
    }
    if !predecessor.killed && !predecessor.elsewhere && !run.lease.elsewhere {
        // It ended by itself: what was changed here since is a person's, such as what a commit was refused for.
        return Ok(());
    }
    // Another node's work stands on a commit that was not worked with here.
    if run.context.checkout.is_blobless().await.unwrap_or(false)
        && let Some(remote) = run.context.authorised_remote().await.map_err(|refusal| refusal.stop)?
    {
        let brought = run.context.checkout.bring_contents(&remote, commit).await;
        brought.map_err(|error| {
            let message = format!("The files of the last finished visit cannot be had: {error}.");
            Stop::new(StopDetail::GitError, message)
        })?;
    }
    let rescue = format!("refs/agentd/rescue/{}", predecessor.run_id);
    // The branch of another node's run goes on from what its last checkpoint stood on.
    match worktree.restore(commit, &rescue, predecessor.elsewhere).await {
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
async fn set_up(run: &Run<'_>, worktree: &Worktree) -> Result<(), Stop> {
    let left = || run.wall_time_left();
    let note = |code: &'static str, note: String| run.journal.warn(code, note);
    let base = &run.lease.mapping.origin.commit;
    let done = worktree_setup::set_up(run.context, worktree, base, &run.stop(), &left, &note).await;
    done.map_err(|stop| {
        let out_of_time = run.out_of_time().filter(|_| stop.detail == StopDetail::ConfigInvalid);
        out_of_time.unwrap_or(stop)
    })
}
