//! Leases on issues as cells: taken by a session and a term, given up by an expired session, and fenced by the term.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use uuid::Uuid;

use super::cell_stream::{Write, Written};
use super::connection::LAST_WORD;
use super::held_issue::HeldIssue;
use super::node::{failed, is_gone, issue_cell, node_cell, node_cells, text_of};
use super::pollers;
use super::session::Session;
use super::shared::{NatsStore, Shared, session};
use super::slots::{self, Counted, Watched};
use crate::domain::cluster::cells::{ASKED, HeldTerm, Hold, IssueCell, RunKey, SessionId};
use crate::domain::cluster::lease::{self, LeaseClaim};
use crate::domain::cluster::names::last_tokens;
use crate::domain::cluster::session::has_ended;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::port::{HeldLease, Holders, LeaseKey, LeaseNotTaken, StoreError};
use crate::sys::holder_format::{Holder, LEASE_SCHEMA, LeaseRecord, Liveness};

/// How often a holder is looked at that may be dead.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Leased {
    shared: Arc<Shared>,
    session: Arc<Session>,
    issue: Arc<HeldIssue>,
    record: Option<Value>,
    holder: Holder,
    taken_from: Option<Holder>,
    given_back: bool,
}

fn holder_of(cell: &IssueCell) -> Option<Holder> {
    match &cell.hold {
        Hold::Leased { holder, .. } => serde_json::from_value(holder.clone()).ok(),
        Hold::Free | Hold::Offered { .. } => None,
    }
}

/// Whether a session has not ended, as far as its cell and this host's processes tell.
pub(super) async fn session_lives(shared: &Shared, by: &SessionId) -> Result<bool, StoreError> {
    let node = shared.node.names.cell("node", &[&by.node]);
    let (_, found) = node_cell(&shared.node.cells, &node).await?;
    let gone = found.as_ref().is_some_and(|found| is_gone(found, &shared.node.host));
    Ok(!gone && !has_ended(by, found.as_ref()))
}

