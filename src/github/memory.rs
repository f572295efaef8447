//! What a client remembers between requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::account::Viewer;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;

/// For so long a repository that did not answer is asked nothing in passing. Below a usual pause between two looks.
const REST: Duration = Duration::from_secs(50);

/// What a client has learned of a GitHub so far.
#[derive(Default)]
pub(super) struct Memory {
    /// Who the credentials are.
    pub viewer: OnceCell<Viewer>,
    /// Labels that were seen or made, by repository.
    pub labels: Mutex<BTreeSet<(RepoName, String)>>,
    /// What people may, by repository and login, with the tag of the answer.
    pub permissions: Mutex<BTreeMap<(RepoName, String), (String, ActorPermission)>>,
    /// Whether the time of a cancelled check run was over, by repository and id.
    pub time_outs: Mutex<BTreeMap<(RepoName, u64), bool>>,
    /// Repositories that did not answer.
    pub silences: Silences,
    /// Our own comments, by repository and issue.
    pub own_comments: Mutex<BTreeMap<(RepoName, u64), OwnComments>>,
}

/// The known comments of agentd on an issue, so that the next look reads only what changed since. Strangers may write
/// any number of comments.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnComments {
    /// Everything up to this time was read; `None` = nothing was.
    pub since: Option<DateTime<Utc>>,
    /// Ids by first line.
    pub ids: BTreeMap<String, u64>,
    /// Later ones with the first line of an older one: two processes had written it at once.
    pub doubles: BTreeMap<String, BTreeSet<u64>>,
}

/// When repositories did not answer, by name in lower case.
#[derive(Debug, Default)]
pub(super) struct Silences(std::sync::Mutex<BTreeMap<String, Instant>>);

impl Silences {
    /// One did not answer.
    pub fn note(&self, repo: String, now: Instant) {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|_, since| now.duration_since(*since) < REST);
        silent.insert(repo, now);
    }

    /// Whether one is asked nothing now.
    pub fn holds(&self, repo: &str, now: Instant) -> bool {
        let silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silent.get(repo).is_some_and(|since| now.duration_since(*since) < REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_did_not_answer_rests_for_a_while() {
        let (silences, now) = (Silences::default(), Instant::now());
        silences.note("acme/shop".to_owned(), now);
        assert!(silences.holds("acme/shop", now + REST / 2));
        assert!(!silences.holds("acme/shop", now + REST), "it is asked again");
        assert!(!silences.holds("acme/other", now));
    }
}
