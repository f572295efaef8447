//! The port to model providers: one request in, one reply or one classified error out.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::image::Image;
use crate::domain::message::{Messages, TokenUsage, ToolCall, ToolSpec};
use crate::domain::model_target::ModelTarget;
use crate::domain::money::Money;

/// A provider, whatever its wire.
pub trait Model: Send + Sync {
    /// Sends one request to `request.target` and waits for the whole reply, streamed or not. It never retries. Dropping
    /// the future cancels the request.
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>>;
}

/// One provider-neutral request.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// Which provider and model, with its limits and sampling settings.
    pub target: ModelTarget,
    /// System, user, assistant and tool messages, in order.
    pub messages: Messages,
    /// Images that stand before the text of the first user message; empty where the target takes none.
    pub images: Arc<[Image]>,
    /// Tools offered, in a fixed order.
    pub tools: Arc<[ToolSpec]>,
    /// Whether the model must, may or must not call a tool.
    pub tool_choice: ToolChoice,
    /// Ask for a streamed reply.
    pub stream: bool,
    /// Longest wait for the reply, and longest silence of a stream.
    pub timeout: Duration,
}

/// Whether the model may call tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It must call some tool.
    Required,
    /// It must not.
    None,
}

/// One accepted reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// Text, possibly empty.
    pub text: String,
    /// Reasoning blocks as the wire wants them back; opaque to the engine.
    pub reasoning: Option<Value>,
    /// Calls in reply order, arguments raw.
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped, normalised.
    pub stop: ReplyStop,
    /// The provider's own word for it.
    pub stop_raw: Option<String>,
    /// Tokens, where the provider says.
    pub usage: Option<TokenUsage>,
    /// Cost, where the provider says.
    pub cost: Option<Money>,
    /// The provider or model that really answered, if a router names it.
    pub actual_provider: Option<String>,
    /// See `actual_provider`.
    pub actual_model: Option<String>,
}

/// Why a reply ended, normalised over providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyStop {
    /// It was finished.
    End,
    /// It calls tools. (Not reliable: look at the calls.)
    ToolCalls,
    /// The token limit cut it.
    Length,
    /// A content filter or a refusal.
    Refusal,
    /// Anything else.
    Other,
}

/// Why there is no usable reply; the class decides what the session does (A-050…A-055).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ModelError {
    /// What to do about it.
    pub class: ModelErrorClass,
    /// Technical text without secrets and request bodies. It is for the journal and never for people (S-033).
    pub message: String,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// What the request cost.
    pub spent: Spent,
}

impl ModelError {
    /// One without an HTTP status, before there was any reply.
    pub fn new(class: ModelErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), status: None, spent: Spent::Nothing }
    }
}

/// What a request that failed cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spent {
    /// Nothing that is known: it was refused, or nothing came of it.
    #[default]
    Nothing,
    /// A reply that cannot be used: providers bill it.
    Reply {
        /// Tokens, as far as the provider had said.
        usage: Option<TokenUsage>,
        /// US dollars, where it had said them.
        cost: Option<Money>,
    },
    /// A reply had begun, and broke off before the provider had said what it cost.
    BrokeOff {
        /// Tokens, as far as the provider had said: some count at the beginning what is sent, and not what is written then.
        usage: Option<TokenUsage>,
        /// Tokens of what had come of its text, by an estimate.
        written: u64,
    },
    /// It was sent, and nobody saw what was written.
    Unseen,
}

/// Classes of provider errors, one enum over all wires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorClass {
    /// Credentials refused: fatal.
    Auth,
    /// Quota used up: fatal.
    Quota,
    /// Too many requests; wait as told.
    RateLimited {
        /// The wait that the provider asks for, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    /// Connection refused, reset, cut.
    Network,
    /// No answer, or no more of a stream, within the limit.
    Timeout,
    /// 5xx or overloaded; wait as told, if it tells.
    Server {
        /// The wait that the provider asks for, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    /// The request does not fit the model's context.
    ContextLength,
    /// The provider refused the request as malformed or unsupported (unknown model, bad parameter): fatal.
    BadRequest,
    /// The reply was not what the wire promises.
    InvalidReply,
}

impl std::fmt::Display for ModelErrorClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auth => "auth_error",
            Self::Quota => "quota_exceeded",
            Self::RateLimited { .. } => "rate_limited",
            Self::Network => "network_error",
            Self::Timeout => "timeout",
            Self::Server { .. } => "server_error",
            Self::ContextLength => "context_length_exceeded",
            Self::BadRequest => "bad_request",
            Self::InvalidReply => "invalid_reply",
        })
    }
}