async fn take(
    shared: Arc<Shared>,
    subject: String,
    counted: Vec<Counted>,
    mut holder: Holder,
) -> Result<Leased, LeaseNotTaken> {
    let session = session(&shared).await?;
    let asked = LeaseClaim::Asked(RunKey::Other(format!("{ASKED}{}", Uuid::new_v4())));
    let mut first = None;
    let mut watched = Watched::new();
    loop {
        tokio::time::sleep(session.waits_for_others()).await;
        let (sequence, cell) = issue_cell(&shared.node.cells, &subject).await?;
        let dead = match &cell.hold {
            Hold::Leased { by, .. } if *by != session.id => {
                let alive = session.sees_alive(by).await?;
                // A holder that gives a sign of life while it is watched has the issue. One that gives none is watched for a lease.
                let now = (by.clone(), session.revision_of(by).await?);
                if alive && *first.get_or_insert_with(|| now.clone()) == now {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                !alive
            }
            Hold::Leased { .. } | Hold::Free | Hold::Offered { .. } => false,
        };
        holder.held = Some(HeldTerm {
            cluster: shared.node.names.cluster().to_owned(),
            by: session.id.clone(),
            term: cell.term + 1,
        });
        let own = serde_json::to_value(&holder).map_err(|error| failed(&subject, error.to_string()))?;
        let taken_from = holder_of(&cell).filter(|_| dead);
        let Ok(next) = lease::taken(&cell, dead, &session.id, &asked, own) else {
            return Err(LeaseNotTaken::Busy(holder_of(&cell).map(Box::new)));
        };
        let value = Some(text_of(&next, &subject)?);
        let slots = slots::taken(&shared.node, &session, &counted, &subject, &mut watched).await?;
        let Some(mut writes) = slots else { continue };
        writes.push(Write { subject: subject.clone(), after: sequence, value });
        if let Written::At(last) = session.commit(writes).await? {
            // The messages of a batch follow each other, and the node's own cell is the last one.
            let record = next.record.clone();
            let issue = Arc::new(HeldIssue::new(subject, counted, (last - 1, next)));
            let of_session = Arc::downgrade(&issue);
            session.has(of_session);
            let given_back = false;
            return Ok(Leased { shared, session, issue, record, holder, taken_from, given_back });
        }
        if session.has_expired() {
            return Err(failed(&subject, "this node's session has expired").into());
        }
    }
}

impl Leased {
    /// Writes the issue's cell, if this session still has it, which the cell's own revision tells. Alone, because a stream without room
    /// takes a change of one cell, and none of several.
    fn write(&mut self, next: IssueCell, may_be_set_back: bool) -> Result<(), StoreError> {
        let subject = &self.issue.subject;
        let value = Some(text_of(&next, subject)?);
        let write = Write { subject: subject.clone(), after: self.issue.now().0, value };
        let cells = self.shared.node.cells.clone();
        match self.shared.connection.call(async move { cells.commit(&[write]).await })?? {
            Written::Overtaken if may_be_set_back && self.is_taken_anew()? => self.write(next, false),
            Written::At(sequence) => {
                self.record.clone_from(&next.record);
                self.issue.is_at(sequence, next);
                Ok(())
            }
            Written::Overtaken => Err(failed(subject, "another node has it now")),
        }
    }

    /// Whether the store came back with an older copy, and this session has the issue all the same.
    fn is_taken_anew(&self) -> Result<bool, StoreError> {
        let (before, session) = (self.issue.now().0, Arc::clone(&self.session));
        let _written = self.shared.connection.call(async move { session.sign_of_life().await })??;
        Ok(self.issue.now().0 != before)
    }

    fn give_back(&mut self) -> Result<(), StoreError> {
        if self.given_back {
            return Ok(());
        }
        let giving = self.giving_back();
        if !self.shared.connection.call(async move { giving.once().await })?? {
            return Err(failed(&self.issue.subject, "another node has it now"));
        }
        self.given_back = true;
        Ok(())
    }

    fn giving_back(&self) -> GivingBack {
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        GivingBack { shared, session, issue: Arc::clone(&self.issue) }
    }
}

/// An issue that is given back with the slots of its run.
struct GivingBack {
    shared: Arc<Shared>,
    session: Arc<Session>,
    issue: Arc<HeldIssue>,
}

impl GivingBack {
    /// False = another node has it, or it is given back already.
    async fn once(&self) -> Result<bool, StoreError> {
        let (node, session, subject) = (&self.shared.node, &self.session.id, &self.issue.subject);
        let (after, cell) = self.issue.now();
        let Some(next) = lease::given_back(&cell, session, cell.term) else { return Ok(false) };
        let own = Write { subject: subject.clone(), after, value: Some(text_of(&next, subject)?) };
        let cells = &node.cells;
        loop {
            let mut writes = slots::given_back(node, session, &self.issue.counted, subject).await?;
            writes.push(own.clone());
            match cells.commit(&writes).await {
                Ok(Written::At(_)) => return Ok(true),
                // A stream without room takes a change of one cell, and none of several. Who finds no slot free sees that this
                // one is no run's any more.
                Err(_) if writes.len() > 1 => {
                    if cells.commit(std::slice::from_ref(&own)).await? != Written::Overtaken {
                        return Ok(true);
                    }
                }
                Err(error) => return Err(error),
                Ok(Written::Overtaken) => {}
            }
            if cells.get(subject).await?.sequence != own.after {
                return Ok(false);
            }
        }
    }

    /// As soon as the store can be written to again: this node lives on, so nobody else would take the issue from it.
    async fn later(self) {
        while !self.session.has_expired() {
            tokio::time::sleep(LOOK).await;
            if self.session.holds() && self.once().await.is_ok() {
                return;
            }
        }
    }
}

impl HeldLease for Leased {
    fn holder(&self) -> Option<&Holder> {
        Some(&self.holder)
    }

    fn record(&self) -> Option<&Value> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: Value) -> Result<(), StoreError> {
        self.write(IssueCell { record: Some(record), ..self.issue.now().1 }, true)
    }

    /// The session's sign of life is that of all its leases: it is only asked whether it still counts.
    fn renew(&mut self, _lasts: Duration) -> Result<(), StoreError> {
        if self.session.holds() {
            return Ok(());
        }
        let words = "this node's session is not acknowledged; others may have the lease soon";
        Err(failed(&self.issue.subject, words))
    }

    fn release(mut self: Box<Self>) -> Result<(), StoreError> {
        self.give_back()
    }

    fn term(&self) -> Option<HeldTerm> {
        self.holder.held.clone()
    }

    fn taken_from(&self) -> Option<&Holder> {
        self.taken_from.as_ref()
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let (expiry, loss) = (self.session.expiry(), self.issue.loss());
        async move {
            tokio::select! {
                () = expiry => {}
                () = loss => {}
            }
        }
        .boxed()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if self.given_back || self.session.has_expired() {
            return;
        }
        let giving = self.giving_back();
        let told = self.shared.connection.call(async move {
            let once = giving.session.holds()
                && matches!(tokio::time::timeout(LAST_WORD, giving.once()).await, Ok(Ok(_)));
            if !once {
                tokio::spawn(giving.later());
            }
            once
        });
        if !matches!(told, Ok(true)) {
            tracing::debug!(
                "a lease could not be given back now; it ends with this node's session, or once the store answers"
            );
        }
    }
}

