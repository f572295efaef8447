//! Why nobody wants the work of a run any more: what became of its issue, in words, as the end of the run.

use crate::domain::stop::{Stop, StopDetail};
use crate::github::{Error, ErrorKind};

/// As another node says it, in one word.
pub fn of(detail: StopDetail) -> Stop {
    match detail {
        StopDetail::IssueClosed => closed(),
        StopDetail::LabelRemoved => unlabelled(),
        StopDetail::UserStop => by_person(),
        other => Stop::new(other, "The daemon was told to stop."),
    }
}

/// It was closed.
pub fn closed() -> Stop {
    Stop::new(StopDetail::IssueClosed, "The issue was closed while the run worked on it.")
}

/// Its trigger label is gone.
pub fn unlabelled() -> Stop {
    Stop::new(StopDetail::LabelRemoved, "The trigger label was taken off while the run worked on it.")
}

/// Somebody said so.
pub fn by_person() -> Stop {
    Stop::new(StopDetail::UserStop, "A person asked the run to stop.")
}

/// The pull request that it was to change is over.
pub fn pull_request_over(merged: bool) -> Stop {
    let what = if merged { "merged" } else { "closed" };
    Stop::new(StopDetail::UserStop, format!("The pull request was {what} while the run worked on it."))
}

/// It is not here any more. `None`: it could not be read, and may be.
pub fn not_here(error: &Error) -> Option<Stop> {
    let stop = |words: String| Some(Stop::new(StopDetail::IssueClosed, words));
    match what_became(error) {
        Some(became) => stop(format!("The issue {became} while the run worked on it.")),
        None if error.kind == ErrorKind::NotFound => stop(
            "The issue is not to be found any more: it was deleted, or the token may not see it.".to_owned(),
        ),
        None => None,
    }
}

/// What became of an issue that is gone for certain, as the rest of a sentence. `None`: it is here, or not to be seen for now.
pub fn what_became(error: &Error) -> Option<String> {
    if error.kind == ErrorKind::Gone {
        return Some("was deleted".to_owned());
    }
    let ErrorKind::Moved { to } = &error.kind else { return None };
    let to = to.as_deref().unwrap_or("another repository");
    Some(format!("was moved to {to}"))
}
