//! Who polls a repository: the cell that names its session, and keeps what it remembers of the repository for the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use super::blobs;
use super::cell_stream::{CellStream, Write, Written};
use super::connection::LAST_WORD;
use super::node::{Node, document, failed, node_cell, text_of};
use super::session::{Anew, Session};
use super::shared::{Shared, session};
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::cluster::cells::{HeldTerm, REPO_SCHEMA, RepoCell, SessionId};
use crate::domain::cluster::poller;
use crate::domain::cluster::session::has_ended;
use crate::store::port::{HeldLease, LeaseNotTaken, StoreError};
use crate::sys::holder_format::Holder;

/// The member of the cell that has what its poller remembers.
const MEMORY: &str = "memory";
/// The same as a blob, where it is longer than [`LONGEST`].
const MEMORY_FILE: &str = "memory_file";
/// Longest memory in the cell itself, in bytes.
const LONGEST: usize = 40 * 1024;
/// How long a change is tried before the next tick tries it again.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Polled {
    shared: Arc<Shared>,
    session: Arc<Session>,
    repo: Arc<PolledRepo>,
    memory: Option<Value>,
    given_back: bool,
}

/// A repository that a session polls.
#[derive(Debug)]
struct PolledRepo {
    subject: String,
    /// The cell with its revision.
    at: Mutex<(u64, RepoCell)>,
    /// Whether another polls it, as a store says that came back with an older copy or has begun anew.
    is_lost: watch::Sender<bool>,
}

impl PolledRepo {
    fn now(&self) -> (u64, RepoCell) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_at(&self, revision: u64, cell: RepoCell) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = (revision, cell);
    }

    async fn taken_anew(&self, node: &Node, session: &Session) -> Result<Option<Vec<Write>>, StoreError> {
        let (after, found) = repo_cell(&node.cells, &self.subject).await?;
        let is_anothers = match found.poller.as_ref().filter(|by| **by != session.id) {
            Some(by) => {
                let cell = node_cell(&node.cells, &node.names.cell("node", &[&by.node])).await?.1;
                !has_ended(by, cell.as_ref())
            }
            None => false,
        };
        if is_anothers {
            self.is_lost.send_replace(true);
            return Ok(None);
        }
        let value = Some(text_of(&self.now().1, &self.subject)?);
        Ok(Some(vec![Write { subject: self.subject.clone(), after, value }]))
    }
}

impl Anew for PolledRepo {
    fn anew<'a>(
        &'a self,
        node: &'a Node,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Vec<Write>>, StoreError>> {
        self.taken_anew(node, session).boxed()
    }

    fn is_there(&self, revision: u64) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).0 = revision;
    }

    fn is_lost(&self) -> bool {
        *self.is_lost.borrow()
    }

    fn what(&self) -> &'static str {
        "the polling of a repository"
    }
}

async fn repo_cell(cells: &CellStream, subject: &str) -> Result<(u64, RepoCell), StoreError> {
    let (at, cell) = document(cells, subject, REPO_SCHEMA).await?;
    Ok((at, cell.unwrap_or_default()))
}

/// Takes a repository that no living session polls.
pub(super) async fn take(shared: Arc<Shared>, subject: String) -> Result<Polled, LeaseNotTaken> {
    let session = session(&shared).await?;
    let cells = shared.node.cells.clone().patient_for(PATIENCE);
    loop {
        let (mut sequence, mut cell) = repo_cell(&cells, &subject).await?;
        // Who polls it may not have said so again in a store that has less than it had.
        if cell.poller.is_none() && !session.waits_for_others().is_zero() {
            return Err(LeaseNotTaken::Busy(None));
        }
        if cell.poller.as_ref() != Some(&session.id) {
            let lives = match &cell.poller {
                Some(by) => session.sees_alive(by).await?,
                None => false,
            };
            let Some(next) = poller::taken(&cell, lives, &session.id) else {
                return Err(LeaseNotTaken::Busy(None));
            };
            let value = Some(text_of(&next, &subject)?);
            let write = Write { subject: subject.clone(), after: sequence, value };
            match session.commit(vec![write]).await? {
                // The messages of a batch follow each other, and the node's own cell is the last one.
                Written::At(last) => (sequence, cell) = (last - 1, next),
                Written::Overtaken if session.has_expired() => {
                    return Err(failed(&subject, "this node's session has expired").into());
                }
                Written::Overtaken => continue,
            }
        }
        // Without it nobody polls: what is still to be written would be forgotten with the next change. The next look tries again.
        let memory = memory_of(&shared, &cell).await.map_err(|words| failed(&subject, words))?;
        let at = Mutex::new((sequence, cell));
        let repo = Arc::new(PolledRepo { subject, at, is_lost: watch::Sender::new(false) });
        let of_session = Arc::downgrade(&repo);
        session.has(of_session);
        return Ok(Polled { shared, session, repo, memory, given_back: false });
    }
}

/// What the poller of a repository remembers, for who only looks.
pub(super) async fn remembered(shared: &Shared, subject: &str) -> Result<Option<Value>, StoreError> {
    let (_, cell) = repo_cell(&shared.node.cells, subject).await?;
    memory_of(shared, &cell).await.map_err(|words| failed(subject, words))
}

