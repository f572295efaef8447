//! A look at the branch on the remote that found nothing that the branch here lacks. For a moment it stands for
//! others: each question costs a round trip, and the push, which replaces nothing, finds what came in between.

use std::mem;
use std::time::Duration;

use crate::domain::name::CommitId;
use crate::sys::clock::Stopwatch;

/// How long a look holds.
const HOLDS: Duration = Duration::from_secs(3);

/// What was seen, and when.
#[derive(Debug, Clone)]
pub struct RemoteLook {
    since: Stopwatch,
    was_used_again: bool,
    /// The branch's commit there, if it has one.
    pub tip: Option<CommitId>,
}

impl RemoteLook {
    /// A look that begins now: what changes from here on it may have missed.
    pub fn begin() -> Self {
        Self { since: Stopwatch::start(), was_used_again: false, tip: None }
    }

    /// What it found.
    pub fn found(self, tip: Option<CommitId>) -> Self {
        Self { tip, ..self }
    }

    /// Whether it is as good as a new one.
    pub fn is_fresh(&self) -> bool {
        self.since.elapsed() < HOLDS
    }

    /// Whether it is young enough to be used for the next look as well, once: the one at the end of the flow counts for that of the commit.
    pub fn use_once_more(&mut self) -> bool {
        self.is_fresh() && !mem::replace(&mut self.was_used_again, true)
    }
}
