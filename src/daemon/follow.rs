//! After the pull request: failed checks, a review that asks for changes, or a conflict start a bounded follow-up run on the
//! same branch. What was answered once starts nothing again; after the cap a person is asked (I28, I29).

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::board::IssueRef;
use super::state_format::Followed;
use super::watch::Daemon;
use crate::domain::canonical::sha256_hex;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::domain::name::RepoName;
use crate::domain::untrusted::{LONGEST_INCOMING, fence, incoming};
use crate::github::{ErrorKind, Fetched, IssueState, Pull};

/// Follow-up runs of one pull request; then a person has to look.
const MOST: u32 = 3;
/// Reviews and checks of a pull request are looked at this often.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of a repository's open pull requests.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    etag: Option<String>,
    open: Vec<Pull>,
    looked_at: BTreeMap<u64, DateTime<Utc>>,
    /// By issue: what its next run is told, and the fingerprint of it.
    pub wanted: BTreeMap<u64, (String, String)>,
    /// GitHub does not list pull requests to us.
    off: bool,
}

/// The issue of a branch of agentd's.
fn issue_of(pull: &Pull) -> Option<u64> {
    let issue = pull.head.strip_prefix("feature/issue-")?.parse().ok()?;
    (branch_of(&IssueKey::Number(issue)).as_str() == pull.head).then_some(issue)
}

impl Daemon {
    /// Looks at the open pull requests of finished issues; an unchanged list costs nothing.
    pub(super) async fn follow_pulls(&mut self, now: DateTime<Utc>) {
        let repos: Vec<RepoName> = self.watches.iter().map(|watch| watch.watched.name.clone()).collect();
        let client = self.quick_client();
        for repo in repos {
            let Some(watch) = self.watch_of(&repo) else { continue };
            if watch.pulls.off || !watch.is_fresh() {
                continue;
            }
            match client.open_pulls(&repo, watch.pulls.etag.as_deref()).await {
                Ok(Fetched::Unchanged) => {}
                Ok(Fetched::Fresh(open, etag)) => {
                    let own: Vec<Pull> = open.into_iter().filter(|pull| issue_of(pull).is_some()).collect();
                    let alive: Vec<u64> = own.iter().filter_map(issue_of).collect();
                    // Merged or closed: what was followed is over; the worktree goes when its time comes.
                    for (issue, memory) in &mut watch.state.issues {
                        if !alive.contains(issue) {
                            memory.followed = None;
                        }
                    }
                    watch.pulls.etag = etag;
                    watch.pulls.open = own;
                }
                Err(error) => {
                    watch.pulls.off = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden { .. });
                    tracing::debug!(%repo, %error, "the pull requests could not be read");
                    continue;
                }
            }
            let due = |looked: &BTreeMap<u64, DateTime<Utc>>, number: u64| {
                looked
                    .get(&number)
                    .is_none_or(|at| now.signed_duration_since(at).to_std().is_ok_and(|past| past >= PAUSE))
            };
            let pulls: Vec<Pull> = watch
                .pulls
                .open
                .iter()
                .filter(|pull| due(&watch.pulls.looked_at, pull.number))
                .cloned()
                .collect();
            for pull in pulls {
                if let Some(watch) = self.watch_of(&repo) {
                    watch.pulls.looked_at.insert(pull.number, now);
                }
                if let Some(number) = issue_of(&pull) {
                    self.follow(&IssueRef { repo: repo.clone(), number }, &pull).await;
                }
            }
        }
    }

    async fn follow(&mut self, issue: &IssueRef, pull: &Pull) {
        let busy = self.supervisor.get(issue).is_some();
        let waits = self.watch_of(&issue.repo).is_none_or(|watch| watch.candidate(issue.number).is_some());
        if busy || waits {
            return;
        }
        let (findings, told) = match self.findings(issue, pull).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%issue, %error, "the pull request could not be looked at");
                return;
            }
        };
        if findings.is_empty() {
            return;
        }
        let fingerprint = sha256_hex(findings.join("\n").as_bytes());
        let labels = self.parts.labels.clone();
        let client = self.quick_client();
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let followed = watch
            .state
            .issues
            .get(&issue.number)
            .and_then(|memory| memory.followed.clone())
            .unwrap_or_default();
        if followed.fingerprint == fingerprint {
            return;
        }
        let fresh = match client.issue(&issue.repo, issue.number).await {
            Ok(fresh) if fresh.issue.open && fresh.has_label(&labels.done) => fresh,
            // Closed, or in a person's hands.
            _ => return,
        };
        if followed.rounds >= MOST {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.followed = Some(Followed { fingerprint, ..followed });
            let text = format!(
                "The pull request {} still needs work after {MOST} follow-up runs: {}.",
                pull.url,
                findings.join("; ")
            );
            return self.plan_settling(issue, IssueState::Attention, "follow_up_cap", Some(text));
        }
        tracing::info!(%issue, pull = pull.number, findings = findings.join("; "), "a follow-up run");
        let mut listed = fresh;
        listed.issue.body = String::new();
        watch.recovering.push(listed);
        watch.pulls.wanted.insert(issue.number, (told, fingerprint));
    }

    /// What is wrong with a pull request, in words that name it, and the text for the next run.
    async fn findings(
        &self,
        issue: &IssueRef,
        pull: &Pull,
    ) -> Result<(Vec<String>, String), crate::github::Error> {
        let client = self.quick_client();
        let (repo, needs) = (&issue.repo, self.parts.min_permission);
        let mut findings = Vec::new();
        let mut told = String::new();
        for review in client.change_requests(repo, pull.number).await? {
            // Only what somebody wants who may trigger.
            if client.permission(repo, &review.author).await? < needs {
                continue;
            }
            findings.push(format!("review {} asks for changes", review.id));
            told.push_str(&format!(
                "A review of the pull request asks for changes:\n{}\n\n",
                fence("review", &incoming(&review.body, LONGEST_INCOMING))
            ));
        }
        for check in client.failed_checks(repo, &pull.head_sha).await? {
            findings.push(format!("check {} failed at {}", check.name, pull.head_sha));
            let text = format!("{}\n{}", check.name, check.summary);
            told.push_str(&format!(
                "A check of the pull request failed:\n{}\n\n",
                fence("check", &incoming(&text, LONGEST_INCOMING))
            ));
        }
        if client.pull(repo, pull.number).await?.mergeable == Some(false) {
            findings.push(format!("{} conflicts with {}", pull.head_sha, pull.base));
            told.push_str(&format!("The pull request conflicts with its base branch {}: make the change fit what is there now.\n\n", pull.base));
        }
        Ok((findings, told))
    }
}
