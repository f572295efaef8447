//! The error of a failed command: what is wrong, where, what to do next, and the exit code.

use std::borrow::Cow;
use std::fmt;

use crate::config::ConfigError;
use crate::daemon::DaemonError;
use crate::domain::stop::StopDetail;
use crate::store::port::StoreError;

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandError {
    /// What is wrong and where.
    pub message: String,
    /// What to do next, one sentence each.
    pub hints: Vec<String>,
    /// 1, 3, 4 or 5; never 2.
    pub exit_code: u8,
    /// The stop detail of a refused start, where it was one.
    pub detail: Option<StopDetail>,
    /// Whether the same may succeed later: somebody else's service is out of reach.
    pub transient: bool,
}

impl CommandError {
    /// Something went wrong (exit 1).
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hints: Vec::new(), exit_code: 1, detail: None, transient: false }
    }

    /// Arguments, configuration, definition or origin cannot be used (exit 4).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { exit_code: 4, ..Self::failed(message) }
    }

    /// What the store did not do: for want of a right it is the key that has to be another one.
    pub fn of_store(error: &StoreError) -> Self {
        match error.is_for_want_of_a_right() {
            true => Self::invalid(error.to_string()),
            false => Self::failed(error.to_string()),
        }
    }

    /// An argument of the command line cannot be used (exit 4).
    pub fn argument(message: impl Into<String>) -> Self {
        Self { detail: Some(StopDetail::InvalidInput), ..Self::invalid(message) }
    }

    /// Something breaks its schema (exit 5).
    pub fn schema(message: impl Into<String>) -> Self {
        Self { exit_code: 5, ..Self::failed(message) }
    }

    /// `Ok` if nothing was found, else one error with all of them and the exit code of the first.
    pub fn all(found: Vec<Self>) -> Result<(), Self> {
        let mut found = found.into_iter();
        let Some(mut first) = found.next() else { return Ok(()) };
        for error in found {
            first.message = format!("{}\n{}", first.message, error.message);
            for hint in error.hints {
                if !first.hints.contains(&hint) {
                    first.hints.push(hint);
                }
            }
        }
        Err(first)
    }

    /// As `--json` prints it. `told`: how a hint is said, with the flags that its command needs.
    pub fn document(&self, told: impl Fn(&str) -> Cow<'_, str>) -> serde_json::Value {
        let hints: Vec<Cow<'_, str>> = self.hints.iter().map(|hint| told(hint)).collect();
        serde_json::json!({
            "error": { "message": self.message, "hints": hints, "exit_code": self.exit_code }
        })
    }

    /// With one more thing to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<DaemonError> for CommandError {
    fn from(error: DaemonError) -> Self {
        let told = Self::failed(error.to_string());
        match error {
            DaemonError::Store(_) => told.hint("--state-dir names a directory that agentd can write to"),
            // A start is refused, as that of a run whose branch is busy is.
            DaemonError::Busy(_) => Self { exit_code: 4, ..told },
            DaemonError::State(_) => told,
        }
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        let unknown = matches!(error, ConfigError::UnknownKey { .. });
        let told = Self::invalid(error.to_string());
        if unknown { told.hint("`agentd config schema config` lists every key") } else { told }
    }
}
