//! `[commit]` of `agentd.toml`: the author, the files that are never committed, and the size limits.

use super::table_file::table;

table! {
    /// `[commit]` (D13).
    #[derive(PartialEq, Eq)]
    pub struct CommitTable {
        /// Author's name; default: git's identity, else `agentd`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub author_name: Option<String> = None,
        /// Author's address; default: git's identity.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub author_email: Option<String> = None,
        /// Trailers added to each message, `Key: value`.
        pub trailers: Vec<String> = Vec::new(),
        /// Files that are never committed, besides the built-in list: patterns as in `.gitignore`. A pattern with `!`
        /// removes others from the list.
        pub exclude: Vec<String> = Vec::new(),
        /// The largest new file, and the largest changed binary file, that is committed although the report does not name
        /// it, in bytes.
        pub max_file: u64 = 1 << 20,
        /// Most files that a run may change.
        pub max_files: u32 = 5_000,
        /// Most lines that it may add.
        pub max_lines: u64 = 500_000,
        /// Most bytes of all files that it changes.
        pub max_bytes: u64 = 64 << 20,
        /// Globs of files in which text that looks like a secret is not one, such as tests. Secrets that agentd knows stay
        /// refused.
        pub secrets_allowed: Vec<String> = Vec::new(),
    }
}
