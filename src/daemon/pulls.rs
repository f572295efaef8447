//! The open pull requests of a repository's issues as the daemon knows them, read so that unchanged ones cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::poll::Watch;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::github::{Client, Error, ErrorKind, Fetched, Pull, PullState};

/// Reviews and checks of a pull request are looked at this often, or at every second poll where that is more often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is known of a repository's open pull requests.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    etag: Option<String>,
    open: Vec<Pull>,
    looked: BTreeMap<u64, Looked>,
    /// By issue: merged (true) or closed without it.
    pub over: BTreeMap<u64, bool>,
    /// By issue: what its next run is told, and the fingerprint of it.
    pub wanted: BTreeMap<u64, (String, String)>,
    /// GitHub does not list pull requests to us.
    off: bool,
}

/// A pull request at its last look.
#[derive(Debug)]
pub(super) struct Looked {
    at: DateTime<Utc>,
    /// How it stands.
    pub state: PullState,
    /// Whether that has been answered: by a run, by a person, or because nothing is wrong.
    pub answered: bool,
    /// Tag of its issue when that was in a person's hands.
    pub issue_tag: Option<String>,
}

/// The issue of a branch of agentd's.
pub(super) fn issue_of_branch(head: &str) -> Option<u64> {
    let issue = head.strip_prefix("feature/issue-")?.parse().ok()?;
    (branch_of(&IssueKey::Number(issue)).as_str() == head).then_some(issue)
}

impl Pulls {
    /// The pull requests that were looked at and not answered, with their issues.
    pub fn unanswered(&self) -> Vec<(u64, Pull)> {
        let waits = |pull: &&Pull| self.looked.get(&pull.number).is_some_and(|looked| !looked.answered);
        self.open
            .iter()
            .filter(waits)
            .filter_map(|pull| Some((issue_of_branch(&pull.head)?, pull.clone())))
            .collect()
    }

    /// A pull request's last look.
    pub fn looked_mut(&mut self, pull: u64) -> Option<&mut Looked> {
        self.looked.get_mut(&pull)
    }

    fn is_due(&self, pull: u64, pause: Duration, now: DateTime<Utc>) -> bool {
        self.looked.get(&pull).is_none_or(|looked| {
            // A clock that was set back makes it due as well.
            now.signed_duration_since(looked.at).to_std().map_or(true, |past| past >= pause)
        })
    }
}

impl Watch {
    /// Reads the list, and how those stand whose issues nobody works on; `look` = whether follow-up runs are wanted.
    pub(super) async fn read_pulls(
        &mut self,
        client: &Client,
        busy: &BTreeSet<u64>,
        look: bool,
        interval: Duration,
        now: DateTime<Utc>,
    ) {
        if self.pulls.off || !self.is_fresh() {
            return;
        }
        let pause = LONGEST_PAUSE.min(interval * 2);
        let read = async {
            self.list_pulls(client).await?;
            self.find_over(client, busy, pause, now).await?;
            if look { self.look_at_pulls(client, busy, pause, now).await } else { Ok(()) }
        };
        let read: Result<(), Error> = read.await;
        if let Err(error) = read {
            self.pulls.off = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden { .. });
            tracing::debug!(repo = %self.watched.name, %error, "the pull requests could not be read");
        }
    }

    async fn list_pulls(&mut self, client: &Client) -> Result<(), Error> {
        let listed = client.open_pulls(&self.watched.name, self.pulls.etag.as_deref()).await?;
        let Fetched::Fresh(open, etag) = listed else { return Ok(()) };
        let own: Vec<Pull> = open.into_iter().filter(|pull| issue_of_branch(&pull.head).is_some()).collect();
        for pull in &own {
            if let Some(issue) = issue_of_branch(&pull.head) {
                self.state.issues.entry(issue).or_default().pull = Some(pull.number);
            }
        }
        self.pulls.looked.retain(|number, _| own.iter().any(|pull| pull.number == *number));
        self.pulls.etag = etag;
        self.pulls.open = own;
        Ok(())
    }

    /// What is no longer among the open ones was merged or closed, or the list is too long for it.
    async fn find_over(
        &mut self,
        client: &Client,
        busy: &BTreeSet<u64>,
        pause: Duration,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let listed = |number: u64| self.pulls.open.iter().any(|pull| pull.number == number);
        let gone: Vec<(u64, u64)> = self
            .state
            .issues
            .iter()
            .filter_map(|(issue, memory)| Some((*issue, memory.pull?)))
            .filter(|(issue, pull)| !busy.contains(issue) && !listed(*pull))
            .filter(|(_, pull)| self.pulls.is_due(*pull, pause, now))
            .collect();
        for (issue, number) in gone {
            let over = match client.pull(&self.watched.name, number).await {
                Ok(pull) if pull.open => {
                    self.pulls.looked.insert(number, Looked::nothing(now));
                    continue;
                }
                Ok(pull) => pull.merged,
                Err(error) if error.is_absent() => false,
                Err(error) => return Err(error),
            };
            self.pulls.looked.remove(&number);
            self.pulls.over.insert(issue, over);
        }
        Ok(())
    }

    async fn look_at_pulls(
        &mut self,
        client: &Client,
        busy: &BTreeSet<u64>,
        pause: Duration,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        for pull in self.pulls.open.clone() {
            let free = issue_of_branch(&pull.head).is_some_and(|issue| {
                let settles = self.state.issues.get(&issue).is_some_and(|memory| memory.settling.is_some());
                !busy.contains(&issue) && !settles && self.candidate(issue).is_none()
            });
            if !free || !self.pulls.is_due(pull.number, pause, now) {
                continue;
            }
            let looked = self.pulls.looked.entry(pull.number).or_insert_with(|| Looked::nothing(now));
            looked.at = now;
            if client.look_at_pull(&self.watched.name, &pull, &mut looked.state).await? {
                looked.answered = false;
                looked.issue_tag = None;
            }
        }
        Ok(())
    }
}

impl Looked {
    fn nothing(at: DateTime<Utc>) -> Self {
        Self { at, state: PullState::default(), answered: true, issue_tag: None }
    }
}
