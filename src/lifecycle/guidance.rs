//! A budget that is nearly used up: people are asked once, on the issue, while the run goes on, and may give it more (X-019,
//! D84).

use std::convert::Infallible;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast::error::RecvError;

use super::report;
use super::run::Run;
use super::site::Site;
use crate::domain::budget::{BudgetKind, Budgets};
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::engine::budget::Meter;
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::FileJournal;

/// The budgets that people were told of already; one asks at a time.
pub type Told = tokio::sync::Mutex<Vec<BudgetKind>>;

/// For giving a run more while it works: from its first step to its last.
#[derive(Clone, Default)]
pub struct Extender(Arc<Mutex<Option<Working>>>);

struct Working {
    meter: Arc<Meter>,
    journal: Arc<FileJournal>,
}

impl Extender {
    /// Gives the run as much again of each budget, for `by`, who may; gives the caps from now on. `None` = it does not work
    /// on the issue yet, or any more.
    pub fn extend(&self, by: &str) -> Result<Option<Budgets>, JournalError> {
        let working = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Working { meter, journal }) = &*working else { return Ok(None) };
        meter.extend(|budgets| {
            journal.append(Event::BudgetExtended { by: by.to_owned(), budgets: budgets.clone() })
        })
    }

    pub(super) fn begins(&self, meter: &Arc<Meter>, journal: &Arc<FileJournal>) {
        let working = Working { meter: Arc::clone(meter), journal: Arc::clone(journal) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(working);
    }

    pub(super) fn ends(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl fmt::Debug for Extender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Extender").finish_non_exhaustive()
    }
}

/// The caps of a run: as planned, and at least what a person gave the run that it goes on with.
pub(super) fn caps(run: &Run<'_>) -> Result<Budgets, JournalError> {
    let planned = &run.plan.budgets;
    let before = run.lease.predecessor.as_ref();
    let Some((by, given)) = before.and_then(|before| before.facts.extensions.last()) else {
        return Ok(planned.clone());
    };
    let budgets = planned.at_least(given);
    run.record(Event::BudgetExtended { by: by.clone(), budgets: budgets.clone() })?;
    Ok(budgets)
}

/// Asks as soon as a soft limit is passed, and says so when more was given; never comes back.
pub(super) async fn listen(run: &Run<'_>, site: &Site) -> Infallible {
    let mut lines = run.journal().listen();
    loop {
        match lines.recv().await {
            Ok(line) if line.kind == "budget_soft_limit" => ask(run, site).await,
            Ok(line) if line.kind == "budget_extended" => answered(run, site).await,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// Makes sure that every soft limit passed so far stands in the one comment, and that the label is on.
pub(super) async fn ask(run: &Run<'_>, site: &Site) {
    let (Some(github), Some(number)) = (&site.github, run.tracked_issue()) else { return };
    let mut told = run.told.lock().await;
    let facts = run.journal().facts();
    let near: Vec<BudgetKind> = facts.soft_limits.iter().map(|(kind, ..)| *kind).collect();
    if near.iter().all(|kind| told.contains(kind)) {
        return;
    }
    let labels = [site.config.github.labels.attention.as_str()];
    let asked = async {
        github.ensure_comment(&site.repo, number, &marker(run), &question(run, &facts)).await?;
        github.add_labels(&site.repo, number, &labels).await
    };
    match asked.await {
        Ok(()) => *told = near,
        Err(error) => tracing::warn!(%error, "a limit that is near could not be told on the issue"),
    }
}

/// The lease is held for the longer time; where people were asked, their answer stands in the place of the question.
async fn answered(run: &Run<'_>, site: &Site) {
    let facts = run.journal().facts();
    let Some((by, budgets)) = facts.extensions.last() else { return };
    run.lease.hold(run.plan, site, budgets.max_wall_time).await;
    let (Some(github), Some(number)) = (&site.github, run.tracked_issue()) else { return };
    let mut told = run.told.lock().await;
    if std::mem::take(&mut *told).is_empty() {
        return;
    }
    let text =
        format!("**A limit was near, and {by} raised it.** The run may take {} now.\n", budgets.all_shown());
    let settled = async {
        github.ensure_comment(&site.repo, number, &marker(run), &text).await?;
        github.remove_label(&site.repo, number, &site.config.github.labels.attention).await
    };
    if let Err(error) = settled.await {
        tracing::warn!(%error, "that a limit was raised could not be told on the issue");
    }
}

fn marker(run: &Run<'_>) -> String {
    report::request_marker(&run.plan.issue.key, "guidance")
}

fn question(run: &Run<'_>, facts: &RunFacts) -> String {
    let mut text = "**A limit is near.** The run goes on until the limit itself:\n".to_owned();
    for (kind, used, cap) in &facts.soft_limits {
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
