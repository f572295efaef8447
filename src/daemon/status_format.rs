//! The daemon's status file, from which `agentd status` reads in another process what the daemon does.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::conversation::parked::parked_format::{Parked, WaitsFor};
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::run_output::rfc3339;

/// Version of the file.
pub const SCHEMA: &str = "agentd.daemon_status.v1";

/// The code of an issue whose pull request is to have a follow-up run once people have written all.
pub const QUIET_PERIOD: &str = "quiet_period";
/// The code of one whose checks have failed in part, and run in part.
pub const CHECKS_RUNNING: &str = "checks_running";
/// The code of one that the daemon has queued and that no list has yet.
pub const QUEUED: &str = "queued";

/// The code of an issue that waits for nobody any more, before a run goes on with it.
const ANSWERED: &str = "answered";

/// `<state>/daemon/status.json`, written after every tick and every change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema_version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// agentd's version.
    pub version: String,
    /// When the daemon started.
    pub started_at: DateTime<Utc>,
    /// When this was written.
    pub at: DateTime<Utc>,
    /// How often the daemon looks at its repositories, and writes this at least; milliseconds. Absent = it writes only what changes, or is an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval_ms: Option<u64>,
    /// Whether it was told to stop.
    pub stopping: bool,
    /// Address of the HTTP front, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// What is wrong with the configuration on disk; absent = what is on disk is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    /// In a cluster: since when its store cannot be used; absent = it can, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_unavailable: Option<StoreTrouble>,
    /// In a cluster: how far this node's clock is off the store's, while that is too far for it to begin anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew: Option<ClockSkew>,
    /// In a cluster: which stream has no room for a run that begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_full: Option<StoreTrouble>,
    /// In a cluster: how long the store takes, while that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_slow: Option<StoreSlow>,
    /// In a cluster: that its store has begun anew today, so that it is not known what was spent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_begun_anew: Option<StoreTrouble>,
    /// In a cluster: the schema in force, while this version does not know it and begins nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_unknown: Option<SchemaUnknown>,
    /// How each repository's polling goes.
    pub repositories: Vec<RepositoryStatus>,
    /// What runs.
    pub running: Vec<RunningStatus>,
    /// What waits, with the reason.
    pub waiting: Vec<IssueStatus>,
    /// What a person has to look at.
    pub parked: Vec<IssueStatus>,
    /// GitHub's limits.
    pub limits: LimitsStatus,
    /// In a cluster, where it is asked for: every node, this one too, as they last said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
    /// Since when nothing newer is known of the other nodes; absent = it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<DateTime<Utc>>,
}

/// See [`Status::nodes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Whether it works.
    pub lives: bool,
    /// When it said what is told of it, by the store's clock.
    pub as_of: DateTime<Utc>,
    /// What is not well there: words that a person looks at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// A look at GitHub may take so long.
const LONG_LOOK: TimeDelta = TimeDelta::seconds(60);

impl Status {
    /// What is to be said of a daemon that has not written for long although it lives; `None` = it has, or only waits for its last runs.
    pub fn silence(&self, now: DateTime<Utc>) -> Option<String> {
        let interval = i64::try_from(self.poll_interval_ms?).ok()?;
        let longest = TimeDelta::try_milliseconds(interval.saturating_mul(2))? + LONG_LOOK;
        let silent = now - self.at;
        (silent > longest && !self.stopping).then(|| {
            format!(
                "The daemon (pid {}) lives and has written nothing for {} s, so that what is told of its runs may not be so any more: it is \
                 stopped or hangs, or the disk of its state directory is full. Its log may say which.",
                self.pid,
                silent.num_seconds()
            )
        })
    }

    /// Of one repository alone, where one is named.
    pub fn of_repository(mut self, repo: Option<&RepoName>) -> Self {
        if let Some(repo) = repo {
            self.repositories.retain(|one| one.repo == *repo);
            self.running.retain(|one| one.repo == *repo);
            self.waiting.retain(|one| one.repo == *repo);
            self.parked.retain(|one| one.repo == *repo);
        }
        self
    }
}

