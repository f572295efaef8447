//! What a run is asked for, by the command line, the daemon or a sweep.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::config_file::Publish;
use crate::domain::head_check::CheckRerun;
use crate::domain::issue::ObjectiveSource;
use crate::domain::name::RepoName;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::policy::ActorPermission;
use crate::domain::remark::Remark;
use crate::domain::report::ReportFormat;
use crate::domain::run::{Principal, RunId};
use crate::domain::run_output::Objective;
use crate::issue::reference::{Asked, IssueSource};

/// One run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Which issue.
    pub issue: IssueSource,
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
    /// The labelling that it answers, where one asks for it.
    pub answers: Option<u64>,
    /// The run to go on with; it must be the newest of its issue (D61).
    pub resume: Option<RunId>,
    /// What is wrong with the pull request of an earlier run, fenced. This run repairs it.
    pub follow_up: Option<String>,
    /// What people wrote that this run is about, as it was read just before the start.
    pub new_remarks: Vec<Remark>,
    /// Failed jobs that were run again before, for the record.
    pub check_reruns: Vec<CheckRerun>,
    /// Whether the origin branch is merged into the branch, because they conflict.
    pub catches_up: bool,
    /// Whether a run that was cut off is only to be brought to its end: where it has ended by itself, nothing begins.
    pub completes: bool,
    /// What becomes of it where what it would go on with is of another definition.
    pub other_definition: OtherDefinition,
    /// Whether only the plan is wanted. Then nothing changes anywhere, so the remote is asked and nothing is fetched.
    pub dry_run: bool,
}

impl RunRequest {
    /// Whether the operator began the run by hand, also one that goes on with what a daemon had begun: nobody else goes on with it.
    pub fn is_by_hand(&self) -> bool {
        self.source == ObjectiveSource::Cli || self.asked.is_none()
    }

    /// What the run is to reach, as far as is known before its issue was read.
    pub fn objective(&self, repo: &RepoName) -> Objective {
        let title = match &self.issue {
            IssueSource::Number(number) => format!("Issue {number} of {repo}"),
            IssueSource::File(path) => path.display().to_string(),
            IssueSource::Recorded(issue) => issue.title.clone(),
        };
        Objective { title, body: String::new(), source: self.source, issue: None }
    }
}
