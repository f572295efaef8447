//! In a cluster: what the other nodes say and have, so that the front of each node tells the same. Nothing is asked while nobody asks here.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound as _, Utc};
use futures::StreamExt as _;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::run_index::{Ended, Row, Rows, shown_title};
use crate::daemon::cluster::status::{NodeWord, of_all};
use crate::daemon::status_format::{LogLine, Status};
use crate::daemon::{IssueRef, shown_line};
use crate::domain::cluster::names::token;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::ledger_entry::CostSum;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::run_output::rfc3339_of_ms;
use crate::domain::stop::StopReason;
use crate::record::mirror::mirror_format::{KnownRow, KnownStatus};
use crate::record::mirror::{Mirror, NotShown, Shown};
use crate::store::port::StoreError;
use crate::store::run_dir::RunDir;
use crate::sys::clock::Clock;

/// What is told is of so long ago at most, beside what its node takes to say it.
const FRESH: Duration = Duration::from_secs(1);
/// All rows are read anew this often, so that those past their time go.
const ANEW: Duration = Duration::from_secs(3600);
/// Log lines that a listener may be behind before it misses some.
const BEHIND: usize = 1024;
/// How often it is looked whether anybody still listens.
const LISTENS: Duration = Duration::from_secs(10);

/// The other nodes, as this one sees them.
#[derive(Debug)]
pub struct OtherNodes {
    mirror: Arc<Mirror>,
    node: String,
    words: tokio::sync::Mutex<Option<(Instant, Arc<Shown<KnownStatus>>)>>,
    rows: tokio::sync::Mutex<Table>,
    lines: broadcast::Sender<Arc<LogLine>>,
    follows: Mutex<Option<JoinHandle<()>>>,
}

/// The rows of all runs.
#[derive(Debug, Default)]
struct Table {
    /// When it was read, and when it was read whole.
    read: Option<(Instant, Instant)>,
    /// What is behind this place in the stream of rows was not read yet.
    end: u64,
    known: BTreeMap<Reverse<RunId>, (RunRow, Row)>,
    told: Option<Rows>,
}

impl OtherNodes {
    /// As `mirror` shows them; `node` is this one's name.
    pub fn new(mirror: Mirror, node: &str) -> Self {
        Self {
            mirror: Arc::new(mirror),
            node: token(node),
            words: tokio::sync::Mutex::default(),
            rows: tokio::sync::Mutex::default(),
            lines: broadcast::Sender::new(BEHIND),
            follows: Mutex::default(),
        }
    }

    /// A status of this node, with what the others say. Without the store: with what they said last, and since when nothing newer is
    /// known.
    pub(super) async fn with_others(&self, own: Status) -> Status {
        let away = own.store_unavailable.as_ref().map(|away| away.since);
        let Some(shown) = self.words(away.is_none()).await else {
            return Status { stale_since: away, ..own };
        };
        let mut words: Vec<NodeWord> = shown.items.iter().map(word).collect();
        words.retain(|word| token(&word.node) != self.node);
        let here =
            NodeWord { node: self.node.clone(), lives: true, as_of: own.at, status: Some(own.clone()) };
        words.push(here);
        words.sort_by(|a, b| a.node.cmp(&b.node));
        let stale_since = away.or(shown.stale.as_ref().map(|(since, _)| *since));
        Status { stale_since, ..of_all(own, &words) }
    }

    /// `asks`: whether the store answers; else what it said last is given, so that nobody waits for it.
    async fn words(&self, asks: bool) -> Option<Arc<Shown<KnownStatus>>> {
        let mut last = self.words.lock().await;
        if let Some((read, words)) = &*last
            && (!asks || read.elapsed() < FRESH)
        {
            return Some(Arc::clone(words));
        }
        let mirror = Arc::clone(&self.mirror);
        match tokio::task::spawn_blocking(move || mirror.statuses()).await.ok()? {
            Ok(shown) => {
                let words = Arc::new(shown);
                *last = Some((Instant::now(), Arc::clone(&words)));
                Some(words)
            }
            Err(error) => {
                tracing::debug!("what the other nodes say is not known: {error}");
                None
            }
        }
    }

