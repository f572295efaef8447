//! The origin branch: where the work starts from and returns to.

use serde::{Deserialize, Serialize};

use super::name::{BranchName, CommitId};
use super::words::words;

/// A resolved origin, frozen in the mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Origin {
    /// The branch.
    pub branch: BranchName,
    /// The link of the chain that named it.
    pub source: OriginSource,
    /// Its commit when the mapping was made.
    pub commit: CommitId,
}

words! {
    /// The links of the chain, first set wins.
    #[derive(PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum OriginSource {
        /// `--origin`.
        Explicit = "explicit",
        /// The issue field `base_branch`.
        IssueField = "issue_field",
        /// The project field "Target Branch".
        ProjectField = "project_field",
        /// `origin_branch` in the configuration.
        Config = "config",
    }
}
