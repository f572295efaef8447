//! `converse`: one request in a kept conversation, in a fixed order (S-052): what the user says is
//! kept, the agent is asked, an answer is kept only if there is one.

use uuid::Uuid;

use super::agent::run_agent;
use super::chat_format::{AgentResponse, ChatMessage, ChatRole};
use super::conversation_format::{Reply, Said};
use super::conversations::{Conversation, ConversationError, Conversations};
use super::history::{self, InvalidRequest};
use super::host::Service;
use crate::domain::run::Principal;

/// Longest message of a user, in bytes.
pub const LONGEST_MESSAGE: usize = 64 * 1024;

/// Why a request got no reply.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// It is wrong in itself; nothing was kept.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The message is longer than [`LONGEST_MESSAGE`].
    #[error("the message is longer than {LONGEST_MESSAGE} bytes")]
    TooLong,
    /// The conversation is not given.
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    /// The agent could not answer; the user's message is kept, no answer is.
    #[error("{}", .0.final_response)]
    Failed(Box<AgentResponse>),
    /// A task was lost.
    #[error("{0}")]
    Defect(String),
}

impl Service {
    /// A user's kept conversations.
    pub fn conversations(&self, user: &Principal) -> Conversations {
        Conversations::of(&self.state, user)
    }
}

/// Answers what a user says in a kept conversation: the named one, else the user's newest, else a new one.
///
/// # Errors
/// See [`Unanswered`].
pub async fn converse(
    service: &Service,
    user: &Principal,
    conversation: Option<Uuid>,
    message: &str,
) -> Result<Reply, Unanswered> {
    if message.len() > LONGEST_MESSAGE {
        return Err(Unanswered::TooLong);
    }
    history::check(&[ChatMessage::user(message)])?;
    let conversations = service.conversations(user);
    let asked = said(service, ChatRole::User, message, None);
    let mut conversation = blocking(move || {
        let mut conversation = conversations.open(conversation)?;
        conversation.add(asked)?;
        Ok(conversation)
    })
    .await?;
    // What is kept and cannot be seen is nobody's to be told, and no fault of this request.
    let history: Vec<ChatMessage> = conversation
        .said
        .iter()
        .map(|said| ChatMessage { role: said.role, content: said.content.clone() })
        .filter(|message| !history::is_blank(message))
        .collect();
    let response = run_agent(service, &history, user, None).await?;
    if response.error.is_some() {
        return Err(Unanswered::Failed(Box::new(response)));
    }
    let answer = said(service, ChatRole::Assistant, &response.final_response, Some(response.meta.run_id));
    let conversation: Conversation = blocking(move || {
        conversation.add(answer)?;
        Ok(conversation)
    })
    .await?;
    Ok(Reply {
        response: response.final_response,
        iterations: response.iterations,
        status: response.status,
        conversation_id: conversation.id,
        warning: response.warning,
        meta: response.meta,
    })
}

fn said(service: &Service, role: ChatRole, content: &str, run_id: Option<Uuid>) -> Said {
    Said { role, content: service.clean(content), ts: service.clock.now().timestamp_millis(), run_id }
}

/// Disk work off the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
) -> Result<T, Unanswered> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|lost| Unanswered::Defect(lost.to_string()))??)
}
