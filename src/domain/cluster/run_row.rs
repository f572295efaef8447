//! A run in a few words, as every node lists it: a fold of its journal, line by line, which stays small however long that is.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::event::{Effect, Event};
use crate::domain::facts::is_found_out_later;
use crate::domain::issue::{IssueKey, ObjectiveSource};
use crate::domain::ledger_entry::LedgerTotals;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::stop::{StopDetail, StopReason};

/// Version of [`RunRow`].
pub const RUN_ROW_SCHEMA: &str = "agentd.run.row.v1";
/// Most bytes of a row as JSON.
pub const LARGEST_ROW: usize = 4096;
/// Most bytes of a text of others in it, as JSON.
const LONGEST_TEXT: usize = 512;
/// Most bytes of a name or an address in it; a longer one is cut, or left out where half of it would lead nowhere.
const LONGEST_NAME: usize = 256;

/// One run, in at most [`LARGEST_ROW`] bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunRow {
    /// [`RUN_ROW_SCHEMA`].
    pub schema_version: String,
    /// The run.
    pub run_id: Uuid,
    /// Its repository, `owner/name`.
    pub repo: String,
    /// Its issue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<IssueKey>,
    /// The issue's title, cut where it is long.
    pub title: String,
    /// What asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ObjectiveSource>,
    /// Whether it repairs the issue's pull request.
    pub follow_up: bool,
    /// The instance that holds the lease.
    pub instance: String,
    /// The node that it ran on; empty = a run that was brought into the cluster from files.
    pub node: String,
    /// Which life of that node.
    pub session: u64,
    /// Which taking of the issue's lease it works under.
    pub term: u64,
    /// The run that it goes on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_run: Option<Uuid>,
    /// Time of its first event, milliseconds since 1970.
    pub started_at: i64,
    /// Time of its last event, as for a run's facts.
    pub last_at: i64,
    /// Finished visits, those that it took over from the run before included.
    pub visits: u32,
    /// The step that it is at, while a visit is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Model requests.
    pub llm_requests: u64,
    /// Uncached input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Tool executions.
    pub tools_run: u64,
    /// Known cost, US dollars.
    pub cost_usd: Money,
    /// Whether a request's cost is unknown.
    pub cost_unknown: bool,
    /// Notes for people.
    pub warnings: u32,
    /// Why it ended; absent while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Why exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_detail: Option<StopDetail>,
    /// The same for people, cut where it is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether everything that it leaves is written and sealed.
    pub sealed: bool,
    /// Its pull request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<String>,
    /// Head of its branch after the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Sequence of the last line of its journal that is folded in.
    pub seq: u64,
    /// Hash of that line.
    pub hash: String,
}

impl RunRow {
    /// The row of a run without a line.
    pub fn new(repo: &RepoName, run_id: RunId) -> Self {
        Self {
            schema_version: RUN_ROW_SCHEMA.to_owned(),
            run_id: run_id.0,
            repo: repo.to_string(),
            issue: None,
            title: String::new(),
            source: None,
            follow_up: false,
            instance: String::new(),
            node: String::new(),
            session: 0,
            term: 0,
            previous_run: None,
            started_at: 0,
            last_at: 0,
            visits: 0,
            step: None,
            llm_requests: 0,
            tokens_in: 0,
            tokens_out: 0,
            tools_run: 0,
            cost_usd: Money::ZERO,
            cost_unknown: false,
            warnings: 0,
            stop_reason: None,
            stop_detail: None,
            message: None,
            sealed: false,
            pull_request: None,
            head: None,
            seq: 0,
            hash: String::new(),
        }
    }

    /// Takes the next line of the journal in: its sequence, hash and time (milliseconds since 1970), and its event, where this
    /// version knows it.
    pub fn take(&mut self, (seq, hash, at): (u64, &str, i64), event: Option<&Event>) {
        (self.seq, self.hash) = (seq, hash.to_owned());
        if self.started_at == 0 {
            self.started_at = at;
        }
        // What is written behind the end is about the files, and what was found out later did not happen then.
        let Some(event) = event else { return };
        match event {
            Event::FilesSealed { .. } => return self.sealed = true,
            Event::RecordEmitted { .. } => return,
            event if is_found_out_later(event) => {}
            _ => self.last_at = at,
        }
        match event {
            Event::LeaseTaken(lease) => {
                self.issue = Some(lease.issue.key.clone());
                self.title = cut(&lease.issue.title, LONGEST_TEXT);
                self.source = Some(lease.source);
                self.follow_up = lease.follow_up;
                self.instance = cut(lease.instance.as_str(), LONGEST_NAME);
                self.previous_run = lease.previous_run.map(|run| run.0);
                if let Some(held) = &lease.held {
                    (self.node, self.session, self.term) = (held.by.node.clone(), held.by.session, held.term);
                }
            }
            Event::VisitImported(_) => self.visits += 1,
            Event::VisitStarted { step_id, .. } => self.step = Some(cut(step_id, LONGEST_NAME)),
            Event::VisitFinished(_) => {
                self.visits += 1;
                self.step = None;
            }
            Event::LlmAttempted { entry } | Event::ToolFinished { entry } => {
                let more = LedgerTotals::of(std::slice::from_ref(entry));
                self.llm_requests += more.llm_requests;
                self.tokens_in += more.tokens_in;
                self.tokens_out += more.tokens_out;
                self.tools_run += more.tools_run;
                self.cost_usd += more.cost;
                self.cost_unknown |= more.cost_unknown;
            }
            Event::Warned(_) | Event::BudgetSoftLimit { .. } => self.warnings += 1,
            Event::Committed { head, .. } => self.head = Some(head.to_string()),
            Event::EffectDone { effect: Effect::PullRequest, outcome } => {
                self.pull_request = (outcome.len() <= LONGEST_TEXT).then(|| outcome.clone());
            }
            Event::RunEnded { stop } => {
                (self.stop_reason, self.stop_detail) = (Some(stop.reason()), Some(stop.detail));
                self.message = Some(cut(&stop.message, LONGEST_TEXT));
                self.step = None;
            }
            _ => {}
        }
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        self.stop_detail.is_some()
    }
}

