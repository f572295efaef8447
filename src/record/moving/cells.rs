//! The cells that move: approvals, denials, what was spent, what was heard, what waits for people, and the daemon's own memory.

use std::collections::{BTreeMap, BTreeSet};

use super::common_format::{COMMON_SCHEMA, CommonCells};
use crate::domain::canonical::sha256_hex;
use crate::domain::name::RepoName;
use crate::store::nats::NatsStore;
use crate::store::port::{Cell, CellChange, Cells, CommitOutcome, Revision, StoreError};
use crate::store::run_dir::StateDir;
use crate::sys::files;

/// Where a state directory says what of it was moved.
const COMMON: &str = "moved-cells.json";

/// What became of cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellsMoved {
    /// They are there now.
    pub moved: usize,
    /// They were there already.
    pub same: usize,
    /// Where something else was, which stays: these places, and what was not taken there.
    pub kept: Vec<String>,
    /// The same, where a daemon would do again what it does not remember.
    pub conflicts: Vec<String>,
}

/// What both sides had of each cell when they were moved last. Whoever has another one now has gone on with it since, and counts.
struct Common<'a> {
    files: &'a StateDir,
    cells: BTreeMap<String, String>,
}

impl<'a> Common<'a> {
    fn read(files: &'a StateDir) -> Result<Self, StoreError> {
        let path = files.path().join(COMMON);
        let failed =
            |words: String| StoreError::Failed { action: "read", place: path.display().to_string(), words };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { files, cells: BTreeMap::new() });
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let kept: CommonCells = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        match kept.schema_version == COMMON_SCHEMA {
            true => Ok(Self { files, cells: kept.cells }),
            false => Err(failed(format!("another agentd wrote it ({})", kept.schema_version))),
        }
    }

    fn write(self) -> Result<(), StoreError> {
        let path = self.files.path().join(COMMON);
        let failed =
            |words: String| StoreError::Failed { action: "write", place: path.display().to_string(), words };
        let kept = CommonCells { schema_version: COMMON_SCHEMA.to_owned(), cells: self.cells };
        let text = serde_json::to_vec_pretty(&kept).map_err(|error| failed(error.to_string()))?;
        files::write_private(&path, &text).map_err(|error| failed(error.to_string()))
    }

    /// The name of a cell of the state directory.
    fn name(&self, cell: &Cell) -> String {
        let place = self.files.store().place(cell);
        place.strip_prefix(self.files.path()).unwrap_or(&place).display().to_string()
    }
}

impl CellsMoved {
    /// `from`: where the value is now. `name`: the cell's in `common`.
    fn put(
        &mut self,
        to: &dyn Cells,
        cell: &Cell,
        (value, from): (String, &str),
        (name, common): (String, &mut Common<'_>),
        dry_run: bool,
    ) -> Result<(), StoreError> {
        let hash = |text: &str| sha256_hex(text.as_bytes());
        let own = hash(&value);
        let last = common.cells.get(&name);
        let (after, there) = to.get(cell)?;
        let after = match there {
            Some(there) if there == value => {
                self.same += 1;
                common.cells.insert(name, own);
                return Ok(());
            }
            Some(there) if last.is_some_and(|last| *last == hash(&there)) => after,
            // It was gone on with there, and not here.
            Some(_) if last == Some(&own) => {
                self.same += 1;
                return Ok(());
            }
            Some(_) => {
                self.keep(to, cell, from);
                return Ok(());
            }
            None => Revision::ABSENT,
        };
        let change = CellChange { cell: cell.clone(), after, value: Some(value) };
        if !dry_run && to.commit(&[change])? == CommitOutcome::Overtaken {
            self.keep(to, cell, from);
            return Ok(());
        }
        self.moved += 1;
        common.cells.insert(name, own);
        Ok(())
    }

    fn keep(&mut self, to: &dyn Cells, cell: &Cell, from: &str) {
        let place = format!("{} (not taken: {from})", to.place(cell).display());
        match cell {
            // The first one's days stay.
            Cell::Spend(_) => self.kept.push(place),
            _ => self.conflicts.push(place),
        }
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
    let (mut carried, mut common) = (CellsMoved::default(), Common::read(from)?);
    for cell in from.store().cells()?.iter().filter(|cell| moves(cell)) {
        let Some(value) = from.store().get(cell)?.1 else { continue };
        let place = from.store().place(cell).display().to_string();
        let name = common.name(cell);
        carried.put(&**to.store(), cell, (value, &place), (name, &mut common), dry_run)?;
    }
    // Several hosts come in with what each of them knows, and the first one's stays.
    carried.kept.append(&mut carried.conflicts);
    if !dry_run {
        common.write()?;
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
    let (mut carried, mut common) = (CellsMoved::default(), Common::read(to)?);
    let found = from.cells()?;
    for cell in found.iter().filter(|cell| moves(cell)) {
        let Some(value) = from.get(cell)?.1 else { continue };
        let place = from.place(cell).display().to_string();
        let cell = as_spelled(cell, spelled);
        let name = common.name(&cell);
        carried.put(&**to.store(), &cell, (value, &place), (name, &mut common), false)?;
    }
    if !found.contains(&Cell::Daemon) {
        match from.daemon_states()?.as_slice() {
            [] => {}
            [(node, text)] => {
                let (from, name) = (format!("of {node}"), common.name(&Cell::Daemon));
                carried.put(
                    &**to.store(),
                    &Cell::Daemon,
                    (text.clone(), &from),
                    (name, &mut common),
                    false,
                )?;
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
    common.write()?;
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
