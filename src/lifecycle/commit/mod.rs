//! Stage commit: one commit of what the flow left in the worktree.
//!
//! Takes a run whose work is over. Leaves its commit on the issue's branch, within the policy, the size caps and the scan
//! for secrets. After a crash in it the next run finds the commit, or makes it.

pub mod approved;
pub mod fold;
pub mod given_up;
mod left_in_git;
mod message;
pub mod new_files;
pub mod others;
pub mod review;

use std::collections::BTreeSet;

use super::closure;
use super::merged;
use super::run::Run;
use super::stage::{StageError, Worked};
use crate::domain::event::{Change, Event, FileChange};
use crate::domain::outgoing;
use crate::domain::refusal::Refusal;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::worktree::{ChangeKind, Worktree};
use crate::record::report;
use crate::repository::context::RepositoryContext;

/// Why commits of the agent are folded into one of agentd's.
const LEAVES: &str = "one of them brings what may not leave, and the files as they are now do not";
/// The warning that something of the agent's was put aside.
const PUT_ASIDE: &str = "commits_left";
const ACTS: &str = "by its message one of them would close issues or keep checks from running on GitHub";

/// A run whose work is kept, as far as it can be.
pub struct Committed<'a> {
    /// The run.
    pub worked: Worked<'a>,
    /// Whether there is a tree of its own to verify and to judge.
    pub has_tree: bool,
}

/// Whether commits can be made as git's configuration wants them: signed.
pub async fn check(context: &RepositoryContext) -> Result<(), Refusal> {
    if context.replay.is_none() && context.checkout.signs_commits().await? {
        context.checkout.try_signing(&context.identity().await?).await?;
    }
    Ok(())
}

/// Whoever looks at the worktree afterwards has git enter its submodules: no repository that a program put there is left in its place.
async fn submodules_are_gits_own(run: &Run<'_>, worktree: &Worktree) {
    if run.context.replay.is_some() {
        return;
    }
    match worktree.own_submodule_links().await {
        Ok(aside) => {
            for folder in aside {
                run.journal.warn(
                    "submodule_replaced",
                    format!(
                        "a program put a repository of its own into the submodule's folder {}; its .git was moved to \
                         git-of-a-program in {}, so that nobody's git follows it",
                        folder.display(),
                        worktree.git_dir()
                    ),
                );
            }
        }
        Err(error) => {
            tracing::error!(%error, "what programs put into the folders of submodules could not be looked at");
        }
    }
}

/// Commits what the flow left. What may not leave, or what git refuses, ends the run; the edits stay in the worktree.
pub async fn commit<'a>(mut worked: Worked<'a>) -> Result<Committed<'a>, JournalError> {
    let Some(workspace) = &worked.workspace else { return Ok(Committed { worked, has_tree: false }) };
    let run = worked.run;
    // The tools are closed and the programs have ended. What the next look finds is what is judged and published.
    workspace.worktree.nothing_runs();
    submodules_are_gits_own(run, &workspace.worktree).await;
    let summary = report::summary(&run.journal.facts(), &worked.stop);
    let kept = match left_in_git::look(run, workspace).await {
        Ok(()) => match keep(run, &workspace.worktree, &summary).await {
            Ok(()) => not_all_put_aside(run, &worked.stop).map_err(StageError::from),
            Err(error) => Err(error),
        },
        Err(stop) => Err(stop.into()),
    };
    let refused = match kept {
        // What conflicts with others' commits is not tried twice.
        Ok(()) if worked.stop.detail == StopDetail::BranchMoved => {
            return Ok(Committed { worked, has_tree: true });
        }
        Ok(()) => match with_others(run, &workspace.worktree, (&summary, &worked.stop)).await {
            Ok(()) => return Ok(Committed { worked, has_tree: true }),
            Err(error) => error.stop()?,
        },
        Err(error) => error.stop()?,
    };
    let end = run.end_whatever_comes(&worked.stop).unwrap_or_else(|| refused.clone());
    if end != refused {
        run.journal.warn("not_committed", refused.message);
    }
    worked.stop = end;
    Ok(Committed { worked, has_tree: false })
}

