//! After a crash: a dead holder's run is finalised as `interrupted`, and its finished visits are handed on (D61).

use std::sync::Arc;

use super::report;
use super::site::Site;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::redaction::Redactor;
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::{self, FileJournal};
use crate::store::run_dir::RunDir;
use crate::sys::clock::Clock;

/// A run whose process died.
#[derive(Debug, Clone)]
pub struct Predecessor {
    /// Which.
    pub run_id: RunId,
    /// What its journal says.
    pub facts: RunFacts,
}

/// The facts of a run, from its journal.
pub fn facts(dir: &RunDir) -> Result<RunFacts, JournalError> {
    let read = journal_file::read(dir)?;
    Ok(RunFacts::fold(read.lines.iter().filter_map(|line| Some((line.ts, line.event()?)))))
}

/// The run that held the lease last, if its process died before its end; finalised on the way. The caller holds the
/// lease, so nobody writes that journal any more.
pub async fn predecessor(site: &Site, run_id: RunId) -> Option<Predecessor> {
    let dir = site.state.run(&site.repo, run_id);
    let clock = site.clock.clone();
    let found = tokio::task::spawn_blocking(move || {
        let facts = facts(&dir)?;
        let interrupted = match &facts.end {
            None => {
                finalise(dir, clock)?;
                true
            }
            Some(end) => end.detail == StopDetail::Interrupted,
        };
        Ok::<_, JournalError>(interrupted.then_some(facts))
    })
    .await;
    match found {
        Ok(Ok(facts)) => facts.map(|facts| Predecessor { run_id, facts }),
        Ok(Err(error)) => {
            tracing::warn!(%run_id, %error, "an earlier run's journal cannot be read; it is left as it is");
            None
        }
        Err(panic) => {
            tracing::error!(%run_id, %panic, "an earlier run could not be looked at");
            None
        }
    }
}

/// Ends a dead run: `interrupted`, with result and report folded from what its journal has.
pub fn finalise(dir: RunDir, clock: Clock) -> Result<(), JournalError> {
    // What is in the journal was redacted when it was written; the end adds nothing secret.
    let redactor = Redactor::new([0; 32], Vec::new(), &[]).map_err(|error| JournalError {
        path: dir.events().display().to_string(),
        message: error.to_string(),
    })?;
    let journal = FileJournal::open(dir.clone(), clock, Arc::new(redactor))?;
    journal.append(Event::RunEnded {
        stop: Stop::new(StopDetail::Interrupted, "The process ended in the middle of the run."),
    })?;
    report::write_blocking(&dir).map(drop)
}
