//! An observer of a run: it follows the journal, can ask the run to stop, and can extend its budget.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use super::extender::Extender;
use crate::domain::mapping::InstanceId;
use crate::engine::stop::{StopHandle, StopSignal};
use crate::store::journal_file::FileJournal;
use crate::store::journal_format::HeardLine;
use crate::store::run_dir::RunDir;

/// What a listener is handed when a run's journal opens.
pub type Lines = broadcast::Receiver<Arc<HeardLine>>;

/// A run whose journal opens.
pub struct OpenedRun {
    /// Where a slow listener finds what it missed.
    pub dir: RunDir,
    /// Its instance; `None` = the journal does not say.
    pub instance: Option<InstanceId>,
}

/// Called once when there is a journal.
type Listen = Box<dyn FnOnce(Lines, OpenedRun) + Send>;

/// An observer's handle on one run.
pub struct RunObserver {
    stop: StopHandle,
    signal: StopSignal,
    extender: Extender,
    opened: Mutex<Option<Listen>>,
}

impl RunObserver {
    /// An observer that gives the journal's lines to `listen` as soon as there is a journal.
    pub fn new(listen: impl FnOnce(Lines, OpenedRun) + Send + 'static) -> Self {
        let (stop, signal) = StopHandle::new();
        Self { stop, signal, extender: Extender::default(), opened: Mutex::new(Some(Box::new(listen))) }
    }

    /// The same, with the extender that the caller holds, for raising the run's budgets.
    pub fn with_extender(self, extender: &Extender) -> Self {
        Self { extender: extender.clone(), ..self }
    }

    /// Nobody listens.
    pub fn silent() -> Self {
        Self::new(|_, _| ())
    }

    /// For asking the run to stop.
    pub fn stop(&self) -> &StopHandle {
        &self.stop
    }

    /// The run's side of the observer.
    pub fn signal(&self) -> StopSignal {
        self.signal.clone()
    }

    pub(super) fn extender(&self) -> Extender {
        self.extender.clone()
    }

    pub(super) fn opened(&self, journal: &FileJournal) {
        let listen = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listen) = listen {
            let instance = journal.facts().lease.as_ref().map(|lease| lease.instance.clone());
            listen(journal.listen(), OpenedRun { dir: journal.dir().clone(), instance });
        }
    }
}
