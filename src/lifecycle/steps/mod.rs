//! Stage steps: the flow, visit by visit.
//!
//! Takes an instance. Leaves its edits in the worktree and the reason why the flow ended. Each finished visit is
//! checkpointed and recorded: after a crash the next run goes on behind the last finished visit.

mod conflict;
pub mod outcomes;
pub mod polled;

use self::conflict::{After, Conflict};
use self::polled::Polled;
use super::instance::Instance;
use super::run::Run;
use super::shared_work;
use super::stage::{StageError, Worked, Workspace};
use crate::domain::event::Event;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::flow::{FlowMove, FlowRun};
use crate::engine::journal::JournalError;
use crate::engine::stop::StopState;
use crate::engine::touched::Changed;
use crate::git::sandbox_git::Taken;
use crate::git::{Checkpoint, GitError};

/// Visits steps until the flow ends; then its tools are closed.
pub async fn run<'a>(instance: Instance<'a>) -> Result<Worked<'a>, JournalError> {
    let stop = visit_all(&instance).await;
    // Of a visit that ended otherwise; the run ends anyway.
    if let Err(unwritten) = instance.world.wait_confirmed().await {
        tracing::warn!("{}", unwritten.message);
    }
    instance.world.sync_caps().await;
    instance.toolbox.close().await;
    Ok(Worked { run: instance.run, stop: stop?, workspace: Some(instance.workspace) })
}

async fn visit_all(instance: &Instance<'_>) -> Result<Stop, JournalError> {
    let (run, workspace) = (instance.run, &instance.workspace);
    let before = run.lease.predecessor.as_ref().and_then(|before| before.facts.flow_end.clone());
    if let Some(end) = before {
        // The predecessor died after its flow, so only reporting and publishing are left. Another node that goes on with this run has to
        // know where its work is.
        if run.context.state.shared().is_some()
            && let Err(error) = checkpoint(run, workspace, instance.finished.len() as u32, None).await
        {
            return close(instance, error.stop()?, None);
        }
        outcomes::take_over(run)?;
        return close(instance, end.stop, end.completion_reason);
    }
    let touched = &instance.plan.workplace.touched;
    touched.take();
    let mut kept = match checkpoint(run, workspace, instance.finished.len() as u32, None).await {
        Ok(kept) => kept,
        Err(error) => return close(instance, error.stop()?, None),
    };
    run.extender.begins(&instance.world.0.meter, &run.journal);
    let mut flow = FlowRun::new(&instance.plan, &instance.world, instance.finished.clone());
    let mut next = instance.finished.len() as u32 + 1;
    let (mut issue, mut conflict) = (Polled::default(), Conflict::default());
    loop {
        if let Err(stop) = play(instance, next).await {
            return close(instance, stop, None);
        }
        if let Err(stop) = issue.look(run).await {
            return close(instance, stop, None);
        }
        match flow.advance().await? {
            FlowMove::Visited(record) => {
                next += 1;
                workspace.record_asked(run)?;
                if let Err(stop) = take_commits(run, workspace).await {
                    run.journal.record(Event::VisitFinished(record))?;
                    return close(instance, stop, None);
                }
                let since = Some((&kept, touched.take()));
                let refused = match checkpoint(run, workspace, record.visit, since).await {
                    Ok(made) => {
                        kept = made;
                        None
                    }
                    Err(error) => Some(error.stop()?),
                };
                run.journal.record(Event::VisitFinished(record))?;
                let (flushed, confirmed) = tokio::join!(run.journal.flush(), instance.world.wait_confirmed());
                flushed?;
                let servers = instance.toolbox.look_at_servers(run);
                if let Some(stop) = refused.or(confirmed.err()).or(servers.err()) {
                    return close(instance, stop, None);
                }
                match conflict.end_if_unresolved(run, workspace, flow.ended()).await {
                    Ok(None) => {}
                    Ok(Some(stop)) => return close(instance, stop, None),
                    Err(error) => return close(instance, error.stop()?, None),
                }
            }
            FlowMove::Ended(end) => {
                match conflict.begin_if_conflicting(instance, &mut flow, &end, next - 1).await {
                    Ok(After::Again) => {}
                    Ok(After::Over) => {
                        outcomes::record(instance, &end.stop).await?;
                        return close(instance, end.stop, end.completion_reason);
                    }
                    Err(error) => return close(instance, error.stop()?, None),
                }
            }
        }
    }
}

