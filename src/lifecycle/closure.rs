//! What the agent's closure does to the issue: its labels, and its state if no pull request will close it.

use super::run::Run;
use super::stage::StageError;
use crate::domain::completion::Completion;
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::flow::{Closure, StepKind};
use crate::domain::stop::{Stop, StopDetail};
use crate::github;

/// The closure of a run that succeeded with a closing step. `None` = the agent may not change the issue, or nothing
/// closed.
pub fn of(run: &Run<'_>, facts: &RunFacts, stop: &Stop) -> Option<Closure> {
    let definition = &run.plan.loaded.definition;
    let last = facts.visits.last()?;
    let closing = definition.flow.step(&last.step_id)?.kind == Some(StepKind::Closure)
        || !definition.has_closing_step() && definition.closure(Some(&last.output)).asked.is_some();
    (closing && stop.success() && definition.closes_issues()).then(|| definition.closure(Some(&last.output)))
}

/// Whether merging the pull request closes the issue (D81).
pub fn closes_by_merge(run: &Run<'_>, facts: &RunFacts) -> bool {
    let definition = &run.plan.loaded.definition;
    let output = facts.visits.last().map(|visit| &visit.output);
    definition.closes_issues() && definition.closure(output).action.closes()
}

/// Whether the issue is closed without a pull request: nothing was changed, and closing was asked for. An agent that
/// should have changed something leaves the issue open, unless its closing step says otherwise (D12) or its verdict is
/// the state of the issue.
fn closes_now(run: &Run<'_>, facts: &RunFacts, closure: &Closure) -> bool {
    let changed = facts.committed.as_ref().is_some_and(|committed| !committed.change.is_empty());
    let works = run.plan.loaded.definition.flow.steps.iter().any(|step| step.kind == Some(StepKind::Work));
    let asked = closure.asked.is_some_and(|asked| asked.closes());
    // An agent that works until its issue is closed has ended because the closing was planned.
    let owed = run.plan.loaded.definition.completion == Completion::ExternalState;
    !changed && closure.action.closes() && (!works || asked || owed)
}

/// Carries it out. What GitHub does not take makes the run no clean success (E22); trying again finds what is there.
pub async fn carry_out(run: &Run<'_>, facts: &RunFacts, closure: &Closure) -> Result<(), StageError> {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return Ok(()) };
    if !closure.refused_labels.is_empty() {
        let names = closure.refused_labels.join(", ");
        run.journal.warn(
            "closure_label_refused",
            format!("The agent asked for labels that its definition does not name: {names}."),
        );
    }
    if let Some(word) = &closure.unknown_action {
        run.journal.warn(
            "closure_unknown",
            format!("The agent asked for the closure \"{word}\", which is none; the issue is only labelled."),
        );
    } else if let Some(asked) = closure.asked.filter(|asked| *asked != closure.action) {
        run.journal.warn(
            "closure_clamped",
            format!(
                "The agent asked for \"{}\"; its definition allows \"{}\".",
                asked.as_str(),
                closure.action.as_str()
            ),
        );
    }
    if !(closure.add_labels.is_empty() && closure.remove_labels.is_empty()) {
        run.journal.plan_effect(Effect::ClosureLabels).await?;
        let add: Vec<&str> = closure.add_labels.iter().map(String::as_str).collect();
        let mut labelled = github.add_labels(&run.context.repo, number, &add).await;
        for name in &closure.remove_labels {
            if labelled.is_ok() {
                labelled = github.remove_label(&run.context.repo, number, name).await;
            }
        }
        if let Err(error) = labelled {
            return failed(run, Effect::ClosureLabels, &error);
        }
        let told = format!("+[{}] -[{}]", closure.add_labels.join(", "), closure.remove_labels.join(", "));
        run.journal.effect_done(Effect::ClosureLabels, &told)?;
    }
    if closes_now(run, facts, closure) {
        run.journal.plan_effect(Effect::Close).await?;
        if let Err(error) = github.close_issue(&run.context.repo, number).await {
            return failed(run, Effect::Close, &error);
        }
        run.journal.effect_done(Effect::Close, "closed")?;
    }
    Ok(())
}

fn failed(run: &Run<'_>, effect: Effect, error: &github::Error) -> Result<(), StageError> {
    run.journal.effect_failed(effect, &error.to_string(), error.is_transient())?;
    Err(Stop::new(
        StopDetail::GithubError,
        format!("The work is done, but the issue could not be settled ({}): {error}.", effect.as_str()),
    )
    .into())
}
