//! A node among the others: what it reads and writes their cells by.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::access::Caps;
use super::cell_stream::CellStream;
use crate::domain::cluster::cells::{
    self as documents, FIRST_FORM, ISSUE_SCHEMA, IssueCell, META_SCHEMA, MetaCell, NODE_SCHEMA, NodeCell,
    NodeState, Unreadable,
};
use crate::domain::cluster::forms::Forms;
use crate::domain::cluster::names::{BESIDE, Names, last_tokens};
use crate::store::assignments::{Room, RoomNow};
use crate::store::port::StoreError;
use crate::sys::host::Host;
use crate::sys::process_tree;

/// This node.
#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    pub place: String,
    pub names: Names,
    pub cells: CellStream,
    pub lease: Duration,
    pub host: Host,
    /// Whether this is a process beside the node's daemon, such as `agentd run`: it lives by a cell of its own.
    pub is_beside: bool,
    pub caps: Caps,
    pub forms: Forms,
    pub room: RoomOfDaemon,
}

/// What this node's daemon has room for; nothing where there is no daemon.
#[derive(Default)]
pub(super) struct RoomOfDaemon(Mutex<Option<RoomNow>>);

impl RoomOfDaemon {
    pub(super) fn set(&self, room: RoomNow) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    fn now(&self) -> Room {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|room| room()).unwrap_or_default()
    }
}

impl std::fmt::Debug for RoomOfDaemon {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.now().fmt(out)
    }
}

impl Node {
    /// This node's cell with what its daemon has room for.
    pub(super) fn with_room(&self, cell: NodeCell) -> NodeCell {
        let room = self.room.now();
        let serves = room.serves.iter().map(|repo| repo.to_string().to_ascii_lowercase()).collect();
        let state = match cell.state {
            NodeState::Live if room.drains => NodeState::Draining,
            state => state,
        };
        NodeCell {
            capacity: room.capacity,
            runs: room.runs,
            github_fails: room.github_fails,
            serves,
            configuration: room.configuration,
            state,
            ..cell
        }
    }

    /// The name that this process lives by, as long as no other process of this node does.
    pub(super) fn first_name(&self) -> String {
        if self.is_beside { format!("{}{BESIDE}1", self.name) } else { self.name.clone() }
    }

    /// The name that comes behind one of these.
    pub(super) fn next_name(&self, name: &str) -> String {
        let number: u32 = name.rsplit(BESIDE).next().and_then(|number| number.parse().ok()).unwrap_or(0);
        format!("{}{BESIDE}{}", self.name, number + 1)
    }
}

/// Whether a living process of this host with the same state directory has a cell.
pub(super) fn is_here(cell: &NodeCell, node: &Node) -> bool {
    let same = cell.place == node.place && cell.host == node.host.name && cell.boot_id == node.host.boot_id;
    cell.state.lives() && same && process_tree::start_time(cell.pid) == Some(cell.started)
}

pub(super) fn failed(subject: &str, words: impl Into<String>) -> StoreError {
    StoreError::Failed { action: "hold", place: subject.to_owned(), words: words.into() }
}

/// The cell as text.
pub(super) fn text_of<T: serde::Serialize>(cell: &T, subject: &str) -> Result<String, StoreError> {
    serde_json::to_string(cell).map_err(|error| failed(subject, error.to_string()))
}

/// What a cell says, with its revision; `schema` is the newest form that is read.
pub(super) async fn document<T: DeserializeOwned>(
    cells: &CellStream,
    subject: &str,
    schema: &'static str,
) -> Result<(u64, Option<T>), StoreError> {
    let found = cells.get(subject).await?;
    let read = |text: &String| {
        documents::read(text, schema).map_err(|error| match error {
            Unreadable::Newer { .. } => {
                StoreError::TooNew(format!("{subject} is of a later version of agentd: {error}"))
            }
            Unreadable::Broken(words) => {
                StoreError::Failed { action: "read", place: subject.to_owned(), words }
            }
        })
    };
    Ok((found.sequence, found.value.as_ref().map(read).transpose()?))
}

/// What the cluster's `meta` says, with its revision.
pub(super) async fn meta_cell(cells: &CellStream, names: &Names) -> Result<(u64, MetaCell), StoreError> {
    let (at, meta) = document(cells, &names.cell("meta", &[]), META_SCHEMA).await?;
    let rest = serde_json::Map::new;
    let first = || MetaCell { schema_version: META_SCHEMA.to_owned(), schema: FIRST_FORM, rest: rest() };
    Ok((at, meta.unwrap_or_else(first)))
}

/// Whether this version knows the form of what nodes share that is in force.
pub(super) async fn knows_form(node: &Node) -> Result<(), StoreError> {
    let form = meta_cell(&node.cells, &node.names).await?.1.schema;
    if node.forms.know(form) {
        return Ok(());
    }
    Err(StoreError::TooNew(format!(
        "the cluster has the schema {form} in force, and this agentd ({}) knows up to {}; install a later one",
        env!("CARGO_PKG_VERSION"),
        node.forms.newest
    )))
}

/// The cells of all nodes that there ever were, each with its name and revision.
pub(super) async fn node_cells(
    cells: &CellStream,
    names: &Names,
) -> Result<Vec<(String, u64, NodeCell)>, StoreError> {
    let mut found = Vec::new();
    for subject in cells.subjects(&format!("{}.*", names.cell("node", &[]))).await? {
        let (at, cell) = node_cell(cells, &subject).await?;
        found.extend(cell.zip(last_tokens(&subject)).map(|(cell, [name])| (name, at, cell)));
    }
    Ok(found)
}

/// What a node's cell says, with its revision.
pub(super) async fn node_cell(
    cells: &CellStream,
    subject: &str,
) -> Result<(u64, Option<NodeCell>), StoreError> {
    document(cells, subject, NODE_SCHEMA).await
}

/// What an issue's cell says, with its revision.
pub(super) async fn issue_cell(cells: &CellStream, subject: &str) -> Result<(u64, IssueCell), StoreError> {
    let (at, cell) = document(cells, subject, ISSUE_SCHEMA).await?;
    Ok((at, cell.unwrap_or_default()))
}

/// Whether the process that a node's cell names is gone: this host and boot, and no such process.
pub(super) fn is_gone(cell: &NodeCell, host: &Host) -> bool {
    let here = cell.host == host.name && cell.boot_id == host.boot_id && !cell.boot_id.is_empty();
    here && process_tree::start_time(cell.pid) != Some(cell.started)
}
