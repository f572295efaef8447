//! The daemon's pulse: what it does, so that `agentd status` can say it from another process.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::name::RepoName;

/// Version of the file.
pub const SCHEMA: &str = "agentd.daemon_status.v1";

/// `<state>/daemon/status.json`, written after every tick and every change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Whether it was told to stop.
    pub stopping: bool,
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
}

/// See [`Status::repositories`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Next sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_sweep: Option<DateTime<Utc>>,
}

/// See [`Status::running`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

/// An issue and why it stands where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IssueStatus {
    /// Repository.
    pub repo: RepoName,
    /// Issue.
    pub issue: u64,
    /// Reason code.
    pub code: String,
    /// In words.
    pub text: String,
}

/// See [`Status::limits`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
