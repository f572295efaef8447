//! What a session leaves besides its ledger entries: openings, prepared requests, items, reports and endings.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::approval::NamedFile;
use super::artifact::Artifact;
use super::call_text::{SHORT, call_text};
use super::money::Money;
use super::policy::{ProposalKind, Resource, ToolResultEnvelope};
use super::report::{FinalReport, ProposedClaim, ReportOutcome, ReportSource};
use super::run::ForcedFinal;
use super::stop::Stop;

/// Longest text that stands inline in a record unless the configuration says otherwise, in bytes.
pub const LONGEST_INLINE: usize = 64 * 1024;

/// A text of a record: the text itself, or where it is kept when it is longer than 64 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum RecordText {
    /// Short enough.
    Inline(String),
    /// Kept in the run directory.
    Kept(Pointer),
}

/// Where something too large for a record is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pointer {
    /// Relative to the run directory.
    #[serde(rename = "$ref")]
    pub reference: String,
    /// Lower-case hexadecimal, over the bytes kept.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
    /// Media type.
    pub mime: String,
}

impl Pointer {
    /// A pointer to an artifact.
    pub fn new(artifact: Artifact, mime: &str) -> Self {
        Self {
            reference: artifact.path,
            sha256: artifact.sha256,
            bytes: artifact.bytes,
            mime: mime.to_owned(),
        }
    }
}

/// Most arguments that stand beside a pointer.
const MOST_SHORT: usize = 16;
/// Most bytes of each of the arguments that stand beside a pointer.
const LONGEST_SHORT: usize = 1_024;

/// A pointer to the arguments of a call, with the short ones beside it: which file, which command.
pub fn pointer_with_short(pointer: &Pointer, arguments: &Value) -> Value {
    let is_short = |value: &Value| value.to_string().len() <= LONGEST_SHORT;
    let members = arguments.as_object().into_iter().flatten();
    let short: Map<String, Value> = members
        .filter(|(name, value)| name.len() <= LONGEST_SHORT && is_short(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .take(MOST_SHORT)
        .collect();
    let mut all = serde_json::to_value(pointer).unwrap_or_default();
    if let Value::Object(all) = &mut all
        && !short.is_empty()
    {
        all.insert(SHORT.to_owned(), Value::Object(short));
    }
    all
}

/// One item of the run record, in order (P-023, P-030).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Item {
    /// What someone said.
    Message {
        /// `user` or `assistant`.
        role: ItemRole,
        /// Redacted. A prompt's text is not kept unless asked for (P-027).
        content: RecordText,
    },
    /// What the model wanted to call.
    ToolCallItem {
        /// Id of the call.
        call_id: String,
        /// As the model wrote it.
        name: String,
        /// Redacted; the raw text as a string where it does not parse.
        arguments: Value,
        /// Over the raw argument text.
        raw_sha256: String,
    },
    /// What came of it.
    ToolCallOutputItem {
        /// Id of the call.
        call_id: String,
        /// The gate's answer.
        output: ToolResultEnvelope,
        /// What the model read.
        rendered: Rendered,
    },
    /// A transition to another step (C-27).
    HandoffItem {
        /// Id of the handoff.
        call_id: String,
        /// The step it leaves.
        from: String,
        /// The step it enters.
        to: String,
        /// The gate's answer.
        output: ToolResultEnvelope,
    },
}

/// Who said a [`Item::Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemRole {
    /// The host, or a person.
    User,
    /// The model.
    Assistant,
}

/// The text a model read, by size and hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rendered {
    /// Unicode scalars.
    pub chars: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// A session begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The session (UUIDv7).
    pub session: Uuid,
    /// 1-based visit, 0 outside of a flow.
    pub visit: u32,
    /// The step.
    pub step_id: String,
    /// Agent's name.
    pub agent: String,
    /// Items of the original input (P-039).
    pub input_item_count: u32,
    /// What the session was given to read.
    pub inputs: Vec<ManifestInput>,
    /// Tools offered, in their fixed order; argument schemas left out.
    pub tools: Vec<String>,
    /// Over the offered tools, schemas included.
    pub tools_sha256: String,
    /// File of the run directory with the tools of MCP servers, where they changed since the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_file: Option<String>,
}

