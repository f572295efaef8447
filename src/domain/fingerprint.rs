//! Fingerprints of model requests and hashes of proposals: recomputable in any language (contracts §3.9, P-028, P-035).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::canonical::{NotCanonical, canonical_sha256};
use super::issue::IssueKey;
use super::message::{Message, ToolSpec};
use super::policy::ProposalKind;

/// Names the rule by which the hashes below are made; a change of the rule changes it (P-034).
pub const FINGERPRINT_SCHEMA: &str = "agentd.fingerprint.v1";

/// Hashes over one model request, before redaction; the texts themselves are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fingerprint {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The step.
    pub step_id: String,
    /// 1-based visit.
    pub step_visit: u32,
    /// 1-based turn.
    pub turn: u32,
    /// 1-based attempt of the turn.
    pub attempt: u32,
    /// Provider asked.
    pub provider: String,
    /// Model asked.
    pub model: String,
    /// Over `{model, systemPrompt, messages, tools, modelSettings}`.
    pub request_hash: String,
    /// Over the system prompt as a JSON string.
    pub system_prompt_hash: String,
    /// Over the messages without the system prompt (D43).
    pub messages_hash: String,
    /// Over `[{name, description, parameters}]` in the order sent.
    pub tools_hash: String,
    /// Over the settings that were sent.
    pub model_settings_hash: String,
    /// Messages without the system prompt.
    pub message_count: u32,
    /// Tools offered.
    pub tool_count: u32,
    /// agentd's version.
    pub runtime_version: String,
    /// [`FINGERPRINT_SCHEMA`].
    pub fingerprint_schema_version: String,
}

/// The hashes of one request; [`Fingerprint`] adds where and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHashes {
    /// See [`Fingerprint::request_hash`].
    pub request: String,
    /// See [`Fingerprint::system_prompt_hash`].
    pub system_prompt: String,
    /// See [`Fingerprint::messages_hash`].
    pub messages: String,
    /// See [`Fingerprint::tools_hash`].
    pub tools: String,
    /// See [`Fingerprint::model_settings_hash`].
    pub model_settings: String,
    /// Messages without the system prompt.
    pub message_count: u32,
    /// Tools offered.
    pub tool_count: u32,
}

/// Hashes a request. System messages are joined by a blank line; `settings` holds exactly the sampling, limit,
/// tool-choice and reasoning fields that are sent, absent where not sent.
pub fn request_hashes(
    model: &str,
    messages: &[Message],
    tools: &[ToolSpec],
    settings: &Map<String, Value>,
) -> Result<RequestHashes, NotCanonical> {
    let system = system_prompt(messages);
    let conversation = conversation_value(messages);
    let offered = tools_value(tools);
    let message_count = conversation.len() as u32;
    let conversation = Value::Array(conversation);
    let settings = Value::Object(settings.clone());
    Ok(RequestHashes {
        system_prompt: canonical_sha256(&system)?,
        messages: canonical_sha256(&conversation)?,
        tools: canonical_sha256(&offered)?,
        model_settings: canonical_sha256(&settings)?,
        message_count,
        tool_count: tools.len() as u32,
        request: canonical_sha256(&json!({
            "model": model,
            "systemPrompt": system,
            "messages": conversation,
            "tools": offered,
            "modelSettings": settings,
        }))?,
    })
}

fn system_prompt(messages: &[Message]) -> String {
    let texts: Vec<&str> = messages
        .iter()
        .filter_map(|message| match message {
            Message::System { content } => Some(content.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n\n")
}

/// `{role, content, tool_calls?, tool_call_id?}` of every message but the system prompt; reasoning blocks are left out,
/// because only some wires send them back. Arguments that parse are hashed in canonical form, others as they stand (D43).
fn conversation_value(messages: &[Message]) -> Vec<Value> {
    messages
        .iter()
        .filter_map(|message| match message {
            Message::System { .. } => None,
            Message::User { content } => Some(json!({ "role": "user", "content": content })),
            Message::Assistant { content, tool_calls, .. } if tool_calls.is_empty() => {
                Some(json!({ "role": "assistant", "content": content }))
            }
            Message::Assistant { content, tool_calls, .. } => {
                let calls: Vec<Value> = tool_calls
                    .iter()
                    .map(|call| {
                        json!({ "id": call.id, "name": call.name, "arguments": canonical_arguments(&call.arguments) })
                    })
                    .collect();
                Some(json!({ "role": "assistant", "content": content, "tool_calls": calls }))
            }
            Message::Tool { tool_call_id, content } => {
                Some(json!({ "role": "tool", "content": content, "tool_call_id": tool_call_id }))
            }
        })
        .collect()
}

fn canonical_arguments(raw: &str) -> String {
    let parsed: Result<Value, _> = serde_json::from_str(raw);
    parsed
        .ok()
        .and_then(|value| super::canonical::canonical_json(&value).ok())
        .unwrap_or_else(|| raw.to_owned())
}

fn tools_value(tools: &[ToolSpec]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters })
        })
        .collect()
}

/// What a proposal's hash covers: who proposes what, where. Call ids, time, policy and principal are left out, so that
/// the same proposal has the same hash in a replay; a grant binds the principal itself (P-035, D86).
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
