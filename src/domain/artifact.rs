//! An artifact: a file of the run directory, by its hash.

use serde::{Deserialize, Serialize};

/// Where a tool's output is stored that a session knows by its handle.
pub fn stored_output(handle: &str) -> String {
    format!("tool-output/{handle}")
}

/// A file of the run directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Artifact {
    /// Relative to the run directory.
    pub path: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}
