//! What did not come about: it ended otherwise, or its record cannot be written.

use super::journal::JournalError;
use crate::domain::stop::Stop;

/// Why something that is written down as it goes did not come about.
#[derive(Debug)]
pub(super) enum NotDone<E> {
    /// It ended otherwise, and that is written down.
    Ended(E),
    /// The record cannot be written, so the run cannot go on.
    Unwritten(JournalError),
}

impl<E> NotDone<E> {
    /// What it ended with.
    pub(super) fn ended(self) -> Result<E, JournalError> {
        match self {
            Self::Ended(end) => Ok(end),
            Self::Unwritten(error) => Err(error),
        }
    }
}

impl<E> From<JournalError> for NotDone<E> {
    fn from(error: JournalError) -> Self {
        Self::Unwritten(error)
    }
}

impl From<Stop> for NotDone<Stop> {
    fn from(stop: Stop) -> Self {
        Self::Ended(stop)
    }
}
