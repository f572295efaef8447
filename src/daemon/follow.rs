//! After the pull request: failed checks, a review that asks for changes, or a conflict start a bounded follow-up run on the
//! same branch. What was answered once starts nothing again; after the cap a person is asked (I28, I29). Merged or closed,
//! the labels say so and the worktree may go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt as _;

use super::main_loop::{Daemon, POLLED_AT_ONCE};
use super::poll::Watch;
use super::pulls::{Looked, Wanted, issue_of};
use super::snapshot::IssueRef;
use super::state_format::Followed;
use crate::domain::canonical::sha256_hex;
use crate::domain::issue_state::IssueState;
use crate::domain::name::RepoName;
use crate::domain::untrusted::{LONGEST_INCOMING, fence, incoming};
use crate::github::{Client, Error, ErrorKind, Fetched, Pull};

/// How often reviews and checks of a pull request are read. It is every second poll if that is more often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is wrong with a pull request, in words that name it, and the text for the next run.
#[derive(Debug, Default)]
struct Findings {
    named: Vec<String>,
    told: String,
    conflicts: bool,
}

impl Watch {
    /// Reads the list, and the state of those whose issues have no run; `look` = whether follow-up runs are wanted.
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
        let mut own: BTreeMap<u64, Pull> = BTreeMap::new();
        for pull in open {
            let Some(issue) = issue_of(&pull) else { continue };
            // People may open others from the branch. The known one counts, else the newest.
            let known = self.state.issues.get(&issue).and_then(|memory| memory.pull);
            let rank = |pull: &Pull| (known == Some(pull.number), pull.number);
            if own.get(&issue).is_none_or(|other| rank(other) < rank(&pull)) {
                own.insert(issue, pull);
            }
        }
        for (issue, pull) in &own {
            self.state.issues.entry(*issue).or_default().pull = Some(pull.number);
        }
        self.pulls.open = own.into_values().collect();
        self.pulls.looked.retain(|number, _| self.pulls.open.iter().any(|pull| pull.number == *number));
        self.pulls.etag = etag;
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
            let free = issue_of(&pull).is_some_and(|issue| {
                let pending =
                    self.state.issues.get(&issue).is_some_and(|memory| memory.pending_outcome.is_some());
                !busy.contains(&issue) && !pending && self.candidate(issue).is_none()
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

impl Daemon {
    /// Looks at the open pull requests of finished issues. True = something is to be started.
    pub(super) async fn follow_pulls(&mut self, now: DateTime<Utc>, looked: &BTreeSet<RepoName>) -> bool {
        let client = self.quick_client();
        let (interval, look) = (self.deps.poll_interval, self.deps.max_follow_ups > 0);
        let mut busy: BTreeMap<RepoName, BTreeSet<u64>> = BTreeMap::new();
        for issue in self.supervisor.issues() {
            busy.entry(issue.repo).or_default().insert(issue.number);
        }
        let nobody = BTreeSet::new();
        let reads =
            self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)).map(|watch| {
                let busy = busy.get(&watch.watched.name).unwrap_or(&nobody);
                watch.read_pulls(&client, busy, look, interval, now)
            });
        futures::stream::iter(reads).buffer_unordered(POLLED_AT_ONCE).collect::<Vec<()>>().await;
        let repos: Vec<RepoName> = self.watches.iter().map(|watch| watch.watched.name.clone()).collect();
        let mut starts = false;
        for repo in repos {
            let Some(watch) = self.watch_of(&repo) else { continue };
            let over = std::mem::take(&mut watch.pulls.over);
            let unanswered = watch.pulls.unanswered();
            for (number, merged) in over {
                self.is_over(&IssueRef { repo: repo.clone(), number }, merged);
            }
            for (number, pull) in unanswered {
                let issue = IssueRef { repo: repo.clone(), number };
                match self.answer_pull(&issue, &pull).await {
                    Ok(started) => starts |= started,
                    Err(error) => tracing::debug!(%issue, %error, "the pull request could not be looked at"),
                }
            }
        }
        self.empty_outbox().await;
        starts
    }

    /// Merged means done. Closed without a merge means that somebody decided against the work, and a sweep does not
    /// begin it again.
    fn is_over(&mut self, issue: &IssueRef, merged: bool) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let asked_again = watch.candidate(issue.number).is_some();
        let memory = watch.state.issues.entry(issue.number).or_default();
        memory.pull = None;
        memory.followed = None;
        if !asked_again {
            memory.parked = None;
            let (state, code) = match merged {
                true => (IssueState::Done, "pull_request_merged"),
                false => (IssueState::Failed, "pull_request_closed"),
            };
            tracing::info!(%issue, code, "the pull request is over");
            self.plan_outcome(issue, state, code, None);
        }
        self.over.notify_one();
    }

