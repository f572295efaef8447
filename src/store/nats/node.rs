//! A node among the others: what it reads and writes their cells by.

use std::time::Duration;

use super::cell_stream::CellStream;
use crate::domain::cluster::cells::{self as documents, NODE_SCHEMA, NodeCell};
use crate::domain::cluster::names::Names;
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
}

pub(super) fn failed(subject: &str, words: impl Into<String>) -> StoreError {
    StoreError::Failed { action: "hold", place: subject.to_owned(), words: words.into() }
}

/// The cell as text.
pub(super) fn text_of<T: serde::Serialize>(cell: &T, subject: &str) -> Result<String, StoreError> {
    serde_json::to_string(cell).map_err(|error| failed(subject, error.to_string()))
}

/// What a node's cell says, with its revision.
pub(super) async fn node_cell(
    cells: &CellStream,
    subject: &str,
) -> Result<(u64, Option<NodeCell>), StoreError> {
    let found = cells.get(subject).await?;
    let read = |text: &String| {
        documents::read::<NodeCell>(text, NODE_SCHEMA).map_err(|error| StoreError::Failed {
            action: "read",
            place: subject.to_owned(),
            words: error.to_string(),
        })
    };
    Ok((found.sequence, found.value.as_ref().map(read).transpose()?))
}

/// Whether the process that a node's cell names is gone: this host and boot, and no such process.
pub(super) fn is_gone(cell: &NodeCell, host: &Host) -> bool {
    let here = cell.host == host.name && cell.boot_id == host.boot_id && !cell.boot_id.is_empty();
    here && process_tree::start_time(cell.pid) != Some(cell.started)
}
