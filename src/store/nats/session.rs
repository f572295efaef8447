//! This node's session: the one cell by which it lives, renewed on the store's thread for as long as the store is used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cell_stream::{Write, Written};
use super::node::{Node, is_gone, is_here, knows_form, meta_cell, node_cell, node_cells, text_of};
use crate::domain::cluster::cells::{MetaCell, NODE_SCHEMA, NodeCell, NodeState, SessionId};
use crate::domain::cluster::forms::Offered;
use crate::domain::cluster::session::{self, Begin, Sight, Sightings, Validity};
use crate::store::port::StoreError;
use crate::sys::clock::{Stopwatch, awake_or_asleep};

/// How often a name that another process may have is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What a session has, and takes anew where the store comes back with an older copy, or has begun anew.
pub(super) trait Anew: std::fmt::Debug + Send + Sync {
    /// What is written to have it as before; its own cell is the last one. `None`: another has had it since.
    fn anew<'a>(
        &'a self,
        node: &'a Node,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Vec<Write>>, StoreError>>;

    /// It was written, with this revision.
    fn is_there(&self, revision: u64);

    /// Whether it is known that another has had it.
    fn is_lost(&self) -> bool;

    /// What it is, in words.
    fn what(&self) -> &'static str;
}

/// One life of this node.
#[derive(Debug)]
pub(in crate::store) struct Session {
    pub id: SessionId,
    node: Arc<Node>,
    subject: String,
    /// Whoever writes the node's cell has this; revision and cell.
    cell: tokio::sync::Mutex<(u64, NodeCell)>,
    validity: Mutex<Validity>,
    /// What was seen of the other nodes.
    sightings: Mutex<Sightings>,
    /// What was seen of the forms that they know.
    offered: Mutex<Offered>,
    /// The form in force, while this version does not know it.
    later_form: Mutex<Option<u32>>,
    /// The issues and repositories that it has.
    had: Mutex<Vec<Weak<dyn Anew>>>,
    /// Whether the store came back with an older copy, or has begun anew, and what it has was not taken anew yet.
    is_set_back: AtomicBool,
    /// When that was last seen.
    set_back_at: Mutex<Option<Duration>>,
    /// When it was seen that the store has begun anew.
    begun_anew_at: Mutex<Option<Duration>>,
    renewing: Mutex<Option<JoinHandle<()>>>,
    /// Whether others let it expire.
    expired: watch::Sender<bool>,
}

impl Session {
    /// Begins this node's next session. Where another process may have its name, that cell is watched for a lease first.
    pub(super) async fn begin(node: &Arc<Node>) -> Result<Arc<Self>, StoreError> {
        knows_form(node).await?;
        let mut name = node.first_name();
        let mut subject = node.names.cell("node", &[&name]);
        let own = NodeCell {
            schema_version: NODE_SCHEMA.to_owned(),
            session: 0,
            renewed: 0,
            state: NodeState::Live,
            host: node.host.name.clone(),
            boot_id: node.host.boot_id.clone(),
            pid: node.host.pid,
            started: node.host.started,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schemas: node.forms.all(),
            capacity: 0,
            runs: 0,
            github_fails: false,
            serves: Vec::new(),
            configuration: None,
            place: node.place.clone(),
            rest: serde_json::Map::new(),
        };
        let watched = Stopwatch::start();
        let mut first = None;
        loop {
            let (revision, found) = node_cell(&node.cells, &subject).await?;
            // Another process of this node works under that name already.
            if node.is_beside && found.as_ref().is_some_and(|cell| is_here(cell, node)) {
                (name, first) = (node.next_name(&name), None);
                subject = node.names.cell("node", &[&name]);
                continue;
            }
            let unchanged = *first.get_or_insert(revision) == revision;
            let sight = match &found {
                Some(cell) if is_gone(cell, &node.host) => Sight::Gone,
                _ if !unchanged => Sight::Renewing,
                _ if watched.elapsed() >= node.lease => Sight::Silent,
                _ => Sight::Watching,
            };
            let cell = match session::begin(found.as_ref(), &node.with_room(own.clone()), sight) {
                Begin::Write(cell) => *cell,
                Begin::Watch => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                Begin::Taken => {
                    let by = found.map(|cell| format!("pid {} on {}", cell.pid, cell.host));
                    let by = by.unwrap_or_else(|| "another process".to_owned());
                    let words =
                        format!("the node \"{}\" is {by}; give this one another `cluster.node`", node.name);
                    return Err(StoreError::NameTaken(words));
                }
            };
            let sent = awake_or_asleep();
            let write =
                Write { subject: subject.clone(), after: revision, value: Some(text_of(&cell, &subject)?) };
            if let Written::At(revision) = node.cells.commit(&[write]).await? {
                let mut validity = Validity::new(node.lease);
                validity.acknowledged(sent, awake_or_asleep());
                let id = SessionId { node: name, session: cell.session };
                let session = Arc::new(Self {
                    id,
                    node: Arc::clone(node),
                    subject,
                    cell: tokio::sync::Mutex::new((revision, cell)),
                    validity: Mutex::new(validity),
                    sightings: Mutex::default(),
                    offered: Mutex::default(),
                    later_form: Mutex::default(),
                    had: Mutex::default(),
                    is_set_back: AtomicBool::new(false),
                    set_back_at: Mutex::default(),
                    begun_anew_at: Mutex::default(),
                    renewing: Mutex::new(None),
                    expired: watch::Sender::new(false),
                });
                // One that came into force before the others could see this session.
                if let Err(error) = knows_form(node).await {
                    session.leave().await?;
                    return Err(error);
                }
                session.keep_renewing();
                return Ok(session);
            }
        }
    }

