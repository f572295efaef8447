//! The runs that count against the caps of a cluster: a cell a repository, and one for all of them. A slot is taken in one commit with
//! the issue's lease, and given back in one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::access::Caps;
use super::cell_stream::{CellStream, Write};
use super::node::{Node, document, issue_cell, text_of};
use super::session::Session;
use crate::domain::cluster::cells::{Hold, SLOTS_SCHEMA, SessionId, SlotsCell};
use crate::domain::cluster::lease;
use crate::domain::cluster::names::Names;
use crate::domain::name::RepoName;
use crate::store::assignments::CapOfAll;
use crate::store::port::{LeaseNotTaken, StoreError};

/// How often holders are looked at that may be dead.
const LOOK: Duration = Duration::from_millis(200);

/// A cap that a run counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    /// The cell of its holders.
    subject: String,
    /// How many there may be; 0 = any number.
    cap: usize,
    /// The key that says so.
    setting: &'static str,
}

/// What a run in a repository counts against.
pub(super) fn counted(names: &Names, caps: Caps, repo: &RepoName) -> Vec<Counted> {
    let of_repo = Counted {
        subject: names.cell_of("slots", repo, &[]),
        cap: caps.in_a_repository,
        setting: "daemon.max_runs_per_repository",
    };
    let of_all =
        Counted { subject: names.cell("slots", &["all"]), cap: caps.in_all, setting: "cluster.max_runs" };
    [of_repo, of_all].into_iter().filter(|counted| counted.cap > 0).collect()
}

/// What an issue is called among the holders: its cell's subject behind the kind.
fn name_of<'a>(names: &Names, issue: &'a str) -> &'a str {
    issue.strip_prefix(&names.cell("issue", &[])).map_or(issue, |rest| rest.trim_start_matches('.'))
}

async fn slots_cell(cells: &CellStream, subject: &str) -> Result<(u64, SlotsCell), StoreError> {
    let (at, cell) = document(cells, subject, SLOTS_SCHEMA).await?;
    Ok((at, cell.unwrap_or_default()))
}

/// Whether the slot of a session is still that of a run. A node that died has left its slots behind, and one that ended a run while the
/// stream had no room has given back no more than the issue. Whoever reads this after the slots' cell and then commits on what it read
/// there frees no slot that was taken again.
async fn is_at_work(node: &Node, session: &Session, name: &str, by: &SessionId) -> Result<bool, StoreError> {
    let issue = format!("{}.{name}", node.names.cell("issue", &[]));
    let (_, cell) = issue_cell(&node.cells, &issue).await?;
    let has = matches!(&cell.hold, Hold::Leased { by: holder, .. } if holder == by);
    Ok(has && (*by == session.id || session.sees_alive(by).await?))
}

/// What a run finds that comes to a cap.
enum Room {
    /// This takes its slot.
    Slot(Write),
    /// These have all of them.
    Full(Vec<SessionId>),
}

/// What is written with the lease of an issue, so that its run counts. Where there is no room, slots of the dead are freed.
async fn one_more(
    node: &Node,
    session: &Session,
    counted: &Counted,
    issue: &str,
) -> Result<Room, StoreError> {
    let name = name_of(&node.names, issue);
    let (after, mut cell) = slots_cell(&node.cells, &counted.subject).await?;
    let mut taken = lease::slot_taken(&cell, name, &session.id, counted.cap);
    if taken.is_err() {
        for (other, by) in cell.holders.clone() {
            if !is_at_work(node, session, &other, &by).await? {
                cell = lease::slot_given_back(&cell, &other, &by);
            }
        }
        taken = lease::slot_taken(&cell, name, &session.id, counted.cap);
    }
    let Ok(next) = taken else { return Ok(Room::Full(cell.holders.into_values().collect())) };
    let value = Some(text_of(&next, &counted.subject)?);
    Ok(Room::Slot(Write { subject: counted.subject.clone(), after, value }))
}

/// The holders that keep others out, and the revision of their node's cell when they were first seen.
pub(super) type Watched = BTreeMap<SessionId, u64>;

/// What is written with the lease of an issue. `None`: a holder may be dead, and is looked at again after a moment. A daemon does not wait
/// for that: it tries again anyway, and remembers what it saw.
pub(super) async fn taken(
    node: &Node,
    session: &Session,
    all: &[Counted],
    issue: &str,
    watched: &mut Watched,
) -> Result<Option<Vec<Write>>, LeaseNotTaken> {
    let mut writes = Vec::new();
    for counted in all {
        let holders = match one_more(node, session, counted, issue).await? {
            Room::Slot(write) => {
                writes.push(write);
                continue;
            }
            Room::Full(holders) => holders,
        };
        for by in holders.iter().filter(|by| node.is_beside && **by != session.id) {
            let now = session.revision_of(by).await?;
            if *watched.entry(by.clone()).or_insert(now) == now {
                tokio::time::sleep(LOOK).await;
                return Ok(None);
            }
        }
        return Err(LeaseNotTaken::Full { cap: counted.cap, setting: counted.setting });
    }
    Ok(Some(writes))
}

/// The runs of all nodes together that are at work beside those on these issues, by their cells' subjects; `None`: they have no cap.
pub(super) async fn of_all(
    node: &Node,
    session: &Session,
    beside: &[String],
) -> Result<Option<CapOfAll>, StoreError> {
    let most = node.caps.in_all;
    if most == 0 {
        return Ok(None);
    }
    let names = &node.names;
    let beside: Vec<&str> = beside.iter().map(|issue| name_of(names, issue)).collect();
    let (_, cell) = slots_cell(&node.cells, &names.cell("slots", &["all"])).await?;
    let mut others = 0;
    for (name, by) in cell.holders.iter().filter(|(name, _)| !beside.contains(&name.as_str())) {
        others += usize::from(is_at_work(node, session, name, by).await?);
    }
    Ok(Some(CapOfAll { most, others }))
}

/// What is written with the end of a lease, so that its run counts no more.
pub(super) async fn given_back(
    node: &Node,
    session: &SessionId,
    all: &[Counted],
    issue: &str,
) -> Result<Vec<Write>, StoreError> {
    let mut writes = Vec::new();
    for counted in all {
        let (after, cell) = slots_cell(&node.cells, &counted.subject).await?;
        let next = lease::slot_given_back(&cell, name_of(&node.names, issue), session);
        if next != cell {
            let value = Some(text_of(&next, &counted.subject)?);
            writes.push(Write { subject: counted.subject.clone(), after, value });
        }
    }
    Ok(writes)
}