    /// The runs of all nodes. Without the store: those that were last known. `asks`: whether it answers, as far as this node knows.
    pub(super) async fn rows(&self, asks: bool) -> Rows {
        let mut table = self.rows.lock().await;
        if let (Some((read, _)), Some(told)) = (table.read, &table.told)
            && (!asks || read.elapsed() < FRESH)
        {
            return told.clone();
        }
        let whole = table.read.is_none_or(|(_, whole)| whole.elapsed() > ANEW);
        let (mirror, behind) = (Arc::clone(&self.mirror), if whole { 0 } else { table.end });
        let read = move || {
            let store = mirror.store().map_err(Clone::clone)?;
            let (rows, end) = store.rows_behind(behind)?;
            Ok((rows, end, store.servers_time()?.map(|(now, _)| now)))
        };
        let read: Result<_, StoreError> = match tokio::task::spawn_blocking(read).await {
            Ok(read) => read,
            Err(panic) => {
                tracing::error!(%panic, "the runs of the other nodes cannot be read");
                return table
                    .told
                    .clone()
                    .unwrap_or_else(|| Rows { all: Arc::default(), now: Clock::system().now() });
            }
        };
        match read {
            Ok((rows, end, now)) => {
                if whole {
                    table.known.clear();
                }
                let is_new = whole || !rows.is_empty();
                for seen in rows {
                    table.take(seen.row, seen.written);
                }
                table.end = end;
                let began = table.read.filter(|_| !whole).map_or_else(Instant::now, |(_, whole)| whole);
                table.read = Some((Instant::now(), began));
                table.tell(is_new, now.unwrap_or_else(|| Clock::system().now()))
            }
            Err(error) => {
                tracing::debug!("the runs of the other nodes cannot be read: {error}");
                if table.told.is_none() {
                    let mirror = Arc::clone(&self.mirror);
                    let known = tokio::task::spawn_blocking(move || mirror.runs()).await;
                    for KnownRow { row, as_of } in
                        known.ok().and_then(Result::ok).into_iter().flat_map(|known| known.items)
                    {
                        table.take(row, as_of);
                    }
                }
                table.tell(true, Clock::system().now())
            }
        }
    }

    /// The directory of a run, brought here where it is another node's.
    ///
    /// # Errors
    /// It cannot be brought, or is not as it was written.
    pub(super) async fn directory(&self, run: RunId) -> Option<Result<RunDir, NotShown>> {
        let row = self.rows.lock().await.known.get(&Reverse(run)).map(|(row, _)| row.clone())?;
        let mirror = Arc::clone(&self.mirror);
        tokio::task::spawn_blocking(move || mirror.directory(&row)).await.ok()
    }

    /// What runs on other nodes say from now on.
    pub(super) fn lines(self: &Arc<Self>) -> broadcast::Receiver<Arc<LogLine>> {
        let mut follows = self.follows.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.lines.subscribe();
        if follows.as_ref().is_none_or(JoinHandle::is_finished) {
            *follows = Some(tokio::spawn(Arc::clone(self).follow()));
        }
        lines
    }

    /// Passes on what runs on other nodes say, for as long as somebody listens.
    async fn follow(self: Arc<Self>) {
        let Ok(store) = self.mirror.store() else { return };
        let mut lines = store.lines_from_now();
        let mut looks = tokio::time::interval(LISTENS);
        loop {
            tokio::select! {
                line = lines.next() => {
                    let Some(line) = line else { return };
                    if let Some(issue) = self.issue_of(line.run_id).await
                        && let Some(said) = shown_line(&issue, &line)
                    {
                        let _nobody_listens = self.lines.send(Arc::new(said));
                    }
                }
                _ = looks.tick() => {
                    let mut follows = self.follows.lock().unwrap_or_else(PoisonError::into_inner);
                    if self.lines.receiver_count() == 0 {
                        *follows = None;
                        return;
                    }
                }
            }
        }
    }

