//! A start that is refused: nothing was made, and the person is told what to do.

use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};

/// Why a run did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .stop.message)]
pub struct Refusal {
    /// Detail (and with it reason and exit code) and the public sentence.
    pub stop: Stop,
    /// What to do next, most likely first.
    pub hints: Vec<String>,
    /// Technical words for the log; never shown on GitHub.
    pub technical: Option<String>,
    /// The run that came to this end by itself, where the start was only to bring it to one.
    pub ended: Option<Box<(RunId, Stop)>>,
    /// Whether a later start may succeed without a person's help, because another service cannot be reached now.
    pub transient: bool,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(detail: StopDetail, message: impl Into<String>) -> Self {
        let stop = Stop::new(detail, message);
        Self { stop, hints: Vec::new(), technical: None, ended: None, transient: false }
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A refusal to bring a run to its end that has come to one.
    pub fn already_ended(run_id: RunId, end: Stop) -> Self {
        let message = format!("Run {run_id} came to its end meanwhile.");
        Self { ended: Some(Box::new((run_id, end))), ..Self::new(StopDetail::BranchBusy, message) }
    }

    /// Adds words for the log.
    pub fn technical(mut self, words: impl Into<String>) -> Self {
        self.technical = Some(words.into());
        self
    }
}