/// Has what others pushed meanwhile in the branch, and what its pull request became, so that all of it is verified.
async fn with_others(
    run: &Run<'_>,
    worktree: &Worktree,
    (summary, stop): (&str, &Stop),
) -> Result<(), StageError> {
    if others::merge_in(run, worktree).await? {
        keep(run, worktree, summary).await?;
    }
    if merged::bring_onto_origin(run, worktree, stop).await? {
        keep(run, worktree, summary).await?;
    }
    Ok(())
}

/// Makes one commit of the worktree (D13, D66) and records what the branch changes.
pub(super) async fn keep(run: &Run<'_>, worktree: &Worktree, summary: &str) -> Result<(), StageError> {
    let failed = |error: GitError| not_committed(worktree, &error);
    let mentions = run.file_mentions().await;
    let made = new_files::sort(run, (worktree, &mentions)).await.map_err(failed)?;
    if let Some(refused) = review::of_worktree(run, (worktree, &mentions)).await.map_err(failed)? {
        let why = format!("{LEAVES} ({})", refused.what);
        if !fold::fold(run, (worktree, &mentions), &why).await.map_err(failed)? {
            return Err(refused.stop.into());
        }
    }
    if acts_when_pushed(run, worktree).await.map_err(failed)? {
        fold::fold(run, (worktree, &mentions), ACTS).await.map_err(failed)?;
    }
    let event = committed(run, (worktree, &made), summary).await.map_err(failed)?;
    Ok(run.journal.record(event)?)
}

/// An issue is not done by work that was put aside: where nothing else was made, the run ends with that.
fn not_all_put_aside(run: &Run<'_>, stop: &Stop) -> Result<(), Stop> {
    let facts = run.journal.facts();
    let no_change = facts.committed.as_ref().is_some_and(|committed| committed.change.is_empty());
    let aside = facts
        .warnings
        .iter()
        .filter(|warning| warning.code == PUT_ASIDE)
        .map(|warning| warning.text.as_str());
    let aside: Vec<&str> = aside.collect();
    if stop.reason() != StopReason::ObjectiveAchieved || !no_change || aside.is_empty() {
        return Ok(());
    }
    let message =
        format!("No file was changed, and what the agent made was put aside: {}.", aside.join("; "));
    Err(Stop::new(StopDetail::PolicyDenied, message))
}

/// Whether a commit that the agent made itself in this run would do something on GitHub by its message.
async fn acts_when_pushed(run: &Run<'_>, worktree: &Worktree) -> Result<bool, GitError> {
    let facts = run.journal.facts();
    let Some(base) = &facts.first_head else { return Ok(false) };
    let own = run.tracked_issue().filter(|_| closure::closes_by_merge(run, &facts));
    let commits = worktree.commits(base).await?;
    Ok(commits.iter().any(|commit| outgoing::acts_when_pushed(&commit.message, own)))
}

fn not_committed(worktree: &Worktree, error: &GitError) -> Stop {
    let message = format!("The work could not be committed: {error}. It is in {}.", worktree.display());
    Stop::new(StopDetail::GitError, message)
}

async fn committed(
    run: &Run<'_>,
    (worktree, made): (&Worktree, &BTreeSet<String>),
    summary: &str,
) -> Result<Event, GitError> {
    let commit = worktree.commit_all(&message::of(run, summary), &run.context.identity().await?).await?;
    let base = run.base();
    let head = worktree.head().await?.unwrap_or_else(|| base.clone());
    let tree = run.context.checkout.tree_of_commit(&head).await?;
    let files = worktree.changes(base).await?;
    let commits = worktree.commits(base).await?.len();
    let files = files
        .into_iter()
        .map(|file| FileChange {
            by_command: made.contains(&file.path),
            gone: file.kind == ChangeKind::Deleted,
            path: file.path,
            added: file.added,
            removed: file.removed,
            from: file.from,
        })
        .collect();
    let change = Change { files, commits: u32::try_from(commits).unwrap_or(u32::MAX) };
    Ok(Event::Committed { head, tree, made: commit.is_some(), change })
}
