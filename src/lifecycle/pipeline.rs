//! The run pipeline: one issue from label to pull request, stage by stage, in one direction.
//!
//! ```text
//! plan → origin → lease → worktree → instance → steps → commit → verify → judge → publish → seal
//! ```
//!
//! Everything is planned first, so that what can be refused is refused while nothing has been made. Each stage takes what
//! the stage before it gives, by type. A stage that has to end the run early goes straight to commit; verify and judge have
//! nothing to do then. From the lease on there is a run: judge, publish and seal end it with a stop reason, a result and a
//! report, unless another node took the issue over or the journal cannot be written. No stage is entered twice; what steps and
//! publish do again, they do inside of themselves. After a crash the next run takes the dead lease over, keeps the finished
//! visits, and goes through the same stages.
//!
//! Beside the stages four listeners work: whether another node took the issue over, whether somebody asks the run to stop,
//! whether people gave it a larger budget, and how far it is, for the issue's status comment.

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use tracing::Instrument as _;
use uuid::Uuid;

use super::commit::{self, given_up};
use super::lease::{self, Leased};
use super::origin::{self, Resolved};
use super::request::RunRequest;
use super::run::Run;
use super::run_observer::RunObserver;
use super::stage::{Stage, Worked};
use super::{
    budget_extension, instance, issue_budget, judge, new_remarks, overtaken, plan, publish, seal,
    shown_progress, steps, stop_request, verify, worktree,
};
use crate::conversation::briefing::template;
use crate::domain::issue::ObjectiveSource;
use crate::domain::money::Money;
use crate::domain::origin::Origin;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::refusal::Refusal;
use crate::domain::run_output::{Objective, RunOutput};
use crate::engine::journal::JournalError;
use crate::issue::cut_off_runs;
use crate::record::report;
use crate::repository::clean_up;
use crate::repository::context::RepositoryContext;

/// How a request ended: always with a run output, also when nothing could start (A-035).
pub struct Finished {
    /// The run output, as `run --json` prints it.
    pub output: RunOutput,
    /// Why it did not start, if it did not.
    pub refusal: Option<Refusal>,
    /// What people had given the issue beyond its budget, as far as the run heard of it.
    pub given: Money,
    /// Whether the issue's labels say how it ended.
    pub written_back: bool,
    /// Whether nobody read what it was to tell, for a cause that passes.
    pub untold: bool,
    /// Whether its work is done and not published, because another service could not be reached.
    pub unpublished: bool,
    /// When its flow ended. Its commit, the verify commands and publishing come after.
    pub flow_ended_at: Option<DateTime<Utc>>,
}

/// Takes one issue to its end.
pub async fn run(request: RunRequest, context: &RepositoryContext, observer: &RunObserver) -> Finished {
    if request.source == ObjectiveSource::Cli {
        cut_off_runs::clear_left(context).await;
    }
    let leased = match begin(request, context, observer).await {
        Ok(leased) => leased,
        Err(finished) => return *finished,
    };
    let lease = &leased.lease;
    let span = tracing::info_span!(
        "run", issue = %leased.plan.issue.key, instance = %lease.instance, run = %lease.run_id
    );
    let finished = async {
        observer.opened(&lease.journal);
        let run = Run::new(&leased, context, observer);
        for warning in leased.warnings.iter().chain(&leased.plan.warnings) {
            run.journal.note(warning.clone());
        }
        new_remarks::open(&run).await;
        let output = tokio::select! {
            output = stages(&run) => match output {
                Ok(output) => output,
                Err(_) if lease.is_lost() => overtaken::leave(&run).await,
                Err(error) => run.output_lost(&error),
            },
            never = overtaken::listen(&run, observer.stop()) => match never {},
            never = stop_request::listen(&run, observer.stop()) => match never {},
            never = budget_extension::listen(&run) => match never {},
            never = shown_progress::show(&run) => match never {},
        };
        new_remarks::close(&run).await;
        // Where another node has the issue now, the request stays there for it.
        if !lease.is_lost() {
            stop_request::forget(&run).await;
        }
        let facts = run.journal.facts();
        let written_back = facts.is_written_back();
        let given = facts.started.as_ref().map_or(Money::ZERO, |started| started.issue_given);
        let untold = facts.end.as_ref().is_some_and(|end| new_remarks::are_untold(&facts, end));
        let unpublished = facts.end.as_ref().is_some_and(|end| facts.is_unpublished_for_now(end));
        let flow_ended_at = facts.flow_ended_at.and_then(DateTime::from_timestamp_millis);
        Finished { output, refusal: None, given, written_back, untold, unpublished, flow_ended_at }
    }
    .instrument(span)
    .await;
    leased.lease.release();
    clean_up::pack_refs(context).await;
    finished
}

