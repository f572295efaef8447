//! The run record, `run.json`: what happened in a run, for audit and replay (P-023…P-031).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::answer::Outcome;
use super::briefing::BriefingRecord;
use super::fingerprint::Fingerprint;
use super::policy::PolicyDecision;
use super::question::{Answered, Question};
use super::remark::RemarkId;
use super::run_output::OutputMapping;
use super::sandbox::SandboxFacts;
use super::stop::{StopDetail, StopReason};
use super::trace::{
    Exclusion, GuardrailDecision, Item, ManifestInput, PromptSnapshot, RecordText, SuspendedProposal,
};

/// `schemaVersion` of every [`RunRecord`].
pub const RUN_RECORD_SCHEMA: &str = "agentd.run_record.v1";

/// The one record of a run. Common keys come first, agentd's own after; there are no others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunRecord {
    /// UUIDv7.
    pub run_id: Uuid,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// RFC 3339, UTC, milliseconds.
    pub completed_at: String,
    /// `completed` exactly for a success.
    pub status: RunRecordStatus,
    /// Agent's name.
    pub agent_name: String,
    /// Provider asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_name: Option<String>,
    /// Model asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The objective, redacted.
    pub question: RecordText,
    /// The final report's text, redacted.
    pub response: RecordText,
    /// What the run was given, redacted; `null` when the redactor failed (P-032).
    pub context_snapshot: Option<Value>,
    /// Whether the snapshot was redacted or dropped.
    pub context_redacted: bool,
    /// Messages, calls, answers, handoffs, in order (P-030).
    pub items: Vec<Item>,
    /// Where the original input ends in `items` (P-039).
    pub input_item_count: u32,
    /// Prompts by turn (P-026).
    pub prompt_snapshots: Vec<PromptSnapshot>,
    /// Requests by attempt (P-028).
    pub request_fingerprints: Vec<Fingerprint>,
    /// Decisions, in order (P-025).
    pub policy_decisions: Vec<PolicyDecision>,
    /// Checks on what left a session (P-043).
    pub guardrail_decisions: Vec<GuardrailDecision>,
    /// What waits for a person (P-036).
    pub suspended_proposals: Vec<SuspendedProposal>,
    /// Typed class of the failure (P-044).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_name: Option<String>,
    /// Technical text of the failure, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// `--meta`, and why it ended.
    pub metadata: RunRecordMetadata,
    /// [`RUN_RECORD_SCHEMA`].
    pub schema_version: String,
    /// Issue, branch, worktree, instance.
    pub mapping: Option<OutputMapping>,
    /// What each session saw.
    pub steps: Vec<SessionManifest>,
    /// What the run was told at its start. Absent when it ended before, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub briefing: Option<BriefingRecord>,
    /// What people wrote that a model got, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<ToldRemark>,
    /// What came of the threads and remarks that it had to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Outcome>,
    /// What its agent asked people, and what they answered to the run that it goes on with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<RecordedQuestion>,
    /// What the repository came to.
    pub repo_state: RepoState,
    /// The sandbox of the run's programs. Absent when the run ended before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxFacts>,
    /// Last hash of the journal's chain.
    pub events_digest: String,
    /// The killed run that this one succeeds (D61).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_run_id: Option<Uuid>,
}

/// How a run ended, in the words of the run record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunRecordStatus {
    /// A success.
    Completed,
    /// Anything else.
    Failed,
}

/// Why a run ended, and what the caller wants to find again. `--meta` adds keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecordMetadata {
    /// For correlation with a build (P-033).
    #[serde(default, rename = "appBuildVersion", skip_serializing_if = "Option::is_none")]
    pub app_build_version: Option<String>,
    /// As in the run output.
    pub stop_reason: StopReason,
    /// As in the run output.
    pub stop_detail: StopDetail,
    /// Everything else of `--meta`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl RunRecordMetadata {
    /// `--meta` of the run with its stop. agentd's own keys win.
    pub fn new(mut meta: Map<String, Value>, stop_detail: StopDetail) -> Self {
        for key in ["stop_reason", "stop_detail"] {
            meta.remove(key);
        }
        let app_build_version = match meta.remove("appBuildVersion") {
            Some(Value::String(version)) => Some(version),
            Some(other) => Some(other.to_string()),
            None => None,
        };
        Self { app_build_version, stop_reason: stop_detail.reason(), stop_detail, more: meta }
    }
}

/// What one session saw and what it did not get to see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionManifest {
    /// 1-based visit.
    pub visit: u32,
    /// The step.
    pub step_id: String,
    /// The session.
    pub session: Uuid,
    /// What it was given.
    pub inputs: Vec<ManifestInput>,
    /// What was left out.
    pub exclusions: Vec<Exclusion>,
}

/// A remark that a model got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToldRemark {
    /// The remark.
    pub id: RemarkId,
    /// 1-based visit.
    pub visit: u32,
    /// 1-based turn that began with it.
    pub turn: u32,
}

/// A question to people, or the answer to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedQuestion {
    /// The run that asked: this one, or the one that it goes on with.
    pub run_id: Uuid,
    /// What was asked; absent in the record of the run that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Question>,
    /// Where people were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What somebody answered; absent in the record of the run that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
}

/// What the repository came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepoState {
    /// The origin's commit.
    pub base_commit: Option<String>,
    /// Head of the branch.
    pub head_commit: Option<String>,
    /// Its tree.
    pub head_tree: Option<String>,
    /// Whether the worktree has work that is not in the head.
    pub dirty: bool,
}

impl RunRecord {
    /// Whether status, reasons and counts fit together, in words; empty for a sound record.
    pub fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let completed = self.status == RunRecordStatus::Completed;
        if completed != (self.metadata.stop_reason == StopReason::ObjectiveAchieved) {
            broken.push("status is completed ⇔ stop_reason is OBJECTIVE_ACHIEVED".to_owned());
        }
        if self.metadata.stop_detail.reason() != self.metadata.stop_reason {
            broken.push("stop_detail belongs to stop_reason".to_owned());
        }
        if self.input_item_count as usize > self.items.len() {
            broken.push("inputItemCount ≤ number of items".to_owned());
        }
        if self.schema_version != RUN_RECORD_SCHEMA {
            broken.push(format!("schemaVersion is {RUN_RECORD_SCHEMA}"));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p_033_meta_is_kept_and_cannot_say_why_the_run_ended() {
        let meta = json!({ "appBuildVersion": "x", "stop_reason": "OBJECTIVE_ACHIEVED", "team": { "a": 1 } });
        let made = RunRecordMetadata::new(meta.as_object().unwrap().clone(), StopDetail::MaxSteps);
        let json = serde_json::to_value(&made).unwrap();
        let wanted = json!({ "appBuildVersion": "x", "stop_reason": "BUDGET_EXCEEDED", "stop_detail": "max_steps", "team": { "a": 1 } });
        assert_eq!(json, wanted);
        assert_eq!(serde_json::from_value::<RunRecordMetadata>(json).unwrap(), made);
    }
}
