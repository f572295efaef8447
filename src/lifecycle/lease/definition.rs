//! A run is gone on with by its agent; in a cluster by who has its definition. Others leave it to such a node for one lease, and then do the work
//! anew.

use std::time::Duration;

use super::Plan;
use super::recovery::{Predecessor, without_work};
use crate::domain::issue::IssueKey;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::engine::stop::{StopSignal, StopState};
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::journal_file;
use crate::sys::clock::Stopwatch;

/// The code of the warning that says why finished work is done anew.
pub const DEFINITION_CHANGED: &str = "definition_changed";
/// Characters of a definition's hash that are shown.
const SHOWN: usize = 12;
/// How often it is looked whether another node has gone on with the run.
const LOOK: Duration = Duration::from_millis(500);

/// The run to be gone on with, if this node may; one that begins anew where that is asked for. `last`: the newest run of the issue.
///
/// # Errors
/// It is of another definition, and is left to others.
pub(super) async fn agreed(
    before: Predecessor,
    last: RunId,
    (plan, context): (&Plan, &RepositoryContext),
) -> Result<Predecessor, Refusal> {
    let run_id = before.run_id;
    if let Some(agent) = other_agent(&before, plan) {
        let own = &plan.loaded.definition.name;
        let told = format!(
            "Run {run_id} was cut off and was of the agent \"{agent}\"; this one is of \"{own}\", and its work is done anew. What it had used \
             counts."
        );
        return Ok(anew(before, told));
    }
    let Some(why) = differs(&before, plan, context).await else { return Ok(before) };
    if plan.request.other_definition != OtherDefinition::BeginsAnew {
        let message =
            format!("Run {run_id} {why}: it is left to a node that can go on with it, for one lease.");
        return Err(Refusal {
            other_definition: Some(last),
            ..Refusal::new(StopDetail::BranchBusy, message)
        });
    }
    let told = format!(
        "Run {run_id} {why}, and no node that could go on with it was there within a lease: its work is done anew. What it had \
         used counts."
    );
    Ok(anew(before, told))
}

fn anew(before: Predecessor, told: String) -> Predecessor {
    Predecessor {
        lost: Some(before.spent()),
        facts: without_work(before.facts),
        elsewhere: true,
        begun_anew: Some(told),
        ..before
    }
}

/// The agent whose visits a run has, where that is another one: its steps and what they put out mean nothing to this one.
fn other_agent(before: &Predecessor, plan: &Plan) -> Option<String> {
    let facts = &before.facts;
    let agent = &facts.started.as_ref()?.agent;
    let unfinished = !facts.visits.is_empty() && facts.flow_end.is_none();
    (unfinished && *agent != plan.loaded.definition.name).then(|| agent.clone())
}

/// Why finished visits of a run mean nothing here, behind the run's name. What only has to be published needs no definition.
async fn differs(before: &Predecessor, plan: &Plan, context: &RepositoryContext) -> Option<String> {
    context.state.shared()?;
    let facts = &before.facts;
    if facts.visits.is_empty() || facts.flow_end.is_some() {
        return None;
    }
    let (theirs, ours) = (&facts.started.as_ref()?.definition_sha256, &plan.loaded.sha256);
    if theirs != ours {
        let short = |hash: &str| hash.get(..SHOWN).unwrap_or(hash).to_owned();
        return Some(format!(
            "was begun by another definition of the agent ({}; here it is {})",
            short(theirs),
            short(ours)
        ));
    }
    let dir = context.state.run(&context.repo, before.run_id);
    let unknown = tokio::task::spawn_blocking(move || {
        let lines = journal_file::read(&dir).ok()?.lines;
        lines.into_iter().find(|line| line.event().is_none()).map(|line| line.kind)
    });
    let kind = unknown.await.ok().flatten()?;
    Some(format!("has lines that this version does not know (\"{kind}\")"))
}

/// Waits for one lease for another node to go on with the newest run of an issue.
///
/// # Errors
/// One has, or the run that waits was told to stop.
pub async fn wait(
    context: &RepositoryContext,
    (key, run_id): (&IssueKey, RunId),
    signal: &StopSignal,
) -> Result<(), Refusal> {
    let (lease, begin) = (context.config.cluster.lease.0, Stopwatch::start());
    tracing::warn!(%run_id, "the run is of another definition: a node that has it is waited for, for {lease:?}");
    while begin.elapsed() < lease {
        if let StopState::Abort(stop) | StopState::BeforeNextVisit(stop) | StopState::Graceful(stop) =
            signal.state()
        {
            return Err(Refusal::new(stop.detail, stop.message));
        }
        let seen = context.look(context.lease(key)).await?;
        let newest = seen.as_ref().and_then(|seen| mapping_of(seen.record.as_ref()?)).map(|last| last.run_id);
        if let Some(newest) = newest.filter(|newest| *newest != run_id) {
            let message = format!("Run {newest} of another node has gone on with {run_id}.");
            return Err(Refusal::new(StopDetail::BranchBusy, message));
        }
        if let Some(holder) = seen.and_then(|seen| seen.holder) {
            let message = format!("Issue {key} is being worked on by {holder}.");
            return Err(Refusal::new(StopDetail::BranchBusy, message));
        }
        tokio::time::sleep(LOOK.min(lease / 4)).await;
    }
    Ok(())
}
