//! What operators ask of nodes: messages of a stream of its own, which a user may send to without a right to any cell.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::connection::{Link, PATIENCE, PAUSE, Sent};
use super::shared::NatsStore;
use crate::domain::cluster::cells;
use crate::domain::cluster::control::{Asked, CONTROL_SCHEMA, ControlMessage};
use crate::domain::cluster::names::StreamKind;
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
        let failed = |words: String| StoreError::Failed { action: "send to", place: subject.clone(), words };
        let text = serde_json::to_vec(message).map_err(|error| failed(error.to_string()))?;
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
        self.shared.connection.call(sent)?.map_err(failed)
    }

    /// The last message about each node and each issue, and then each new one. One may come again.
    pub(super) fn control_messages(&self) -> BoxStream<'static, ControlMessage> {
        let (link, stream) = (self.shared.connection.link(), self.names().stream(StreamKind::Ctl));
        let filter = self.names().subjects(StreamKind::Ctl).concat();
        stream::unfold(None::<push::Ordered>, move |mut messages| {
            let (link, stream, filter) = (link.clone(), stream.clone(), filter.clone());
            async move {
                loop {
                    if messages.is_none() {
                        messages = consumer(&link, &stream, &filter).await.ok();
                    }
                    if let Some(found) = &mut messages {
                        if let Some(Ok(message)) = found.next().await {
                            let text = String::from_utf8_lossy(&message.payload);
                            match cells::read(&text, CONTROL_SCHEMA) {
                                Ok(message) => return Some((message, messages)),
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
