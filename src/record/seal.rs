//! The seal: every file of a finished run's directory with its hash. It is the last event of the journal, is signed,
//! and is kept in the index of seals. So a changed file, a cut journal and a forged journal are found and named.

use std::collections::BTreeSet;
use std::path::Path;

use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::seal::{SEAL_SCHEMA, SealStatement, SignedSeal, files_sha256};
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::{self, FileJournal};
use crate::store::run_dir::{OVERTAKEN, RunDir, SANDBOX, StateDir};
use crate::store::seal_index::SealIndex;
use crate::store::seal_key::{self, SealKey, SealKeyError};
use crate::sys::clock::Clock;

use super::seal_check;

/// The journal itself is held together by its chain.
pub const JOURNAL: &str = "events.jsonl";

/// Seals a run whose files are all written: with the operator's key where `key` names one, else with the host's. A run that
/// cannot be signed is sealed without a signature, and says so in the log and in `runs verify`. Blocks.
pub fn seal(journal: &FileJournal, key: Option<&Path>, clock: &Clock) -> Result<(), JournalError> {
    let dir = journal.dir();
    journal.sync_ledger()?;
    let files = files(&dir.path)?;
    let unsigned = match signing_key(dir, key) {
        Ok(key) => {
            // Other nodes know the key before they see what it signed.
            if let Some(shared) = dir.store().shared() {
                seal_key::count(&*shared, [key.public_key()])?;
            }
            let failed = |message: String| JournalError { path: dir.events().display().to_string(), message };
            let state = dir.state();
            return SealIndex::new(state.path()).add(
                |seal| is_in_journal(state, seal),
                |previous| signed(journal, &files, &key, previous, clock),
                |signature| {
                    let signature = signature.cloned().map(Box::new);
                    journal.append(Event::FilesSealed { files: files.clone(), signature })?;
                    // The index never names a seal that the journal might not have.
                    crate::sys::files::sync(&[dir.events()], &mut BTreeSet::new())
                        .map_err(|error| failed(error.to_string()))
                },
                failed,
            );
        }
        Err(error) => error,
    };
    tracing::warn!(run = %dir.run_id, error = %unsigned, "the run is sealed without a signature");
    journal.append(Event::FilesSealed { files, signature: None })
}

/// Gives the index of seals the line of a run whose process died between its journal and the index. Blocks.
pub fn complete_index(state: &StateDir) {
    let completed = SealIndex::new(state.path()).complete(|seal| is_in_journal(state, seal));
    if let Err(error) = completed {
        tracing::warn!(%error, "whether the index of seals lacks the line of a run that was killed cannot be looked at");
    }
}

/// Whether the journal of the run that a seal names has this seal.
fn is_in_journal(state: &StateDir, seal: &SignedSeal) -> bool {
    let journal = journal_file::read(&state.run(&seal.statement.repo, seal.statement.run_id));
    journal.is_ok_and(|journal| seal_check::seal_of(&journal.lines).as_ref() == Some(seal))
}

/// Whether the operator's key can sign, before a run begins.
pub fn check(key: Option<&Path>) -> Result<(), SealKeyError> {
    key.map_or(Ok(()), |key| SealKey::operator(key).map(drop))
}

fn signing_key(dir: &RunDir, key: Option<&Path>) -> Result<SealKey, SealKeyError> {
    match key {
        Some(key) => SealKey::operator(key),
        None => SealKey::of_host_or_new(dir.state().path()),
    }
}

fn signed(
    journal: &FileJournal,
    files: &[Artifact],
    key: &SealKey,
    previous: String,
    clock: &Clock,
) -> Option<SignedSeal> {
    let (last_seq, last_hash) = journal.head();
    let dir = journal.dir();
    key.sign(SealStatement {
        schema_version: SEAL_SCHEMA.to_owned(),
        repo: dir.repo.clone(),
        run_id: dir.run_id,
        last_seq,
        last_hash,
        files_sha256: files_sha256(files).ok()?,
        previous,
        sealed_at: clock.now_ms(),
    })
}

/// Every file of a run directory that is of the run, but its journal, by path. Blocks.
pub fn files(dir: &Path) -> Result<Vec<Artifact>, JournalError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let failed = |path: &Path, error: std::io::Error| JournalError {
            path: path.display().to_string(),
            message: error.to_string(),
        };
        for entry in std::fs::read_dir(&folder).map_err(|error| failed(&folder, error))? {
            let path = entry.map_err(|error| failed(&folder, error))?.path();
            let kind = path.symlink_metadata().map_err(|error| failed(&path, error))?.file_type();
            if kind.is_dir() {
                // Where programs wrote is no part of the record, and not all of it may be read.
                if path != dir.join(SANDBOX) {
                    open.push(path);
                }
                continue;
            }
            // What a program left beside it, such as a socket, has no content.
            if !kind.is_file() && !kind.is_symlink() {
                continue;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
            if name == JOURNAL || name == OVERTAKEN {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| failed(&path, error))?;
            found.push(Artifact { path: name, sha256: sha256_hex(&bytes), bytes: bytes.len() as u64 });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
