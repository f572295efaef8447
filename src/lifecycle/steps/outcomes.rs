//! What came of the remarks that the run was told of: gathered from its reports when its flow is over.

use super::super::instance::Instance;
use super::super::run::Run;
use crate::conversation::answers;
use crate::domain::answer::{Outcome, ReportedOutcome};
use crate::domain::briefing::Briefing;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::remark::RemarkId;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;

/// Records the outcome of each thread that a report speaks of. After a success, what no report speaks of is asked for once
/// more.
pub async fn record(instance: &Instance<'_>, stop: &Stop) -> Result<(), JournalError> {
    let run = instance.run;
    let wanted = wanted(run, &instance.briefing);
    if wanted.is_empty() {
        return Ok(());
    }
    let facts = run.journal.facts();
    let mut found = answers::gathered(&facts.visits, &wanted);
    let missing: Vec<String> = wanted.iter().filter(|id| !found.contains_key(*id)).cloned().collect();
    if stop.success()
        && let Some(last) = facts.visits.last()
    {
        let asked =
            instance.world.ask_outcomes(&instance.plan, (&last.step_id, last.visit), &missing).await?;
        let wanted = asked.into_iter().filter(|one| missing.contains(&one.thread));
        found.extend(wanted.map(|one| (one.thread.clone(), one)));
    }
    for one in found.into_values() {
        run.journal.record(Event::ThreadOutcome(Box::new(outcome(run, one))))?;
    }
    Ok(())
}

/// What wants an outcome of the run, or of the one that it goes on with.
pub fn wanted(run: &Run<'_>, briefing: &Briefing) -> Vec<String> {
    let facts = run.journal.facts();
    let before =
        run.lease.predecessor.iter().flat_map(|before| answers::told_meanwhile(briefing, &before.facts));
    let meanwhile: Vec<RemarkId> = before.chain(answers::told_meanwhile(briefing, &facts)).collect();
    answers::wanted(briefing, &meanwhile)
}

/// The outcomes of the run that this one goes on with, as they were: they may be told already.
pub fn take_over(run: &Run<'_>) -> Result<(), JournalError> {
    let before = run.lease.predecessor.as_ref().map(|before| outcomes(&before.facts)).unwrap_or_default();
    for outcome in before {
        run.journal.record(Event::ThreadOutcome(Box::new(outcome)))?;
    }
    Ok(())
}

/// The last word on each thread.
pub fn outcomes(facts: &RunFacts) -> Vec<Outcome> {
    let mut known: Vec<Outcome> = Vec::new();
    for (_, event) in &facts.other {
        let Event::ThreadOutcome(outcome) = event else { continue };
        known.retain(|other| other.thread != outcome.thread);
        known.push(outcome.as_ref().clone());
    }
    known
}

fn outcome(run: &Run<'_>, said: ReportedOutcome) -> Outcome {
    Outcome {
        thread: said.thread,
        outcome: said.outcome,
        text: run.without_secrets(&said.text),
        run: run.lease.run_id,
        base: run.journal.facts().first_head.clone(),
        commit: None,
        limitation: None,
        proven: false,
    }
}
