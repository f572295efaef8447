//! What runs and conversations cost, and what counts against the cap of the day.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::NaiveDate;
use serde_json::{Value, json};
use uuid::Uuid;

use super::run_index::Row;
use super::shared::Shared;
use crate::daemon::status_format::Status;
use crate::domain::ledger_entry::CostSum;
use crate::domain::money::Money;
use crate::engine::shared_cap;
use crate::sys::clock::Clock;

/// Days of the cost's list.
const DAYS: usize = 31;

/// The cap of the day, and what counts against it. What nobody knows the cost of stays set aside at its worst case.
#[derive(Debug, Clone)]
pub(super) struct DayCap {
    /// The day (UTC).
    pub day: NaiveDate,
    /// `budgets.max_cost_per_day`.
    pub cap_usd: Money,
    /// What requests cost; `None` = that cannot be read.
    pub spent_usd: Option<Money>,
    /// What is set aside beside that.
    pub set_aside_usd: Option<Money>,
}

impl DayCap {
    /// As the API tells it.
    pub fn document(&self) -> Value {
        json!({
            "day": self.day, "cap_usd": self.cap_usd, "spent_usd": self.spent_usd, "set_aside_usd": self.set_aside_usd,
        })
    }
}

/// Where there is a cap of the day, how it stands.
pub(super) async fn day_cap(shared: &Shared) -> Option<DayCap> {
    let cap_usd = (*shared.front.day_cap.borrow())?;
    let now = Clock::system().now();
    let store = shared.store_answers().then(|| Arc::clone(shared.front.state.store()));
    let read = move || shared_cap::day_spending(&store?, now).ok();
    let spending = tokio::task::spawn_blocking(read).await.ok().flatten();
    Some(DayCap {
        day: now.date_naive(),
        cap_usd,
        spent_usd: spending.as_ref().map(|spending| spending.spent),
        set_aside_usd: spending.as_ref().map(|spending| spending.set_aside()),
    })
}

/// What the runs under way have cost. What earlier runs of theirs did is in their records, and so is what a run did that has ended since
/// the status was said.
pub(super) fn live_cost(status: Option<&Status>, rows: &[Row]) -> Money {
    let running = status.map(|status| status.running.as_slice()).unwrap_or_default();
    if running.is_empty() {
        return Money::ZERO;
    }
    let ended: BTreeSet<Uuid> =
        rows.iter().filter(|row| row.ended.is_some()).map(|row| row.run_id.0).collect();
    let costs = running.iter().filter_map(|run| run.progress.as_ref());
    let costs = costs.filter(|run| !Uuid::parse_str(&run.run_id).is_ok_and(|id| ended.contains(&id)));
    costs.map(|run| run.cost_usd.saturating_sub(run.inherited_usd)).sum()
}

/// Sums over runs and conversations; `live` is what the runs under way have cost.
pub(super) fn sums(rows: &[Row], live: Money, conversations: &BTreeMap<NaiveDate, CostSum>) -> Value {
    let mut days = conversations.clone();
    let mut repositories: BTreeMap<String, Money> = BTreeMap::new();
    for row in rows {
        let Some(ended) = &row.ended else { continue };
        for (day, cost) in &ended.costs {
            *days.entry(*day).or_default() += *cost;
        }
        *repositories.entry(row.repo.to_string()).or_default() += row.cost();
    }
    let mut of_conversations = CostSum::default();
    conversations.values().for_each(|day| of_conversations += *day);
    let total: Money = days.values().map(|day| day.known).sum();
    let newest = || days.iter().rev().take(DAYS);
    let by_day: BTreeMap<_, _> = newest().map(|(day, cost)| (day, cost.known)).collect();
    let unknown_by_day: BTreeMap<_, _> =
        newest().map(|(day, cost)| (day, cost.of_unknown_cost)).filter(|(_, many)| *many > 0).collect();
    json!({
        "total_usd": total + live, "under_way_usd": live, "conversations_usd": of_conversations.known,
        "by_day": by_day, "by_repository": repositories,
        "runs_of_unknown_cost": rows.iter().filter(|row| row.is_of_unknown_cost()).count(),
        "turns_of_unknown_cost": of_conversations.of_unknown_cost,
        "unknown_by_day": unknown_by_day,
    })
}
