//! Hints for the daemon. People make it look everywhere at once; webhooks make it look at one repository, at most as
//! often as is useful.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The hints for the daemon.
#[derive(Debug, Default)]
pub struct Bell {
    notify: Notify,
    rung: Mutex<Rings>,
}

/// What it was rung for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rings {
    /// Somebody wants everything looked at now.
    pub now: bool,
    /// A delivery says that something happened in one of the repositories.
    pub somewhere: bool,
    /// Deliveries say that something happened in these, in small letters.
    pub repositories: BTreeSet<String>,
}

impl Bell {
    /// Look at everything, now.
    pub fn ring(&self) {
        self.rings().now = true;
        self.notify.notify_one();
    }

    /// Something happened in a repository, `owner/name`; `None` = in one of them.
    pub fn ring_for(&self, repository: Option<&str>) {
        match repository {
            Some(name) => drop(self.rings().repositories.insert(name.to_ascii_lowercase())),
            None => self.rings().somewhere = true,
        }
        self.notify.notify_one();
    }

    /// Waits until it is rung, and takes what it was rung for.
    pub(super) async fn rung(&self) -> Rings {
        self.notify.notified().await;
        std::mem::take(&mut *self.rings())
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
