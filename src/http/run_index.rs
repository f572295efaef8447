//! The index of runs: results and costs, read once when a run has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::{Value, json};

use crate::domain::ledger_entry::{AccountingEntry, CostSum, LedgerTotals};
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::outgoing::plain_line;
use crate::domain::run::RunId;
use crate::domain::run_output::{RunOutput, rfc3339};
use crate::engine::journal::JournalError;
use crate::record::{report, run_facts};
use crate::store::run_dir::{RunDir, StateDir};

/// Sums over runs are of so long ago at most.
const FRESH: Duration = Duration::from_secs(1);
/// Characters of an issue's title.
const LONGEST_TITLE: usize = 300;

/// One run, in a line.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub run_id: RunId,
    pub repo: RepoName,
    /// `None` while the run is under way.
    pub ended: Option<Arc<Ended>>,
    /// The issue and its title, of a run under way.
    pub begun: Option<Arc<Value>>,
    /// Whether its journal cannot be read: what became of it is not known.
    pub is_unreadable: bool,
    /// In a cluster: the node that it is on, and when that said so, by the store's clock.
    pub seen: Option<(String, DateTime<Utc>)>,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Members of the run output that a list shows.
    pub told: Value,
    /// What it cost, by the day (UTC) on which each request began.
    pub costs: BTreeMap<NaiveDate, CostSum>,
}

impl Ended {
    /// One whose cost counts on the day on which it began.
    pub fn on_one_day(told: Value, cost: CostSum) -> Self {
        let day = told["started_at"].as_str().and_then(|at| at.get(..10)?.parse().ok());
        let costs = day.map(|day: NaiveDate| (day, cost)).into_iter().collect();
        Self::new(told, costs)
    }

    fn new(mut told: Value, costs: BTreeMap<NaiveDate, CostSum>) -> Self {
        told["cost_unknown"] = json!(costs.values().any(|day| day.of_unknown_cost > 0));
        Self { told, costs }
    }

    fn of(dir: &RunDir, output: &RunOutput) -> Self {
        let mapping = output.mapping.as_ref();
        let told = json!({
            "issue": mapping.map(|mapping| &mapping.issue), "instance": mapping.map(|mapping| &mapping.instance),
            "title": shown_title(&output.objective.title), "started_at": output.started_at, "completed_at": output.completed_at,
            "success": output.success, "stop_reason": output.stop_reason, "stop_detail": output.stop_detail,
            "steps": output.iterations, "cost_usd": output.totals.cost_usd, "pr_url": output.artifacts.pr_url,
        });
        // Its ledger is read only where it may have requests of several days, or some whose cost nobody knows.
        let several = output.started_at.get(..10) != output.completed_at.get(..10);
        let known = output.totals.cost_usd;
        let reads = several || known.is_none() || may_have_unknown_cost(dir);
        match reads.then(|| run_facts::read(dir).ok()).flatten() {
            Some(facts) => Self::new(told, by_day(&facts.ledger)),
            None => {
                let of_unknown_cost = known.is_none().into();
                Self::on_one_day(told, CostSum { known: known.unwrap_or_default(), of_unknown_cost })
            }
        }
    }
}

/// Whether a line of a run's ledger has no cost. That of a request that reached nobody has none, too, and nothing is missing there.
fn may_have_unknown_cost(dir: &RunDir) -> bool {
    let ledger = std::fs::read_to_string(dir.accounting());
    ledger.is_ok_and(|ledger| ledger.contains("\"costSource\":\"unknown\""))
}

/// An issue's title: people wrote it, and it is shown in one line, without characters that hide or turn what is beside it.
pub(super) fn shown_title(title: &str) -> String {
    plain_line(title, LONGEST_TITLE)
}

fn by_day(ledger: &[AccountingEntry]) -> BTreeMap<NaiveDate, CostSum> {
    let mut days: BTreeMap<NaiveDate, Vec<AccountingEntry>> = BTreeMap::new();
    for entry in ledger {
        let at = DateTime::from_timestamp_millis(entry.timestamp).unwrap_or_default();
        days.entry(at.date_naive()).or_default().push(entry.clone());
    }
    days.into_iter().map(|(day, entries)| (day, (&LedgerTotals::of(&entries)).into())).collect()
}

