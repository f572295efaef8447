//! The end of a run whose process died: `interrupted`, with result, report and seal from what its journal has (D61).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::run_facts;
use super::sinks::{self, Sinks};
use super::{in_flight, report, seal};
use crate::domain::event::{Effect, Event, LeaseTaken};
use crate::domain::facts::{EffectState, RunFacts};
use crate::domain::redaction::Redactor;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal as _, JournalError};
use crate::git::sandbox_git::SandboxGit;
use crate::store::journal_file::{self, FileJournal};
use crate::store::port::LeaseKey;
use crate::store::run_dir::RunDir;
use crate::store::seal_index::SealIndex;
use crate::sys::clock::Clock;
use crate::sys::files::{self, FileError};
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;

/// How long another process that ends runs is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Its process may live: here, or, as far as its lease says, on another host.
    Running,
    /// It ended, and everything that it leaves is written.
    Ended,
}

/// Removes a dead run's sandbox. What its programs had put aside in their own git directory stays for the run that comes after it.
fn remove_sandbox(dir: &RunDir, facts: &RunFacts) -> Result<(), FileError> {
    let branches = facts.lease.iter().flat_map(|lease| [&lease.branch, &lease.origin.branch]);
    match AbsPath::new(dir.sandbox()).map(|folder| SandboxGit::of(&folder)) {
        Ok(own) if own.holds_more(&branches.collect::<Vec<_>>()) => own.remove_all_else(),
        _ => files::remove_dir(&dir.sandbox()).map(drop),
    }
}

/// Gives the facts of a run and whether it is over: one whose process is gone gets the end and the files that it could not write itself;
/// one that may live is left alone (D61). Blocks.
///
/// `key`: the operator's key that signs seals, if the reader has it.
pub fn ensure_ended(
    dir: &RunDir,
    clock: &Clock,
    key: Option<&Path>,
) -> Result<(RunFacts, RunState), JournalError> {
    if !dir.state().only_reads() {
        seal::complete_index(dir.state());
    }
    let mut known = RunFacts::default();
    let sound_bytes = journal_file::each(dir, |line| journal_file::take(&mut known, &line))?;
    if dir.state().only_reads() || dir.store().shared().is_some() {
        // Its node ends it, or the node that takes it over: only with the lease is it known that nobody else does.
        let standing = if known.sealed.is_some() { RunState::Ended } else { RunState::Running };
        return Ok((known, standing));
    }
    // A torn line after the end does not come from a crash. It stays, so that `runs verify` finds it.
    let torn = std::fs::metadata(dir.events()).is_ok_and(|found| found.len() != sound_bytes);
    if known.end.is_some() && (known.sealed.is_some() || torn || was_sealed(dir)) {
        return Ok((known, RunState::Ended));
    }
    let Some(lease) = &known.lease else { return Ok((known, RunState::Running)) };
    if may_live(dir, lease) {
        return Ok((known, RunState::Running));
    }
    finalise(dir, clock, key)?;
    Ok((run_facts::read(dir)?, RunState::Ended))
}

/// Whether the index of seals has the run. Then it is not sealed again, whatever its journal says now.
fn was_sealed(dir: &RunDir) -> bool {
    let index = SealIndex::new(dir.state().path()).read();
    index.seals.iter().any(|seal| seal.statement.run_id == dir.run_id)
}

/// The lease of a run whose process lives, as far as can be told from here.
pub fn living(dir: &RunDir) -> Option<LeaseTaken> {
    // Whoever has a result has ended; so that the many that have are not read.
    if dir.result().exists() {
        return None;
    }
    let known = run_facts::read(dir).ok().filter(|known| known.end.is_none())?;
    known.lease.filter(|lease| may_live(dir, lease))
}

/// Whether the lease that a run took is still held by it.
fn may_live(dir: &RunDir, lease: &LeaseTaken) -> bool {
    let key = LeaseKey::Issue { repo: dir.repo.clone(), file: PathBuf::from(&lease.lease_file) };
    let holder = dir.store().look(&key).and_then(|content| content.holder);
    holder.is_some_and(|holder| holder.instance == lease.instance.as_str())
}

/// Feeds the record of a run that died before it could.
pub async fn emit(sinks: &Sinks, dir: &RunDir, clock: &Clock) -> Result<(), JournalError> {
    if sinks.programs.is_empty() || run_facts::read(dir)?.emitted {
        return Ok(());
    }
    sinks::emit(sinks, &FileJournal::open(dir.clone(), clock.clone(), no_secrets(dir)?)?).await
}

/// For journals that were redacted when they were written. What is added has no secrets.
fn no_secrets(dir: &RunDir) -> Result<Arc<Redactor>, JournalError> {
    let none = Redactor::new([0; 32], Vec::new(), &[]).map_err(|error| JournalError {
        path: dir.events().display().to_string(),
        message: error.to_string(),
    })?;
    Ok(Arc::new(none))
}

/// The end of a run that was killed after it had published everything, labels last. Only the event of its end was
/// missing.
fn published_end(known: &RunFacts) -> Option<Stop> {
    let whole = known.outcome(Effect::Labels).is_some()
        && known.effects.iter().all(|(_, state)| matches!(state, EffectState::Done(_)));
    let stop = known.flow_end.as_ref().filter(|_| whole)?.stop.clone();
    let judged = known.other.iter().rev().find_map(|(_, event)| match event {
        Event::ClaimsJudged(judged) => Some(judged),
        _ => None,
    });
    Some(judged?.stop_after(stop))
}

/// Ends a dead run: as `interrupted` if it has no end of its own, with result and report folded from its journal
/// . Two callers at once take turns.
pub fn finalise(dir: &RunDir, clock: &Clock, key: Option<&Path>) -> Result<(), JournalError> {
    let failed = |path: &Path, message: String| JournalError { path: path.display().to_string(), message };
    let lock = dir.ending_lock();
    let turn = Turn::wait(&lock, PATIENCE).map_err(|error| failed(&lock, error.to_string()))?;
    let Some(_turn) = turn else {
        return Err(failed(&lock, "another process is ending a run; try again".to_owned()));
    };
    let (mut before, mut lines) = (RunFacts::default(), 0);
    journal_file::each(dir, |line| {
        journal_file::take(&mut before, &line);
        lines = line.seq;
    })?;
    if let Some(missing) = run_facts::lines_missing(dir, lines) {
        return Err(failed(&dir.events(), missing));
    }
    if before.sealed.is_none() && was_sealed(dir) {
        let lost = "it was sealed, and its end is gone: what it said cannot be written anew";
        return Err(failed(&dir.events(), lost.to_owned()));
    }
    let journal = FileJournal::open(dir.clone(), clock.clone(), no_secrets(dir)?)?;
    let known = journal.facts();
    if known.end.is_none() {
        let interrupted =
            || Stop::new(StopDetail::Interrupted, "The process ended in the middle of the run.");
        for event in in_flight::cut_off(&known, dir.run_id) {
            journal.append(event)?;
        }
        journal.append(Event::RunEnded { stop: published_end(&known).unwrap_or_else(interrupted) })?;
    }
    // What its programs were given may have content that must not stay, such as files of the user's home.
    if let Err(error) = remove_sandbox(dir, &known) {
        tracing::warn!(%error, "the private folder of a dead run's programs stays");
    }
    if known.sealed.is_none() {
        journal.restore_ledger()?;
        report::write(dir)?;
        seal::seal(&journal, key, clock)?;
    }
    Ok(())
}