fn expiry(now: DateTime<Utc>, lasts: Duration) -> DateTime<Utc> {
    now + TimeDelta::from_std(lasts).unwrap_or(TimeDelta::days(365))
}

impl NatsStore {
    /// The issue's key is the name of the lease's file without `issue-`, as its worktree is called.
    fn lease_subject(&self, lease: &LeaseKey) -> String {
        match lease {
            LeaseKey::Issue { repo, file } => {
                let name = file.file_stem().unwrap_or_default().to_string_lossy();
                let key = name.strip_prefix("issue-").unwrap_or(&name);
                self.names().cell_of("issue", repo, &[key])
            }
            // The daemon of this node: who has the name has it.
            LeaseKey::Daemon => self.names().cell("daemon_lease", &[&self.shared.node.name]),
            LeaseKey::Poller(repo) => self.names().cell_of("repo", repo, &[]),
        }
    }

    fn take_issue(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
        counted: Vec<Counted>,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let now = self.shared.clock.now();
        let mut holder = Holder::here(&self.shared.node.host, instance, now, expiry(now, lasts));
        // Who takes over finds the run by it, however little of it there is.
        holder.run_id = Some(RunId(Uuid::now_v7()));
        let (shared, subject) = (Arc::clone(&self.shared), self.lease_subject(lease));
        let taken = self.shared.connection.call(async move { take(shared, subject, counted, holder).await });
        Ok(Box::new(taken.map_err(LeaseNotTaken::Store)??))
    }
}

impl Holders for NatsStore {
    fn take(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let subject = self.lease_subject(lease);
        if let LeaseKey::Poller(_) = lease {
            let shared = Arc::clone(&self.shared);
            let taken = self.shared.connection.call(async move { pollers::take(shared, subject).await });
            return Ok(Box::new(taken.map_err(LeaseNotTaken::Store)??));
        }
        self.take_issue(lease, instance, lasts, Vec::new())
    }

