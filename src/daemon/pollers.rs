//! In a cluster: which repositories this node polls. A repository is one node's, for as long as its session lives; the others look
//! whether it does. What the poller remembers of the repository goes with it to the next one.

use std::time::Duration;

use serde_json::Value;

use super::main_loop::Daemon;
use super::poll::Watch;
use super::polling::Polling;
use super::state_format::RepositoryState;
use crate::github::PageCache;
use crate::store::port::{Held, LeaseKey, NotTaken, StoreError};
use crate::store::run_dir::StateDir;

/// What is remembered of a repository, for other nodes: the pages of unchanged lists are each node's own.
fn told(state: &RepositoryState) -> Value {
    let state = RepositoryState { pages: PageCache::default(), ..state.clone() };
    serde_json::to_value(state).unwrap_or_default()
}

impl Daemon {
    /// In a cluster: why this node may not take part in it; `None` = it may.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The state directory that it works with.
    pub fn state(&self) -> &StateDir {
        &self.deps.state
    }

    /// Lets go of what another node may have, and takes what nobody polls.
    pub(super) async fn look_at_pollers(&mut self) {
        if self.deps.look_at_pollers.is_none() {
            return;
        }
        let lost = self.watches.extract_if(.., |watch| watch.polling.as_ref().is_none_or(Polling::is_lost));
        for watch in lost.collect::<Vec<_>>() {
            tracing::warn!(repo = %watch.watched.name, "another node may poll the repository now");
            self.resting.push(Watch::new(watch.watched, watch.state));
        }
        let mut still = Vec::new();
        for mut watch in std::mem::take(&mut self.resting) {
            let (store, lease) =
                (self.deps.state.store().clone(), LeaseKey::Poller(watch.watched.name.clone()));
            let taken =
                tokio::task::spawn_blocking(move || store.take(&lease, "daemon", Duration::ZERO)).await;
            let name = watch.watched.name.clone();
            match taken {
                Ok(Ok(held)) => {
                    tracing::info!(repo = %name, "this node polls the repository now");
                    watch = begun(watch, held);
                    self.troubles.over(&format!("polling {name}"));
                    let left = (self.deps.find_left)(name).await;
                    self.unfinished.extend(left);
                    self.watches.push(watch);
                    continue;
                }
                Ok(Err(NotTaken::Busy(_))) => {}
                Ok(Err(NotTaken::Store(StoreError::NameTaken(words)))) => self.refused = Some(words),
                Ok(Err(NotTaken::Store(error))) => {
                    if self.troubles.again(format!("polling {name}"), &error.to_string()) {
                        tracing::warn!(repo = %name, "it cannot be told who polls the repository: {error}");
                    }
                }
                Err(panic) => {
                    tracing::error!(repo = %name, %panic, "it cannot be told who polls the repository");
                }
            }
            still.push(watch);
        }
        self.resting = still;
    }

    /// Whether this node may act for the repositories that it polls. In a cluster only while its session is acknowledged.
    pub(super) fn may_poll(&mut self) -> bool {
        self.watches.iter_mut().all(|watch| match &mut watch.polling {
            Some(Polling { held: Some(held), .. }) => held.renew(Duration::ZERO).is_ok(),
            Some(_) => false,
            None => true,
        })
    }

    /// Gives what is remembered of the repositories to the next node that polls them.
    pub(super) async fn share(&mut self) {
        for watch in &mut self.watches {
            let Some(polling) = &mut watch.polling else { continue };
            let now = told(&watch.state);
            if now == polling.shared {
                continue;
            }
            let Some(mut held) = polling.held.take() else { continue };
            let value = now.clone();
            let written = tokio::task::spawn_blocking(move || {
                let written = held.set_record(value);
                (held, written)
            });
            match written.await {
                Ok((held, Ok(()))) => *polling = Polling { held: Some(held), shared: now },
                Ok((held, Err(error))) => {
                    tracing::warn!(repo = %watch.watched.name, "what is remembered is not shared: {error}");
                    polling.held = Some(held);
                }
                Err(panic) => {
                    tracing::error!(repo = %watch.watched.name, %panic, "what is remembered is lost");
                }
            }
        }
    }

    /// Leaves the repositories to other nodes.
    pub(super) async fn give_back_all(&mut self) {
        self.share().await;
        for watch in &mut self.watches {
            let Some(held) = watch.polling.take().and_then(|polling| polling.held) else { continue };
            let released = tokio::task::spawn_blocking(move || held.release());
            if let Ok(Err(error)) = released.await {
                tracing::debug!("a repository could not be given back: {error}");
            }
        }
    }
}

/// A repository that this node begins to poll, with what its last poller remembered. What this node itself knew of lists may be used.
fn begun(watch: Watch, held: Box<dyn Held>) -> Watch {
    let mut state = watch.state;
    if let Some(record) = held.record() {
        match serde_json::from_value::<RepositoryState>(record.clone()) {
            Ok(shared) => state = RepositoryState { pages: state.pages, ..shared },
            Err(error) => {
                tracing::warn!(%error, "what another node remembered of a repository cannot be read");
            }
        }
    }
    let shared = held.record().cloned().unwrap_or_default();
    let mut watch = Watch::new(watch.watched, state);
    watch.polling = Some(Polling { held: Some(held), shared });
    watch
}
