//! Where a value comes from, as errors tell it and `config explain --json` prints it.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// A command-line flag.
    Flag {
        /// As typed, `--max-steps`.
        name: String,
    },
    /// A line of a layer's file.
    File {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: usize,
    },
    /// An environment variable that is a key's default.
    Env {
        /// The variable.
        name: String,
    },
    /// Built in.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag { name } => write!(f, "{name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "environment variable {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A key of a clone's file that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedKey {
    /// Full path of the key; `*` = the whole file.
    pub key: String,
    /// Where it stands.
    pub source: Source,
    /// Why it does not count.
    pub why: String,
}
