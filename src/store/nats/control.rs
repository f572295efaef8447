//! What operators ask of nodes, and people of issues and runs: messages of a stream of its own, which a user may send to without a right to
//! any cell.

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::DeliverPolicy;
use futures::StreamExt as _;
use futures::future;
use futures::stream::BoxStream;

use super::connection::{PATIENCE, PAUSE, Sent};
use super::shared::NatsStore;
use crate::domain::cluster::cells::{self, Unreadable};
use crate::domain::cluster::control::{CONTROL_SCHEMA, ControlMessage, NodeRequest};
use crate::domain::cluster::names::{Names, StreamKind, last_tokens};
use crate::domain::cluster::person_request::{REQUEST_SCHEMA, RequestMessage};
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// A message of the stream.
pub(super) enum Heard {
    /// What an operator asks of a node, or of a run's place.
    Control(ControlMessage),
    /// What a person asks of an issue or its run, or what became of that.
    Request(Box<RequestMessage>),
}

/// Reads a message. One about a request has to stand where its answer is looked for.
fn heard(names: &Names, subject: &str, text: &str) -> Result<Heard, Unreadable> {
    let asks = last_tokens(subject)
        .is_some_and(|[owner, _, issue]: [String; 3]| !owner.is_empty() && issue.contains('-'));
    if !asks {
        return cells::read(text, CONTROL_SCHEMA).map(Heard::Control);
    }
    let message: RequestMessage = cells::read(text, REQUEST_SCHEMA)?;
    let request = &message.request;
    match names.request(&request.repository, &request.issue, request.id) == subject {
        true => Ok(Heard::Request(Box::new(message))),
        false => Err(Unreadable::Broken("it speaks of another issue, or has another id".to_owned())),
    }
}

impl NatsStore {
    /// Sends a message to the nodes. Blocks.
    ///
    /// # Errors
    /// No answer, or this user may not.
    pub fn send_control(&self, message: &ControlMessage) -> Result<(), StoreError> {
        let subject = match &message.asked {
            NodeRequest::Drain { session } => self.names().control_of_node(&session.node),
            NodeRequest::Move(asked) => self.names().control_of(&asked.repository, asked.issue),
        };
        let text = serde_json::to_vec(message).map_err(|error| StoreError::Failed {
            action: "send to",
            place: subject.clone(),
            words: error.to_string(),
        })?;
        self.send_until_kept(subject, text)
    }

    /// Sends a message until the stream has it. Blocks.
    pub(super) fn send_until_kept(&self, subject: String, text: Vec<u8>) -> Result<(), StoreError> {
        let (link, place) = (self.shared.connection.link(), subject.clone());
        let sent = async move {
            let begin = Stopwatch::start();
            loop {
                // Heard twice, it changes nothing more.
                let why = match link.send(&place, HeaderMap::new(), text.clone().into()).await {
                    Sent::At(_) => return Ok(()),
                    Sent::Refused(words) => return Err(words),
                    Sent::Elsewhere => "the stream refuses it".to_owned(),
                    Sent::Unknown(words) => words,
                };
                if begin.elapsed() > PATIENCE || why.starts_with("not permitted") {
                    return Err(why);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let sent = self.shared.connection.call(sent)?;
        sent.map_err(|words| StoreError::Failed { action: "send to", place: subject, words })
    }

    /// The last message about each node, each issue and each request, and then each new one. One may come again.
    pub(super) fn control_messages(&self) -> BoxStream<'static, Heard> {
        let names = self.names().clone();
        let read = move |message: Message| {
            let heard = heard(&names, &message.subject, &String::from_utf8_lossy(&message.payload));
            let heard = heard.inspect_err(|error| {
                tracing::warn!(subject = %message.subject, "what is asked cannot be read: {error}");
            });
            future::ready(heard.ok())
        };
        self.messages(StreamKind::Ctl, DeliverPolicy::LastPerSubject).filter_map(read).boxed()
    }
}
