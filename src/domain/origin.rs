//! The origin branch: where the work starts from and returns to.

use serde::{Deserialize, Serialize};

use super::name::{BranchName, CommitId};

/// A resolved origin, frozen in the mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The branch.
    pub branch: BranchName,
    /// The link of the chain that named it.
    pub source: OriginSource,
    /// Its commit when the mapping was made.
    pub commit: CommitId,
}

/// The links of the chain, first set wins.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OriginSource {
    /// `--origin`.
    Explicit,
    /// The issue field `base_branch`.
    IssueField,
    /// The project field "Target Branch".
    ProjectField,
    /// `origin_branch` in the configuration.
    Config,
}

impl OriginSource {
    /// The word used in JSON and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::IssueField => "issue_field",
            Self::ProjectField => "project_field",
            Self::Config => "config",
        }
    }
}

impl std::fmt::Display for OriginSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
