//! What goes into a chat and what comes out of it, as JSON (snake_case, C-21).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::message::{Message, ToolCall};

/// One message of the history that a host passes in (S-003, S-004).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who said it.
    pub role: ChatRole,
    /// What was said; never blank.
    pub content: String,
}

impl ChatMessage {
    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: ChatRole::User, content: content.into() }
    }

    /// What was answered.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self { role: ChatRole::Assistant, content: content.into() }
    }
}

/// The roles of a history. Instructions and tool results cannot be smuggled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// The user.
    User,
    /// The agent.
    Assistant,
}

/// How a conversation's turn ended (S-008).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// The model answered.
    Completed,
    /// All iterations were used; the response sums up what is there.
    MaxIterationsReached,
    /// It could not be done; `error` says why in words for people.
    Error,
}

/// What [`super::run_agent`] gives (S-007): seven fields, and what agentd adds under `meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentResponse {
    /// How it ended.
    pub status: AgentStatus,
    /// For the user: the answer, the summary, or the words of `error`.
    pub final_response: String,
    /// The history and everything that followed, without the system prompt.
    pub messages: Vec<ShownMessage>,
    /// Turns with the model, the summary not counted (C-01).
    pub iterations: u32,
    /// `completed`, `max_iterations_reached`, or the stop detail of the error.
    pub finish_reason: String,
    /// Words for people (S-032), never technical; `null` unless something went wrong.
    pub error: Option<String>,
    /// What the host should know although it went well.
    pub warning: Option<String>,
    /// agentd's own additions.
    pub meta: ResponseMeta,
}

/// agentd's additions to a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseMeta {
    /// The run; its record is `<state>/users/<user id>/runs/<run id>/`.
    pub run_id: Uuid,
    /// From the call to the response.
    pub execution_time_ms: u64,
    /// Finds the technical detail in the run's journal (S-017); `null` without an error.
    pub error_id: Option<Uuid>,
    /// Class of the error: `LLMAPIError`, `MaxIterationsExceededError`, …
    pub error_type: Option<String>,
    /// After how long it may be answered, where that is known; told in the header of an answer over HTTP.
    #[serde(skip)]
    pub worth_again: Option<Duration>,
}

/// A message of the conversation as hosts know them from chat completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownMessage {
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// Text, possibly empty.
    pub content: String,
    /// Calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ShownCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A call in an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownCall {
    /// The provider's id.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is called.
    pub function: ShownFunction,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownFunction {
    /// The tool.
    pub name: String,
    /// JSON text as the model wrote it.
    pub arguments: String,
}

impl ShownMessage {
    /// A message as hosts see it, its texts cleaned by `clean`; `None` for instructions.
    pub(super) fn of(message: &Message, clean: impl Fn(&str) -> String) -> Option<Self> {
        let said = |role: &str, content: &str| Self {
            role: role.to_owned(),
            content: clean(content),
            tool_calls: Vec::new(),
            tool_call_id: None,
        };
        Some(match message {
            Message::System { .. } => return None,
            Message::User { content } => said("user", content),
            Message::Assistant { content, tool_calls, .. } => Self {
                tool_calls: tool_calls.iter().map(|call| ShownCall::of(call, &clean)).collect(),
                ..said("assistant", content)
            },
            Message::Tool { tool_call_id, content } => {
                Self { tool_call_id: Some(tool_call_id.clone()), ..said("tool", content) }
            }
        })
    }
}

impl ShownCall {
    fn of(call: &ToolCall, clean: impl Fn(&str) -> String) -> Self {
        Self {
            id: call.id.clone(),
            kind: "function".to_owned(),
            function: ShownFunction { name: call.name.clone(), arguments: clean(&call.arguments) },
        }
    }
}
