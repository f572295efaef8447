//! Room 5, steps: the flow, visit by visit; each finished visit is checkpointed and recorded, so that a crash costs at
//! most the visit it falls into.

use super::instance::Instance;
use super::polled::Polled;
use super::run::Run;
use crate::domain::event::Event;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::flow::{FlowRun, Progress};
use crate::engine::journal::JournalError;
use crate::engine::stop::StopState;
use crate::git::sandbox_git::Taken;
use crate::repository::context::RepositoryContext;

/// Visits steps until the flow ends.
pub async fn run(
    run: &Run<'_>,
    context: &RepositoryContext,
    instance: &Instance,
) -> Result<Stop, JournalError> {
    let before = run.lease.predecessor.as_ref().and_then(|before| before.facts.flow_end.clone());
    if let Some(end) = before {
        // The predecessor died after its flow, so only reporting and publishing are left.
        return close(run, instance, end.stop, end.completion_reason);
    }
    if let Err(stop) = checkpoint(run, instance.finished.len() as u32).await? {
        return close(run, instance, stop, None);
    }
    run.extender.begins(&instance.world.0.meter, &run.journal);
    let mut flow = FlowRun::new(&instance.plan, &instance.world, instance.finished.clone());
    let mut next = instance.finished.len() as u32 + 1;
    let mut issue = Polled::default();
    loop {
        if let Err(stop) = play(run, context, next).await {
            return close(run, instance, stop, None);
        }
        if let Err(stop) = issue.look(run, context).await {
            return close(run, instance, stop, None);
        }
        next += 1;
        match flow.advance().await? {
            Progress::Visited(record) => {
                record_asked(run)?;
                if let Err(stop) = take_commits(run).await {
                    run.journal.record(Event::VisitFinished(record))?;
                    return close(run, instance, stop, None);
                }
                let saved = checkpoint(run, record.visit).await?;
                run.journal.record(Event::VisitFinished(record))?;
                run.journal.flush().await?;
                if let Err(stop) = saved {
                    return close(run, instance, stop, None);
                }
            }
            Progress::Ended(end) => return close(run, instance, end.stop, end.completion_reason),
        }
    }
}

/// A replay that does not make the edits of a visit begins the visit with their result.
async fn play(run: &Run<'_>, context: &RepositoryContext, visit: u32) -> Result<(), Stop> {
    let state = context.replay.as_ref().and_then(|recorded_run| recorded_run.state_after(visit));
    let (Some(commit), Some(worktree)) = (state, run.worktree()) else { return Ok(()) };
    let rescue = format!("refs/agentd/replay/{visit}");
    worktree.restore(commit, &rescue, false).await.map(drop).map_err(|error| {
        let message = format!("The recorded state of visit {visit} cannot be brought back: {error}.");
        Stop::new(StopDetail::GitError, message)
    })
}

/// What the visit's programs asked of the network.
fn record_asked(run: &Run<'_>) -> Result<(), JournalError> {
    run.sandbox().map_or(Ok(()), |sandbox| sandbox.record_asked(&run.journal, &run.plan.redactor))
}

/// Takes over commits of programs in the sandbox (D13). Commits that cannot be taken over are reported.
async fn take_commits(run: &Run<'_>) -> Result<(), Stop> {
    let Some(sandbox) = run.sandbox() else { return Ok(()) };
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

/// The worktree as it is, on a ref that is never pushed (D13). `Err` inside: git refused.
async fn checkpoint(run: &Run<'_>, visit: u32) -> Result<Result<(), Stop>, JournalError> {
    let Some(worktree) = run.worktree() else {
        return Err(run.journal.defect("the worktree's room was left without one"));
    };
    let reference = format!("refs/agentd/checkpoints/{}/{visit}", run.lease.run_id);
    match worktree.checkpoint(&reference, &format!("After visit {visit} of run {}", run.lease.run_id)).await {
        Ok(commit) => {
            run.journal.record(Event::Checkpoint { visit, reference, commit })?;
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(match run.stop().state() {
            // Git was cancelled with everything else; the edits stay in the worktree.
            StopState::Abort(stop) => stop,
            _ => Stop::new(StopDetail::GitError, format!("The worktree could not be checkpointed: {error}.")),
        })),
    }
}

fn close(
    run: &Run<'_>,
    instance: &Instance,
    stop: Stop,
    completion_reason: Option<String>,
) -> Result<Stop, JournalError> {
    run.extender.ends();
    let spend = instance.world.0.meter.spend();
    record_asked(run)?;
    run.journal.record(Event::FlowEnded { stop: stop.clone(), completion_reason, spend })?;
    Ok(stop)
}
