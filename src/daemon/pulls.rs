//! The open pull requests of a repository's issues as the daemon knows them, read so that unchanged ones cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::state_format::TriedRound;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::domain::remark::Remark;
use crate::github::{Error, ErrorKind, IssueSnapshot, OpenPulls, Pull, PullState};
use crate::issue::unwanted;
use crate::record::rendering::marker;

/// What is known of a repository's open pull requests.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    /// The list as last read.
    pub listed: OpenPulls,
    /// When all of its pages were read last.
    pub whole_at: Option<Instant>,
    /// The open ones of issues, as last listed.
    pub open: Vec<Pull>,
    /// By number.
    pub looked: BTreeMap<u64, PullLook>,
    /// By issue: merged (true) or closed without it.
    pub over: BTreeMap<u64, bool>,
    /// Issues whose pull request was closed, and is open again.
    pub reopened: BTreeSet<u64>,
    /// By issue: what its next run is for.
    pub wanted: BTreeMap<u64, Wanted>,
    /// By issue: when the run for what people wrote is to begin, if they write no more.
    pub quiet: BTreeMap<u64, DateTime<Utc>>,
    /// By issue: how long the checks that still run are waited for, where others have failed.
    pub waiting_checks: BTreeMap<u64, DateTime<Utc>>,
    /// Those whose reviews were read in the second in which they changed last: they are read once more.
    pub read_young: BTreeSet<u64>,
    /// By issue: how often in a row it was not to be found.
    pub not_found: BTreeMap<u64, u32>,
}

/// An issue that is not to be found so often is not looked for any more: a token may be short of a right for a moment.
const NOT_FOUND: u32 = 5;

/// What a follow-up run is for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// What it is told.
    pub told: String,
    /// Of the checks and conflicts that it answers; empty = there are none.
    pub fingerprint: String,
    /// Whether the branch conflicts with the origin branch.
    pub conflicts: bool,
    /// What starts it.
    pub cause: Cause,
    /// What people wrote that it is about.
    pub remarks: Vec<Remark>,
    /// What it is tried with.
    pub tried: TriedRound,
    /// The failed checks that it is to mend, with what is wrong there.
    pub mends: BTreeMap<String, String>,
    /// When it was prepared.
    pub since: Instant,
}

/// What starts a follow-up run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// What a person wrote.
    Person,
    /// What a listed bot wrote.
    Bot,
    /// Failed checks, or a conflict with the base branch.
    Checks,
}

/// A pull request at its last look.
#[derive(Debug)]
pub(super) struct PullLook {
    /// When.
    pub at: DateTime<Utc>,
    /// How long it is left alone after that, where there are many; zero = it is looked at anew.
    pub rest: Duration,
    /// How it stands.
    pub state: PullState,
    /// Whether that was answered by a run or a person, or nothing is wrong any more.
    pub answered: bool,
    /// Its issue as it was read last, with the tag of that.
    pub issue: Option<(IssueSnapshot, Option<String>)>,
}

/// The issue of a pull request that agentd itself opened: from the issue's branch of this very repository, with the marker
/// that agentd writes. Anybody can open one from a branch of that name in a fork, and delete the fork; whoever can push
/// can take the branch, and only what is marked is followed.
pub(super) fn issue_of(pull: &Pull) -> Option<u64> {
    let issue = issue_of_head(pull)?;
    pull.body.trim_start().starts_with(&marker(&IssueKey::Number(issue))).then_some(issue)
}

/// The issue of a pull request that is known as agentd's, whatever people made of its text.
pub(super) fn issue_of_head(pull: &Pull) -> Option<u64> {
    issue_of_branch(&pull.head).filter(|_| pull.here)
}

/// The issue of a branch of agentd's.
fn issue_of_branch(head: &str) -> Option<u64> {
    let issue = head.strip_prefix("feature/issue-")?.parse().ok()?;
    (branch_of(&IssueKey::Number(issue)).as_str() == head).then_some(issue)
}

impl Pulls {
    /// The open ones with their issues.
    pub fn followed(&self) -> impl Iterator<Item = (u64, &Pull)> {
        self.open.iter().filter_map(|pull| Some((issue_of_head(pull)?, pull)))
    }

    /// The pull requests that were looked at and not answered, with their issues.
    pub fn unanswered(&self) -> Vec<(u64, Pull)> {
        let waits = |pull: &&Pull| self.looked.get(&pull.number).is_some_and(|looked| !looked.answered);
        self.open.iter().filter(waits).filter_map(|pull| Some((issue_of_head(pull)?, pull.clone()))).collect()
    }

    /// A pull request's last look.
    pub fn looked_mut(&mut self, pull: u64) -> Option<&mut PullLook> {
        self.looked.get_mut(&pull)
    }

    /// What became of the issue of a pull request that could not be read, as the rest of a sentence. `None`: it may be read yet.
    pub fn what_became(&mut self, issue: u64, error: &Error) -> Option<String> {
        if error.kind != ErrorKind::NotFound {
            return unwanted::what_became(error);
        }
        let times = self.not_found.entry(issue).or_default();
        *times = times.saturating_add(1);
        (*times >= NOT_FOUND)
            .then(|| "is nowhere to be found: it was deleted, or is where agentd cannot see it".to_owned())
    }

    /// Whether a pull request was not looked at for so long.
    pub fn is_due(&self, pull: u64, pause: Duration, now: DateTime<Utc>) -> bool {
        self.looked.get(&pull).is_none_or(|looked| {
            // A clock that was set back makes it due as well.
            now.signed_duration_since(looked.at).to_std().map_or(true, |past| past >= pause)
        })
    }

    /// Whether one of many is to be looked at.
    pub fn has_rested(&self, pull: u64, now: DateTime<Utc>) -> bool {
        let rest = self.looked.get(&pull).map_or(Duration::ZERO, |looked| looked.rest);
        self.is_due(pull, rest, now)
    }

    /// Something was delivered: all are looked at anew.
    pub fn ring(&mut self) {
        for looked in self.looked.values_mut() {
            looked.rest = Duration::ZERO;
        }
    }

    /// Takes the open ones as they are listed now; those that have changed are looked at anew.
    pub fn take(&mut self, open: Vec<Pull>) {
        let before = std::mem::replace(&mut self.open, open);
        self.looked.retain(|number, looked| {
            let of = |list: &[Pull]| {
                let found = list.iter().find(|pull| pull.number == *number);
                found.map(|pull| (pull.head_sha.clone(), pull.updated_at.clone()))
            };
            let now = of(&self.open);
            if now != of(&before) {
                looked.rest = Duration::ZERO;
            }
            now.is_some()
        });
    }
}

impl PullLook {
    /// Nothing is known yet, and nothing waits for an answer.
    pub fn nothing(at: DateTime<Utc>) -> Self {
        Self { at, rest: Duration::ZERO, state: PullState::default(), answered: true, issue: None }
    }
}
