//! The conversation of a session, with what a request needs to know of it: a turn measures and hashes what it adds, and copies
//! nothing of what was there.

use std::sync::Arc;

use serde::Serialize;

use super::abort::Abort;
use super::token_estimate::MessageSize;
use crate::domain::fingerprint::HashedMessages;
use crate::domain::message::{Message, Messages};

/// Messages with what is known of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    messages: Messages,
    hashed: HashedMessages,
    size: MessageSize,
    json: u64,
    /// Where the facts of the moment stand, which are sent and not kept.
    aside: Option<usize>,
}

impl Conversation {
    /// Adds a message.
    pub(super) fn push(&mut self, message: impl Into<Arc<Message>>) -> Result<(), Abort> {
        let message = message.into();
        self.hashed.add(&message).map_err(|error| Abort::internal(error.to_string()))?;
        self.size = self.size.and(&message);
        self.json = self.json.saturating_add(json_bytes(&message)).saturating_add(1);
        self.messages.push(message);
        Ok(())
    }

    /// Adds the facts of the moment.
    pub(super) fn push_aside(&mut self, content: String) -> Result<(), Abort> {
        self.aside = Some(self.messages.len());
        self.push(Message::User { content })
    }

    /// The conversation with what follows it in one request.
    pub(super) fn with(&self, tail: impl IntoIterator<Item = Message>) -> Result<Self, Abort> {
        let mut sent = self.clone();
        tail.into_iter().try_for_each(|message| sent.push(message))?;
        Ok(sent)
    }

    /// The messages as they are sent.
    pub(super) fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Their hashes.
    pub(super) fn hashed(&self) -> &HashedMessages {
        &self.hashed
    }

    /// Their tokens.
    pub(super) fn size(&self) -> MessageSize {
        self.size
    }

    /// Bytes of them as JSON.
    pub(super) fn json(&self) -> u64 {
        self.json.saturating_add(1)
    }

    /// The facts of the moment.
    pub(super) fn aside(&self) -> Option<&Message> {
        self.aside.map(|place| &self.messages[place])
    }

    /// The messages as they are kept.
    pub(super) fn kept(mut self) -> Messages {
        if let Some(place) = self.aside {
            self.messages.remove(place);
        }
        self.messages
    }
}

/// Bytes of a value as JSON.
pub(super) fn json_bytes<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, value).map_or(u64::MAX, |()| counted.0)
}

/// Counts what is written.
struct Counted(u64);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