/// Runs, newest first.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub all: Arc<[Row]>,
    /// To when ages count: in a cluster now, by the store's clock.
    pub now: DateTime<Utc>,
}

impl Row {
    /// As the API lists it. `now`: see [`Rows::now`].
    pub fn document(&self, now: DateTime<Utc>) -> Value {
        let state = match self.ended {
            Some(_) => "ended",
            None if self.is_unreadable => "unreadable",
            None => "under way",
        };
        let mut line = json!({ "run_id": self.run_id, "repo": self.repo, "state": state });
        if let Some((node, as_of)) = &self.seen {
            line["node"] = json!(node);
            line["as_of"] = json!(rfc3339(*as_of));
            line["age_ms"] = json!((now - *as_of).num_milliseconds().max(0));
        }
        let ended = self.ended.as_ref().map(|ended| &ended.told);
        let known = [ended, self.begun.as_deref()];
        for (name, value) in known.into_iter().flatten().filter_map(Value::as_object).flatten() {
            line[name] = value.clone();
        }
        line
    }

    /// What it is known to have cost.
    pub fn cost(&self) -> Money {
        self.ended.iter().flat_map(|ended| ended.costs.values()).map(|day| day.known).sum()
    }

    /// Whether it cost more than is known.
    pub fn is_of_unknown_cost(&self) -> bool {
        self.ended.iter().flat_map(|ended| ended.costs.values()).any(|day| day.of_unknown_cost > 0)
    }

    /// The stop reason; empty while it is under way.
    pub fn reason(&self) -> &str {
        self.ended.as_ref().and_then(|ended| ended.told["stop_reason"].as_str()).unwrap_or_default()
    }
}

/// Reads runs; each is kept in memory by its few members.
#[derive(Debug)]
pub(super) struct RunIndex {
    state: StateDir,
    known: Arc<Mutex<Known>>,
    /// Those that ended, and when they were read.
    ended: tokio::sync::Mutex<Option<(Instant, Arc<[Row]>)>>,
}

/// What was read once: how runs ended, and how those began that have not.
#[derive(Debug, Default)]
struct Known {
    ended: BTreeMap<RunId, Arc<Ended>>,
    begun: BTreeMap<RunId, Arc<Value>>,
}

impl Known {
    /// How a run ended; `None` = it has not.
    fn ended(&mut self, dir: &RunDir) -> Result<Option<Arc<Ended>>, JournalError> {
        if let Some(known) = self.ended.get(&dir.run_id) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(output) = report::output_if_ended(dir)? else { return Ok(None) };
        let read = Arc::new(Ended::of(dir, &output));
        self.begun.remove(&dir.run_id);
        self.ended.insert(dir.run_id, Arc::clone(&read));
        Ok(Some(read))
    }

    fn begun(&mut self, dir: &RunDir) -> Result<Option<Arc<Value>>, JournalError> {
        if let Some(known) = self.begun.get(&dir.run_id) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(lease) = run_facts::read(dir)?.lease else { return Ok(None) };
        let title = shown_title(&lease.issue.title);
        let read = json!({ "issue": lease.issue.key, "instance": lease.instance, "title": title });
        let read = Arc::new(read);
        self.begun.insert(dir.run_id, Arc::clone(&read));
        Ok(Some(read))
    }

    fn row(&mut self, dir: RunDir) -> Row {
        let known = match self.ended(&dir) {
            Ok(None) => self.begun(&dir).map(|begun| (None, begun)),
            Ok(ended) => Ok((ended, None)),
            Err(error) => Err(error),
        };
        let is_unreadable = known.is_err();
        let (ended, begun) = known.unwrap_or_default();
        Row { run_id: dir.run_id, repo: dir.repo, ended, begun, is_unreadable, seen: None }
    }
}

impl RunIndex {
    pub fn new(state: StateDir) -> Self {
        Self { state, known: Arc::default(), ended: tokio::sync::Mutex::default() }
    }

