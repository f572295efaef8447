//! What operators ask of nodes, and people of issues and runs: messages of a stream of its own, which a user may send to without a right to
//! any cell.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::connection::{Link, PATIENCE, PAUSE, Sent};
use super::shared::NatsStore;
use crate::domain::cluster::cells::{self, Unreadable};
use crate::domain::cluster::control::{Asked, CONTROL_SCHEMA, ControlMessage};
use crate::domain::cluster::names::{Names, StreamKind, last_tokens};
use crate::domain::cluster::person_request::{REQUEST_SCHEMA, RequestMessage};
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// How long until another consumer is asked for.
const AGAIN: Duration = Duration::from_millis(500);

async fn consumer(link: &Link, stream: &str, filter: &str) -> Result<push::Ordered, String> {
    let config = push::OrderedConfig {
        deliver_subject: link.client.new_inbox(),
        filter_subject: filter.to_owned(),
        deliver_policy: DeliverPolicy::LastPerSubject,
        ..Default::default()
    };
    let api = format!("$JS.API.CONSUMER.CREATE.{stream}");
    let made = async {
        let made = link.context.create_consumer_on_stream(config, stream.to_owned()).await;
        made.map_err(|error| error.to_string())?.messages().await.map_err(|error| error.to_string())
    };
    link.permitted(&api, made).await.and_then(|made| made)
}

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
            Asked::Drain { session } => self.names().control_of_node(&session.node),
            Asked::Move(asked) => self.names().control_of(&asked.repository, asked.issue),
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
        let (link, stream) = (self.shared.connection.link(), self.names().stream(StreamKind::Ctl));
        let (filter, names) = (self.names().subjects(StreamKind::Ctl).concat(), self.names().clone());
        stream::unfold(None::<push::Ordered>, move |mut messages| {
            let (link, stream, filter) = (link.clone(), stream.clone(), filter.clone());
            let names = names.clone();
            async move {
                loop {
                    if messages.is_none() {
                        messages = consumer(&link, &stream, &filter).await.ok();
                    }
                    if let Some(found) = &mut messages {
                        if let Some(Ok(message)) = found.next().await {
                            let text = String::from_utf8_lossy(&message.payload);
                            match heard(&names, &message.subject, &text) {
                                Ok(heard) => return Some((heard, messages)),
                                Err(error) => {
                                    tracing::warn!(subject = %message.subject, "what is asked cannot be read: {error}");
                                    continue;
                                }
                            }
                        }
                        messages = None;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        })
        .boxed()
    }
}
