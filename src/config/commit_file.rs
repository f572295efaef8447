//! `[commit]` of `agentd.toml`: the author, the files that are never committed, and the size limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[commit]` (D13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommitTable {
    /// Author's name; default: git's identity, else `agentd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author_name: Option<String>,
    /// Author's address; default: git's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author_email: Option<String>,
    /// Trailers added to each message, `Key: value`.
    pub trailers: Vec<String>,
    /// Files that are never committed, besides the built-in list: patterns as in `.gitignore`. A pattern with `!`
    /// removes others from the list.
    pub exclude: Vec<String>,
    /// The largest new file, and the largest changed binary file, that is committed although the report does not name
    /// it, in bytes.
    pub max_file: u64,
    /// Most files that a run may change.
    pub max_files: u32,
    /// Most lines that it may add.
    pub max_lines: u64,
    /// Most bytes of all files that it changes.
    pub max_bytes: u64,
    /// Globs of files in which text that looks like a secret is not one, such as tests. Secrets that agentd knows stay
    /// refused.
    pub secrets_allowed: Vec<String>,
}

impl Default for CommitTable {
    fn default() -> Self {
        Self {
            author_name: None,
            author_email: None,
            trailers: Vec::new(),
            exclude: Vec::new(),
            max_file: 1 << 20,
            max_files: 5_000,
            max_lines: 500_000,
            max_bytes: 64 << 20,
            secrets_allowed: Vec::new(),
        }
    }
}
