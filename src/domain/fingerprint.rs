//! Fingerprints of model requests and hashes of proposals: recomputable in any language (P-028, P-035).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::canonical::{NotCanonical, canonical_json, sha256_hex};
use super::message::{Message, ToolSpec, sent_arguments};

/// The name of the rule for the hashes below. It changes when the rule changes (P-034).
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

/// The part of the hashes that the tools of a session make. It is computed once, since the tools stay the same (X-040).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedTools {
    canonical: String,
    sha256: String,
    count: u32,
}

impl HashedTools {
    /// `[{name, description, parameters}]` in the order offered.
    pub fn of(tools: &[ToolSpec]) -> Result<Self, NotCanonical> {
        let canonical = canonical_json(&tools)?;
        Ok(Self { sha256: sha256_hex(canonical.as_bytes()), canonical, count: tools.len() as u32 })
    }

    /// See [`RequestHashes::tools`].
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// Hashes a request. System messages are joined by a blank line; `settings` holds exactly the sampling, limit,
/// tool-choice and reasoning fields that are sent, absent where not sent.
pub fn request_hashes(
    model: &str,
    messages: &[Message],
    tools: &HashedTools,
    settings: &Map<String, Value>,
) -> Result<RequestHashes, NotCanonical> {
    let said = said(messages);
    let messages_text = canonical_json(&said)?;
    let model = canonical_json(&model)?;
    let model_settings = canonical_json(settings)?;
    let system_prompt = canonical_json(&system_prompt(messages))?;
    // The parts, sorted by name, as the canonical form has them.
    let whole = format!(
        r#"{{"messages":{messages_text},"model":{model},"modelSettings":{model_settings},"systemPrompt":{system_prompt},"tools":{}}}"#,
        tools.canonical
    );
    Ok(RequestHashes {
        request: sha256_hex(whole.as_bytes()),
        system_prompt: sha256_hex(system_prompt.as_bytes()),
        messages: sha256_hex(messages_text.as_bytes()),
        tools: tools.sha256.clone(),
        model_settings: sha256_hex(model_settings.as_bytes()),
        message_count: said.len() as u32,
        tool_count: tools.count,
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

/// A message as it is hashed.
#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Called<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// A call as it is hashed.
#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    name: &'a str,
    arguments: String,
}

/// Every message but the system prompt; reasoning blocks are left out, because only some wires send them back. Arguments
/// are hashed in canonical form, as they are sent (D43).
fn said(messages: &[Message]) -> Vec<Said<'_>> {
    let plain = |role, content| Said { role, content, tool_calls: Vec::new(), tool_call_id: None };
    messages
        .iter()
        .filter_map(|message| match message {
            Message::System { .. } => None,
            Message::User { content } => Some(plain("user", content)),
            Message::Assistant { content, tool_calls, .. } => Some(Said {
                tool_calls: tool_calls
                    .iter()
                    .map(|call| Called {
                        id: &call.id,
                        name: &call.name,
                        arguments: canonical_arguments(&call.arguments),
                    })
                    .collect(),
                ..plain("assistant", content)
            }),
            Message::Tool { tool_call_id, content } => {
                Some(Said { tool_call_id: Some(tool_call_id), ..plain("tool", content) })
            }
        })
        .collect()
}

fn canonical_arguments(raw: &str) -> String {
    let sent = sent_arguments(raw);
    let parsed: Result<Value, _> = serde_json::from_str(&sent);
    parsed.ok().and_then(|value| canonical_json(&value).ok()).unwrap_or_else(|| sent.into_owned())
}
