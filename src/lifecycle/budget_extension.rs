//! A budget that is nearly used up. People are asked once on the issue while the run goes on, and may extend it (X-019,
//! D84).

use std::convert::Infallible;
use std::fmt::Write as _;

use tokio::sync::broadcast::error::RecvError;

use super::issue_budget::{self, IssueExtension};
use super::run::Run;
use crate::domain::budget::{BudgetKind, Budgets};
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopReason};
use crate::engine::journal::JournalError;
use crate::record::rendering;

/// The caps of a run: as planned, and at least what a person gave the run that it continues. What people gave the issue
/// since that run comes on top.
pub(super) fn caps(run: &Run<'_>, given: &IssueExtension) -> Result<Budgets, JournalError> {
    let planned = &run.plan.budgets;
    let before = run.lease.predecessor.as_ref();
    let extended = before.and_then(|before| before.facts.extensions.last());
    let mut budgets = extended.map_or_else(|| planned.clone(), |(_, budgets)| planned.at_least(budgets));
    budgets.max_cost += given.since;
    let by = given.by.as_ref().filter(|_| given.since > Money::ZERO);
    if let Some(by) = by.or(extended.map(|(by, _)| by)) {
        run.journal.record(Event::BudgetExtended { by: by.clone(), budgets: budgets.clone() })?;
    }
    Ok(budgets)
}

/// Asks as soon as a soft limit is passed, and says so when the budget was extended. Never returns.
pub(super) async fn listen(run: &Run<'_>) -> Infallible {
    let mut lines = run.journal.listen();
    loop {
        match lines.recv().await {
            Ok(line) => match line.event {
                Some(Event::BudgetSoftLimit { .. }) => ask(run).await,
                Some(Event::BudgetExtended { .. }) => answered(run).await,
                Some(Event::IssueBudget(_)) => issue_budget::tell(run).await,
                _ => {}
            },
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// Makes sure that the comment has every soft limit that was passed so far, and that the label is on the issue.
pub(super) async fn ask(run: &Run<'_>) {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let mut told = run.told.lock().await;
    let facts = run.journal.facts();
    let near = near(&facts);
    if near.iter().all(|kind| told.contains(kind)) {
        return;
    }
    let labels = [run.context.config.github.labels.attention.as_str()];
    let asked = async {
        github.ensure_comment(&run.context.repo, number, &marker(run), &question(run, &facts)).await?;
        github.add_labels(&run.context.repo, number, &labels).await
    };
    match asked.await {
        Ok(()) => *told = near,
        Err(error) => {
            run.note_locked(&error);
            tracing::warn!(%error, "a limit that is near could not be told on the issue");
        }
    }
}

/// The lease is held for the longer time. If people were asked, the answer replaces the question.
async fn answered(run: &Run<'_>) {
    let facts = run.journal.facts();
    let Some((by, budgets)) = facts.extensions.last() else { return };
    run.lease.hold(run.plan, run.context, budgets.max_wall_time).await;
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let mut told = run.told.lock().await;
    if std::mem::take(&mut *told).is_empty() {
        return;
    }
    let text =
        format!("**A limit was near, and {by} raised it.** The run may take {} now.\n", budgets.all_shown());
    let written = async {
        github.ensure_comment(&run.context.repo, number, &marker(run), &text).await?;
        github.remove_label(&run.context.repo, number, &run.context.config.github.labels.attention).await
    };
    if let Err(error) = written.await {
        run.note_locked(&error);
        tracing::warn!(%error, "that a limit was raised could not be told on the issue");
    }
}

/// At the run's end nothing is near any more: the question says what became of the run. People may still have it done again.
pub(super) async fn over(run: &Run<'_>, stop: &Stop) {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let told = run.told.lock().await;
    let facts = run.journal.facts();
    let near = near(&facts);
    // That somebody raised it stands there, and holds.
    if near.is_empty() || (told.is_empty() && !facts.extensions.is_empty()) {
        return;
    }
    let text = answer_of_the_end(&near, stop);
    if let Err(error) = github.ensure_comment(&run.context.repo, number, &marker(run), &text).await {
        run.note_locked(&error);
        tracing::warn!(%error, "that a limit is not near any more could not be told on the issue");
    }
}

/// What is passed already is not near: the run ends.
fn near(facts: &RunFacts) -> Vec<BudgetKind> {
    facts.soft_limits.iter().filter(|(_, used, cap)| used <= cap).map(|(kind, ..)| *kind).collect()
}

fn answer_of_the_end(near: &[BudgetKind], stop: &Stop) -> String {
    let kinds = near.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
    let detail = stop.detail.as_str();
    let mut text = format!("**A limit was near** ({kinds}). The run has ended since, with `{detail}`.");
    if stop.reason() == StopReason::BudgetExceeded {
        text.push_str(
            " Is it worth more? Then comment `/agentd extend`: it starts another run on the same branch with a fresh budget. \
             The daemon reads the comments.",
        );
    }
    text.push('\n');
    text
}

fn marker(run: &Run<'_>) -> String {
    rendering::request_marker(&run.plan.issue.key, "guidance")
}

fn question(run: &Run<'_>, facts: &RunFacts) -> String {
    let mut text = "**A limit is near.** The run goes on until the limit itself:\n".to_owned();
    for (kind, used, cap) in facts.soft_limits.iter().filter(|(_, used, cap)| used <= cap) {
        let share = if *cap > 0.0 { used / cap * 100.0 } else { 100.0 };
        let _infallible = write!(text, "\n- {}: {share:.0} % used", kind.as_str());
    }
    let _infallible = write!(
        text,
        "\n\nIs it worth more? Then comment `/agentd extend`: now, it gives this run as much again of each budget; after its \
         end, it starts another one on the same branch with a fresh budget. To end this one with a report: comment \
         `/agentd stop`, or `agentd runs stop {}`. The daemon reads the comments.\n",
        run.lease.run_id
    );
    text
}