/// A replay that does not make the edits of a visit begins the visit with their result.
async fn play(instance: &Instance<'_>, visit: u32) -> Result<(), Stop> {
    let state = instance.run.context.replay.as_ref().and_then(|recorded_run| recorded_run.state_after(visit));
    let Some(commit) = state else { return Ok(()) };
    let rescue = format!("refs/agentd/replay/{visit}");
    instance.plan.workplace.touched.mark();
    instance.workspace.worktree.restore(commit, &rescue, false).await.map(drop).map_err(|error| {
        let message = format!("The recorded state of visit {visit} cannot be brought back: {error}.");
        Stop::new(StopDetail::GitError, message)
    })
}

/// Takes over commits of programs in the sandbox (D13). Commits that cannot be taken over are reported.
async fn take_commits(run: &Run<'_>, workspace: &Workspace) -> Result<(), Stop> {
    let Some(sandbox) = &workspace.sandbox else { return Ok(()) };
    match sandbox.take_commits().await {
        Ok(Taken::Left(why)) => run.journal.warn("commits_left", why),
        Ok(Taken::None | Taken::Commits(_)) => {}
        Err(error) => {
            let message = format!("The commits of the agent could not be taken: {error}.");
            return Err(Stop::new(StopDetail::GitError, message));
        }
    }
    Ok(())
}

/// Keeps the worktree as it is on a ref that is never pushed (D13). `since`: the last checkpoint, and what can have changed
/// files since. What cannot have changed is not looked at, and what is as it was is kept already. Gives where it is kept.
async fn checkpoint(
    run: &Run<'_>,
    workspace: &Workspace,
    visit: u32,
    since: Option<(&Checkpoint, Changed)>,
) -> Result<Checkpoint, StageError> {
    let reference = format!("refs/agentd/checkpoints/{}/{visit}", run.lease.run_id);
    let kept = match since {
        Some((last, Changed::Files(files))) if files.is_empty() => Ok(last.clone()),
        since => {
            let message = format!("After visit {visit} of run {}", run.lease.run_id);
            made(workspace, since, reference, &message).await
        }
    };
    match kept {
        Ok(Checkpoint { reference, commit }) => {
            let bundle = shared_work::bundle(run, &workspace.worktree, visit, (&reference, &commit)).await?;
            run.journal.record(Event::Checkpoint {
                visit,
                reference: reference.clone(),
                commit: commit.clone(),
                bundle,
            })?;
            Ok(Checkpoint { reference, commit })
        }
        Err(error) => Err(match run.stop().state() {
            // Git was cancelled with everything else; the edits stay in the worktree.
            StopState::Abort(stop) => stop.into(),
            StopState::Running | StopState::BeforeNextVisit(_) | StopState::Graceful(_) => {
                let message = format!("The worktree could not be checkpointed: {error}.");
                Stop::new(StopDetail::GitError, message).into()
            }
        }),
    }
}

/// Makes a checkpoint.
async fn made(
    workspace: &Workspace,
    since: Option<(&Checkpoint, Changed)>,
    reference: String,
    message: &str,
) -> Result<Checkpoint, GitError> {
    let worktree = &workspace.worktree;
    let last = since.as_ref().map(|(last, _)| *last);
    if let Some((last, Changed::Files(files))) = since
        && let Some(kept) = worktree.checkpoint_of(last, files, &reference, message).await?
    {
        return Ok(kept);
    }
    worktree.checkpoint_after(last, &reference, message).await
}

/// Records how the flow ended.
fn close(
    instance: &Instance<'_>,
    stop: Stop,
    completion_reason: Option<String>,
) -> Result<Stop, JournalError> {
    let run = instance.run;
    run.extender.ends();
    let spend = instance.world.0.meter.spend();
    instance.workspace.record_asked(run)?;
    if stop.is_taken()
        && let Some(over) = run.taken_by()
    {
        run.journal.record(Event::Taken(over.clone()))?;
    }
    run.journal.record(Event::FlowEnded { stop: stop.clone(), completion_reason, spend })?;
    Ok(stop)
}
