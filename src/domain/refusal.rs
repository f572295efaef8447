//! A start that is refused: nothing was made, and the person is told what to do.

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
    /// Whether a later start may succeed without a person's help, because another service cannot be reached now.
    pub transient: bool,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(detail: StopDetail, message: impl Into<String>) -> Self {
        Self { stop: Stop::new(detail, message), hints: Vec::new(), technical: None, transient: false }
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds words for the log.
    pub fn technical(mut self, words: impl Into<String>) -> Self {
        self.technical = Some(words.into());
        self
    }
}
