//! What can go wrong with GitHub: one sentence for people with a remedy, and separately the technical detail.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

/// A failed operation. `Display` is public (no upstream text, no URL, no secret: S-033); [`Error::technical`] is for logs.
#[derive(Debug, Clone)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What was being done, in words ("reading issue 7 of o/n").
    pub doing: String,
    detail: String,
}

/// The kinds of failure that callers tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// A setting cannot be used: an address, a key.
    Setup {
        /// What is wrong and what to do.
        problem: String,
    },
    /// 401: the credentials are wrong, expired or revoked.
    Unauthorized,
    /// 403: the credentials lack a permission.
    Forbidden {
        /// The permission, as GitHub names it ("issues: write").
        needs: String,
    },
    /// 404: it does not exist, or the credentials cannot see it.
    NotFound,
    /// 410: it was deleted, or the feature is switched off.
    Gone,
    /// The number is a pull request's.
    IsPullRequest,
    /// The issue was moved to another repository.
    Moved {
        /// Where it is now, as `owner/name#number`, if GitHub says so in words that can be such.
        to: Option<String>,
    },
    /// 422: GitHub refuses the content.
    Validation,
    /// 422: it is already there.
    AlreadyExists,
    /// 422: a pull request without commits.
    NoCommits,
    /// 422: a pull request to a branch that does not exist.
    NoBase,
    /// 409.
    Conflict,
    /// A primary or secondary limit holds for longer than the caller waits.
    RateLimited {
        /// When requests are let through again, by GitHub's clock, if it says so.
        until: Option<DateTime<Utc>>,
        /// How long from now.
        wait: Duration,
    },
    /// No answer: connection refused or cut, time-out.
    Unreachable,
    /// 5xx.
    Unavailable {
        /// The status.
        status: u16,
    },
    /// A page in GitHub's place, such as a proxy's: 200 with a body that is not JSON.
    Foreign,
    /// An answer that cannot be understood.
    Malformed,
    /// Several projects give an issue different values of one field.
    FieldConflict {
        /// Each project's title with its value.
        values: Vec<(String, String)>,
        /// The field.
        field: String,
    },
    /// A field that is neither text nor single select.
    FieldType {
        /// The field.
        field: String,
        /// Its type, as GitHub names it.
        found: String,
    },
}

impl Error {
    pub(super) fn new(kind: ErrorKind, doing: impl Into<String>, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        // A page of HTML from some proxy helps nobody.
        if let Some((end, _)) = detail.char_indices().nth(600) {
            detail.truncate(end);
            detail.push('…');
        }
        Self { kind, doing: doing.into(), detail }
    }

    pub(super) fn malformed(doing: &str, detail: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Malformed, doing, detail.to_string())
    }

    /// Something of this machine that fails while GitHub is read.
    pub fn internal(doing: &str, detail: &dyn fmt::Display) -> Self {
        Self::malformed(doing, detail)
    }

    /// Status, GitHub's own message and similar details, without secrets. They are for logs and never for people.
    pub fn technical(&self) -> &str {
        &self.detail
    }

    /// Whether trying again later, with nothing changed by a person, may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::RateLimited { .. }
                | ErrorKind::Unreachable
                | ErrorKind::Unavailable { .. }
                | ErrorKind::Foreign
        )
    }

    /// Whether the thing asked for is not there (404, 410).
    pub fn is_absent(&self) -> bool {
        matches!(self.kind, ErrorKind::NotFound | ErrorKind::Gone)
    }

    /// Whether an issue is not here any more, or cannot be seen.
    pub fn is_not_here(&self) -> bool {
        self.is_absent() || matches!(self.kind, ErrorKind::Moved { .. })
    }

    /// Whether people locked the conversation, so that agentd may not write there.
    pub fn is_locked(&self) -> bool {
        matches!(self.kind, ErrorKind::Forbidden { .. })
            && self.detail.to_ascii_lowercase().contains("locked")
    }

    /// Whether a write may have happened although it failed. Then look before writing again.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Unavailable { .. } | ErrorKind::Malformed)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = &self.doing;
        match &self.kind {
            ErrorKind::Setup { problem } => f.write_str(problem),
            ErrorKind::Unauthorized => write!(
                f,
                "{doing}: GitHub refused the credentials (401); set github.token (or [github.app]) to a token that is neither expired nor revoked"
            ),
            ErrorKind::Forbidden { needs } => write!(
                f,
                "{doing}: the credentials lack the permission \"{needs}\" (403); grant it to the token or App, and have it approved where the organisation asks for that"
            ),
            ErrorKind::NotFound => write!(
                f,
                "{doing}: it does not exist, or the token cannot see it; check the name and the token's access to the repository"
            ),
            ErrorKind::Gone => {
                write!(f, "{doing}: it was deleted, or the feature is switched off in the repository")
            }
            ErrorKind::IsPullRequest => write!(f, "{doing}: the number is a pull request's; give an issue's"),
            ErrorKind::Moved { to: Some(to) } => write!(f, "{doing}: the issue was moved; it is {to} now"),
            ErrorKind::Moved { to: None } => {
                write!(f, "{doing}: the issue was moved to another repository; use its new number there")
            }
            ErrorKind::Validation => write!(f, "{doing}: GitHub refused the content"),
            ErrorKind::AlreadyExists => write!(f, "{doing}: it is already there"),
            ErrorKind::NoCommits => write!(f, "{doing}: the branch has no commits beyond its base"),
            ErrorKind::NoBase => write!(
                f,
                "{doing}: the branch that it is to be merged into does not exist any more; name its new name as the origin branch, or create it again"
            ),
            ErrorKind::Conflict => {
                write!(f, "{doing}: GitHub reports a conflict with another change; try again")
            }
            ErrorKind::RateLimited { until: Some(until), .. } => write!(
                f,
                "{doing}: GitHub's rate limit is used up until {}; a daemon goes on by itself then",
                until.format("%Y-%m-%dT%H:%M:%SZ")
            ),
            ErrorKind::RateLimited { until: None, wait } => {
                write!(
                    f,
                    "{doing}: GitHub asks to slow down for {} s; a daemon goes on by itself then",
                    wait.as_secs().max(1)
                )
            }
            ErrorKind::Unreachable => {
                write!(f, "{doing}: GitHub could not be reached; check the network and github.api_url")
            }
            ErrorKind::Unavailable { status } => {
                write!(f, "{doing}: GitHub answered with an error of its own ({status}); try again later")
            }
            ErrorKind::Foreign => write!(
                f,
                "{doing}: something else answered in GitHub's place; check github.api_url, and what proxies answer on the way"
            ),
            ErrorKind::Malformed => write!(
                f,
                "{doing}: the answer could not be understood; check that github.api_url is a GitHub API"
            ),
            ErrorKind::FieldConflict { values, field } => {
                let list: Vec<String> = values
                    .iter()
                    .map(|(project, value)| format!("\"{value}\" in project \"{project}\""))
                    .collect();
                write!(
                    f,
                    "{doing}: projects disagree about the field \"{field}\": {}; make them agree, or clear all but one",
                    list.join(", ")
                )
            }
            ErrorKind::FieldType { field, found } => write!(
                f,
                "{doing}: the field \"{field}\" is of type {found}; use a text or single select field"
            ),
        }
    }
}