    /// Every run, newest first.
    pub async fn rows(&self) -> Arc<[Row]> {
        let (state, known) = (self.state.clone(), Arc::clone(&self.known));
        let read = move || {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let dirs = state.runs(None).unwrap_or_default();
            dirs.into_iter().map(|dir| known.row(dir)).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Arc::default())
    }

    /// The runs that ended, as they were within the last second. Who asks often waits for one reading, and of a run under way
    /// no journal is read.
    pub async fn ended(&self) -> Arc<[Row]> {
        let mut last = self.ended.lock().await;
        if let Some((read, rows)) = &*last
            && read.elapsed() < FRESH
        {
            return Arc::clone(rows);
        }
        let (state, known) = (self.state.clone(), Arc::clone(&self.known));
        let read = move || -> Vec<Row> {
            let dirs = state.runs(None).unwrap_or_default();
            let ended = |dir: RunDir| {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let ended = Some(known.ended(&dir).ok()??);
                Some(Row {
                    run_id: dir.run_id,
                    repo: dir.repo,
                    ended,
                    begun: None,
                    is_unreadable: false,
                    seen: None,
                })
            };
            dirs.into_iter().filter_map(ended).collect()
        };
        let rows: Arc<[Row]> = tokio::task::spawn_blocking(read).await.unwrap_or_default().into();
        *last = Some((Instant::now(), Arc::clone(&rows)));
        rows
    }

    /// The directory of a run.
    pub fn directory(&self, row: &Row) -> RunDir {
        self.state.run(&row.repo, row.run_id)
    }
}

/// Runs by an id, by a prefix of it, or the `latest`: one where it is told which.
pub(super) fn chosen<'r>(rows: &'r [Row], asked: &str) -> Vec<&'r Row> {
    if asked == "latest" {
        return rows.iter().take(1).collect();
    }
    rows.iter().filter(|row| row.run_id.to_string().starts_with(asked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::costs;

    fn request(at: &str, cost: Option<f64>) -> AccountingEntry {
        let source = if cost.is_some() { "table" } else { "unknown" };
        let at: DateTime<Utc> = at.parse().unwrap();
        serde_json::from_value(json!({
            "type": "llm", "provider": "p", "model": "m", "tokens": null, "costUsd": cost, "costSource": source,
            "fingerprint": "f", "timestamp": at.timestamp_millis(), "status": "ok", "latency": 1, "agentId": "a",
            "callPath": "c", "txnId": "t", "originTxnId": "o", "runId": "r", "stepId": "s", "stepVisit": 1, "turn": 1,
        }))
        .unwrap()
    }

    #[test]
    fn the_money_of_a_run_over_midnight_is_in_the_days_of_its_requests_and_sums_have_no_dust() {
        let ledger = [
            request("2026-12-01T23:59:58Z", Some(0.036)),
            request("2026-12-02T00:00:03Z", Some(0.036)),
            request("2026-12-02T00:00:09Z", Some(0.072)),
            request("2026-12-02T00:00:12Z", None),
        ];
        let costs = by_day(&ledger);
        let told = json!({ "started_at": "2026-12-01T23:59:53.000Z" });
        let ended = Some(Arc::new(Ended::new(told, costs)));
        let row = Row {
            run_id: RunId(uuid::Uuid::nil()),
            repo: RepoName::parse("demo/shop").unwrap(),
            ended,
            begun: None,
            is_unreadable: false,
            seen: None,
        };
        assert_eq!(row.document(DateTime::UNIX_EPOCH)["cost_unknown"], true);
        let sums = costs::sums(&[row], Money::ZERO, &BTreeMap::new());
        assert_eq!(sums["by_day"], json!({ "2026-12-01": 0.036, "2026-12-02": 0.108 }));
        assert_eq!((&sums["total_usd"], &sums["by_repository"]["demo/shop"]), (&json!(0.144), &json!(0.144)));
        assert_eq!(
            (&sums["runs_of_unknown_cost"], &sums["unknown_by_day"]),
            (&json!(1), &json!({ "2026-12-02": 1 }))
        );
    }
}