/// The run with its lease. If the run before was made by another definition, and the request says to wait for a node that has it, one lease
/// is waited for, and then the work is planned anew.
async fn begin(
    mut request: RunRequest,
    context: &RepositoryContext,
    observer: &RunObserver,
) -> Result<Leased, Box<Finished>> {
    loop {
        // Somebody at a terminal does not wait for what is decided before a run; a daemon knows what it has begun.
        let made = match request.source {
            ObjectiveSource::Cli => observer.signal().unless_asked(prepare(request.clone(), context)).await,
            _ => prepare(request.clone(), context).await,
        };
        let resolved = match made {
            Ok(resolved) => resolved,
            Err(refusal) => {
                let objective = request.objective(&context.repo);
                return Err(Box::new(refused(&request, objective, context, refusal)));
            }
        };
        let (objective, key) = (resolved.plan.objective(), resolved.plan.issue.key.clone());
        let mut refusal = match lease::take(resolved, context).await {
            Ok(leased) => return Ok(leased),
            Err(refusal) => refusal,
        };
        let waits = request.other_definition == OtherDefinition::Waits;
        if let Some(run_id) = refusal.other_definition.filter(|_| waits) {
            match lease::definition::wait(context, (&key, run_id), &observer.signal()).await {
                Ok(()) => {
                    request.other_definition = OtherDefinition::BeginsAnew;
                    continue;
                }
                Err(instead) => refusal = instead,
            }
        }
        return Err(Box::new(refused(&request, objective, context, refusal)));
    }
}

/// Everything that is decided before anything is made; `--dry-run` ends here.
pub async fn prepare(request: RunRequest, context: &RepositoryContext) -> Result<Resolved, Refusal> {
    let plan = plan::make(request, context).await?;
    plan::write_access::check(&plan, context).await?;
    lease::check(&plan, context).await?;
    issue_budget::check(&plan, context).await?;
    let resolved = origin::resolve(plan, context).await?;
    template_is_there(&resolved, context).await?;
    worktree::check(&resolved.plan, &resolved.origin, context).await?;
    commit::check(context).await?;
    Ok(resolved)
}

/// Refuses a pull request template that the configuration names and the origin has not. Who only looks brings nothing here, and
/// may not have the commit.
async fn template_is_there(resolved: &Resolved, context: &RepositoryContext) -> Result<(), Refusal> {
    let Origin { branch, commit, .. } = &resolved.origin;
    let is_named = !context.config.conversation.pull_request_template.trim().is_empty();
    if is_named && context.replay.is_none() && context.checkout.has_commit(commit).await? {
        template::read((branch, commit), context).await?;
    }
    Ok(())
}

/// From the lease on.
async fn stages(run: &Run<'_>) -> Result<RunOutput, JournalError> {
    let committed = match &run.lease.given_up {
        Some(killed) => given_up::commit(run, killed).await?,
        None => {
            let worked = work(run).await?;
            overtaken::flush_if_shared(run).await?;
            commit::commit(worked).await?
        }
    };
    let verified = verify::verify(committed).await?;
    let judged = judge::judge(verified).await?;
    let published = overtaken::unless(run, publish::publish(judged)).await?;
    seal::seal(published).await
}

/// The stages in which the agent works.
async fn work<'a>(run: &'a Run<'a>) -> Result<Worked<'a>, JournalError> {
    let prepared = match worktree::prepare(run).await? {
        Stage::Next(prepared) => prepared,
        Stage::Over(worked) => return Ok(*worked),
    };
    // Where this host stood still, the issue may be another node's, and its labels may say that it is done.
    overtaken::flush_if_shared(run).await?;
    overtaken::unless(run, publish::running_label(run).map(Ok)).await?;
    match instance::start(prepared).await? {
        Stage::Next(instance) => {
            let worked = steps::run(instance).await;
            new_remarks::note_changes(run).await;
            worked
        }
        Stage::Over(worked) => Ok(*worked),
    }
}

/// The end of a run that did not start: nothing was made (X-011, D31).
pub fn refused(
    request: &RunRequest,
    objective: Objective,
    context: &RepositoryContext,
    refusal: Refusal,
) -> Finished {
    let (principal, now) = (request.principal.clone(), context.clock.now_ms());
    let output = report::not_started(Uuid::now_v7(), objective, principal, &refusal.stop, now);
    Finished {
        output,
        refusal: Some(refusal),
        given: Money::ZERO,
        written_back: false,
        untold: false,
        unpublished: false,
        flow_ended_at: None,
    }
}
