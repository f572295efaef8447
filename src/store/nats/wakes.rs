//! That something happened in a repository: a message that no stream keeps, by which a node that hears of it wakes the one that polls there.

use std::time::Duration;

use async_nats::{HeaderMap, Message, Subscriber};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::connection::REQUEST;
use super::shared::NatsStore;
use crate::domain::causes::with_causes;
use crate::store::assignments::Wake;
use crate::store::port::StoreError;

/// How long until it is listened anew.
const AGAIN: Duration = Duration::from_millis(500);
/// The header of a message that says to look now. A version that does not know it looks as if something had happened.
const NOW: &str = "Agentd-Look-Now";

impl NatsStore {
    /// Sends a message for each of these, and waits for nothing.
    pub(super) fn send_wakes(&self, wakes: Vec<Wake>) {
        let (client, subject) = (self.shared.connection.link().client, self.names().wake());
        self.shared.connection.begin(async move {
            for Wake { repository, now } in wakes {
                let mut headers = HeaderMap::new();
                if now {
                    headers.insert(NOW, "yes");
                }
                let sent = client.publish_with_headers(subject.clone(), headers, repository.into());
                if let Err(error) = sent.await {
                    tracing::debug!("a poller is not woken: {}", with_causes(&error));
                }
            }
        });
    }

    /// Whether this user may send such messages and hear them. Blocks.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn may_wake(&self) -> Result<bool, StoreError> {
        let (link, subject) = (self.shared.connection.link(), self.names().wake());
        let failed = |words: String| StoreError::Failed { action: "try", place: self.names().wake(), words };
        let heard = self.shared.connection.call(async move {
            let client = link.client.clone();
            let own = async {
                let mut heard =
                    client.subscribe(subject.clone()).await.map_err(|error| with_causes(&error))?;
                // It names no repository.
                client.publish(subject.clone(), "".into()).await.map_err(|error| with_causes(&error))?;
                let message = tokio::time::timeout(REQUEST, heard.next()).await;
                message.ok().flatten().map(drop).ok_or_else(|| "no message comes".to_owned())
            };
            link.permitted(&subject, own).await
        })?;
        match heard {
            Ok(heard) => heard.map(|()| true).map_err(failed),
            // The server refuses one of both.
            Err(_) => Ok(false),
        }
    }

    /// What such messages say from now on.
    pub(super) fn hear_wakes(&self) -> BoxStream<'static, Wake> {
        let (client, subject) = (self.shared.connection.link().client, self.names().wake());
        let heard = stream::unfold(None::<Subscriber>, move |mut messages| {
            let (client, subject) = (client.clone(), subject.clone());
            async move {
                loop {
                    if messages.is_none() {
                        messages = client.subscribe(subject.clone()).await.ok();
                    }
                    if let Some(found) = &mut messages
                        && let Some(message) = found.next().await
                    {
                        return Some((wake(&message), messages));
                    }
                    messages = None;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
        heard.boxed()
    }
}

fn wake(message: &Message) -> Wake {
    let now = message.headers.as_ref().is_some_and(|headers| headers.get(NOW).is_some());
    Wake { repository: String::from_utf8_lossy(&message.payload).into_owned(), now }
}
