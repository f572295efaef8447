//! The sandbox of a run's programs, for the run record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sandbox of a run: its kind, what it may reach, and what it does not hold back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxFacts {
    /// `bubblewrap`, `landlock` or `none`.
    pub name: String,
    /// What it does not hold back, or why there is no sandbox; one sentence each.
    pub lacks: Vec<String>,
    /// Hosts that commands may reach; `*` = the whole network.
    pub command_hosts: Vec<String>,
    /// Hosts that the agent program may reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_hosts: Vec<String>,
    /// Endpoints that the agent program reaches with keys that it does not have itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_endpoints: Vec<String>,
}
