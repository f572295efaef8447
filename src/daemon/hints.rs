//! Hints for the daemon. People make it look everywhere at once; webhooks make it look at one repository, at most as
//! often as is useful.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use tokio::sync::Notify;

use crate::store::assignments::{Assignments, Wake};

/// The hints for the daemon.
#[derive(Debug, Default)]
pub struct Hints {
    notify: Notify,
    hinted: Mutex<Hinted>,
}

/// What was asked for since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hinted {
    /// Somebody wants everything looked at now.
    pub now: bool,
    /// A delivery says that something happened in one of the repositories.
    pub somewhere: bool,
    /// Deliveries say that something happened in these, in small letters.
    pub repositories: BTreeSet<String>,
    /// Other nodes say the same of these.
    pub told: BTreeSet<String>,
    /// Somebody asked another node to have these looked at now.
    pub told_now: BTreeSet<String>,
}

impl Hinted {
    /// Whether a repository is to be looked at: by people, or because a delivery, here or at another node, says that something happened.
    pub fn names(&self, repository: &str) -> bool {
        self.somewhere
            || self.repositories.contains(repository)
            || self.told.contains(repository)
            || self.wants_now(repository)
    }

    /// Whether people want a repository looked at now.
    pub fn wants_now(&self, repository: &str) -> bool {
        self.now || self.told_now.contains(repository)
    }
}

impl Hints {
    /// Look at everything, now.
    pub fn look_now(&self) {
        self.hinted().now = true;
        self.notify.notify_one();
    }

    /// Something happened in a repository, `owner/name`; `None` = in one of them.
    pub fn look_at(&self, repository: Option<&str>) {
        match repository {
            Some(name) => drop(self.hinted().repositories.insert(name.to_ascii_lowercase())),
            None => self.hinted().somewhere = true,
        }
        self.notify.notify_one();
    }

    /// Another node says so of a repository.
    pub(super) fn told(&self, wake: &Wake) {
        let mut hinted = self.hinted();
        let names = if wake.now { &mut hinted.told_now } else { &mut hinted.told };
        names.insert(wake.repository.to_ascii_lowercase());
        drop(hinted);
        self.notify.notify_one();
    }

    /// Waits for a hint, and takes all that came.
    pub(super) async fn next(&self) -> Hinted {
        self.notify.notified().await;
        std::mem::take(&mut *self.hinted())
    }

    fn hinted(&self) -> MutexGuard<'_, Hinted> {
        self.hinted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears at which repositories other nodes say to look, for as long as it is polled.
pub(super) async fn woken(assignments: Arc<dyn Assignments>, hints: Arc<Hints>) {
    let mut wakes = assignments.wakes();
    while let Some(wake) = wakes.next().await {
        hints.told(&wake);
    }
}
