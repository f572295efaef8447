//! Lets whoever watches a run, such as the daemon, raise its budgets while it works.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::budget::Budgets;
use crate::domain::event::Event;
use crate::engine::budget::Meter;
use crate::engine::journal::JournalError;
use crate::record::run_journal::RunJournal;

/// For giving a run more while it works: from its first step to its last.
#[derive(Clone, Default)]
pub struct Extender(Arc<Mutex<Option<Working>>>);

struct Working {
    meter: Arc<Meter>,
    journal: RunJournal,
}

impl Extender {
    /// Gives the run as much again of each budget, on behalf of `by`, who may. Gives the new caps. `None` = the run
    /// does not work on the issue now.
    pub fn extend(&self, by: &str) -> Result<Option<Budgets>, JournalError> {
        let working = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Working { meter, journal }) = &*working else { return Ok(None) };
        meter.extend(|budgets| {
            journal.record(Event::BudgetExtended { by: by.to_owned(), budgets: budgets.clone() })
        })
    }

    pub(super) fn begins(&self, meter: &Arc<Meter>, journal: &RunJournal) {
        let working = Working { meter: Arc::clone(meter), journal: journal.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(working);
    }

    pub(super) fn ends(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl fmt::Debug for Extender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Extender").finish_non_exhaustive()
    }
}
