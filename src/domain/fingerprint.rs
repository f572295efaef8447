//! Fingerprints of model requests and hashes of proposals: recomputable in any language (P-028, P-035).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

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

/// The part of the hashes that a conversation makes. What it has is hashed once, however often it is sent and grows.
#[derive(Debug, Clone)]
pub struct HashedMessages {
    /// Over the text of the messages, up to the last one.
    alone: Sha256,
    /// Over the text of the whole request, which begins with them.
    in_request: Sha256,
    count: u32,
    /// System messages, joined by a blank line.
    system_prompt: Option<String>,
}

impl Default for HashedMessages {
    fn default() -> Self {
        let begun = |text: &str| Sha256::new().chain_update(text);
        Self { alone: begun("["), in_request: begun("{\"messages\":["), count: 0, system_prompt: None }
    }
}

impl HashedMessages {
    /// Adds the next message.
    pub fn add(&mut self, message: &Message) -> Result<(), NotCanonical> {
        let Some(said) = said(message) else {
            let text = message.text();
            self.system_prompt = Some(match self.system_prompt.take() {
                Some(before) => format!("{before}\n\n{text}"),
                None => text.to_owned(),
            });
            return Ok(());
        };
        let text = canonical_json(&said)?;
        for hash in [&mut self.alone, &mut self.in_request] {
            if self.count > 0 {
                hash.update(",");
            }
            hash.update(&text);
        }
        self.count += 1;
        Ok(())
    }

    /// Hashes a request of these messages. `settings` holds exactly the sampling, limit, tool-choice and reasoning fields
    /// that are sent, absent where not sent.
    pub fn request(
        &self,
        model: &str,
        tools: &HashedTools,
        settings: &Map<String, Value>,
    ) -> Result<RequestHashes, NotCanonical> {
        let model = canonical_json(&model)?;
        let model_settings = canonical_json(settings)?;
        let system_prompt = canonical_json(&self.system_prompt.as_deref().unwrap_or_default())?;
        // The parts after the messages, sorted by name, as the canonical form has them.
        let rest = format!(
            r#"],"model":{model},"modelSettings":{model_settings},"systemPrompt":{system_prompt},"tools":{}}}"#,
            tools.canonical
        );
        let ended = |hash: &Sha256, text: &str| hex::encode(hash.clone().chain_update(text).finalize());
        Ok(RequestHashes {
            request: ended(&self.in_request, &rest),
            system_prompt: sha256_hex(system_prompt.as_bytes()),
            messages: ended(&self.alone, "]"),
            tools: tools.sha256.clone(),
            model_settings: sha256_hex(model_settings.as_bytes()),
            message_count: self.count,
            tool_count: tools.count,
        })
    }
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

/// A message as it is hashed; the system prompt is none. Reasoning blocks are left out, because only some wires send them
/// back. Arguments are hashed in canonical form, as they are sent (D43).
fn said(message: &Message) -> Option<Said<'_>> {
    let plain = |role, content| Said { role, content, tool_calls: Vec::new(), tool_call_id: None };
    Some(match message {
        Message::System { .. } => return None,
        Message::User { content } => plain("user", content),
        Message::Assistant { content, tool_calls, .. } => Said {
            tool_calls: tool_calls
                .iter()
                .map(|call| Called {
                    id: &call.id,
                    name: &call.name,
                    arguments: canonical_arguments(&call.arguments),
                })
                .collect(),
            ..plain("assistant", content)
        },
        Message::Tool { tool_call_id, content } => {
            Said { tool_call_id: Some(tool_call_id), ..plain("tool", content) }
        }
    })
}

fn canonical_arguments(raw: &str) -> String {
    let sent = sent_arguments(raw);
    let parsed: Result<Value, _> = serde_json::from_str(&sent);
    parsed.ok().and_then(|value| canonical_json(&value).ok()).unwrap_or_else(|| sent.into_owned())
}
