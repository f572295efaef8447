//! Lists of a repository that GitHub does not give us: told, and asked for again after longer and longer pauses.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::name::RepoName;
use crate::github::{Error, ErrorKind, Written};

/// The first pause after a refusal, and the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// What of a repository is read beside its issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Pulls,
    Comments,
    ReviewComments,
}

impl From<Written> for List {
    fn from(list: Written) -> Self {
        match list {
            Written::Comments => Self::Comments,
            Written::ReviewComments => Self::ReviewComments,
        }
    }
}

impl List {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pulls => "pull requests",
            Self::Comments => "comments",
            Self::ReviewComments => "review comments",
        }
    }
}

/// The lists that were refused, until they are given again.
#[derive(Debug, Default)]
pub(super) struct Unread(BTreeMap<List, Refused>);

#[derive(Debug)]
struct Refused {
    why: String,
    times: u32,
    at: Instant,
}

impl Refused {
    fn pause(&self) -> Duration {
        (FIRST * (1 << (self.times - 1).min(10))).min(LONGEST)
    }

    fn is_due(&self) -> bool {
        self.at.elapsed() >= self.pause()
    }
}

impl Unread {
    /// Whether a list is to be asked for.
    pub fn may_ask(&self, list: impl Into<List>) -> bool {
        self.0.get(&list.into()).is_none_or(Refused::is_due)
    }

    /// Whether one that was refused is to be asked for again.
    pub fn is_due(&self) -> bool {
        self.0.values().any(Refused::is_due)
    }

    /// A list could not be read. Only what is refused rests; once it does, so does whatever else stands in the way of it.
    pub fn failed(&mut self, repo: &RepoName, list: impl Into<List>, error: &Error) {
        let list = list.into();
        let is_refused = error.is_absent() || matches!(error.kind, ErrorKind::Forbidden { .. });
        if is_refused || self.0.contains_key(&list) {
            self.refused(repo, list, error);
        }
    }

    /// A list was refused.
    pub fn refused(&mut self, repo: &RepoName, list: impl Into<List>, error: &Error) {
        let (list, why) = (list.into(), error.to_string());
        let times = self.0.get(&list).map_or(0, |before| before.times) + 1;
        if self.0.get(&list).is_none_or(|before| before.why != why) {
            tracing::warn!(%repo, list = list.as_str(), why, "what happens there is not heard until GitHub gives the list again");
        }
        self.0.insert(list, Refused { why, times, at: Instant::now() });
    }

    /// A list was given.
    pub fn given(&mut self, repo: &RepoName, list: impl Into<List>) {
        let list = list.into();
        if let Some(before) = self.0.remove(&list) {
            tracing::info!(%repo, list = list.as_str(), refusals = before.times, "GitHub gives the list again");
        }
    }

    /// All are to be asked for at once: GitHub answers again.
    pub fn ask_again(&mut self) {
        for refused in self.0.values_mut() {
            refused.times = 1;
            refused.at -= FIRST;
        }
    }

    /// What cannot be read, and why; public. `None` = everything can.
    pub fn told(&self) -> Option<String> {
        let told: Vec<String> =
            self.0.iter().map(|(list, refused)| format!("{}: {}", list.as_str(), refused.why)).collect();
        (!told.is_empty()).then(|| format!("not heard there: {}", told.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_fails_is_asked_for_at_each_look_unless_it_was_refused() {
        let (repo, mut unread) = (RepoName::parse("demo/shop").unwrap(), Unread::default());
        let error = Error::internal("reading", &"not what was asked for");
        unread.failed(&repo, List::Pulls, &error);
        assert!(unread.may_ask(List::Pulls) && unread.told().is_none());
        unread.refused(&repo, List::Pulls, &error);
        unread.ask_again();
        unread.failed(&repo, List::Pulls, &error);
        assert!(!unread.may_ask(List::Pulls), "it rests, for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_told_and_asked_for_again_after_longer_and_longer_pauses() {
        let (repo, mut unread) = (RepoName::parse("demo/shop").unwrap(), Unread::default());
        let error = Error::internal("reading", &"404");
        assert!(unread.may_ask(List::Pulls) && unread.told().is_none() && !unread.is_due());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            unread.refused(&repo, List::Pulls, &error);
            assert!(!unread.may_ask(List::Pulls) && unread.may_ask(Written::Comments) && !unread.is_due());
            let since = Instant::now();
            while !unread.may_ask(List::Pulls) {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert!(unread.is_due());
            pauses.push(since.elapsed().as_secs());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert!(unread.told().unwrap().starts_with("not heard there: pull requests: "));
        unread.refused(&repo, List::Pulls, &error);
        unread.ask_again();
        assert!(unread.may_ask(List::Pulls));
        unread.given(&repo, List::Pulls);
        assert_eq!(unread.told(), None);
    }
}