/// See [`Status::store_unavailable`], [`Status::store_full`] and [`Status::store_begun_anew`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StoreTrouble {
    /// Since when, by this node's clock.
    pub since: DateTime<Utc>,
    /// Why, as far as this node can tell.
    pub error: String,
}

/// See [`Status::clock_skew`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClockSkew {
    /// Since when, by this node's clock.
    pub since: DateTime<Utc>,
    /// Seconds; positive = this node's clock is ahead.
    pub seconds: i64,
    /// Seconds that it may be off (`cluster.max_clock_skew`).
    pub most_seconds: u64,
}

impl std::fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.seconds > 0 { "ahead of" } else { "behind" };
        let (seconds, most) = (self.seconds.unsigned_abs(), self.most_seconds);
        write!(
            f,
            "this node's clock is {seconds} s {way} the store's, and {most} s is the most (cluster.max_clock_skew)"
        )
    }
}

/// See [`Status::schema_unknown`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SchemaUnknown {
    /// Since when, by this node's clock.
    pub since: DateTime<Utc>,
    /// The schema that is in force.
    pub in_force: u32,
}

/// See [`Status::store_slow`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StoreSlow {
    /// Since when, by this node's clock.
    pub since: DateTime<Utc>,
    /// Milliseconds below which 99 of 100 writes of the last minute were acknowledged.
    pub p99_ms: u64,
}

impl std::fmt::Display for StoreSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a write to the cluster's store takes up to {} ms (p99 of the last minute)", self.p99_ms)
    }
}

/// See [`Status::repositories`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RepositoryStatus {
    /// Which.
    pub repo: RepoName,
    /// Last poll that succeeded.
    pub polled_at: Option<DateTime<Utc>>,
    /// Since when polls fail; absent = they do not (I50).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<DateTime<Utc>>,
    /// Why the last one failed; public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What of it is not heard although polls succeed, such as its pull requests, and why; public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Next sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_sweep: Option<DateTime<Utc>>,
    /// In a cluster, where all nodes are told of: the one that polls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// See [`Status::running`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunningStatus {
    /// Repository.
    pub repo: RepoName,
    /// Issue.
    pub issue: u64,
    /// Since when.
    pub since: DateTime<Utc>,
    /// Why it was told to stop, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
    /// In a cluster: the other node that works on it, which tells more; absent = this daemon does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_on: Option<String>,
    /// How far it is; absent before its journal begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgress>,
    /// In a cluster, where all nodes are told of: the one that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// How far a run is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunProgress {
    /// The run.
    pub run_id: String,
    /// Its instance.
    pub instance: String,
    /// The issue's title.
    pub title: String,
    /// The visit under way; 0 before the first.
    pub visit: u32,
    /// Its step.
    pub step: String,
    /// Its turn.
    pub turn: u32,
    /// What it waits for now; empty = nothing.
    pub doing: String,
    /// Spent so far, what killed predecessors spent included.
    pub cost_usd: Money,
    /// What of it is in the records of the runs before, which this one goes on with.
    #[serde(default, skip_serializing_if = "Money::is_zero")]
    pub inherited_usd: Money,
    /// What of both a program that works now has used, as far as it says: its lines of the ledger follow.
    #[serde(skip)]
    pub under_way: (Money, u64),
    /// Tokens so far.
    pub tokens: u64,
    /// Its cap.
    pub max_cost_usd: Option<Money>,
    /// Most visits.
    pub max_steps: Option<u32>,
}

/// What a run said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub at: i64,
    /// Repository.
    pub repo: RepoName,
    /// Issue.
    pub issue: u64,
    /// Run.
    pub run_id: String,
    /// Kind of the journal's event.
    pub kind: String,
    /// In words; redacted as the journal is.
    pub text: String,
}