/// See [`super::event::Event::ToolsChanged`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsChanged {
    /// The session.
    pub session: Uuid,
    /// 1-based visit, 0 outside of a flow.
    pub visit: u32,
    /// The turn that shows the change first.
    pub turn: u32,
    /// Names of new tools.
    pub added: Vec<String>,
    /// Names of tools that are described otherwise than before.
    pub changed: Vec<String>,
    /// Names of tools that are no longer offered.
    pub gone: Vec<String>,
    /// All tools offered from now on, in their order.
    pub tools: Vec<String>,
    /// Over these, schemas included.
    pub tools_sha256: String,
    /// File of the run directory with the tools of MCP servers as they are now; absent outside of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_file: Option<String>,
    /// What of the change could not be used; redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Why a server that has to be there is not; redacted. The run ends for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl ToolsChanged {
    /// The change in a few words: names of what is new, changed and gone.
    pub fn words(&self) -> String {
        if let Some(why) = &self.lost {
            return why.clone();
        }
        let parts = [("new", &self.added), ("changed", &self.changed), ("gone", &self.gone)];
        let said: Vec<String> = parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(word, names)| format!("{word}: {}", names.join(", ")))
            .collect();
        if said.is_empty() { "nothing that can be used".to_owned() } else { said.join("; ") }
    }
}

/// One input of a session's context manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ManifestInput {
    /// What it is: `system_prompt`, `prompt`, `history/1`, `tools`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Over its text.
    pub sha256: String,
    /// Estimate.
    pub tokens: u64,
    /// Why it is there.
    pub why: String,
}

/// Something the model did not get to see in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Exclusion {
    /// Handle of the stored output, or the call's id.
    #[serde(rename = "ref")]
    pub reference: String,
    /// `size_cap`, `token_budget` or `context_budget_exceeded`.
    pub why: String,
}

/// Which prompt a turn ran with (P-026).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptSnapshot {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// 1-based turn.
    pub turn: u32,
    /// Agent's name.
    pub agent_name: String,
    /// Model of the turn's first attempt.
    pub model: String,
    /// Template id and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<String>,
    /// Over system prompt and resolved step prompt (D88).
    pub prompt_hash: String,
    /// Only with `record.include_prompt_text` (P-027).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
    /// Over both templates (D88).
    pub template_hash: String,
    /// The step.
    pub step_id: String,
    /// 1-based visit.
    pub step_visit: u32,
}

/// A request is about to be sent (A-013…A-016, D41). `expectedTokens` is the sum of the three before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestPrepared {
    /// `provider/model`.
    pub target: String,
    /// Committed conversation.
    pub ctx_tokens: u64,
    /// Appended since.
    pub new_tokens: u64,
    /// Tool schemas.
    pub schema_ctx_tokens: u64,
    /// Sum.
    pub expected_tokens: u64,
    /// Capacity of the target.
    pub context_window: u64,
    /// 1-based turn.
    pub turn: u32,
    /// 1-based attempt of the turn.
    pub attempt: u32,
    /// The most that it may cost; `None` = its target has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_cost: Option<Money>,
}

/// One evaluation of the context guard. `projected` is the sum of the four behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextGuardEvaluated {
    /// Tokens that the request would have.
    pub projected: u64,
    /// Committed.
    pub current: u64,
    /// Not yet committed.
    pub pending: u64,
    /// Of the running tool phase, or of guidance.
    pub new: u64,
    /// Tool schemas.
    pub schema: u64,
    /// What fits.
    pub limit: u64,
    /// `provider/model`.
    pub target: String,
    /// 1-based turn.
    pub turn: u32,
}

/// A proposal that waits for a person (P-036).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedProposal {
    /// Tool or handoff.
    pub kind: ProposalKind,
    /// What an approval names.
    pub proposal_hash: String,
    /// The run.
    pub run_id: String,
    /// 1-based turn, 0 outside of a session.
    pub turn: u32,
    /// Id of the call.
    pub call_id: String,
    /// Agent's name.
    pub agent_name: String,
    /// Tool or target step.
    pub resource: Resource,
    /// RFC 8785 text of the arguments, redacted.
    pub canonical_json: String,
    /// Audit reason.
    pub reason: String,
    /// What people may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_reason: Option<String>,
    /// Which policy said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// The files of the worktree that its command names, as they are now: an approval is of these. `None` = it has no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<NamedFile>>,
}

