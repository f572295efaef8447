//! What the lease file keeps of a mapping between runs (D75): the frozen origin and the last run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::mapping::InstanceId;
use crate::domain::name::BranchName;
use crate::domain::origin::Origin;
use crate::domain::run::RunId;

/// Version of [`MappingRecord`].
pub const MAPPING_SCHEMA: &str = "agentd.mapping.v1";

/// The frozen mapping of one issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The instance of that run; later ones sort after it (D94).
    pub instance: InstanceId,
}

/// What a lease file's record says; `None` for one of a newer agentd.
pub fn mapping_of(record: &Value) -> Option<MappingRecord> {
    serde_json::from_value(record.clone()).ok()
}
