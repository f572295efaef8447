//! The cells that move: approvals, denials, what was spent, what was heard, what waits for people, and the daemon's own memory.

use std::collections::BTreeSet;

use crate::domain::name::RepoName;
use crate::store::nats::NatsStore;
use crate::store::port::{Cell, CellChange, Cells, CommitOutcome, Revision, StoreError};
use crate::store::run_dir::StateDir;

/// What became of cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellsMoved {
    /// They are there now.
    pub moved: usize,
    /// They were there already.
    pub same: usize,
    /// Where something else was, which stays: these places, and what was not taken there.
    pub kept: Vec<String>,
}

impl CellsMoved {
    fn put(
        &mut self,
        to: &dyn Cells,
        cell: &Cell,
        value: String,
        from: &str,
        dry_run: bool,
    ) -> Result<(), StoreError> {
        match to.get(cell)?.1 {
            Some(there) if there == value => self.same += 1,
            Some(_) => self.kept.push(format!("{} (not taken: {from})", to.place(cell).display())),
            None if dry_run => self.moved += 1,
            None => {
                let change = CellChange { cell: cell.clone(), after: Revision::ABSENT, value: Some(value) };
                match to.commit(&[change])? {
                    CommitOutcome::Done => self.moved += 1,
                    CommitOutcome::Overtaken => {
                        self.kept.push(format!("{} (not taken: {from})", to.place(cell).display()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What was asked of a live run, what a daemon last said, and limits that hold are of the moment. Keys of seals have a way of their own.
fn moves(cell: &Cell) -> bool {
    !matches!(cell, Cell::Stop { .. } | Cell::Status | Cell::SealKeys | Cell::Quota(_))
}

/// Brings the cells of a state directory into a store, where there is nothing yet. Blocks.
///
/// # Errors
/// Store or disk failed.
pub fn into_store(from: &StateDir, to: &StateDir, dry_run: bool) -> Result<CellsMoved, StoreError> {
    let mut carried = CellsMoved::default();
    for cell in from.store().cells()?.iter().filter(|cell| moves(cell)) {
        let Some(value) = from.store().get(cell)?.1 else { continue };
        let place = from.store().place(cell).display().to_string();
        carried.put(&**to.store(), cell, value, &place, dry_run)?;
    }
    Ok(carried)
}

/// Brings the cells of a store into a state directory. `spelled`: the repositories as GitHub writes them; subjects have no capital
/// letters. Of the memories that daemons keep, this node's goes, else the only one. Blocks.
///
/// # Errors
/// Store or disk failed.
pub fn into_files(
    from: &NatsStore,
    to: &StateDir,
    spelled: &BTreeSet<RepoName>,
) -> Result<CellsMoved, StoreError> {
    let mut carried = CellsMoved::default();
    let found = from.cells()?;
    for cell in found.iter().filter(|cell| moves(cell)) {
        let Some(value) = from.get(cell)?.1 else { continue };
        let place = from.place(cell).display().to_string();
        carried.put(&**to.store(), &as_spelled(cell, spelled), value, &place, false)?;
    }
    if !found.contains(&Cell::Daemon) {
        match from.daemon_states()?.as_slice() {
            [] => {}
            [(node, text)] => {
                carried.put(&**to.store(), &Cell::Daemon, text.clone(), &format!("of {node}"), false)?;
            }
            several => {
                let nodes: Vec<&str> = several.iter().map(|(node, _)| node.as_str()).collect();
                let place = to.store().place(&Cell::Daemon).display().to_string();
                let why =
                    format!("{place} (not taken: those of {}; cluster.node says which)", nodes.join(", "));
                carried.kept.push(why);
            }
        }
    }
    Ok(carried)
}

fn as_spelled(cell: &Cell, spelled: &BTreeSet<RepoName>) -> Cell {
    let mut cell = cell.clone();
    match &mut cell {
        Cell::Approval { repo, .. }
        | Cell::Denial { repo, .. }
        | Cell::IssueSpend { repo, .. }
        | Cell::Stop { repo, .. }
        | Cell::Inbox { repo, .. }
        | Cell::Parked { repo, .. } => {
            if let Some(name) = spelled.get(repo) {
                *repo = name.clone();
            }
        }
        Cell::Spend(_) | Cell::Daemon | Cell::Status | Cell::SealKeys | Cell::Quota(_) => {}
    }
    cell
}
