//! The index of runs: results and costs, read once when a run has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::{Value, json};

use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::run_output::rfc3339;
use crate::record::run_facts;
use crate::store::run_dir::{RunDir, StateDir};

/// Sums over runs are of so long ago at most.
const FRESH: Duration = Duration::from_secs(1);
/// Days of the cost's list.
const DAYS: usize = 31;

/// One run, in a line.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub run_id: RunId,
    pub repo: RepoName,
    /// Members of the run output that a list shows; `None` while the run is under way.
    pub ended: Option<Arc<Value>>,
    /// The issue and its title, of a run under way.
    pub begun: Option<Arc<Value>>,
    /// In a cluster: the node that it is on, and when that said so, by the store's clock.
    pub seen: Option<(String, DateTime<Utc>)>,
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
        let mut line = json!({
            "run_id": self.run_id, "repo": self.repo, "state": if self.ended.is_some() { "ended" } else { "under way" },
        });
        if let Some((node, as_of)) = &self.seen {
            line["node"] = json!(node);
            line["as_of"] = json!(rfc3339(*as_of));
            line["age_ms"] = json!((now - *as_of).num_milliseconds().max(0));
        }
        for (name, value) in
            [&self.ended, &self.begun].into_iter().flatten().flat_map(|known| known.as_object()).flatten()
        {
            line[name] = value.clone();
        }
        line
    }

    fn text(&self, name: &str) -> &str {
        self.ended.as_ref().and_then(|ended| ended[name].as_str()).unwrap_or_default()
    }

    /// US dollars; 0 where it is not known.
    pub fn cost(&self) -> f64 {
        self.ended.as_ref().and_then(|ended| ended["cost_usd"].as_f64()).unwrap_or_default()
    }

    /// The stop reason; empty while it is under way.
    pub fn reason(&self) -> &str {
        self.text("stop_reason")
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
    ended: BTreeMap<RunId, Arc<Value>>,
    begun: BTreeMap<RunId, Arc<Value>>,
}

impl Known {
    fn ended(&mut self, dir: &RunDir) -> Option<Arc<Value>> {
        if let Some(known) = self.ended.get(&dir.run_id) {
            return Some(Arc::clone(known));
        }
        let read = Arc::new(brief(dir)?);
        self.begun.remove(&dir.run_id);
        self.ended.insert(dir.run_id, Arc::clone(&read));
        Some(read)
    }

    fn row(&mut self, dir: RunDir) -> Row {
        let ended = self.ended(&dir);
        if ended.is_some() {
            return Row { run_id: dir.run_id, repo: dir.repo, ended, begun: None, seen: None };
        }
        let begun = self.begun.get(&dir.run_id).cloned().or_else(|| {
            let read = Arc::new(begun(&dir)?);
            self.begun.insert(dir.run_id, Arc::clone(&read));
            Some(read)
        });
        Row { run_id: dir.run_id, repo: dir.repo, ended, begun, seen: None }
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
                let ended = Some(known.ended(&dir)?);
                Some(Row { run_id: dir.run_id, repo: dir.repo, ended, begun: None, seen: None })
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

/// A run by its id, a unique prefix of it, or `latest`.
pub(super) fn chosen<'r>(rows: &'r [Row], asked: &str) -> Option<&'r Row> {
    let mut named = rows.iter().filter(|row| asked == "latest" || row.run_id.to_string().starts_with(asked));
    let first = named.next()?;
    (asked == "latest" || named.next().is_none()).then_some(first)
}

fn brief(dir: &RunDir) -> Option<Value> {
    let text = std::fs::read(dir.result()).ok()?;
    let output: Value = serde_json::from_slice(&text).ok()?;
    Some(json!({
        "issue": output["mapping"]["issue"], "instance": output["mapping"]["instance"], "title": output["objective"]["title"],
        "started_at": output["started_at"], "completed_at": output["completed_at"],
        "success": output["success"], "stop_reason": output["stop_reason"], "stop_detail": output["stop_detail"],
        "steps": output["iterations"], "cost_usd": output["totals"]["cost_usd"], "pr_url": output["artifacts"]["pr_url"],
    }))
}

fn begun(dir: &RunDir) -> Option<Value> {
    let lease = run_facts::read(dir).ok()?.lease?;
    Some(json!({ "issue": lease.issue.key, "instance": lease.instance, "title": lease.issue.title }))
}

/// Sums over runs and conversations; `live` is what the runs under way have cost.
pub(super) fn cost(rows: &[Row], live: f64, conversations: &BTreeMap<NaiveDate, Money>) -> Value {
    let mut days: BTreeMap<String, f64> =
        conversations.iter().map(|(day, cost)| (day.to_string(), cost.dollars())).collect();
    let chats = conversations.values().copied().sum::<Money>().dollars();
    let mut repositories: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.ended.is_some()) {
        let day = row.text("started_at").get(..10).unwrap_or_default().to_owned();
        *days.entry(day).or_default() += row.cost();
        *repositories.entry(row.repo.to_string()).or_default() += row.cost();
    }
    // A sum over nothing begins with -0.0.
    let total = days.values().fold(0.0, |sum, cost| sum + cost);
    let by_day: BTreeMap<&String, f64> =
        days.iter().rev().take(DAYS).map(|(day, cost)| (day, *cost)).collect();
    json!({
        "total_usd": total + live, "under_way_usd": live, "conversations_usd": chats,
        "by_day": by_day, "by_repository": repositories,
    })
}
