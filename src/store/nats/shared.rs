//! The handle on a cluster's store, and what all its parts use.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::access::Access;
use super::cell_stream::CellStream;
use super::connection::{Connection, LAST_WORD};
use super::flushes::Flushes;
use super::node::{Node, RoomOfDaemon};
use super::session::Session;
use crate::domain::cluster::names::{Names, StreamKind};
use crate::store::port::{Cell, StoreError};
use crate::sys::clock::Clock;
use crate::sys::host::Host;

/// What several nodes share, on a NATS server with JetStream.
#[derive(Debug, Clone)]
pub struct NatsStore {
    pub(super) shared: Arc<Shared>,
    /// Whether a holder waits for cells for as long as the store is away.
    pub(super) waits: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub connection: Connection,
    pub node: Arc<Node>,
    /// This node's session, once it holds something.
    pub session: Arc<tokio::sync::Mutex<Option<Arc<Session>>>>,
    pub clock: Clock,
    pub word: Arc<Word>,
    /// How long journals waited for their acknowledgement.
    pub flushes: Flushes,
}

/// What this node says of itself.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// What is to be said next; `None` = all is said.
    next: Mutex<Option<Option<String>>>,
    /// Held by who says it.
    saying: tokio::sync::Mutex<()>,
}

/// This node's session, begun where there is none.
pub(super) async fn session(shared: &Arc<Shared>) -> Result<Arc<Session>, StoreError> {
    let mut current = shared.session.lock().await;
    if let Some(session) = current.as_ref().filter(|session| session.holds()) {
        return Ok(Arc::clone(session));
    }
    // One that is not valid at the moment may become so again; only one that has expired never does.
    if let Some(session) = current.as_ref().filter(|session| !session.has_expired()) {
        session.commit(Vec::new()).await?;
        if !session.has_expired() {
            return Ok(Arc::clone(session));
        }
    }
    let begun = Session::begin(&shared.node).await?;
    *current = Some(Arc::clone(&begun));
    Ok(begun)
}

impl NatsStore {
    /// Connects a node to its cluster. Blocks until one of the servers has answered; makes nothing there.
    ///
    /// # Errors
    /// No server answers, or none takes these credentials.
    pub fn connect(access: &Access) -> Result<Self, StoreError> {
        let connection = Connection::open(access)?;
        let names = access.names.clone();
        let cells = CellStream::new(connection.link(), names.stream(StreamKind::Cells));
        let node = Node {
            name: access.node.clone(),
            place: access.place.clone(),
            names,
            cells,
            lease: access.lease,
            host: Host::current(),
            is_beside: access.beside,
            caps: access.caps,
            forms: access.forms,
            room: RoomOfDaemon::default(),
        };
        let session = Arc::default();
        let shared = Shared {
            connection,
            node: Arc::new(node),
            session,
            clock: Clock::system(),
            word: Arc::default(),
            flushes: Flushes::default(),
        };
        Ok(Self { shared: Arc::new(shared), waits: false })
    }

    /// The same store for who works on an issue: a holder waits for as long as the store is away, instead of failing.
    pub fn waiting(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waits: true }
    }

    /// Waits until the store answers. Blocks.
    ///
    /// # Errors
    /// It does not in this time, or refuses.
    pub fn answers_within(&self, within: Duration) -> Result<(), StoreError> {
        let (node, own) = (self.shared.node.clone(), self.names().cell("node", &[&self.shared.node.name]));
        let asked = async move { node.cells.clone().patient_for(within).get(&own).await.map(drop) };
        self.shared.connection.call(asked)?
    }

    /// Says to the other nodes how this one is, without waiting for it: the last word counts. Nothing is said while this node's session
    /// is not acknowledged.
    pub(in crate::store) fn tell(&self, status: Option<String>) {
        *self.shared.word.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        self.shared.connection.begin(self.said());
    }

    /// Says what is to be said. It has nothing of the store: who has the store last ends the session, and may wait for that.
    fn said(&self) -> impl Future<Output = ()> + Send + use<> {
        let (word, session) = (Arc::clone(&self.shared.word), Arc::clone(&self.shared.session));
        let (cells, subject) = (self.stream_of(&Cell::Status), self.subject(&Cell::Status));
        async move {
            let _one_at_a_time = word.saying.lock().await;
            let next = word.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            let holds = session.lock().await.as_ref().is_some_and(|session| session.holds());
            let (Some(next), true) = (next, holds) else { return };
            if let Err(error) = cells.put(&subject, next.as_deref()).await {
                tracing::debug!("the other nodes do not hear how this one is: {error}");
            }
        }
    }

    /// This process's session, if it holds something.
    pub(in crate::store) fn session(&self) -> Option<Arc<Session>> {
        let shared = Arc::clone(&self.shared);
        self.shared.connection.call(async move { shared.session.lock().await.clone() }).ok().flatten()
    }

    /// The names of its cluster.
    pub fn names(&self) -> &Names {
        &self.shared.node.names
    }
}

impl Drop for NatsStore {
    /// The last one to use the store says how this node is, and that its session is over, so that nobody has to wait for it to expire.
    fn drop(&mut self) {
        if Arc::strong_count(&self.shared) > 1 {
            return;
        }
        let (shared, said) = (Arc::clone(&self.shared), self.said());
        let left = async move {
            said.await;
            let session = shared.session.lock().await.take();
            match session {
                Some(session) => session.leave().await.is_ok(),
                None => true,
            }
        };
        let left = self.shared.connection.call(async { tokio::time::timeout(LAST_WORD, left).await });
        if !matches!(left, Ok(Ok(true))) {
            tracing::debug!("this node's session could not be ended; it expires");
        }
    }
}
