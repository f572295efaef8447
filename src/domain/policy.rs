//! Proposals, decisions and envelopes: the words of the gate (P-018, P-002).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::canonical::{NotCanonical, canonical_json, canonical_sha256};
use super::issue::IssueKey;
use super::run::{Principal, PrincipalSource};
use super::words::words;

/// Tools without effect outside the session. They are always allowed; no policy is asked (C-03).
pub const PROTOCOL_TOOLS: [&str; 4] =
    ["agent__final_report", "agent__task_status", "agent__ask", "tool_output"];

/// agentd's own tools for the worktree.
pub const WORKTREE_TOOLS: [&str; 8] =
    ["read_file", "list_files", "search", "write_file", "edit_file", "run_command", "git_status", "git_diff"];

/// Those of them that name files and reach nothing else.
pub const FILE_TOOLS: [&str; 5] = ["read_file", "list_files", "search", "write_file", "edit_file"];

/// What the model and people read when a denial has no public reason (P-021).
pub const FALLBACK_PUBLIC_REASON: &str = "Action not allowed.";

/// Reason of a denial that a person can lift by `agentd runs approve` (P-036).
pub const APPROVAL_REQUIRED: &str = "approval_required";

/// `schema` of every [`PolicyInput`].
pub const POLICY_INPUT_SCHEMA: &str = "agentd.policy_input.v1";

/// What a policy is asked: one proposal, with no clock and no randomness in it (P-007). Programs read it on stdin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyInput {
    /// [`POLICY_INPUT_SCHEMA`].
    pub schema: String,
    /// Admission, tool call or handoff.
    pub kind: ProposalKind,
    /// Agent's name.
    pub agent: String,
    /// The step that proposes; empty for an admission.
    pub step: String,
    /// Handoff: the step it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Handoff: the step it enters; its resource name (D72).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Tool call: the tool's name as offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Tool call: arguments as the model wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_arguments: Option<String>,
    /// Arguments after binding; a handoff's payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// RFC 8785 text of `arguments`, `null` where there are none.
    pub args_canonical_json: String,
    /// Hash of the proposal (P-035).
    pub proposal_hash: String,
    /// On whose behalf.
    pub principal: PolicyPrincipal,
    /// `owner/name`.
    pub repo: String,
    /// The issue.
    pub issue: IssueKey,
    /// The issue's branch.
    pub branch: String,
    /// Turn of the session, 0 outside of one.
    pub turn: u32,
    /// What the tool can do; `read` for an admission or a handoff.
    pub risk: Risk,
}

/// Where proposals of one session come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalContext {
    /// Agent's name.
    pub agent: String,
    /// The step; empty for an admission.
    pub step: String,
    /// On whose behalf.
    pub principal: PolicyPrincipal,
    /// `owner/name`.
    pub repo: String,
    /// The issue.
    pub issue: IssueKey,
    /// The issue's branch.
    pub branch: String,
}

/// What is proposed.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposed {
    /// That the agent runs.
    Run,
    /// A tool call.
    Tool {
        /// Name as offered.
        name: String,
        /// Arguments as the model wrote them.
        raw_arguments: String,
        /// Arguments after binding.
        arguments: Value,
        /// What the tool can do.
        risk: Risk,
    },
    /// A transition to another step.
    Handoff {
        /// The step it leaves.
        from: String,
        /// The step it enters.
        to: String,
        /// The validated output handed over.
        payload: Value,
    },
}

impl PolicyInput {
    /// Puts a proposal into the form that policies read, with its canonical arguments and its hash.
    pub fn new(context: ProposalContext, turn: u32, proposed: Proposed) -> Result<Self, NotCanonical> {
        let mut input = Self::unsealed(context, turn, proposed);
        input.seal()?;
        Ok(input)
    }

    /// The same without canonical arguments and hash, for questions that no record has.
    pub fn unsealed(context: ProposalContext, turn: u32, proposed: Proposed) -> Self {
        let ProposalContext { agent, step, principal, repo, issue, branch } = context;
        let mut input = Self {
            schema: POLICY_INPUT_SCHEMA.into(),
            kind: ProposalKind::Run,
            agent,
            step,
            from: None,
            to: None,
            tool: None,
            raw_arguments: None,
            arguments: None,
            args_canonical_json: String::new(),
            proposal_hash: String::new(),
            principal,
            repo,
            issue,
            branch,
            turn,
            risk: Risk::Read,
        };
        match proposed {
            Proposed::Run => {}
            Proposed::Tool { name, raw_arguments, arguments, risk } => {
                input.kind = ProposalKind::Tool;
                input.tool = Some(name);
                input.raw_arguments = Some(raw_arguments);
                input.arguments = Some(arguments);
                input.risk = risk;
            }
            Proposed::Handoff { from, to, payload } => {
                input.kind = ProposalKind::Handoff;
                input.from = Some(from);
                input.to = Some(to);
                input.arguments = Some(payload);
            }
        }
        input
    }

