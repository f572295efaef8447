//! The run pipeline: one issue from label to pull request, stage by stage, in one direction.
//!
//! ```text
//! plan → origin → lease → worktree → instance → steps → commit → verify → judge → publish → seal
//! ```
//!
//! Everything is planned first, so that what can be refused is refused while nothing has been made. From
//! the lease on there is a run: whatever happens, it ends with a stop reason, a result and a report. Nothing jumps back;
//! after a crash the next run takes the dead lease over, keeps the finished visits, and goes through the same stages.

use tracing::Instrument as _;

use super::budget_extension;
use super::given_up;
use super::instance;
use super::lease;
use super::origin;
use super::plan::{self, Plan};
use super::publish;
use super::recovery;
use super::report;
use super::request::RunRequest;
use super::run::Run;
use super::run_observer::RunObserver;
use super::steps;
use super::stop_request;
use super::worktree;
use crate::domain::event::{Effect, Event};
use crate::domain::issue::ObjectiveSource;
use crate::domain::refusal::Refusal;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;
use crate::record::sinks;
use crate::repository::context::RepositoryContext;

/// How a request ended: always with a run output, also when nothing could start (A-035).
pub struct Finished {
    /// The run output, as `run --json` prints it.
    pub output: RunOutput,
    /// Why it did not start, if it did not.
    pub refusal: Option<Refusal>,
    /// Whether the issue's labels say how it ended.
    pub written_back: bool,
}

/// Takes one issue to its end.
pub async fn run(request: RunRequest, context: &RepositoryContext, observer: &RunObserver) -> Finished {
    if request.source == ObjectiveSource::Cli {
        recovery::clear_left(context).await;
    }
    let (plan, resolved) = match prepare(request.clone(), context).await {
        Ok(prepared) => prepared,
        Err(refusal) => return refused(&request, None, context, refusal),
    };
    let lease = match lease::take(&plan, &resolved, context).await {
        Ok(lease) => lease,
        Err(refusal) => return refused(&request, Some(&plan), context, refusal),
    };
    let span =
        tracing::info_span!("run", issue = %plan.issue.key, instance = %lease.instance, run = %lease.run_id);
    let finished = async {
        observer.opened(&lease.journal);
        let run = Run::new(&plan, &lease, context, observer);
        for warning in resolved.warnings.into_iter().chain(plan.warnings.iter().cloned()) {
            run.journal.note(warning);
        }
        let stages = stages(&run, context);
        let output = tokio::select! {
            output = stages => output.unwrap_or_else(|error| run.output_lost(&error)),
            never = stop_request::listen(lease.journal.dir(), observer.stop()) => match never {},
            never = budget_extension::listen(&run, context) => match never {},
        };
        stop_request::forget(lease.journal.dir());
        let written_back = run.journal.facts().outcome(Effect::Labels).is_some();
        Finished { output, refusal: None, written_back }
    }
    .instrument(span)
    .await;
    lease.release();
    finished
}

/// Everything that is decided before anything is made; `--dry-run` ends here.
pub async fn prepare(
    request: RunRequest,
    context: &RepositoryContext,
) -> Result<(Plan, origin::Resolved), Refusal> {
    let plan = plan::make(request, context).await?;
    lease::check(&plan, context).await?;
    let resolved = origin::resolve(&plan, context).await?;
    worktree::check(&plan, &resolved.origin, context).await?;
    Ok((plan, resolved))
}

/// From the lease on: work, then always report and publish.
async fn stages(run: &Run<'_>, context: &RepositoryContext) -> Result<RunOutput, JournalError> {
    let stop = match &run.lease.given_up {
        Some(stop) => given_up::keep(run, context, stop).await?,
        None => {
            let worked = work(run, context).await?;
            let stop = match worked {
                Ok(stop) | Err(stop) => stop,
            };
            report::provisional(run, context, stop).await?
        }
    };
    let stop = publish::publish(run, context, stop).await?;
    if run.lease.given_up.is_some() {
        run.lease.give_up();
    }
    if let Some(sandbox) = run.sandbox() {
        sandbox.close();
    }
    run.journal.record(Event::RunEnded { stop })?;
    run.journal.flush().await?;
    let output = report::write(run, context).await?;
    sinks::emit(&context.sinks(), run.journal.file()).await?;
    Ok(output)
}

/// Worktree, instance and steps. `Err` inside: the run is over before its flow could end.
async fn work(run: &Run<'_>, context: &RepositoryContext) -> Result<Result<Stop, Stop>, JournalError> {
    let worktree = match worktree::prepare(run, context).await? {
        Ok(worktree) => worktree,
        Err(stop) => return Ok(Err(stop)),
    };
    run.has_worktree(worktree);
    publish::running_label(run, context).await;
    let instance = match instance::start(run, context).await? {
        Ok(instance) => instance,
        Err(stop) => return Ok(Err(stop)),
    };
    let stop = steps::run(run, context, &instance).await;
    instance.toolbox.close().await;
    stop.map(Ok)
}

/// The end of a run that did not start.
pub fn refused(
    request: &RunRequest,
    plan: Option<&Plan>,
    context: &RepositoryContext,
    refusal: Refusal,
) -> Finished {
    let output = report::refused(request, plan, context, &refusal.stop);
    Finished { output, refusal: Some(refusal), written_back: false }
}
