//! The 1:1:1:1 mapping: issue → branch → worktree → instance, a pure function of issue and start time.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::issue::IssueKey;
use super::name::BranchName;

/// Branch of an issue: `feature/issue-N`.
pub fn branch_of(issue: &IssueKey) -> BranchName {
    BranchName::by_construction(format!("feature/issue-{issue}"))
}

/// Folder name of an issue's worktree below the worktree root: `issue-N`.
pub fn worktree_of(issue: &IssueKey) -> String {
    format!("issue-{issue}")
}

/// One execution's name: `agent-issue-N-{timestamp}` (UTC, `YYYYMMDDTHHMMSSZ`).
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct InstanceId(String);

impl InstanceId {
    /// The instance of an issue that starts at `at`.
    pub fn new(issue: &IssueKey, at: DateTime<Utc>) -> Self {
        Self(format!("agent-issue-{issue}-{}", at.format("%Y%m%dT%H%M%SZ")))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for InstanceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    #[test]
    fn g06_issue_seven_has_its_branch_worktree_and_instance() {
        let seven = IssueKey::Number(7);
        let at = Utc.with_ymd_and_hms(2026, 11, 21, 8, 5, 9).unwrap();
        assert_eq!(branch_of(&seven).as_str(), "feature/issue-7");
        assert_eq!(worktree_of(&seven), "issue-7");
        assert_eq!(InstanceId::new(&seven, at).as_str(), "agent-issue-7-20261121T080509Z");
    }
}