/// An issue and why it stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IssueStatus {
    /// Repository.
    pub repo: RepoName,
    /// Issue; one from a file by its word.
    pub issue: IssueKey,
    /// The issue's title, where a list of the daemon has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its page, where a list of the daemon has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Reason code.
    pub code: String,
    /// In words.
    pub text: String,
    /// What a person is asked; absent = nothing is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedStatus>,
    /// In a cluster, where all nodes are told of: the one that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl IssueStatus {
    /// An issue that waits for a person.
    pub fn parked(repo: &RepoName, issue: &IssueKey, parked: &Parked) -> Self {
        let (question, options) = match &parked.waits_for {
            WaitsFor::Answer { question, .. } => (question.question.clone(), question.options.clone()),
            WaitsFor::Plan { .. } | WaitsFor::GiveBack(_) => (parked.waits_for.told(), Vec::new()),
        };
        let asked = AskedStatus {
            question,
            options,
            url: parked.comment.as_ref().and_then(|comment| comment.url.clone()),
            since: parked.since,
            deadline: parked.deadline,
        };
        match (&parked.answer, &parked.waits_for) {
            (None, waits_for) => {
                let own = Self::new(repo, issue, waits_for.code(), waits_for.told());
                Self { asked: Some(asked), ..own }
            }
            (Some(_), WaitsFor::GiveBack(_)) => {
                let then = parked.goes_on_by(issue);
                let text =
                    format!("the work was given back; a daemon that sees the issue goes on, else {then}");
                Self::new(repo, issue, ANSWERED, text)
            }
            (Some(_), WaitsFor::Answer { .. } | WaitsFor::Plan { .. }) => {
                Self::decided(repo, issue, parked.run_id)
            }
        }
    }

    /// One of which nothing is asked.
    pub fn new(repo: &RepoName, issue: &IssueKey, code: &str, text: String) -> Self {
        let (repo, issue) = (repo.clone(), issue.clone());
        Self { repo, issue, title: None, url: None, code: code.to_owned(), text, asked: None, node: None }
    }

    /// One for which a person has decided what its run waited for.
    pub fn decided(repo: &RepoName, issue: &IssueKey, run_id: RunId) -> Self {
        let text = format!(
            "what it waited for is decided; the daemon goes on with it, and where none runs: agentd runs resume {run_id}"
        );
        Self::new(repo, issue, ANSWERED, text)
    }

    /// Whether a follow-up run of its pull request is to begin.
    pub fn is_later_follow_up(&self) -> bool {
        [QUIET_PERIOD, CHECKS_RUNNING].contains(&self.code.as_str())
    }

    /// Whether it says that a person is waited for.
    pub fn waits_for_person(&self) -> bool {
        ["question_pending", "plan_pending", "taken", "waits_for_answer", "waits_for_give_back"]
            .contains(&self.code.as_str())
    }
}

/// What a person is asked on an issue that waits for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AskedStatus {
    /// The question.
    pub question: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Since when it is waited for.
    pub since: DateTime<Utc>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
}

impl AskedStatus {
    /// All but the question.
    pub fn in_one_line(&self) -> String {
        let options = self.options.iter().zip(1..).map(|(option, number)| format!("{number}. {option}"));
        let options = Some(options.collect::<Vec<_>>().join(", ")).filter(|all| !all.is_empty());
        let since = format!("since {}", rfc3339(self.since));
        let until = self.deadline.map(|at| format!("until {}", rfc3339(at)));
        let parts = [options, Some(since), until, self.url.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// See [`Status::limits`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LimitsStatus {
    /// `primary` or `secondary`, while one holds requests back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Until when, by GitHub's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<DateTime<Utc>>,
    /// Primary budgets.
    pub budgets: Vec<BudgetStatus>,
    /// Requests since the start that GitHub counted.
    pub counted: u64,
    /// Requests since the start that cost nothing.
    pub unchanged: u64,
}

/// A primary budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BudgetStatus {
    /// `core`, `graphql`, …
    pub resource: String,
    /// Requests an hour.
    pub limit: u64,
    /// Left.
    pub remaining: u64,
    /// Full again at.
    pub reset: Option<DateTime<Utc>>,
}
