//! Proposals, decisions and envelopes: the words of the gate (seed 002, contracts §3.6 and §3.8).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a rule or a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProposalKind {
    /// Admission of a run.
    Run,
    /// A tool call.
    Tool,
    /// A transition to another step.
    Handoff,
}

/// What a tool can do to the world; part of the policy input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Only looks.
    Read,
    /// Changes files of the worktree.
    Write,
    /// Starts processes.
    Exec,
    /// Talks to the network.
    Network,
    /// Changes version control.
    Vcs,
}

/// The verdict's decision; closed (P-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The call may run.
    Allow,
    /// It may not.
    Deny,
}

/// What a denial does (P-012); absent means [`DenyMode::Throw`] (P-015).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenyMode {
    /// Ends the run with a typed error.
    Throw,
    /// Answers the call with a denied envelope; the run goes on.
    ToolResult,
}

/// The seed's closed result shape (P-009…P-015).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyResult {
    /// Allow or deny.
    pub decision: Decision,
    /// Stable audit reason, not blank.
    pub reason: String,
    /// What model and people may see (P-016).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_reason: Option<String>,
    /// Only meaningful for a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_mode: Option<DenyMode>,
    /// Which policy said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// For the record only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// One decision as recorded (contracts §3.8, decision record).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDecision {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Turn of the session, 0 outside of one.
    pub turn: u32,
    /// Id of the call, or of the handoff.
    pub call_id: String,
    /// Allow or deny.
    pub decision: Decision,
    /// Audit reason.
    pub reason: String,
    /// What model and people may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_reason: Option<String>,
    /// Only on deny, materialised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_mode: Option<DenyMode>,
    /// Which policy said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// What it was about.
    pub resource: Resource,
    /// Hash of the proposal (P-035).
    pub proposal_hash: String,
    /// The declarative rule that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_id: Option<String>,
    /// How long the decision took, in milliseconds.
    pub duration_ms: u64,
    /// For the record only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// What a decision was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Kind of proposal.
    pub kind: ProposalKind,
    /// Tool name, or target step of a handoff (D72).
    pub name: String,
}

/// Whether a call ran; closed (P-018). `denied` ⇔ it did not run (C-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnvelopeStatus {
    /// It was let run, whatever came of it.
    Ok,
    /// It did not run.
    Denied,
}

/// The one form of every tool and handoff output (P-018…P-021).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolResultEnvelope {
    /// Whether it ran.
    pub status: EnvelopeStatus,
    /// The denial's code; null when it ran.
    pub code: Option<String>,
    /// What model and people may see of a denial.
    pub public_reason: Option<String>,
    /// [`ToolOutcome`] when it ran, else null; a handoff's payload (P-046).
    pub data: Option<Value>,
}
