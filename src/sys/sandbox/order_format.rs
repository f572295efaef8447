//! What agentd tells its own program that runs between the sandbox and a command: one argument in JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first argument that tells agentd's program that it is inside a sandbox.
pub(super) const WORD: &str = "__cage";
/// The port on the sandbox's own loopback that leads to agentd's proxy.
pub const PROXY_PORT: u16 = 3128;

/// The number of the open file with the filter of system calls for bubblewrap.
pub(super) const FILTER_NUMBER: i32 = 100;
/// Limits of one command and all that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most processes and threads at a time.
    pub processes: u64,
    /// Most memory of one process for its data, in bytes.
    pub memory: u64,
    /// Largest file that it may write, in bytes.
    pub file_size: u64,
    /// Most open files of one process.
    pub open_files: u64,
    /// Largest folder that is held in memory, in bytes.
    pub temporary: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { processes: 4096, memory: 16 << 30, file_size: 8 << 30, open_files: 65_536, temporary: 1 << 30 }
    }
}

/// What is done before a command takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Control group that is joined first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
    /// Whether the next program is bubblewrap. It gets the filter of system calls; the rest is done inside.
    #[serde(default)]
    pub outside: bool,
    /// Limits that are set.
    pub limits: Limits,
    /// Socket of the proxy, which is to be reached at [`PROXY_PORT`] of the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<PathBuf>,
    /// Folders in which named pipes may be made. They are not where agentd reads later, because a pipe would block it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipes: Vec<PathBuf>,
    /// Restrictions for the command itself that bubblewrap does not make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walls: Option<Rules>,
}

/// Walls made of Landlock's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// May be read, with all below.
    pub readable: Vec<PathBuf>,
    /// May be written, with all below.
    pub writable: Vec<PathBuf>,
    /// Never shown, though what is around it is.
    pub hidden: Vec<PathBuf>,
    /// `(here, there)`: a file that is shown in the place of another, in a separate file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown_as: Vec<(PathBuf, PathBuf)>,
    /// What is left of the network.
    pub network: Network,
}

/// What is left of the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network: its own empty one if the machine allows it, else no sockets.
    #[default]
    None,
    /// A network of its own, or the command does not start.
    Own,
    /// As outside.
    Shared,
}

impl Order {
    /// As one argument. Paths that are not Unicode text cannot be used in a sandbox.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What an argument says.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
