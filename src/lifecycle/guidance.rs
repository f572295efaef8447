//! A budget that is nearly used up: people are asked once, on the issue, while the run goes on (X-019, D84).

use std::convert::Infallible;
use std::fmt::Write as _;

use tokio::sync::Mutex;
use tokio::sync::broadcast::error::RecvError;

use super::report;
use super::run::Run;
use super::site::Site;
use crate::domain::budget::BudgetKind;

/// The budgets that people were told of already; one asks at a time.
pub type Told = Mutex<Vec<BudgetKind>>;

/// Asks as soon as a soft limit is passed; never comes back.
pub(super) async fn listen(run: &Run<'_>, site: &Site) -> Infallible {
    let mut lines = run.journal().listen();
    loop {
        match lines.recv().await {
            Ok(line) if line.kind == "budget_soft_limit" => ask(run, site).await,
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
    if facts.soft_hits.iter().all(|kind| told.contains(kind)) {
        return;
    }
    let mut text = "**A limit is near.** The run goes on until the limit itself:\n".to_owned();
    for (kind, used, cap) in &facts.soft_limits {
        let share = if *cap > 0.0 { used / cap * 100.0 } else { 100.0 };
        let _infallible = write!(text, "\n- {}: {share:.0} % used", kind.as_str());
    }
    let run_id = run.lease.run_id;
    let _infallible = write!(
        text,
        "\n\nIs it worth more? Then comment `/agentd extend` when this run has ended (another one on the same branch, with a \
         fresh budget), or raise `[budgets]`. To end this one with a report: comment `/agentd stop`, or `agentd runs stop {run_id}`. \
         The daemon reads the comments.\n"
    );
    let marker = report::request_marker(&run.plan.issue.key, "guidance");
    let labels = [site.config.github.labels.attention.as_str()];
    let asked = async {
        github.settle_comment(&site.repo, number, &marker, &text).await?;
        github.add_labels(&site.repo, number, &labels).await
    };
    match asked.await {
        Ok(()) => told.clone_from(&facts.soft_hits),
        Err(error) => tracing::warn!(%error, "a limit that is near could not be told on the issue"),
    }
}
