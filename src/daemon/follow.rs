//! After the pull request: failed checks, a review that asks for changes, or a conflict start a bounded follow-up run on the
//! same branch. What was answered once starts nothing again; after the cap a person is asked (I28, I29). Merged or closed,
//! the labels say so and the worktree may go.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use futures::StreamExt as _;

use super::board::IssueRef;
use super::state_format::Followed;
use super::watch::{Daemon, POLLED_AT_ONCE};
use crate::domain::canonical::sha256_hex;
use crate::domain::name::RepoName;
use crate::domain::untrusted::{LONGEST_INCOMING, fence, incoming};
use crate::github::{Error, Fetched, IssueState, Pull};

/// What is wrong with a pull request, in words that name it, and the text for the next run.
#[derive(Debug, Default)]
struct Findings {
    named: Vec<String>,
    told: String,
}

impl Daemon {
    /// Looks at the open pull requests of finished issues. True = something is to be started.
    pub(super) async fn follow_pulls(&mut self, now: DateTime<Utc>) -> bool {
        let client = self.quick_client();
        let (interval, look) = (self.parts.poll_interval, self.parts.max_follow_ups > 0);
        let mut busy: BTreeMap<RepoName, BTreeSet<u64>> = BTreeMap::new();
        for issue in self.supervisor.issues() {
            busy.entry(issue.repo).or_default().insert(issue.number);
        }
        let nobody = BTreeSet::new();
        let reads = self.watches.iter_mut().map(|watch| {
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
        self.settle_all().await;
        starts
    }

    /// Merged: done. Closed without it: somebody decided against the work, and a sweep does not begin it again.
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
            self.plan_settling(issue, state, code, None);
        }
        self.over.notify_one();
    }

    /// Starts a run for what is wrong, or asks a person. True = a run is to be started.
    async fn answer_pull(&mut self, issue: &IssueRef, pull: &Pull) -> Result<bool, Error> {
        let findings = self.findings(issue, pull).await?;
        let fingerprint = sha256_hex(findings.named.join("\n").as_bytes());
        let (client, labels, most) =
            (self.quick_client(), self.parts.labels.clone(), self.parts.max_follow_ups);
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
            self.plan_settling(issue, IssueState::Attention, "follow_up_cap", Some(text));
            return Ok(false);
        }
        tracing::info!(%issue, pull = pull.number, findings = findings.named.join("; "), "a follow-up run");
        let mut listed = fresh;
        listed.issue.body = String::new();
        watch.recovering.push(listed);
        watch.pulls.wanted.insert(issue.number, (findings.told, fingerprint));
        Ok(true)
    }

    async fn findings(&mut self, issue: &IssueRef, pull: &Pull) -> Result<Findings, Error> {
        let (client, needs) = (self.quick_client(), self.parts.min_permission);
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
        for check in state.failed_checks() {
            found.named.push(format!("check {} failed at {}", check.name, pull.head_sha));
            let text = format!("{}\n{}", check.name, check.summary);
            found.told.push_str(&format!(
                "A check of the pull request failed:\n{}\n\n",
                fence("check", &incoming(&text, LONGEST_INCOMING))
            ));
        }
        if state.mergeable() == Some(false) {
            found.named.push(format!("{} conflicts with {}", pull.head_sha, pull.base));
            found.told.push_str(&format!(
                "The pull request conflicts with its base branch {}: make the change fit what is there now.\n\n",
                pull.base
            ));
        }
        Ok(found)
    }
}
