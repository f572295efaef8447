//! The early end of a session: the reason in one public sentence, and in technical words for the record.

use super::journal::JournalError;
use super::shortage::SharedCapError;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::SessionFailure;

/// Ends a session before it has a report. Every step of a session that can fail returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort(Box<SessionFailure>);

impl Abort {
    /// An end with its typed class and its technical text. The text is redacted when it is recorded.
    pub fn new(detail: StopDetail, error_name: &str, message: &str, technical: impl Into<String>) -> Self {
        Self(Box::new(SessionFailure {
            stop: Stop::new(detail, message),
            error_name: error_name.to_owned(),
            error_message: technical.into(),
        }))
    }

    /// What is reported.
    pub fn failure(&self) -> &SessionFailure {
        &self.0
    }

    /// What is reported.
    pub fn into_failure(self) -> SessionFailure {
        *self.0
    }

    /// A defect of agentd; the technical text is for the record.
    pub fn internal(technical: impl Into<String>) -> Self {
        Self::new(
            StopDetail::Internal,
            "InternalError",
            "agentd itself failed; the journal has the details.",
            technical,
        )
    }
}

impl From<Stop> for Abort {
    fn from(stop: Stop) -> Self {
        let name = match stop.detail {
            StopDetail::MaxSteps | StopDetail::MaxWallTime | StopDetail::MaxCost => "BudgetExceeded",
            StopDetail::MaxTurnsExhausted => "MaxTurnsExceeded",
            StopDetail::UserAbort => "Aborted",
            _ => "Stopped",
        };
        let technical = stop.message.clone();
        Self(Box::new(SessionFailure { stop, error_name: name.to_owned(), error_message: technical }))
    }
}

impl From<SharedCapError> for Abort {
    fn from(error: SharedCapError) -> Self {
        match &error {
            SharedCapError::NotCovered(short) => {
                Self::new(StopDetail::MaxCost, "BudgetExceeded", &short.message(), error.to_string())
            }
            SharedCapError::Unknown(when, _) => {
                let message = format!(
                    "What was spent {when} could not be read or written; check the folder \"spend\" of the state directory."
                );
                Self::new(StopDetail::OutputWriteFailed, "OutputWriteFailed", &message, error.to_string())
            }
        }
    }
}

impl From<JournalError> for Abort {
    fn from(error: JournalError) -> Self {
        Self::new(
            StopDetail::OutputWriteFailed,
            "OutputWriteFailed",
            "The run's record could not be written; check the state directory's space and permissions.",
            error.to_string(),
        )
    }
}
