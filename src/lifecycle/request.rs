//! What a run is asked for, by the command line, the daemon or a sweep.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::config::config_file::Publish;
use crate::domain::event::AskedHow;
use crate::domain::issue::{Issue, ObjectiveSource};
use crate::domain::policy::ActorPermission;
use crate::domain::report::ReportFormat;
use crate::domain::run::{Principal, RunId};

/// One run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Which issue.
    pub issue: IssueRef,
    /// What asked.
    pub source: ObjectiveSource,
    /// On whose behalf.
    pub principal: Principal,
    /// What GitHub lets them do, where it was asked.
    pub permission: Option<ActorPermission>,
    /// Who asked for it on GitHub, and when. The issue's text counts as it was at that time. `None` = the operator asks
    /// now.
    pub asked: Option<Asked>,
    /// `--origin`, the first link of the chain.
    pub origin: Option<String>,
    /// `--agent`; else the repository's.
    pub agent: Option<String>,
    /// `--publish`; else the repository's.
    pub publish: Option<Publish>,
    /// `--format` of the final report; steps with a schema report JSON whatever it says (D89).
    pub format: Option<ReportFormat>,
    /// `--uv`: values of declared parameters.
    pub parameters: BTreeMap<String, String>,
    /// `--meta`: kept verbatim in the run's metadata.
    pub metadata: Map<String, Value>,
    /// The run to go on with; it must be the newest of its issue (D61).
    pub resume: Option<RunId>,
    /// What is wrong with the pull request of an earlier run, fenced. This run repairs it.
    pub follow_up: Option<String>,
    /// Whether the origin branch is merged into the branch, because they conflict.
    pub catches_up: bool,
    /// Whether only the plan is wanted. Then nothing changes anywhere, so the remote is asked and nothing is fetched.
    pub dry_run: bool,
}

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
pub enum IssueRef {
    /// A number of the repository's tracker.
    Number(u64),
    /// A Markdown file (D30).
    File(PathBuf),
    /// What an earlier run read from such a file.
    Recorded(Box<Issue>),
}

impl IssueRef {
    /// Its number in the tracker, where it is in one.
    pub fn tracked(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::File(_) | Self::Recorded(_) => None,
        }
    }
}
