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
    /// The run that came to an end by itself, where the start was only to bring it to one.
    pub ended: Option<Box<EndedRun>>,
    /// In a cluster: the newest run of the issue, where what it did is of another definition than this node's.
    pub other_definition: Option<RunId>,
    /// Whether a later start may succeed without a person's help, because another service cannot be reached now.
    pub transient: bool,
}

/// A run that came to its end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// Which.
    pub run_id: RunId,
    /// How.
    pub stop: Stop,
    /// Whether it has made the issue say so.
    pub written_back: bool,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(detail: StopDetail, message: impl Into<String>) -> Self {
        Stop::new(detail, message).into()
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A refusal to bring a run to its end that has come to one.
    pub fn already_ended(ended: EndedRun) -> Self {
        let message = format!("Run {} came to its end meanwhile.", ended.run_id);
        Self { ended: Some(Box::new(ended)), ..Self::new(StopDetail::BranchBusy, message) }
    }

    /// Adds words for the log.
    pub fn technical(mut self, words: impl Into<String>) -> Self {
        self.technical = Some(words.into());
        self
    }
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        Self {
            stop,
            hints: Vec::new(),
            technical: None,
            ended: None,
            other_definition: None,
            transient: false,
        }
    }
}
