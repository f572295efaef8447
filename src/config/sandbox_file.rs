//! `[sandbox]` of `agentd.toml`: the sandbox for what agents start, its limits, and the endpoints with credentials.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table_file::table;

table! {
    /// `[sandbox]`.
    #[derive(PartialEq, Eq)]
    pub struct SandboxTable {
        /// Which kind: the best that works, one of the two, or none.
        pub mode: SandboxMode = SandboxMode::Auto,
        /// Most processes and threads of one run at a time. Where no control group can be made: of a user that is not root.
        pub max_processes: u64 = 4096,
        /// Most memory that one process uses for its data, in MiB.
        pub max_memory_mib: u64 = 16 * 1024,
        /// Largest file that a command writes, in MiB.
        pub max_file_mib: u64 = 8 * 1024,
        /// Most files that one process has open.
        pub max_open_files: u64 = 65_536,
        /// Files and folders outside of the worktree that programs may read, beside the tools of pyenv, nvm, asdf, mise, rustup and
        /// `~/.local/bin`; `~/` is the home. Credentials in them stay hidden.
        pub readable: Vec<String> = Vec::new(),
        /// Hosts that the definitions of a managed clone may allow to commands, besides the package registries; `*` = all.
        /// Definitions in your own checkouts do not need this.
        pub hosts: Vec<String> = Vec::new(),
        /// The most that each folder in memory (`/dev/shm`, `/var/tmp`, `/run`) may hold, in MiB.
        pub max_tmp_mib: u64 = 1024,
        /// Addresses that agent programs reach by name. agentd adds the credentials.
        pub endpoints: BTreeMap<String, EndpointTable> = BTreeMap::new(),
    }
}

/// `sandbox.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Bubblewrap, else Landlock.
    Auto,
    /// Bubblewrap; without it no run starts.
    Bubblewrap,
    /// Landlock; without it no run starts.
    Landlock,
    /// None: everything runs with agentd's own rights.
    Off,
}

/// `[sandbox.endpoints.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointTable {
    /// Where it is; requests go to what is below.
    pub url: String,
    /// Headers added to each request, secrets as placeholders.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Variable of the program that is set to the endpoint's address inside the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_variable: Option<String>,
    /// Variable of the program that is set to a fixed word in place of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_variable: Option<String>,
}
