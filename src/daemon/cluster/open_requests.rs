//! In a cluster: the requests of people that no node has carried out yet, as this one has heard them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::domain::cluster::person_request::{PersonRequest, RequestMessage};

/// The requests that nobody has carried out yet, of all repositories. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon) struct OpenRequests(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    requests: Mutex<BTreeMap<Uuid, PersonRequest>>,
    came: Notify,
}

impl OpenRequests {
    /// Hears a message: a request, or what became of it.
    pub fn hear(&self, message: RequestMessage) {
        match message.answer {
            Some(_) => drop(self.open().remove(&message.request.id)),
            None => {
                self.open().insert(message.request.id, message.request);
                self.0.came.notify_one();
            }
        }
    }

    /// Ends once one has come.
    pub async fn came(&self) {
        self.0.came.notified().await;
    }

    /// This one was carried out, or never is.
    pub fn forget(&self, id: Uuid) {
        self.open().remove(&id);
    }

    /// Those that are wanted, in the order in which they were asked.
    pub fn of(&self, wanted: impl Fn(&PersonRequest) -> bool) -> Vec<PersonRequest> {
        let mut found: Vec<PersonRequest> =
            self.open().values().filter(|request| wanted(request)).cloned().collect();
        found.sort_by_key(|request| (request.at, request.id));
        found
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Uuid, PersonRequest>> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
