//! The port to the journal: events before their effects, and files beside them.

use futures::future::BoxFuture;

use super::port::StoreError;
use crate::domain::artifact::Artifact;
use crate::domain::event::Event;

/// The write-ahead journal of one run.
pub trait Journal: Send + Sync {
    /// Appends an event. After this it survives the death of the process, but not yet of the machine. Takes
    /// microseconds.
    fn append(&self, event: Event) -> Result<(), JournalError>;

    /// Appends an event that another event follows before anything happens outside. It is written together with that
    /// event, or with the next flush. So a visit writes a few times and not twenty times.
    fn append_with_next(&self, event: Event) -> Result<(), JournalError> {
        self.append(event)
    }

    /// Waits until everything appended and kept is on disk. Called before an effect outside the process becomes visible.
    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Keeps bytes under a path relative to the run directory (`tool-output/…`, `conversation/…`), mode 0600. They are
    /// durable with the next flush, like the events that name them.
    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>>;

    /// Reads back what this run kept.
    fn kept<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<Vec<u8>, JournalError>>;
}

/// The record cannot be written; the run ends with `output_write_failed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct JournalError {
    /// The file.
    pub path: String,
    /// The system's words.
    pub message: String,
}

impl From<StoreError> for JournalError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Failed { place, words, .. } => Self { path: place, message: words },
            StoreError::Locked { ref place } => Self { path: place.clone(), message: error.to_string() },
            StoreError::NameTaken(words) | StoreError::TooNew(words) => {
                Self { path: String::new(), message: words }
            }
        }
    }
}