    /// The issue of another node's run, once there is a row of it.
    async fn issue_of(&self, run: RunId) -> Option<IssueRef> {
        if !self.rows.lock().await.known.contains_key(&Reverse(run)) {
            self.rows(true).await;
        }
        let table = self.rows.lock().await;
        let (row, _) = table.known.get(&Reverse(run)).filter(|(row, _)| token(&row.node) != self.node)?;
        Some(IssueRef { repo: RepoName::parse(&row.repo).ok()?, number: row.issue.as_ref()?.number()? })
    }
}

impl Table {
    fn take(&mut self, row: RunRow, as_of: DateTime<Utc>) {
        let Some(told) = told(&row, as_of) else { return };
        self.known.insert(Reverse(told.run_id), (row, told));
    }

    fn tell(&mut self, is_new: bool, now: DateTime<Utc>) -> Rows {
        let all = match self.told.take().filter(|_| !is_new) {
            Some(told) => told.all,
            None => self.known.values().map(|(_, row)| row.clone()).collect(),
        };
        self.told.insert(Rows { all, now }).clone()
    }
}

/// A node's word; without a status where that is of a version that cannot be read here.
pub fn word(known: &KnownStatus) -> NodeWord {
    let status = serde_json::from_value(known.status.clone());
    let as_of = known.as_of.trunc_subsecs(3);
    NodeWord { node: known.node.clone(), lives: known.lives, as_of, status: status.ok() }
}

/// A run's row with the members that one of this state directory has.
fn told(row: &RunRow, as_of: DateTime<Utc>) -> Option<Row> {
    let title = shown_title(&row.title);
    let began = json!({ "issue": row.issue, "instance": row.instance, "title": title });
    let ended = row.stop_detail.zip(row.stop_reason).filter(|_| row.sealed).map(|(detail, reason)| {
        let mut ended = began.clone();
        ended["started_at"] = json!(rfc3339_of_ms(row.started_at));
        ended["completed_at"] = json!(rfc3339_of_ms(row.last_at));
        ended["success"] = json!(reason == StopReason::ObjectiveAchieved);
        ended["stop_reason"] = json!(reason);
        ended["stop_detail"] = json!(detail);
        ended["steps"] = json!(row.visits);
        let is_known = !row.cost_unknown || row.cost_usd > Money::ZERO;
        ended["cost_usd"] = json!(is_known.then_some(row.cost_usd));
        ended["pr_url"] = json!(row.pull_request);
        let cost = CostSum { known: row.cost_usd, of_unknown_cost: row.cost_unknown.into() };
        Arc::new(Ended::on_one_day(ended, cost))
    });
    let begun = ended.is_none().then(|| Arc::new(began));
    let repo = RepoName::parse(&row.repo).ok()?;
    let seen = Some((row.node.clone(), as_of));
    Some(Row { run_id: RunId(row.run_id), repo, ended, begun, is_unreadable: false, seen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run_output::rfc3339;

    #[test]
    fn a_row_is_told_as_a_run_of_this_state_directory_is() {
        let repo = RepoName::parse("demo/shop").unwrap();
        let mut row = RunRow::new(&repo, RunId(uuid::Uuid::from_u128(7)));
        row.node = "a".into();
        row.title = "a bug".into();
        let at = DateTime::UNIX_EPOCH;
        let document = told(&row, at).unwrap().document(at + Duration::from_secs(2));
        assert_eq!((&document["state"], &document["title"]), (&json!("under way"), &json!("a bug")));
        assert_eq!((&document["node"], &document["age_ms"]), (&json!("a"), &json!(2000)));
        row.stop_detail = Some(crate::domain::stop::StopDetail::Completed);
        row.stop_reason = Some(StopReason::ObjectiveAchieved);
        assert_eq!(
            told(&row, at).unwrap().document(at)["state"],
            "under way",
            "what it leaves is not written yet"
        );
        row.sealed = true;
        let document = told(&row, at).unwrap().document(at);
        assert_eq!((&document["state"], &document["success"]), (&json!("ended"), &json!(true)));
        assert_eq!(document["stop_reason"], "OBJECTIVE_ACHIEVED");
        assert_eq!(document["started_at"], rfc3339(at));
    }
}
