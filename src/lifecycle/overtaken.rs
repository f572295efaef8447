//! A run whose issue another node has now: everything of it ends at once, what it left is kept here, and nothing is told on GitHub,
//! where the other's word counts.

use std::convert::Infallible;

use super::run::Run;
use crate::domain::mapping::worktree_of;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::engine::stop::StopHandle;
use crate::record::bring;

fn stop() -> Stop {
    Stop::new(StopDetail::Overtaken, "Another node of the cluster has the issue now.")
}

/// Ends the run once another node has, or may have, its issue. Never returns.
pub(super) async fn listen(run: &Run<'_>, handle: &StopHandle) -> Infallible {
    run.lease.lost().await;
    tracing::warn!("another node of the cluster may have the issue now: the run ends here");
    handle.abort(stop());
    std::future::pending().await
}

/// Goes on only where this node has the issue: before what is kept of the work moves the issue's branch.
pub(super) async fn flush_if_shared(run: &Run<'_>) -> Result<(), JournalError> {
    match run.context.state.shared() {
        Some(_) => run.journal.flush().await,
        None => Ok(()),
    }
}

/// What a stage does on GitHub ends where it is once another node has, or may have, the issue: a request that came late is followed by
/// no further one.
pub(super) async fn unless<T>(
    run: &Run<'_>,
    work: impl Future<Output = Result<T, JournalError>>,
) -> Result<T, JournalError> {
    tokio::select! {
        biased;
        () = run.lease.lost() => Err(run.journal.defect("another node has the issue")),
        done = work => done,
    }
}

/// Keeps the edits on a ref, and the lines that only this node has beside the journal. Gives the run output.
pub(super) async fn leave(run: &Run<'_>) -> RunOutput {
    let (context, run_id) = (run.context, run.lease.run_id);
    let reference = format!("refs/agentd/rescue/{run_id}");
    let folder = worktree_of(&run.plan.issue.key);
    match context.checkout.find_worktree(&context.worktree_root(), &folder) {
        Ok(Some(worktree)) => {
            worktree.nothing_runs();
            match worktree.checkpoint(&reference, &format!("What run {run_id} left")).await {
                Ok(kept) => tracing::warn!("what was edited is kept on {reference} ({})", kept.short()),
                Err(error) => {
                    tracing::error!(%error, "what was edited could not be kept; it is in {}", worktree.display());
                }
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "what was edited could not be kept"),
    }
    let (output, _) = run.output(&stop());
    let (state, repo) = (context.state.clone(), context.repo.clone());
    let kept = tokio::task::spawn_blocking(move || bring::to_node(&state, &repo, run_id)).await;
    match kept {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("what the other node wrote could not be brought here: {error}"),
        Err(panic) => tracing::warn!("what the other node wrote could not be brought here: {panic}"),
    }
    output
}
