//! The conversation: messages, tool calls, usage. Provider-neutral; wires translate.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// Instructions; first, and byte-stable for a session.
    System {
        /// Text.
        content: String,
    },
    /// What the host says to the model.
    User {
        /// Text.
        content: String,
    },
    /// What the model said.
    Assistant {
        /// Text, possibly empty.
        content: String,
        /// Reasoning blocks as the provider gave them, kept verbatim where the wire asks for them back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Value>,
        /// Calls, in reply order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Tool {
        /// The call it answers.
        tool_call_id: String,
        /// Text for the model (P-018).
        content: String,
    },
}

impl Message {
    /// What it says.
    pub fn text(&self) -> &str {
        match self {
            Self::System { content }
            | Self::User { content }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. } => content,
        }
    }
}

/// Messages in order. Copies share them: each request has the whole conversation, and no text is copied for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Messages(Vec<Arc<Message>>);

/// Goes through messages.
pub type MessagesIter<'a> =
    std::iter::Map<std::slice::Iter<'a, Arc<Message>>, fn(&'a Arc<Message>) -> &'a Message>;

impl Messages {
    /// All of them.
    pub fn iter(&self) -> MessagesIter<'_> {
        self.0.iter().map(AsRef::as_ref as fn(_) -> _)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last one.
    pub fn last(&self) -> Option<&Message> {
        self.0.last().map(AsRef::as_ref)
    }

    /// Adds one at the end.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        self.0.push(message.into());
    }

    /// Takes the one out that stands at `place`, which has to be there.
    pub fn remove(&mut self, place: usize) -> Arc<Message> {
        self.0.remove(place)
    }

    /// The same messages, to be shared.
    pub fn shared(&self) -> impl Iterator<Item = Arc<Message>> + '_ {
        self.0.iter().cloned()
    }
}

impl Index<usize> for Messages {
    type Output = Message;

    fn index(&self, place: usize) -> &Message {
        &self.0[place]
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Message;
    type IntoIter = MessagesIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for Messages {
    fn from_iter<T: IntoIterator<Item = M>>(messages: T) -> Self {
        Self(messages.into_iter().map(Into::into).collect())
    }
}

impl<M: Into<Arc<Message>>> Extend<M> for Messages {
    fn extend<T: IntoIterator<Item = M>>(&mut self, messages: T) {
        self.0.extend(messages.into_iter().map(Into::into));
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        messages.into_iter().collect()
    }
}

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// A call as the model wrote it. The arguments stay raw text until the gate parses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id, unique in the conversation.
    pub id: String,
    /// Tool name as offered.
    pub name: String,
    /// JSON text, possibly malformed.
    pub arguments: String,
}

/// The arguments of a call as JSON text that every provider accepts. An object is sent back as it is. Anything else is
/// put inside an object, so that the model sees what it wrote and no server refuses it.
pub fn sent_arguments(raw: &str) -> Cow<'_, str> {
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(raw) {
        Ok(_) => Cow::Borrowed(raw),
        Err(_) => Cow::Owned(json!({ "malformed_arguments": raw }).to_string()),
    }
}

/// What a tool looks like to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name the model calls, at most 64 characters of `[A-Za-z0-9_-]` (D16).
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object schema.
    pub parameters: Value,
}

/// Tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Uncached input.
    pub input_tokens: u64,
    /// Output, reasoning included.
    pub output_tokens: u64,
    /// Input read from cache.
    pub cache_read_input_tokens: u64,
    /// Input written to cache.
    pub cache_write_input_tokens: u64,
    /// Sum of the four.
    pub total_tokens: u64,
}

impl TokenUsage {
    /// Adds the total up.
    pub fn new(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Self {
        Self {
            input_tokens: input,
            output_tokens: output,
            cache_read_input_tokens: cache_read,
            cache_write_input_tokens: cache_write,
            // A provider's figures are not ours to trust with an overflow.
            total_tokens: [output, cache_read, cache_write].into_iter().fold(input, u64::saturating_add),
        }
    }

    /// Of each kind the larger figure: what was used once stays used.
    pub fn max_of(self, other: Self) -> Self {
        Self::new(
            self.input_tokens.max(other.input_tokens),
            self.output_tokens.max(other.output_tokens),
            self.cache_read_input_tokens.max(other.cache_read_input_tokens),
            self.cache_write_input_tokens.max(other.cache_write_input_tokens),
        )
    }

    /// What is in this and not in `other`, of each kind.
    pub fn beyond(self, other: Self) -> Self {
        Self::new(
            self.input_tokens.saturating_sub(other.input_tokens),
            self.output_tokens.saturating_sub(other.output_tokens),
            self.cache_read_input_tokens.saturating_sub(other.cache_read_input_tokens),
            self.cache_write_input_tokens.saturating_sub(other.cache_write_input_tokens),
        )
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self::new(
            self.input_tokens.saturating_add(other.input_tokens),
            self.output_tokens.saturating_add(other.output_tokens),
            self.cache_read_input_tokens.saturating_add(other.cache_read_input_tokens),
            self.cache_write_input_tokens.saturating_add(other.cache_write_input_tokens),
        )
    }
}
