//! The status comment of a run while it works: where it is, what it cost, what was heard. Edited in place, not too often.

use std::collections::BTreeSet;
use std::convert::Infallible;

use super::new_remarks;
use super::run::Run;
use crate::domain::event::Event;
use crate::domain::remark::RemarkId;
use crate::record::rendering;
use crate::record::summary_text::counted;

/// Shows how far the run is, until it writes its end.
pub async fn show(run: &Run<'_>) -> Infallible {
    let every = run.context.config.conversation.progress_interval.0;
    let mut shown = String::new();
    loop {
        tokio::time::sleep(every).await;
        let text = text(run).await;
        let mut comment = run.status_comment.lock().await;
        if comment.ends || text == shown || !comment.may_write(is_there(run).await) {
            continue;
        }
        run.lease.show(run.plan, run.context, &text).await;
        shown = text;
    }
}

/// Whether the run may write its end into the status comment; from now on nothing else does.
pub async fn may_end(run: &Run<'_>) -> bool {
    let mut comment = run.status_comment.lock().await;
    comment.ends = true;
    comment.may_write(is_there(run).await)
}

/// Whether the status comment is there, as far as GitHub says.
async fn is_there(run: &Run<'_>) -> bool {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return true };
    let marker = rendering::marker(&run.plan.issue.key);
    let found = github.find_comment(&run.context.repo, number, &marker).await;
    found.map_or(true, |found| found.is_some())
}

async fn text(run: &Run<'_>) -> String {
    let facts = run.journal.facts();
    let mut parts = Vec::new();
    if let Some((visit, step)) = &facts.unfinished {
        let turn = facts.ledger.last().filter(|entry| entry.step_id == *step).map_or(1, |entry| entry.turn);
        parts.push(format!("step `{}`, visit {visit}, turn {turn}", step.replace('`', "'")));
    }
    let totals = facts.totals();
    parts.push(format!("{}{} so far", if totals.cost_unknown { "at least " } else { "" }, totals.cost));
    let told: BTreeSet<RemarkId> = facts
        .other
        .iter()
        .filter_map(|(_, event)| match event {
            Event::RemarkTold { id, .. } => Some(*id),
            _ => None,
        })
        .collect();
    let waiting = new_remarks::waiting(run).await;
    parts.push(format!("{} heard, {waiting} of them waiting", counted(told.len() + waiting, "remark")));
    format!("\nNow: {}.\n", parts.join("; "))
}
