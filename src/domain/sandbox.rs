//! What held the programs of a run, for its record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cage of a run: which, with what reach, and what it does not hold back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxFacts {
    /// `bubblewrap`, `landlock` or `none`.
    pub name: String,
    /// What it does not hold back, or why there is none; a sentence each.
    pub lacks: Vec<String>,
    /// Hosts that commands may reach; `*` = the whole network.
    pub command_hosts: Vec<String>,
    /// Hosts that the agent program may reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_hosts: Vec<String>,
    /// Endpoints that the agent program reaches with keys that it does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_endpoints: Vec<String>,
}
