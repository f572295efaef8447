//! Commit, verify, judge, and what a run leaves.

use std::sync::Arc;

use uuid::Uuid;

use super::plan::Plan;
use super::request::{IssueRef, RunRequest};
use super::run::Run;
use super::{commit, judge, verify};
use crate::domain::run_output::{Objective, RunOutput};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::record::report::{not_started, objective, summary, write as write_report};
use crate::record::{seal, summary_text};
use crate::repository::context::RepositoryContext;

/// Commits the work, verifies it, and judges what the agent claims. Gives the stop reason afterwards (D62, C-05).
pub async fn provisional(
    run: &Run<'_>,
    context: &RepositoryContext,
    stop: Stop,
) -> Result<Stop, JournalError> {
    if run.worktree().is_none() {
        return Ok(stop);
    }
    let summary = summary(&run.journal.facts(), &stop);
    if let Err(failed) = commit::commit(run, context, &summary).await? {
        let end = run.end_whatever_comes(&stop).unwrap_or(failed.clone());
        if end != failed {
            run.journal.warn("not_committed", failed.message);
        }
        return Ok(end);
    }
    // The person who asked to stop is waiting, and nothing of such a run is offered for merging (D66).
    if !stopped_by_a_person(&stop) {
        verify::verify(run, context).await?;
    }
    let red = stop.success().then(|| summary_text::red_verify(&run.journal.facts())).flatten();
    let stop = red.map_or(stop, |red| Stop::new(StopDetail::VerifyFailed, red.message()));
    let judged = judge::judge(run, context, stop).await?;
    Ok(run.end_whatever_comes(&judged).unwrap_or(judged))
}

fn stopped_by_a_person(stop: &Stop) -> bool {
    matches!(stop.detail, StopDetail::Shutdown | StopDetail::UserStop | StopDetail::UserAbort)
}

/// Writes what a run leaves, from its journal alone; gives the run output.
pub async fn write(run: &Run<'_>, context: &RepositoryContext) -> Result<RunOutput, JournalError> {
    let journal = Arc::clone(run.journal.file());
    let (key, clock) = (context.config.record.seal_key.clone(), context.clock.clone());
    let written = tokio::task::spawn_blocking(move || {
        let output = write_report(journal.dir())?;
        seal::seal(&journal, key.as_deref(), &clock)?;
        Ok(output)
    });
    let output = written.await.map_err(|panic| run.journal.defect(&panic.to_string()))??;
    run.journal.flush().await?;
    Ok(output)
}

/// The run output of a start that was refused: nothing was made (X-011, D31).
pub fn refused(
    request: &RunRequest,
    plan: Option<&Plan>,
    context: &RepositoryContext,
    stop: &Stop,
) -> RunOutput {
    let objective = match plan {
        Some(plan) => objective(&plan.issue, request.source, matches!(request.issue, IssueRef::Number(_))),
        None => Objective {
            title: match &request.issue {
                IssueRef::Number(number) => format!("Issue {number} of {}", context.repo),
                IssueRef::File(path) => path.display().to_string(),
                IssueRef::Recorded(issue) => issue.title.clone(),
            },
            body: String::new(),
            source: request.source,
            issue: None,
        },
    };
    not_started(Uuid::now_v7(), objective, request.principal.clone(), stop, context.clock.now_ms())
}
