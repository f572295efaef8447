//! Moving house: from a state directory into a cluster's store, and out of it into a state directory.
//!
//! What is there already stays as it is, and is only gone on with where it is the same, or as it was when both sides were the same: so
//! what is cut off and repeated comes to the same end. Nothing is taken away from where it was.

mod cells;
mod common_format;
mod seals;

use std::path::Path;

pub use self::cells::{CellsMoved, into_files, into_store};
pub use self::seals::{SealsMoved, gather_seals, put_keys, put_seals};
use super::audit;
pub use super::bring::{Brought, NotBrought, bring};
use super::finish::{self, RunState};
use super::journals::{self, Two, joined};
use super::seal;
use crate::store::journal_file;
use crate::store::nats::NatsStore;
use crate::store::port::StoreError;
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_index::INDEX;
use crate::sys::clock::Clock;
use crate::sys::files::FileError;

/// What becomes, or became, of a run that is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportFate {
    /// It goes, with so many lines and files.
    Moves {
        /// Lines of its journal.
        lines: usize,
        /// Files beside it.
        files: usize,
    },
    /// It is there already.
    IsThere,
    /// It is broken, and stays where it is: what is wrong with it.
    Broken(String),
    /// Another journal of the same run is there: how each ends.
    TwoChains {
        /// Here.
        here: String,
        /// In the store.
        there: String,
    },
}

/// A run could not be imported for a reason that is not the run's.
#[derive(Debug, thiserror::Error)]
pub enum NotImported {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was written does not read back.
    #[error("{0} does not read back as it was written")]
    ReadBack(String),
}

/// Brings a run of a state directory into a store. A run whose process died is ended first, as by whoever looks at it. Blocks.
///
/// `key`: the operator's key that signs seals. `dry_run`: nothing is written anywhere.
///
/// # Errors
/// The store or the disk failed.
pub fn import(
    dir: &RunDir,
    to: &StateDir,
    (clock, key): (&Clock, Option<&Path>),
    dry_run: bool,
) -> Result<ImportFate, NotImported> {
    if !dry_run {
        match finish::ensure_ended(dir, clock, key) {
            Ok((_, RunState::Ended)) => {}
            Ok((_, RunState::Running)) => return Ok(ImportFate::Broken("it has no end".to_owned())),
            Err(error) => return Ok(ImportFate::Broken(error.to_string())),
        }
    }
    if let Some(problem) = broken(dir, key, dry_run) {
        return Ok(ImportFate::Broken(problem));
    }
    let unread = |error| FileError::new("read", &dir.events(), error);
    let own = std::fs::read(dir.events()).map_err(unread)?;
    let target = to.run(&dir.repo, dir.run_id);
    let log = to.store().log(&target)?;
    let (there, end) = log.read(0)?;
    let rest = match joined(&own, &there) {
        Ok([]) => return Ok(ImportFate::IsThere),
        Ok(rest) => rest,
        Err(Two { first, second }) => return Ok(ImportFate::TwoChains { here: first, there: second }),
    };
    let files = match seal::files(&dir.path) {
        Ok(files) => files,
        Err(error) => return Ok(ImportFate::Broken(error.to_string())),
    };
    let lines = own.iter().filter(|byte| **byte == b'\n').count();
    if dry_run {
        return Ok(ImportFate::Moves { lines, files: files.len() });
    }
    // What a line names is there before the line is.
    let blobs = to.store().blobs(&target);
    for file in &files {
        let path = dir.path.join(&file.path);
        let bytes = std::fs::read(&path).map_err(|error| FileError::new("read", &path, error))?;
        blobs.put(&file.path, &bytes)?;
    }
    blobs.sync()?;
    journals::append(&*log, end, rest)?;
    log.sync()?;
    if log.read(0)?.0 != own {
        return Err(NotImported::ReadBack(format!("the journal of run {}", dir.run_id)));
    }
    Ok(ImportFate::Moves { lines, files: files.len() })
}

/// Writes the row of a run that is in a store, from its journal here. Blocks.
///
/// # Errors
/// The store failed, or the journal cannot be read.
pub fn put_row(dir: &RunDir, to: &NatsStore) -> Result<(), NotImported> {
    let read = journal_file::read(dir).map_err(|error| NotImported::ReadBack(error.to_string()))?;
    let row = journal_file::row_of(&dir.repo, dir.run_id, &read.lines);
    Ok(to.put_row(&dir.repo, &row)?)
}

/// What is wrong with a run. What is wrong with the index of seals is not the run's. `as_it_is`: one that only has no end yet is
/// whole.
fn broken(dir: &RunDir, key: Option<&Path>, as_it_is: bool) -> Option<String> {
    if as_it_is {
        let read = match journal_file::read(dir) {
            Ok(read) => read,
            Err(error) => return Some(error.to_string()),
        };
        let facts = journal_file::facts_of(&read.lines);
        if facts.lease.is_none() {
            return Some("it has no end".to_owned());
        }
        facts.sealed.as_ref()?;
    }
    let found = audit::verify_files(dir, key).findings.into_iter().find(|finding| finding.file != INDEX)?;
    Some(format!("{}: {}", found.file, found.problem))
}
