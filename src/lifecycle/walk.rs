//! The walk: one issue from label to pull request, through seven rooms in one direction.
//!
//! ```text
//! origin → lease → worktree → instance → steps → report → publish
//! ```
//!
//! Before the first room everything is planned, so that what can be refused is refused while nothing has been made. From
//! the lease on there is a run: whatever happens, it ends with a stop reason, a result and a report. Nothing jumps back;
//! after a crash the next walk takes the dead lease over, keeps the finished visits, and goes through the same rooms.

use tracing::Instrument as _;

use super::lease;
use super::plan::{self, Plan};
use super::refusal::Refusal;
use super::request::RunRequest;
use super::run::Run;
use super::site::Site;
use super::watch::Watch;
use super::{
    control, given_up, guidance, instance, origin, publish, recovery, report, sinks, steps, worktree,
};
use crate::domain::event::{Effect, Event};
use crate::domain::issue::ObjectiveSource;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::Stop;
use crate::engine::journal::{Journal as _, JournalError};

/// How a walk ended: always with a run output, also when nothing could start (A-035).
pub struct Walked {
    /// The run output, as `run --json` prints it.
    pub output: RunOutput,
    /// Why it did not start, if it did not.
    pub refusal: Option<Refusal>,
    /// Whether the issue's labels say how it ended.
    pub settled: bool,
}

/// Walks one issue to its end.
pub async fn walk(request: RunRequest, site: &Site, watch: &Watch) -> Walked {
    if request.source == ObjectiveSource::Cli {
        recovery::clear_left(site).await;
    }
    let (plan, resolved) = match prepare(request.clone(), site).await {
        Ok(prepared) => prepared,
        Err(refusal) => return refused(&request, None, site, refusal),
    };
    let lease = match lease::take(&plan, &resolved, site).await {
        Ok(lease) => lease,
        Err(refusal) => return refused(&request, Some(&plan), site, refusal),
    };
    let span =
        tracing::info_span!("run", issue = %plan.issue.key, instance = %lease.instance, run = %lease.run_id);
    let walked = async {
        watch.opened(&lease.journal);
        let run = Run::new(&plan, &lease, site, watch);
        for warning in resolved.warnings.into_iter().chain(plan.warnings.iter().cloned()) {
            run.note(warning);
        }
        let rooms = through_the_rooms(&run, site);
        let output = tokio::select! {
            output = rooms => output.unwrap_or_else(|error| run.output_lost(&error)),
            never = control::listen(lease.journal.dir(), watch.stop()) => match never {},
            never = guidance::listen(&run, site) => match never {},
        };
        control::forget(lease.journal.dir()).await;
        let settled = run.facts().outcome(Effect::Labels).is_some();
        Walked { output, refusal: None, settled }
    }
    .instrument(span)
    .await;
    lease.release();
    walked
}

/// Everything that is decided before anything is made; `--dry-run` ends here.
pub async fn prepare(request: RunRequest, site: &Site) -> Result<(Plan, origin::Resolved), Refusal> {
    let plan = plan::make(request, site).await?;
    lease::check(&plan, site).await?;
    let resolved = origin::resolve(&plan, site).await?;
    worktree::check(&plan, &resolved.origin, site).await?;
    Ok((plan, resolved))
}

/// From the lease on: work, then always report and publish.
async fn through_the_rooms(run: &Run<'_>, site: &Site) -> Result<RunOutput, JournalError> {
    let stop = match &run.lease.given_up {
        Some(stop) => given_up::keep(run, site, stop).await?,
        None => {
            let worked = work(run, site).await?;
            let stop = match worked {
                Ok(stop) | Err(stop) => stop,
            };
            report::provisional(run, site, stop).await?
        }
    };
    let stop = publish::publish(run, site, stop).await?;
    if run.lease.given_up.is_some() {
        run.lease.give_up();
    }
    if let Some(enclosure) = run.enclosure() {
        enclosure.close();
    }
    run.record(Event::RunEnded { stop })?;
    run.journal().flush().await?;
    let output = report::write(run, site).await?;
    sinks::emit(site, run.journal()).await?;
    Ok(output)
}

/// Rooms three to five. `Err` inside: the run is over before its flow could end.
async fn work(run: &Run<'_>, site: &Site) -> Result<Result<Stop, Stop>, JournalError> {
    let worktree = match worktree::prepare(run, site).await? {
        Ok(worktree) => worktree,
        Err(stop) => return Ok(Err(stop)),
    };
    run.has_worktree(worktree);
    publish::running_label(run, site).await;
    let instance = match instance::start(run, site).await? {
        Ok(instance) => instance,
        Err(stop) => return Ok(Err(stop)),
    };
    let stop = steps::run(run, site, &instance).await;
    instance.toolbox.close().await;
    stop.map(Ok)
}

/// The end of a walk that did not start.
pub fn refused(request: &RunRequest, plan: Option<&Plan>, site: &Site, refusal: Refusal) -> Walked {
    let output = report::refused(request, plan, site, &refusal.stop);
    Walked { output, refusal: Some(refusal), settled: false }
}
