//! The messages of a stream as they come, for as long as somebody listens.

use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::consumer::Consumer;
use super::shared::NatsStore;
use crate::domain::cluster::names::StreamKind;
use crate::store::journal_format::JournalLine;

/// How long until another consumer is asked for.
const AGAIN: Duration = Duration::from_millis(500);

impl NatsStore {
    /// The messages of a stream, from there on. After an outage some may come again, and what came meanwhile is left out where only new
    /// ones are asked for.
    pub(super) fn messages(&self, kind: StreamKind, from: DeliverPolicy) -> BoxStream<'static, Message> {
        let (link, stream) = (self.shared.connection.link(), self.names().stream(kind));
        let filter = self.names().subjects(kind).concat();
        stream::unfold(None::<Consumer>, move |mut messages| {
            let (link, stream, filter) = (link.clone(), stream.clone(), filter.clone());
            async move {
                loop {
                    if messages.is_none() {
                        let (filter_subject, deliver_policy) = (filter.clone(), from);
                        let config =
                            push::OrderedConfig { filter_subject, deliver_policy, ..Default::default() };
                        messages = link.consumer(&stream, config).await.ok();
                    }
                    if let Some(found) = &mut messages {
                        if let Some(message) = found.next().await {
                            return Some((message, messages));
                        }
                        messages = None;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        })
        .boxed()
    }

    /// What the runs of all nodes write from now on, line by line. It is for showing: nothing is checked against the lines before.
    pub fn lines_from_now(&self) -> BoxStream<'static, JournalLine> {
        let messages = self.messages(StreamKind::Log, DeliverPolicy::New);
        let lines = messages.flat_map(|message| {
            let lines =
                message.payload.split(|byte| *byte == b'\n').map(serde_json::from_slice::<JournalLine>);
            stream::iter(lines.filter_map(Result::ok).collect::<Vec<_>>())
        });
        lines.boxed()
    }
}
