//! Why a store could not do what was asked.

use crate::sys::files::FileError;

/// It could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It failed.
    #[error("cannot {action} {place}: {words}")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// Where.
        place: String,
        /// Why not, in the system's words.
        words: String,
    },
    /// Others were at work there all the time.
    #[error("{place} is locked for too long")]
    Locked {
        /// Where.
        place: String,
    },
    /// Another process is the node that this one is configured to be.
    #[error("{0}")]
    NameTaken(String),
    /// A later version of agentd wrote it, and this one cannot read it.
    #[error("{0}")]
    TooNew(String),
}

impl StoreError {
    /// Whether it is for want of a right, and the same again comes to the same.
    pub fn is_for_want_of_a_right(&self) -> bool {
        matches!(self, Self::Failed { words, .. } if words.starts_with("not permitted"))
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> Self {
        Self::Failed {
            action: error.action(),
            place: error.path().display().to_string(),
            words: error.words(),
        }
    }
}
