//! `[commit]` of `agentd.toml`: whose commits they are, what is in none of them, and how much may be.

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
        /// Files that are in no commit, beside the built-in list: patterns as in `.gitignore`; one with `!` takes others back.
        pub exclude: Vec<String> = Vec::new(),
        /// Largest new file, and largest changed binary one, that is committed without being named by the report, in bytes.
        pub max_file: u64 = 1 << 20,
        /// Most files that a run may change.
        pub max_files: u32 = 5_000,
        /// Most lines that it may add.
        pub max_lines: u64 = 500_000,
        /// Most bytes of all files that it changes.
        pub max_bytes: u64 = 64 << 20,
        /// Globs of files in which what looks like a secret is none, such as those of tests; what agentd knows to be one stays
        /// refused.
        pub secrets_allowed: Vec<String> = Vec::new(),
    }
}
