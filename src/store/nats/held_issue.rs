//! An issue that a session has: what its cell says, and what becomes of it where the store comes back with an older copy of
//! the cell, or has begun anew.

use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::cell_stream::Write;
use super::node::{Node, issue_cell, node_cell, text_of};
use super::session::{Anew, Session};
use super::slots::{self, Counted, Watched};
use crate::domain::cluster::cells::{Hold, IssueCell};
use crate::domain::cluster::lease;
use crate::domain::cluster::session::has_ended;
use crate::store::port::{LeaseNotTaken, StoreError};

/// An issue that a session has.
#[derive(Debug)]
pub(super) struct HeldIssue {
    pub subject: String,
    /// What its run counts against.
    pub counted: Vec<Counted>,
    /// The cell with its revision.
    at: Mutex<(u64, IssueCell)>,
    /// Whether another has had it since.
    is_lost: watch::Sender<bool>,
}

impl HeldIssue {
    pub(super) fn new(subject: String, counted: Vec<Counted>, at: (u64, IssueCell)) -> Self {
        Self { subject, counted, at: Mutex::new(at), is_lost: watch::Sender::new(false) }
    }

    /// What the cell says, with its revision.
    pub(super) fn now(&self) -> (u64, IssueCell) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It says this now.
    pub(super) fn is_at(&self, revision: u64, cell: IssueCell) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = (revision, cell);
    }

    /// Ends once it is known that another has had it.
    pub(super) fn loss(&self) -> BoxFuture<'static, ()> {
        let mut lost = self.is_lost.subscribe();
        let lost = async move {
            // What was given back was not lost.
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        lost.boxed()
    }

    async fn taken_anew(&self, node: &Node, session: &Session) -> Result<Option<Vec<Write>>, StoreError> {
        let (after, found) = issue_cell(&node.cells, &self.subject).await?;
        let dead = match &found.hold {
            Hold::Leased { by, .. } => {
                let cell = node_cell(&node.cells, &node.names.cell("node", &[&by.node])).await?.1;
                has_ended(by, cell.as_ref())
            }
            Hold::Free | Hold::Offered { .. } => false,
        };
        let next = lease::retaken(&found, &self.now().1, &session.id, dead);
        let slots = match &next {
            Some(_) => {
                let mut watched = Watched::new();
                match slots::taken(node, session, &self.counted, &self.subject, &mut watched).await {
                    Ok(slots) => slots,
                    Err(LeaseNotTaken::Store(error)) => return Err(error),
                    Err(LeaseNotTaken::Busy(_) | LeaseNotTaken::Full { .. }) => None,
                }
            }
            None => None,
        };
        let Some((next, mut writes)) = next.zip(slots) else {
            self.is_lost.send_replace(true);
            return Ok(None);
        };
        writes.push(Write {
            subject: self.subject.clone(),
            after,
            value: Some(text_of(&next, &self.subject)?),
        });
        Ok(Some(writes))
    }
}

impl Anew for HeldIssue {
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
        "an issue"
    }
}
