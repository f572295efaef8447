//! What others pushed to the branch of an issue, and what came of merging it in.

use serde::{Deserialize, Serialize};

use super::name::CommitId;

/// See [`super::event::Event::OthersMerged`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OthersMerged {
    /// Visits that were made before.
    pub visit: u32,
    /// Their commit.
    pub commit: CommitId,
    /// Files in which it conflicts with the work; the next visit works that out. Empty = it merged by itself, after the flow.
    pub conflicts: Vec<String>,
    /// Who pushed, and which files: what people are told.
    pub told: String,
    /// The origin's commit that the branch compares with from here on, where it was brought onto that because its pull request was merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CommitId>,
}
