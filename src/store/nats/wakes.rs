//! That something happened in a repository: a message that no stream keeps, by which a node that hears of it wakes the one that polls there.

use std::time::Duration;

use async_nats::Subscriber;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::connection::REQUEST;
use super::shared::NatsStore;
use crate::domain::causes::with_causes;
use crate::store::port::StoreError;

/// How long until it is listened anew.
const AGAIN: Duration = Duration::from_millis(500);

impl NatsStore {
    /// Sends a message for each of these repositories, and waits for nothing.
    pub(super) fn send_wakes(&self, repositories: Vec<String>) {
        let (client, subject) = (self.shared.connection.link().client, self.names().wake());
        self.shared.connection.begin(async move {
            for repository in repositories {
                if let Err(error) = client.publish(subject.clone(), repository.into()).await {
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

    /// The repositories that such messages name from now on.
    pub(super) fn hear_wakes(&self) -> BoxStream<'static, String> {
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
                        return Some((String::from_utf8_lossy(&message.payload).into_owned(), messages));
                    }
                    messages = None;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
        heard.boxed()
    }
}
