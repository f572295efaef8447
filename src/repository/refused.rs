//! What errors of git, of GitHub and of the configuration mean for a run that is about to start: it is refused.

use crate::config::error::ConfigError;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::git::error::GitError;
use crate::github;
use crate::store::port::StoreError;

/// Git could not do what a start needs.
impl From<GitError> for Refusal {
    fn from(error: GitError) -> Self {
        let transient = matches!(error, GitError::Network { .. } | GitError::TimedOut { .. });
        Self { transient, ..Self::new(StopDetail::GitError, format!("{error}.")) }
    }
}

/// The configuration lacks something that this start needs.
impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(StopDetail::ConfigInvalid, format!("{error}"))
            .hint("agentd config explain shows every value with the layer it came from")
    }
}

/// This process may not change what the nodes share, and the same again comes to the same.
pub fn no_nodes_key(error: &StoreError) -> Refusal {
    Refusal::new(StopDetail::ConfigInvalid, format!("This key is no node's: {error}."))
        .hint("take a node's key; `agentd cluster doctor` says what this one may")
}

/// GitHub could not be asked at the start (D32): exit code 1. A mistake of the person is exit code 4.
impl From<github::Error> for Refusal {
    fn from(error: github::Error) -> Self {
        use github::ErrorKind;
        let detail = match error.kind {
            ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::IsPullRequest | ErrorKind::Moved { .. } => {
                StopDetail::InvalidInput
            }
            ErrorKind::FieldConflict { .. } | ErrorKind::FieldType { .. } => StopDetail::OriginUnresolved,
            ErrorKind::Setup { .. } => StopDetail::ConfigInvalid,
            _ => StopDetail::GithubError,
        };
        let technical = error.technical().to_owned();
        let refusal = Self { transient: error.is_transient(), ..Self::new(detail, error.to_string()) };
        if technical.is_empty() { refusal } else { refusal.technical(technical) }
    }
}
