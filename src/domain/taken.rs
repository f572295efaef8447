//! Work that a person takes over, and gives back.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::name::CommitId;
use super::policy::ActorPermission;
use super::run::RunId;

/// Who takes the work of a run over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TakenOver {
    /// A login, or `local:UID`.
    pub by: String,
    /// Whether the branch is pushed: they work elsewhere.
    pub pushes: bool,
}

/// Whether somebody was a user of a machine of agentd's: GitHub has no login with a colon.
pub fn is_local(by: &str) -> bool {
    by.starts_with("local:")
}

/// Work that a person gave back: what the agent that goes on is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// The run that it was taken from, or the last one before.
    pub run_id: RunId,
    /// Who: a login, or `local:UID`.
    pub by: String,
    /// What they may do in the repository; absent = it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
    /// When.
    pub at: DateTime<Utc>,
    /// What they say; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Where the branch stood when it was taken.
    pub from: CommitId,
    /// Where it stood when it was given back.
    pub to: CommitId,
    /// What differs between the two, a line a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}
