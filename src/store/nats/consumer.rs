//! The messages of one consumer, for as long as the connection is the one that it was made on.
//!
//! The client makes a consumer anew by itself, behind the last message that it has seen. A server that comes back may have another stream
//! of that name, which counts from the beginning and never comes to that place: so whoever listens asks for the consumer anew, and reads
//! what there is now.

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::push;
use futures::StreamExt as _;
use tokio::sync::watch;

use super::connection::Link;

/// What a consumer delivers.
pub(super) struct Consumer {
    messages: push::Ordered,
    connects: watch::Receiver<u64>,
}

impl Link {
    /// Makes a consumer of a stream.
    pub(super) async fn consumer(
        &self,
        stream: &str,
        config: push::OrderedConfig,
    ) -> Result<Consumer, String> {
        let config = push::OrderedConfig { deliver_subject: self.client.new_inbox(), ..config };
        let api = format!("$JS.API.CONSUMER.CREATE.{stream}");
        // From before it is made: a connection that is lost meanwhile counts.
        let connects = self.connects();
        let made = async {
            let consumer = self.context.create_consumer_on_stream(config, stream.to_owned()).await;
            consumer.map_err(|error| error.to_string())?.messages().await.map_err(|error| error.to_string())
        };
        let messages = self.permitted(&api, made).await.and_then(|made| made)?;
        Ok(Consumer { messages, connects })
    }
}

impl Consumer {
    /// The next message; `None` = another consumer is to be asked for.
    pub(super) async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            biased;
            _ = self.connects.changed() => None,
            message = self.messages.next() => message?.ok(),
        }
    }
}
