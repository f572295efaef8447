//! The status of a daemon, as last published: in this process and as its file, both at once. In a cluster a watch beside the
//! daemon adds whether the store can be used, also while the daemon itself waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use super::loading::{DaemonFiles, StateError};
use super::status_format::{Status, StoreTrouble};
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;

/// The status as last published.
#[derive(Debug)]
pub(super) struct PublishedStatus {
    /// Where it is written; `None` = it is not, because another daemon's stands there.
    files: Option<DaemonFiles>,
    sender: watch::Sender<Option<Arc<Status>>>,
    /// Since when the store cannot be used, and why. Held while a status is published, so that nothing older follows it.
    away: Mutex<Option<StoreTrouble>>,
}

impl PublishedStatus {
    pub fn new(files: Option<DaemonFiles>) -> Self {
        Self { files, sender: watch::Sender::new(None), away: Mutex::default() }
    }

    /// Each status; `None` before the first one.
    pub fn statuses(&self) -> watch::Receiver<Option<Arc<Status>>> {
        self.sender.subscribe()
    }

    /// Publishes this, with what is known of the store. Blocks.
    pub fn publish(&self, status: Status) -> Result<(), StateError> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(Status { store_unavailable: away.clone(), ..status })
    }

    /// Takes why the store cannot be used now (`None` = it can), and publishes it if that is new. True = it can be used or not, other than
    /// before. Blocks.
    pub fn set_store_error(&self, error: Option<String>, now: DateTime<Utc>) -> Result<bool, StateError> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let before = away.take();
        let since = before.as_ref().map_or(now, |before| before.since);
        *away = error.map(|error| StoreTrouble { since, error });
        let (is_new, turned) = (*away != before, away.is_some() != before.is_some());
        let last = self.sender.borrow().as_deref().cloned();
        if let Some(last) = last.filter(|_| is_new) {
            self.write(Status { store_unavailable: away.clone(), ..last })?;
        }
        Ok(turned)
    }

    fn write(&self, status: Status) -> Result<(), StateError> {
        let status = Arc::new(status);
        self.sender.send_replace(Some(Arc::clone(&status)));
        self.files.as_ref().map_or(Ok(()), |files| files.save_status(&status))
    }
}

/// Looks every now and then whether the store can be used, for as long as it is polled.
pub(super) async fn watch_store(
    published: Arc<PublishedStatus>,
    state: StateDir,
    clock: Clock,
    every: Duration,
) {
    loop {
        tokio::time::sleep(every).await;
        let (published, state, clock) = (Arc::clone(&published), state.clone(), clock.clone());
        if let Err(panic) = tokio::task::spawn_blocking(move || look(&published, &state, &clock)).await {
            tracing::error!(%panic, "it cannot be told whether the store can be used");
        }
    }
}

fn look(published: &PublishedStatus, state: &StateDir, clock: &Clock) {
    let error = state.store().answers().err().map(|error| error.to_string());
    match (published.set_store_error(error.clone(), clock.now()), error) {
        (Ok(true), Some(error)) => tracing::warn!("the cluster's store cannot be used: {error}"),
        (Ok(true), None) => tracing::info!("the cluster's store can be used again"),
        (Ok(false), _) => {}
        (Err(error), _) => tracing::warn!(%error, "the daemon's status could not be written"),
    }
}