    /// Starts a run for what is wrong, or asks a person. True = a run is to be started.
    async fn answer_pull(&mut self, issue: &IssueRef, pull: &Pull) -> Result<bool, Error> {
        let findings = self.findings(issue, pull).await?;
        let fingerprint = sha256_hex(findings.named.join("\n").as_bytes());
        let (client, labels, most) =
            (self.quick_client(), self.deps.labels.clone(), self.deps.max_follow_ups);
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(false) };
        let followed = watch.state.issues.get(&issue.number).and_then(|memory| memory.followed.clone());
        let followed = followed.unwrap_or_default();
        let Some(looked) = watch.pulls.looked_mut(pull.number) else { return Ok(false) };
        if findings.named.is_empty() || followed.fingerprint == fingerprint {
            looked.answered = true;
            return Ok(false);
        }
        let fresh =
            match client.issue_if_changed(&issue.repo, issue.number, looked.issue_tag.as_deref()).await? {
                Fetched::Fresh(fresh, _) if fresh.issue.open && fresh.has_label(&labels.done) => fresh,
                // Closed, or in a person's hands, as before.
                Fetched::Unchanged => return Ok(false),
                Fetched::Fresh(_, etag) => {
                    looked.issue_tag = etag;
                    return Ok(false);
                }
            };
        looked.answered = true;
        if followed.rounds >= most {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.followed = Some(Followed { fingerprint, ..followed });
            let text = format!(
                "The pull request {} still needs work after {most} follow-up runs: {}.",
                pull.url,
                findings.named.join("; ")
            );
            self.plan_outcome(issue, IssueState::Attention, "follow_up_cap", Some(text));
            return Ok(false);
        }
        tracing::info!(%issue, pull = pull.number, findings = findings.named.join("; "), "a follow-up run");
        watch.recover(fresh);
        let Findings { told, conflicts, .. } = findings;
        watch.pulls.wanted.insert(issue.number, Wanted { told, fingerprint, conflicts });
        Ok(true)
    }

    async fn findings(&mut self, issue: &IssueRef, pull: &Pull) -> Result<Findings, Error> {
        let (client, needs) = (self.quick_client(), self.deps.min_permission);
        let looked = self.watch_of(&issue.repo).and_then(|watch| watch.pulls.looked_mut(pull.number));
        let Some(state) = looked.map(|looked| looked.state.clone()) else { return Ok(Findings::default()) };
        let mut found = Findings::default();
        for review in state.change_requests() {
            // Only what somebody wants who may trigger.
            if client.permission(&issue.repo, &review.author).await? < needs {
                continue;
            }
            found.named.push(format!("review {} asks for changes", review.id));
            found.told.push_str(&format!(
                "A review of the pull request asks for changes:\n{}\n\n",
                fence("review", &incoming(&review.body, LONGEST_INCOMING))
            ));
        }
        for check in state.checks().filter(|check| check.failure().is_some()) {
            found.named.push(format!("check {} failed at {}", check.name, pull.head_sha));
            let text = format!("{}\n{}\n{}", check.name, check.title, check.summary);
            found.told.push_str(&format!(
                "A check of the pull request failed:\n{}\n\n",
                fence("check", &incoming(&text, LONGEST_INCOMING))
            ));
        }
        if state.mergeable() == Some(false) {
            found.named.push(format!("{} conflicts with {}", pull.head_sha, pull.base));
            found.told.push_str(&format!(
                "The pull request conflicts with its base branch {}. That branch was merged into the files here; where both \
                 sides changed the same lines, Git's conflict markers (<<<<<<<, =======, >>>>>>>) stand. Search for them, \
                 make the change fit what is there now, and leave no marker.\n\n",
                pull.base
            ));
            found.conflicts = true;
        }
        Ok(found)
    }
}