    /// On the store's thread, for as long as somebody has the session.
    fn keep_renewing(self: &Arc<Self>) {
        let weak: Weak<Self> = Arc::downgrade(self);
        let every = session::renewal(self.node.lease);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(session) = weak.upgrade() else { return };
                match session.sign_of_life().await {
                    Ok(Written::Overtaken) if session.has_expired() => {
                        tracing::warn!("the session of this node has expired: others may have its leases");
                        return;
                    }
                    Ok(Written::At(_) | Written::Overtaken) => {}
                    Err(error) => tracing::warn!("the session of this node could not be renewed: {error}"),
                }
                if let Err(error) = session.look_at_form(every).await {
                    tracing::debug!("it cannot be told which schema the cluster has in force: {error}");
                }
            }
        });
        *self.renewing.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Whether this node may still do what only a living one may.
    pub(in crate::store) fn holds(&self) -> bool {
        self.validity().holds(awake_or_asleep())
    }

    /// Whether others let it expire, as far as was seen. It never comes back.
    pub(in crate::store) fn has_expired(&self) -> bool {
        *self.expired.borrow()
    }

    /// Ends once it is known that it has expired.
    pub(in crate::store) fn expiry(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut expired = self.expired.subscribe();
        async move {
            // A session that is dropped was given up, and did not expire.
            if expired.wait_for(|expired| *expired).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn validity(&self) -> Validity {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes cells together with this node's own, which counts as a sign of life: so an expired session changes nothing.
    pub(super) async fn commit(&self, writes: Vec<Write>) -> Result<Written, StoreError> {
        let mut cell = self.cell.lock().await;
        if self.is_set_back.load(Ordering::SeqCst) {
            self.take_anew(&mut cell).await?;
            self.is_set_back.store(false, Ordering::SeqCst);
        }
        let sent = awake_or_asleep();
        let written = self.write(&mut cell, writes).await?;
        if written != Written::Overtaken {
            let mut validity = self.validity.lock().unwrap_or_else(PoisonError::into_inner);
            validity.acknowledged(sent, awake_or_asleep());
        }
        Ok(written)
    }

    /// Says that this node lives. Where the store came back with an older copy, it takes anew what it had first, and is not valid until then.
    pub(super) async fn sign_of_life(&self) -> Result<Written, StoreError> {
        let written = self.commit(Vec::new()).await?;
        match self.is_set_back.load(Ordering::SeqCst) {
            true => self.commit(Vec::new()).await,
            false => Ok(written),
        }
    }

    /// Takes anew what this session had, as far as nobody else has had it since.
    async fn take_anew(&self, cell: &mut (u64, NodeCell)) -> Result<(), StoreError> {
        let had: Vec<_> = {
            let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
            had.retain(|one| one.strong_count() > 0);
            had.iter().filter_map(Weak::upgrade).collect()
        };
        for one in had.into_iter().filter(|one| !one.is_lost()) {
            while let Some(writes) = one.anew(&self.node, self).await? {
                if let Written::At(last) = self.write(cell, writes).await? {
                    // The node's own cell is the last one.
                    one.is_there(last - 1);
                    tracing::warn!(
                        "the store was set back to an older copy, or has begun anew: {} is taken anew",
                        one.what()
                    );
                    break;
                }
                if self.has_expired() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What it has from now on.
    pub(super) fn has(&self, one: Weak<dyn Anew>) {
        let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        had.retain(|one| one.strong_count() > 0);
        had.push(one);
    }

    async fn write(&self, cell: &mut (u64, NodeCell), mut writes: Vec<Write>) -> Result<Written, StoreError> {
        let next = self.node.with_room(session::renewed(&cell.1));
        // Last, because the answer names the last one's revision.
        writes.push(Write {
            subject: self.subject.clone(),
            after: cell.0,
            value: Some(text_of(&next, &self.subject)?),
        });
        let written = self.node.cells.commit(&writes).await?;
        if let Written::At(revision) = written {
            *cell = (revision, next);
            return Ok(written);
        }
        // It may be this session's own write, whose answer was given up, that is there.
        let (revision, found) = node_cell(&self.node.cells, &self.subject).await?;
        match found {
            Some(found)
                if found.session == self.id.session && !session::has_ended(&self.id, Some(&found)) =>
            {
                // What this session wrote last is not there any more.
                if revision < cell.0 {
                    self.is_set_back();
                }
                *cell = (revision, found);
            }
            // No node's cell is ever taken away: the store has begun anew, and nobody there has let this session expire.
            None if revision == 0 => {
                if cell.0 > 0 {
                    tracing::warn!(
                        "the cluster's store has begun anew: what was in it is gone, such as what was spent today; this node takes \
                         anew what it has"
                    );
                    *self.begun_anew_at.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(awake_or_asleep());
                }
                self.is_set_back();
                cell.0 = 0;
            }
            _ => drop(self.expired.send_replace(true)),
        }
        Ok(written)
    }

    /// The store has less than it had: this session is not valid until it has taken anew what it has.
    fn is_set_back(&self) {
        self.validity.lock().unwrap_or_else(PoisonError::into_inner).lapse();
        self.is_set_back.store(true, Ordering::SeqCst);
        *self.set_back_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(awake_or_asleep());
    }

    /// For how long nothing is to be taken yet: where the store has less than it had, those who have something take it anew first.
    pub(super) fn waits_for_others(&self) -> Duration {
        let since = *self.set_back_at.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| (since + self.node.lease).saturating_sub(awake_or_asleep()))
    }

    /// How long ago it was seen that the store has begun anew.
    pub(super) fn begun_anew(&self) -> Option<Duration> {
        let at = *self.begun_anew_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.map(|at| awake_or_asleep().saturating_sub(at))
    }

    /// Looks which form is in force. Where all that live have offered the next one for long enough, that one is from now on.
    async fn look_at_form(&self, patience: Duration) -> Result<(), StoreError> {
        let (cells, Node { names, forms, .. }) = (self.node.cells.clone().patient_for(patience), &*self.node);
        let (after, meta) = meta_cell(&cells, names).await?;
        let later = Some(meta.schema).filter(|form| !forms.know(*form));
        *self.later_form.lock().unwrap_or_else(PoisonError::into_inner) = later;
        if !forms.know(meta.schema + 1) {
            return Ok(());
        }
        let nodes = node_cells(&cells, names).await?.into_iter().map(|(_, at, cell)| (at, cell));
        let nodes: Vec<_> = nodes.collect();
        let rises = {
            let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
            offered.look(*forms, meta.schema, &nodes, &self.validity(), awake_or_asleep())
        };
        let Some(next) = rises else { return Ok(()) };
        let subject = names.cell("meta", &[]);
        let value = Some(text_of(&MetaCell { schema: next, ..meta }, &subject)?);
        if self.commit(vec![Write { subject, after, value }]).await? != Written::Overtaken {
            tracing::info!("the cluster has the schema {next} in force from now on");
        }
        Ok(())
    }

    /// The form in force, if this version does not know it, as this session last saw it.
    pub(super) fn later_form(&self) -> Option<u32> {
        *self.later_form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another node's session lives, as far as this one has seen. One that was silent for a whole lease is expired here.
    pub(super) async fn sees_alive(&self, other: &SessionId) -> Result<bool, StoreError> {
        let subject = self.node.names.cell("node", &[&other.node]);
        loop {
            let (revision, cell) = node_cell(&self.node.cells, &subject).await?;
            if session::has_ended(other, cell.as_ref()) {
                return Ok(false);
            }
            let Some(cell) = cell.filter(|cell| cell.session >= other.session) else {
                // Whoever holds something had a cell. In a store that has begun anew it has one again, or it is over: there is nothing
                // to expire.
                let missing = format!("{}/{}", other.node, other.session);
                return Ok(!self.is_unchanged(&missing, 0));
            };
            let silent = self.is_unchanged(&other.node, revision);
            if !silent && !is_gone(&cell, &self.node.host) {
                return Ok(true);
            }
            let expired = session::ended(&cell, NodeState::Expired);
            let value = Some(text_of(&expired, &subject)?);
            let write = Write { subject: subject.clone(), after: revision, value };
            if self.node.cells.commit(&[write]).await? != Written::Overtaken {
                return Ok(false);
            }
        }
    }

    /// Whether this session has seen the same for a whole lease.
    fn is_unchanged(&self, what: &str, revision: u64) -> bool {
        let validity = self.validity();
        let mut sightings = self.sightings.lock().unwrap_or_else(PoisonError::into_inner);
        sightings.unchanged_for_a_lease(what, revision, &validity, awake_or_asleep())
    }

    /// The revision of another node's cell.
    pub(super) async fn revision_of(&self, other: &SessionId) -> Result<u64, StoreError> {
        Ok(node_cell(&self.node.cells, &self.node.names.cell("node", &[&other.node])).await?.0)
    }

    /// Says that this session is over, so that nobody has to wait for it.
    pub(super) async fn leave(&self) -> Result<(), StoreError> {
        if let Some(task) = self.renewing.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        let cell = self.cell.lock().await;
        let left = session::ended(&cell.1, NodeState::Left);
        let value = Some(text_of(&left, &self.subject)?);
        self.node.cells.commit(&[Write { subject: self.subject.clone(), after: cell.0, value }]).await?;
        Ok(())
    }
}