    fn take_for_run(
        &self,
        lease: &LeaseKey,
        instance: &str,
        lasts: Duration,
    ) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
        let LeaseKey::Issue { repo, .. } = lease else { return self.take(lease, instance, lasts) };
        let counted = slots::counted(self.names(), self.shared.node.caps, repo);
        self.take_issue(lease, instance, lasts, counted)
    }

    fn look(&self, lease: &LeaseKey) -> Option<LeaseRecord> {
        let (shared, subject) = (Arc::clone(&self.shared), self.lease_subject(lease));
        if let LeaseKey::Poller(_) = lease {
            let record =
                self.shared.connection.call(async move { pollers::remembered(&shared, &subject).await });
            let record = record.and_then(|record| record).unwrap_or_else(|error| {
                tracing::warn!("what a poller remembers cannot be looked at: {error}");
                None
            });
            let schema_version = LEASE_SCHEMA.to_owned();
            return record.map(|record| LeaseRecord {
                schema_version,
                holder: None,
                record: Some(record),
                left: false,
            });
        }
        let looked = self.shared.connection.call(async move {
            let (sequence, cell) = issue_cell(&shared.node.cells, &subject).await?;
            let lives = match &cell.hold {
                Hold::Leased { by, .. } => session_lives(&shared, by).await?,
                Hold::Free | Hold::Offered { .. } => false,
            };
            Ok::<_, StoreError>((sequence, lives, cell))
        });
        match looked {
            Ok(Ok((0, ..))) => None,
            Ok(Ok((_, lives, cell))) => Some(LeaseRecord {
                schema_version: LEASE_SCHEMA.to_owned(),
                left: !lives && matches!(cell.hold, Hold::Leased { .. }),
                holder: holder_of(&cell).filter(|_| lives),
                record: cell.record,
            }),
            Ok(Err(error)) | Err(error) => {
                tracing::warn!("a lease cannot be looked at: {error}");
                None
            }
        }
    }

    fn leases(&self, repo: &RepoName, folder: &Path) -> Vec<LeaseKey> {
        let filter = format!("{}.*", self.names().cell_of("issue", repo, &[]));
        let shared = Arc::clone(&self.shared);
        let found = self.shared.connection.call(async move { shared.node.cells.subjects(&filter).await });
        let subjects = found.and_then(|found| found).unwrap_or_else(|error| {
            tracing::warn!("the leases of {repo} cannot be listed: {error}");
            Vec::new()
        });
        let file = |subject: &String| -> Option<PathBuf> {
            let [key] = last_tokens(subject)?;
            Some(folder.join(format!("issue-{key}.json")))
        };
        let files = subjects.iter().filter_map(file);
        files.map(|file| LeaseKey::Issue { repo: repo.clone(), file }).collect()
    }

    /// On this host by its process, on another one by the cells of the nodes.
    fn lives(&self, holder: &Holder) -> bool {
        let now = self.shared.clock.now();
        if let Some(held) = holder.held.as_ref().filter(|held| held.cluster == self.names().cluster()) {
            let (shared, by) = (Arc::clone(&self.shared), held.by.clone());
            let seen = self.shared.connection.call(async move { session_lives(&shared, &by).await });
            // What cannot be asked counts as living.
            return seen.and_then(|seen| seen).unwrap_or(true);
        }
        match holder.liveness(&self.shared.node.host, now) {
            Liveness::Alive => return true,
            Liveness::Dead if holder.host == self.shared.node.host.name => return false,
            Liveness::Dead | Liveness::Elsewhere => {}
        }
        let (shared, holder) = (Arc::clone(&self.shared), holder.clone());
        let seen = self.shared.connection.call(async move {
            let nodes = node_cells(&shared.node.cells, &shared.node.names).await?;
            let same = nodes.iter().find(|(_, _, cell)| {
                cell.host == holder.host && cell.boot_id == holder.boot_id && cell.pid == holder.pid
            });
            Ok::<_, StoreError>(same.is_some_and(|(_, _, cell)| cell.state.lives()))
        });
        // What cannot be asked counts as living.
        seen.and_then(|seen| seen).unwrap_or(true)
    }
}