/// As much of a text from its beginning as takes no more than so many bytes in JSON.
fn cut(text: &str, most: usize) -> String {
    let mut left = most;
    text.chars()
        .take_while(|c| {
            let bytes = match c {
                '"' | '\\' => 2,
                c if c.is_control() => 6,
                c => c.len_utf8(),
            };
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A line of a journal as it is on disk, without what the row does not need.
    fn take(row: &mut RunRow, seq: u64, kind: &str, data: &Value) {
        let event: Event = serde_json::from_value(json!({ "kind": kind, "data": data })).unwrap();
        row.take((seq, &format!("{seq:064x}"), 1_700_000_000_000 + seq as i64), Some(&event));
    }

    fn lease(title: &str) -> Value {
        json!({
            "run_id": "01990000-0000-7000-8000-000000000001", "instance": "agent-issue-7-20261125T045000Z",
            "issue": { "repo": "octo/hello", "key": 7, "title": title, "body": "B", "open": true, "labels": [] },
            "source": "issue", "principal": { "id": "01990000-0000-7000-8000-000000000002", "source": "github" },
            "origin": { "branch": "main", "source": "explicit", "commit": "1".repeat(40) },
            "branch": "feature/issue-7", "worktree": ".worktrees/issue-7", "checkout": "/r",
            "held": { "cluster": "main", "node": "a", "session": 3, "term": 2 }, "runtime_version": "0.1.0",
        })
    }

    fn row() -> RunRow {
        RunRow::new(&RepoName::parse("octo/hello").unwrap(), RunId(Uuid::from_u128(1)))
    }

    #[test]
    fn a_row_is_folded_from_the_journal_as_the_golden_file_has_it() {
        let mut row = row();
        take(&mut row, 1, "lease_taken", &lease("Fix \"it\""));
        take(&mut row, 2, "visit_started", &json!({ "visit": 1, "step_id": "work" }));
        assert_eq!((row.step.as_deref(), row.ended()), (Some("work"), false));
        take(&mut row, 3, "warned", &json!({ "code": "c", "at": 1, "text": "t" }));
        let url = "https://github.com/octo/hello/pull/8";
        take(&mut row, 4, "effect_done", &json!({ "effect": "pull_request", "outcome": url }));
        take(&mut row, 5, "run_ended", &json!({ "stop": { "detail": "completed", "message": "Done." } }));
        row.take((6, "f", 9), None);
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/data/cluster/run-row.v1.json")).unwrap();
        assert_eq!(serde_json::to_value(&row).unwrap(), golden);
        assert_eq!(serde_json::from_value::<RunRow>(golden).unwrap(), row);
    }

    #[test]
    fn a_row_stays_small_whatever_others_wrote() {
        let mut row = row();
        take(&mut row, 1, "lease_taken", &lease(&"\u{1}\"é".repeat(4000)));
        take(&mut row, 2, "visit_started", &json!({ "visit": 1, "step_id": "s".repeat(9000) }));
        let url = "u".repeat(4000);
        take(&mut row, 4, "effect_done", &json!({ "effect": "pull_request", "outcome": url }));
        let stop = json!({ "detail": "interrupted", "message": "\n".repeat(5000) });
        take(&mut row, 5, "run_ended", &json!({ "stop": stop }));
        let text = serde_json::to_string(&row).unwrap();
        assert!(text.len() <= LARGEST_ROW, "{}", text.len());
        assert!(row.title.starts_with("\u{1}\"é") && row.pull_request.is_none());
        assert_eq!((row.started_at, row.last_at), (1_700_000_000_001, 1_700_000_000_004), "it ended before");
    }
}
