//! What came of the remarks that the run was told of: gathered from its reports when its flow is over.

use super::super::instance::Instance;
use super::super::run::Run;
use crate::conversation::answers::{self, ToldMeanwhile, Wanted};
use crate::domain::answer::{Outcome, ReportedOutcome};
use crate::domain::briefing::Briefing;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;

/// Records the outcome of each thread that a report speaks of. After a success, what no report speaks of is asked for once
/// more.
pub async fn record(instance: &Instance<'_>, stop: &Stop) -> Result<(), JournalError> {
    let run = instance.run;
    let wanted = wanted(run, &instance.briefing);
    if wanted.ids().is_empty() {
        return Ok(());
    }
    let facts = run.journal.facts();
    let mut found = wanted.gathered(&facts.visits);
    let missing: Vec<String> = wanted.ids().iter().filter(|id| !found.contains_key(*id)).cloned().collect();
    if stop.success()
        && let Some(last) = facts.visits.last()
    {
        let asked =
            instance.world.ask_outcomes(&instance.plan, (&last.step_id, last.visit), &missing).await?;
        found.extend(wanted.sorted(asked).into_iter().filter(|(id, _)| missing.contains(id)));
    }
    for one in found.into_values() {
        run.journal.record(Event::ThreadOutcome(Box::new(outcome(run, one))))?;
    }
    Ok(())
}

/// What wants an outcome of the run, or of the one that it goes on with.
pub fn wanted(run: &Run<'_>, briefing: &Briefing) -> Wanted {
    let facts = run.journal.facts();
    let before =
        run.lease.predecessor.iter().flat_map(|before| answers::told_meanwhile(briefing, &before.facts));
    let meanwhile: Vec<ToldMeanwhile> = before.chain(answers::told_meanwhile(briefing, &facts)).collect();
    Wanted::of(briefing, &meanwhile)
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