    /// Computes the canonical arguments and the hash from the other fields again.
    pub fn seal(&mut self) -> Result<(), NotCanonical> {
        self.args_canonical_json = canonical_json(&self.arguments)?;
        self.proposal_hash = proposal_hash(&ProposalKey {
            kind: self.kind,
            repo: &self.repo,
            issue: &self.issue,
            step: &self.step,
            name: self.resource_name(),
            args_canonical_json: &self.args_canonical_json,
        })?;
        Ok(())
    }

    /// The name rules speak of: the tool, the target step, or the agent that is to run.
    pub fn resource_name(&self) -> &str {
        let name = match self.kind {
            ProposalKind::Tool => self.tool.as_deref(),
            ProposalKind::Handoff => self.to.as_deref(),
            ProposalKind::Run => Some(self.agent.as_str()),
        };
        name.unwrap_or_default()
    }
}

/// On whose behalf, and what GitHub lets them do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyPrincipal {
    /// Stable id.
    pub id: Uuid,
    /// GitHub login or local user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Who authenticated it.
    pub source: PrincipalSource,
    /// Permission on the repository, where GitHub was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
}

impl PolicyPrincipal {
    /// A principal, with its permission on GitHub. The local operator needs none (D71).
    pub fn new(principal: &Principal, permission: Option<ActorPermission>) -> Self {
        Self {
            id: principal.id,
            login: principal.login.clone(),
            source: principal.source,
            permission: match principal.source {
                PrincipalSource::Local => Some(ActorPermission::Admin),
                _ => permission,
            },
        }
    }
}

words! {
    /// GitHub's permission of a person on a repository, lowest first.
    #[derive(PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ActorPermission {
        /// Nothing.
        None = "none",
        /// May look.
        Read = "read",
        /// May sort issues.
        Triage = "triage",
        /// May push.
        Write = "write",
        /// May manage.
        Maintain = "maintain",
        /// May do everything.
        Admin = "admin",
    }
}

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

/// What a policy answers, and nothing else (P-009…P-015).
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

impl PolicyResult {
    /// Allows, for a stable reason.
    pub fn allow(reason: impl Into<String>) -> Self {
        Self {
            decision: Decision::Allow,
            reason: reason.into(),
            public_reason: None,
            deny_mode: None,
            policy_version: None,
            metadata: None,
        }
    }

    /// Denies for a stable reason. The mode is always set (P-015).
    pub fn deny(reason: impl Into<String>, mode: DenyMode) -> Self {
        Self { decision: Decision::Deny, deny_mode: Some(mode), ..Self::allow(reason) }
    }

    /// Whether this denial waits for a person's approval (P-036).
    pub fn asks_for_approval(&self) -> bool {
        let approval = self.metadata.as_ref().and_then(|metadata| metadata.get("approval"));
        self.decision == Decision::Deny && approval.and_then(Value::as_str) == Some("required")
    }

    /// What model and people may see of a denial (P-016, P-021).
    pub fn public_text(&self) -> &str {
        self.public_reason.as_deref().unwrap_or(FALLBACK_PUBLIC_REASON)
    }
}

/// One decision as recorded (P-025).
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
    /// The result (`success` or `error`) when it ran, else null. For a handoff, its payload (P-046).
    pub data: Option<Value>,
}

/// What the hash of a proposal covers: what is proposed, and where. Call ids, time, policy and principal are left out,
/// so that the same proposal has the same hash in a replay. The principal is bound by the grant (P-035, D86).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalKey<'a> {
    /// Kind of proposal.
    pub kind: ProposalKind,
    /// `owner/name`.
    pub repo: &'a str,
    /// The issue.
    pub issue: &'a IssueKey,
    /// The step that proposes.
    pub step: &'a str,
    /// Tool, target step or agent.
    pub name: &'a str,
    /// RFC 8785 text of the arguments.
    pub args_canonical_json: &'a str,
}

/// Lower-case hexadecimal SHA-256 over the canonical `{kind, repo, issue, step, name, argsCanonicalJson}`.
pub fn proposal_hash(key: &ProposalKey<'_>) -> Result<String, NotCanonical> {
    canonical_sha256(&json!({
        "kind": key.kind,
        "repo": key.repo,
        "issue": key.issue,
        "step": key.step,
        "name": key.name,
        "argsCanonicalJson": key.args_canonical_json,
    }))
}
