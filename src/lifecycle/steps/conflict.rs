//! What others pushed while the run worked and what conflicts with its work: merged into the files, and worked out in one
//! more visit.

use super::super::commit::{self, others};
use super::super::instance::Instance;
use super::super::run::Run;
use super::super::stage::{StageError, Workspace};
use crate::domain::event::Event;
use crate::domain::others_merged::OthersMerged;
use crate::domain::stop::{FlowEnd, Stop, StopReason};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, plain};
use crate::engine::flow::FlowRun;
use crate::record::report;

/// Words before the prompt of the visit.
const WORDS: &str = include_str!("../../../prompts/steps/retry/conflict/f_others.md");

/// The conflict of one run.
#[derive(Default)]
pub struct Conflict {
    looked: bool,
    open: Option<OthersMerged>,
}

/// What follows where a flow has ended.
pub enum After {
    /// One more visit.
    Again,
    /// The end of the run.
    Over,
}

impl Conflict {
    /// Looks, once, when the flow is over, whether what others pushed conflicts with the work. Then the work is committed,
    /// their commits are merged into the files, and a step is visited once more. What merges by itself is left to the end of
    /// the run. `visits` = those that were made.
    pub async fn begin_if_conflicting(
        &mut self,
        instance: &Instance<'_>,
        flow: &mut FlowRun<'_>,
        end: &FlowEnd,
        visits: u32,
    ) -> Result<After, StageError> {
        let (run, workspace) = (instance.run, &instance.workspace);
        if let Some(stop) = self.end_if_unresolved(run, workspace, Some(end)).await? {
            return Err(stop.into());
        }
        if std::mem::replace(&mut self.looked, true) || !end.stop.success() {
            return Ok(After::Over);
        }
        let merged = match &run.context.replay {
            Some(recorded) => recorded.conflict_after(visits).cloned(),
            None => begin_merge(run, workspace, end, visits).await?,
        };
        let Some(merged) = merged else { return Ok(After::Over) };
        others::record(run, merged.clone())?;
        instance.plan.workplace.touched.mark();
        let visited = flow.again(words(&merged));
        self.open = Some(merged);
        if visited {
            return Ok(After::Again);
        }
        match self.end_if_unresolved(run, workspace, None).await? {
            Some(stop) => Err(stop.into()),
            None => Ok(After::Over),
        }
    }

    /// After the visit: the end of the run where the conflict is still there. The files are then as they were before the
    /// merge. `end` = how the flow ended with that visit, if it did.
    pub async fn end_if_unresolved(
        &mut self,
        run: &Run<'_>,
        workspace: &Workspace,
        end: Option<&FlowEnd>,
    ) -> Result<Option<Stop>, StageError> {
        let Some(merged) = self.open.take() else { return Ok(None) };
        let worktree = &workspace.worktree;
        let unresolved = worktree.unresolved().await.map_err(others::broken)?;
        if unresolved.is_empty() || run.context.replay.is_some() {
            return Ok(None);
        }
        let rescue = format!("refs/agentd/rescue/{}", run.lease.run_id);
        worktree.abandon_merge(&rescue).await.map_err(others::broken)?;
        let stop = match worktree.head().await.map_err(others::broken)? {
            Some(head) => {
                let theirs = others::Theirs { head, tip: merged.commit };
                others::conflicting(run, &theirs, &unresolved).await
            }
            None => return Ok(None),
        };
        // A person who stops the run, and a question that the visit asks, come first.
        let by_people = end.is_some_and(|end| end.stop.reason() == StopReason::HumanRequested);
        Ok(Some(stop).filter(|_| !by_people))
    }
}

/// Commits the work and begins to merge what others pushed into its files; `None`: it does not conflict.
async fn begin_merge(
    run: &Run<'_>,
    workspace: &Workspace,
    end: &FlowEnd,
    visit: u32,
) -> Result<Option<OthersMerged>, StageError> {
    let worktree = &workspace.worktree;
    // What cannot be read, and a branch that was pushed over, is told at the end of the run.
    let Ok(Some(theirs)) = others::newer(run, worktree).await else { return Ok(None) };
    let waits = worktree.merge_head().is_some_and(|merging| merging == theirs.tip);
    let conflicts = if waits {
        worktree.unresolved().await.map_err(others::broken)?
    } else {
        let summary = report::summary(&run.journal.facts(), &end.stop);
        match commit::keep(run, worktree, &summary).await {
            Ok(()) => {}
            Err(StageError::Stopped(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let files = others::merge(run, worktree, &theirs.tip).await?;
        if files.is_empty() || !worktree.conflicting_submodules().await.map_err(others::broken)?.is_empty() {
            worktree.leave_merge().await.map_err(others::broken)?;
            return Ok(None);
        }
        files
    };
    if conflicts.is_empty() {
        return Ok(None);
    }
    let told = others::tell(run, worktree, &theirs).await;
    if let Some(sandbox) = &workspace.sandbox {
        sandbox.follow_branch().await.map_err(others::broken)?;
    }
    let reference = format!("refs/agentd/checkpoints/{}/{visit}-merge", run.lease.run_id);
    let message = format!("After visit {visit} of run {}, with what others pushed", run.lease.run_id);
    let kept = worktree.checkpoint(&reference, &message).await.map_err(others::broken)?;
    run.journal.record(Event::Checkpoint { visit, reference, commit: kept, bundle: None })?;
    Ok(Some(OthersMerged { visit, commit: theirs.tip, conflicts, told, origin: None }))
}

fn words(merged: &OthersMerged) -> String {
    let files: Vec<String> = merged.conflicts.iter().map(|file| format!("- {file}")).collect();
    let told = format!("{}\n\nConflicts in:\n{}", merged.told, files.join("\n"));
    format!("{}\n\n{}", WORDS.trim(), fence("commits of others", &plain(&told, LONGEST_INCOMING)))
}
