//! Which issue is meant, and who asked for a run of it.

use std::path::PathBuf;

use chrono::{DateTime, Utc};

use crate::domain::issue::Issue;
use crate::domain::text_revision::AskedHow;

/// Who asked for a run on the tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Login; `None` = the account is gone.
    pub by: Option<String>,
    /// How.
    pub how: AskedHow,
    /// When, by the tracker's clock.
    pub at: DateTime<Utc>,
}

/// Which issue a run is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueSource {
    /// A number of the repository's tracker.
    Number(u64),
    /// A Markdown file (D30).
    File(PathBuf),
    /// What an earlier run read from such a file.
    Recorded(Box<Issue>),
}

impl IssueSource {
    /// Its number in the tracker, where it is in one.
    pub fn tracked(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::File(_) | Self::Recorded(_) => None,
        }
    }
}
