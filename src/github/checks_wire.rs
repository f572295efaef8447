//! The parts of GitHub's JSON about checks, jobs and annotations that agentd reads.

use serde::Deserialize;

use super::rest_wire::nullable;

/// A check run as REST gives it.
#[derive(Debug, Deserialize)]
pub(super) struct CheckRunWire {
    #[serde(default)]
    pub id: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub status: String,
    pub conclusion: Option<String>,
    pub details_url: Option<String>,
    pub html_url: Option<String>,
    pub output: Option<CheckOutputWire>,
    pub check_suite: Option<SuiteWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SuiteWire {
    #[serde(default)]
    pub id: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct CheckOutputWire {
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub summary: String,
    #[serde(default, deserialize_with = "nullable")]
    pub annotations_count: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct CheckRunsWire {
    #[serde(default, deserialize_with = "nullable")]
    pub check_runs: Vec<CheckRunWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CombinedStatusWire {
    #[serde(default, deserialize_with = "nullable")]
    pub statuses: Vec<StatusWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StatusWire {
    #[serde(default, deserialize_with = "nullable")]
    pub context: String,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub description: String,
    pub target_url: Option<String>,
}

/// A check in a rollup: the fields of both kinds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContextWire {
    pub database_id: Option<u64>,
    pub name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub status: String,
    pub conclusion: Option<String>,
    pub started_at: Option<chrono::DateTime<chrono::Utc>>,
    pub check_suite: Option<ContextSuiteWire>,
    pub details_url: Option<String>,
    pub title: Option<String>,
    pub summary: Option<String>,
    pub context: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    pub target_url: Option<String>,
    pub description: Option<String>,
    pub is_required: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContextSuiteWire {
    pub database_id: Option<u64>,
    /// Absent where no workflow made it.
    pub workflow_run: Option<WorkflowRunWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WorkflowRunWire {
    #[serde(default, deserialize_with = "nullable")]
    pub event: String,
    pub workflow: Option<WorkflowWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkflowWire {
    pub database_id: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AnnotationWire {
    #[serde(default, deserialize_with = "nullable")]
    pub path: String,
    #[serde(default, deserialize_with = "nullable")]
    pub start_line: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub annotation_level: String,
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct JobWire {
    #[serde(default)]
    pub run_id: u64,
    pub runner_name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub steps: Vec<StepWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StepWire {
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    pub conclusion: Option<String>,
    pub started_at: Option<chrono::DateTime<chrono::Utc>>,
    pub completed_at: Option<chrono::DateTime<chrono::Utc>>,
}
