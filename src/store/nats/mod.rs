//! The store on NATS JetStream: a subject a journal, one message a cell, an object store for blobs, and leases that a session's
//! sign of life keeps.
//!
//! Calls block, as the port says; what they ask is done on one thread of this store. Every write names the last sequence of its
//! subject. An answer that does not come says nothing: the tail is read until it is known what became of the write.

mod access;
mod answer_wire;
mod blobs;
mod cell_stream;
mod cells;
mod connection;
mod consumer;
mod control;
mod flushes;
mod health;
mod held_issue;
mod holders;
mod log;
mod messages;
mod moving;
mod node;
mod assignments;
mod pollers;
mod requests;
mod rows;
mod seen;
mod session;
mod shared;
mod slots;
pub mod streams;
mod wakes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::access::{Access, Caps, Credentials, Tls};
use self::blobs::NatsBlobs;
pub(super) use self::log::{Behind, NatsLog};
pub use self::moving::Recorded;
pub use self::rows::{RowSeen, StatusSeen};
pub use self::seen::{AccountSeen, NodeSeen, ServerSeen};
pub(super) use self::session::Session;
pub use self::shared::NatsStore;
use super::assignments::Assignments;
use super::port::{Blobs, Log, Servers, Store, StoreError};
use super::requests::Requests;
use super::run_dir::{FindError, RunDir, StateDir};
use crate::domain::cluster::names::{StreamKind, last_tokens, node_of};
use crate::domain::cluster::run_row::RunRow;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;

impl StateDir {
    /// A state directory whose shared part is on a NATS server. Takes an absolute path; makes nothing yet.
    pub fn on_nats(root: PathBuf, store: NatsStore) -> Self {
        Self { root, store: Arc::new(store), only_reads: false }
    }
}

impl NatsStore {
    /// The journal of a run.
    pub(super) fn journal(&self, run: &RunDir) -> NatsLog {
        let subject = self.names().log(&run.repo, &run.run_id.to_string());
        NatsLog::new(self.shared.clone(), self.names().stream(StreamKind::Log), subject)
    }
}

/// How long it takes to see whether the store answers.
const LOOK: Duration = Duration::from_secs(2);

impl Store for NatsStore {
    fn runs(&self, only: Option<&RepoName>) -> Result<Vec<(RepoName, RunId)>, FindError> {
        let subject = self.names().logs(only);
        let (link, stream) = (self.shared.connection.link(), self.names().stream(StreamKind::Log));
        let found = self.shared.connection.call({
            let subject = subject.clone();
            async move { link.subjects(&stream, &subject).await }
        });
        let subjects = found.and_then(|found| found).map_err(|error| FindError::Unreadable {
            path: PathBuf::from(&subject),
            source: std::io::Error::other(error.to_string()),
        })?;
        let run_of = |subject: &String| {
            let [owner, name, run] = last_tokens(subject)?;
            let repo = RepoName::parse(&format!("{owner}/{name}")).ok()?;
            Some((repo, RunId(uuid::Uuid::parse_str(&run).ok()?)))
        };
        Ok(subjects.iter().filter_map(run_of).collect())
    }

    fn log(&self, run: &RunDir) -> Result<Arc<dyn Log>, StoreError> {
        Ok(Arc::new(self.journal(run)))
    }

    fn blobs(&self, run: &RunDir) -> Arc<dyn Blobs> {
        Arc::new(NatsBlobs::new(self.shared.clone(), run.run_id))
    }

    fn shared(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.clone()))
    }

    fn unsealed(&self, repo: &RepoName) -> Result<Vec<RunRow>, StoreError> {
        self.unsealed_rows(repo)
    }

    fn node(&self) -> Option<String> {
        Some(node_of(&self.shared.node.name).to_owned())
    }

    fn cluster(&self) -> Option<String> {
        Some(self.names().cluster().to_owned())
    }

    fn assignments(&self) -> Option<Arc<dyn Assignments>> {
        Some(Arc::new(self.clone()))
    }

    fn requests(&self) -> Option<Arc<dyn Requests>> {
        Some(Arc::new(self.clone()))
    }

    fn servers(&self) -> Result<Option<Servers>, StoreError> {
        self.health()
    }

    fn answers(&self) -> Result<(), StoreError> {
        // A session that is acknowledged says so by itself; it is begun anew under the lock.
        let session = self.shared.session.try_lock().ok().and_then(|session| session.clone());
        if session.as_ref().is_some_and(|session| session.holds()) {
            return Ok(());
        }
        self.answers_within(LOOK)?;
        match session.is_some_and(|session| !session.holds() && !session.has_expired()) {
            true => Err(StoreError::Failed {
                action: "write to",
                place: "the store".to_owned(),
                words: "it answers, and this node's session is not acknowledged".to_owned(),
            }),
            false => Ok(()),
        }
    }
}
