//! What the lease file keeps of a mapping between runs (D75): the frozen origin and the last run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::event::Bundle;
use crate::domain::mapping::InstanceId;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::origin::Origin;
use crate::domain::run::RunId;

/// Version of [`MappingRecord`].
pub const MAPPING_SCHEMA: &str = "agentd.mapping.v1";

/// The frozen mapping of one issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MappingRecord {
    /// [`MAPPING_SCHEMA`].
    pub schema_version: String,
    /// The branch.
    pub branch: BranchName,
    /// The origin, frozen when the mapping was made.
    pub origin: Origin,
    /// The newest run that held the lease.
    pub run_id: RunId,
    /// How many killed runs in a row this run succeeds (D61).
    pub successors: u32,
    /// Whether the daemon has given up continuing that run (D37): the next one begins anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// Whether the issue is one from a file; absent = an earlier version did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_file: Option<bool>,
    /// In a cluster: the labelling that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// In a cluster: what the runs committed and did not push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<Unpushed>,
    /// The instance of that run; later ones sort after it (D94).
    pub instance: InstanceId,
}

/// Commits of the branch that the remote does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unpushed {
    /// The run that left them.
    pub run_id: RunId,
    /// The node that it worked on.
    pub node: String,
    /// The branch's commit.
    pub commit: CommitId,
    /// What the remote had of the branch, below them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<CommitId>,
    /// Where other nodes find them; `None` = they are on that node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
}

impl MappingRecord {
    /// Whether a labelling has had its run. Events are numbered in the order in which they come; a run that was given up answers none.
    pub fn has_answered(&self, labelling: Option<u64>) -> bool {
        let (Some(asks), Some(answers)) = (labelling, self.answers) else { return false };
        asks <= answers && !self.given_up
    }
}

/// What a lease file's record says; `None` for one of a newer agentd.
pub fn mapping_of(record: &Value) -> Option<MappingRecord> {
    serde_json::from_value(record.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn h_03_a_labelling_that_was_answered_asks_for_nothing_and_a_later_one_does() {
        let mut record = json!({
            "schema_version": MAPPING_SCHEMA, "branch": "feature/issue-7", "successors": 0,
            "origin": { "branch": "main", "source": "explicit", "commit": "1".repeat(40) },
            "run_id": "01990000-0000-7000-8000-000000000001", "instance": "agent-issue-7-20261125T045000Z",
        });
        let old = mapping_of(&record).unwrap();
        assert!(!old.has_answered(Some(1)), "of a version that did not note it, or of files");
        record["answers"] = json!(40);
        let last = mapping_of(&record).unwrap();
        assert!(last.has_answered(Some(40)) && last.has_answered(Some(39)));
        assert!(!last.has_answered(Some(41)) && !last.has_answered(None));
        assert!(!MappingRecord { given_up: true, ..last }.has_answered(Some(40)));
    }
}
