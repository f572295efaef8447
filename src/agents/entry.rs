//! How an agent program finds agentd's tools.

use crate::sys::paths::AbsPath;

/// What a program is told of the bridge to agentd's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The `agentd` program.
    pub agentd: String,
    /// The socket, or the folder of the pipes, as the program sees it.
    pub socket: String,
    /// Where files for the program stand, as it sees them: its private home.
    pub home: AbsPath,
}

impl Entry {
    /// What starts the server's other end.
    pub(super) fn args(&self) -> [&str; 3] {
        ["mcp", "--socket", &self.socket]
    }
}