impl SuspendedProposal {
    /// That it waits, by its call and its hash, and what the policy says to people about it.
    pub fn sentence(&self, public_text: &str) -> String {
        let (call, hash) = (self.call_text().replace('`', "'"), &self.proposal_hash);
        let hash = hash.get(..12).unwrap_or(hash);
        format!("`{call}` waits for an approval (`{hash}`). {public_text}")
    }

    /// The call, or the handoff, as people read it.
    pub fn call_text(&self) -> String {
        let arguments = serde_json::from_str(&self.canonical_json).unwrap_or(Value::Null);
        match self.resource.kind {
            ProposalKind::Handoff => format!("go on to {}", call_text(&self.resource.name, &arguments)),
            _ => call_text(&self.resource.name, &arguments),
        }
    }
}

/// A check over an output that is about to leave a session (P-043).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardrailDecision {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// 1-based turn.
    pub turn: u32,
    /// `secret_leak`, `evidence`.
    pub guardrail_name: String,
    /// What it found.
    pub decision: GuardrailOutcome,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For the record only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// See [`GuardrailDecision::decision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardrailOutcome {
    /// Nothing found.
    Pass,
    /// Something was found and handled.
    Triggered,
}

/// A session has its report, from whichever source (A-058…A-060).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportCaptured {
    /// The session.
    pub session: Uuid,
    /// 1-based visit.
    pub visit: u32,
    /// 1-based turn.
    pub turn: u32,
    /// Where it came from.
    pub source: ReportSource,
    /// Redacted. `None` when it is longer than 64 KiB: see `kept`.
    pub report: Option<FinalReport>,
    /// Where a long report is kept, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Pointer>,
    /// What the model says came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReportOutcome>,
    /// What it claims; redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ProposedClaim>,
}

/// A session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// The session.
    pub session: Uuid,
    /// 1-based visit.
    pub visit: u32,
    /// Accepted turns.
    pub turns: u32,
    /// Model requests.
    pub attempts: u32,
    /// Why the final turn was forced, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_final: Option<ForcedFinal>,
    /// Why there is no usable report; `None` = there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SessionFailure>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Artifact>,
    /// What a failed session had sent and received, with `record.fault_snapshots` (C-20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Pointer>,
    /// What the model did not get to see in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
}

/// Why a session failed. `stop` is for people, the rest is for the record (P-044).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFailure {
    /// Detail and public sentence.
    pub stop: Stop,
    /// Typed class: `MaxTurnsExceeded`, `ToolCallPolicyDenied`, `AuthError`, …
    pub error_name: String,
    /// Technical text, redacted.
    pub error_message: String,
}

/// The checks of a validation step. They are asked before a closing step, or after a step that wants to close (E12,
/// E13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksRun {
    /// 1-based visit.
    pub visit: u32,
    /// The step.
    pub step_id: String,
    /// Key of the validation step.
    pub validation: String,
    /// When they were asked.
    pub moment: CheckMoment,
    /// 1-based; counts on as long as they fail.
    pub attempt: u32,
    /// Each check, in order.
    pub checks: Vec<CheckRun>,
    /// Prompt files whose words the model will hear of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_prompts: Vec<String>,
}

/// How a program of a step, a check or a completion condition ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRan {
    /// 1-based visit.
    pub visit: u32,
    /// SHA-256 over program, arguments and input; places of the worktree and of the agent's folder are left out.
    pub program: String,
    /// What it wrote, without secrets.
    pub stdout: String,
    /// What it wrote to its error output, without secrets.
    pub stderr: String,
    /// Exit code; absent = it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why there is no exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// It could not run at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub could_not_run: bool,
    /// Milliseconds from start to end.
    pub duration_ms: u64,
    /// What it wrote is longer than what is recorded, and left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_long: bool,
}

/// When checks were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckMoment {
    /// Before the closing step's own work.
    Before,
    /// When the flow wanted to end.
    After,
}

/// One check and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRun {
    /// Name of the validator.
    pub validator: String,
    /// Whether it holds.
    pub held: bool,
    /// Of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Over its standard output, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_sha256: Option<String>,
    /// What it found, in a sentence; redacted.
    pub found: String,
}
