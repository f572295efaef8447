//! A run that is given to another node's daemon, and how it ended, as the assignment's cell has them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::daemon::outcome::RunSummary;
use crate::domain::head_check::CheckRerun;
use crate::domain::issue::ObjectiveSource;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::policy::ActorPermission;
use crate::domain::remark::Remark;
use crate::domain::run::{Principal, RunId};
use crate::domain::stop::Stop;
use crate::domain::text_revision::AskedHow;

/// What a run is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AssignmentRequest {
    pub repo: RepoName,
    pub issue: u64,
    pub title: String,
    /// Whether the trigger label does not ask for it.
    pub unlabelled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_reruns: Vec<CheckRerun>,
    #[serde(default)]
    pub catches_up: bool,
    #[serde(default)]
    pub completes: bool,
    #[serde(default)]
    pub other_definition: OtherDefinition,
    pub source: ObjectiveSource,
    pub principal: Principal,
    pub permission: ActorPermission,
    pub asked: AssignmentAsked,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<RunId>,
}

/// Who asked for it, how and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AssignmentAsked {
    pub by: Option<String>,
    pub how: AskedHow,
    pub at: DateTime<Utc>,
}

/// See [`RunSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AssignmentEnd {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub stop: Stop,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<String>,
    pub given: Money,
    pub labels_written: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_before_work: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpublished: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_ended_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_definition: Option<RunId>,
}

impl From<RunSummary> for AssignmentEnd {
    fn from(summary: RunSummary) -> Self {
        let RunSummary {
            run_id,
            stop,
            pull_request,
            given,
            written_back,
            failed_before_work,
            unpublished,
            flow_ended_at,
            other_definition,
        } = summary;
        Self {
            run_id,
            stop,
            pull_request,
            given,
            labels_written: written_back,
            failed_before_work,
            unpublished,
            flow_ended_at,
            other_definition,
        }
    }
}

impl From<AssignmentEnd> for RunSummary {
    fn from(end: AssignmentEnd) -> Self {
        let AssignmentEnd {
            run_id,
            stop,
            pull_request,
            given,
            labels_written: written_back,
            failed_before_work,
            unpublished,
            flow_ended_at,
            other_definition,
        } = end;
        Self {
            run_id,
            stop,
            pull_request,
            given,
            written_back,
            failed_before_work,
            unpublished,
            flow_ended_at,
            other_definition,
        }
    }
}
