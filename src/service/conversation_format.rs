//! What a kept conversation looks like on disk, one line a message, and to clients.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::chat_format::{AgentStatus, ChatRole, ResponseMeta};

/// A message of a kept conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Who said it.
    pub role: ChatRole,
    /// What was said, secrets left out.
    pub content: String,
    /// When, milliseconds since 1970.
    pub ts: i64,
    /// The run that answered; absent for what the user says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Uuid>,
}

/// A kept conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationLine {
    /// Which one.
    pub conversation_id: Uuid,
    /// Messages so far.
    pub messages: usize,
    /// First and last message, milliseconds since 1970; `null` while nothing was said.
    pub started_ts: Option<i64>,
    /// See `started_ts`.
    pub updated_ts: Option<i64>,
}

/// What a request to a kept conversation gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The answer, or the summary where all iterations were used.
    pub response: String,
    /// Turns with the model.
    pub iterations: u32,
    /// How it ended.
    pub status: AgentStatus,
    /// The conversation that it stands in now.
    pub conversation_id: Uuid,
    /// What the client should know although it went well.
    pub warning: Option<String>,
    /// The run, and how long it took.
    pub meta: ResponseMeta,
}