async fn memory_of(shared: &Shared, cell: &RepoCell) -> Result<Option<Value>, String> {
    if let Some(memory) = cell.rest.get(MEMORY) {
        return Ok(Some(memory.clone()));
    }
    let Some(file) = cell.rest.get(MEMORY_FILE) else { return Ok(None) };
    let file: Artifact = serde_json::from_value(file.clone()).map_err(|error| error.to_string())?;
    if blobs::shared_since(shared, &file.sha256).await?.is_none() {
        tracing::warn!("what was remembered of a repository is past the cluster's retention");
        return Ok(None);
    }
    let bytes = blobs::get(shared, &file.sha256).await?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| error.to_string())
}

impl Polled {
    /// Writes the cell, which nobody else does for as long as this session polls the repository.
    async fn write(
        shared: &Shared,
        session: &Session,
        subject: &str,
        (mut sequence, next): (u64, &RepoCell),
    ) -> Result<u64, StoreError> {
        let cells = shared.node.cells.clone().patient_for(PATIENCE);
        let value = Some(text_of(next, subject)?);
        loop {
            let write = Write { subject: subject.to_owned(), after: sequence, value: value.clone() };
            if let Written::At(at) = cells.commit(&[write]).await? {
                return Ok(at);
            }
            // It may be this session's own write, whose answer was given up, that is there.
            let (now, found) = repo_cell(&cells, subject).await?;
            // A store that came back with an older copy does not know yet that this session polls it.
            let is_another = found.poller.as_ref().is_some_and(|by| *by != session.id);
            if is_another || found.poller.is_none() && now > sequence {
                return Err(failed(subject, "another node polls it now"));
            }
            sequence = now;
        }
    }

    fn put(&mut self, next: RepoCell) -> Result<(), StoreError> {
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        let (subject, sequence, written) = (self.repo.subject.clone(), self.repo.now().0, next.clone());
        let at = self
            .shared
            .connection
            .call(async move { Self::write(&shared, &session, &subject, (sequence, &written)).await })??;
        self.repo.is_at(at, next);
        Ok(())
    }
}

impl HeldLease for Polled {
    fn holder(&self) -> Option<&Holder> {
        None
    }

    fn record(&self) -> Option<&Value> {
        self.memory.as_ref()
    }

    fn set_record(&mut self, record: Value) -> Result<(), StoreError> {
        let text =
            serde_json::to_vec(&record).map_err(|error| failed(&self.repo.subject, error.to_string()))?;
        let mut next = self.repo.now().1;
        next.rest.remove(MEMORY);
        next.rest.remove(MEMORY_FILE);
        if text.len() <= LONGEST {
            next.rest.insert(MEMORY.to_owned(), record.clone());
        } else {
            let (sha256, bytes) = (sha256_hex(&text), text.len() as u64);
            let (shared, name) = (Arc::clone(&self.shared), sha256.clone());
            let kept = self.shared.connection.call(async move { blobs::put(&shared, &name, text).await })?;
            kept.map_err(|words| failed(&self.repo.subject, words))?;
            let file = Artifact { path: MEMORY.to_owned(), sha256, bytes };
            next.rest.insert(MEMORY_FILE.to_owned(), serde_json::to_value(file).unwrap_or_default());
        }
        self.put(next)?;
        self.memory = Some(record);
        Ok(())
    }

    /// The session's sign of life is that of all that it has: it is only asked whether it still counts.
    fn renew(&mut self, _lasts: Duration) -> Result<(), StoreError> {
        match self.session.holds() {
            true => Ok(()),
            false => Err(failed(&self.repo.subject, "this node's session is not acknowledged")),
        }
    }

    fn release(mut self: Box<Self>) -> Result<(), StoreError> {
        self.given_back = true;
        self.put(RepoCell { poller: None, ..self.repo.now().1 })
    }

    fn hand_to(mut self: Box<Self>, to: &SessionId) -> Result<(), StoreError> {
        let Some(next) = poller::handed_over(&self.repo.now().1, to, &self.session.id) else {
            return Err(failed(&self.repo.subject, "another node polls it now"));
        };
        self.put(next)?;
        self.given_back = true;
        Ok(())
    }

    fn term(&self) -> Option<HeldTerm> {
        None
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let (expiry, mut lost) = (self.session.expiry(), self.repo.is_lost.subscribe());
        async move {
            tokio::select! {
                () = expiry => {}
                Ok(_) = lost.wait_for(|lost| *lost) => {}
            }
        }
        .boxed()
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        if self.given_back || !self.session.holds() {
            return;
        }
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        let (subject, (sequence, cell)) = (self.repo.subject.clone(), self.repo.now());
        let next = RepoCell { poller: None, ..cell };
        let told = self.shared.connection.call(async move {
            let written = Self::write(&shared, &session, &subject, (sequence, &next));
            tokio::time::timeout(LAST_WORD, written).await.is_ok_and(|written| written.is_ok())
        });
        if !matches!(told, Ok(true)) {
            tracing::debug!("a repository could not be given back; that ends with this node's session");
        }
    }
}
