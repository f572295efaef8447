//! Failed checks of a pull request: whether they start a follow-up run. One run answers all of them, once the others have
//! ended; a runner's fault is tried again first; what fails on the base branch too, or has just been worked on in vain, starts
//! none.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::state_format::ChecksMemory;
use crate::config::checks_file::{ChecksTable, Follow, Rerun};
use crate::conversation::checks::{CheckReader, Unread};
use crate::domain::head_check::{CheckOutcome, CheckRerun, HeadCheck};
use crate::domain::issue::IssueKey;
use crate::domain::outgoing::plain_line;
use crate::github::{CheckedHead, Client, Error, Pull};
use crate::record::rendering::request_marker;

/// The longest name of a check in a text for people, in characters.
const LONGEST_NAME: usize = 100;

impl ChecksMemory {
    /// The memory for a commit: of another one only what outlives it.
    fn at(self, head: &str) -> Self {
        if self.head == head {
            return self;
        }
        let Self { mended_head, mended, reruns, .. } = self;
        Self { head: head.to_owned(), mended_head, mended, reruns, ..Self::default() }
    }
}

/// Bytes at the end of a log by which one failure is told from another.
const COMPARED: u64 = 1 << 20;

/// What the checks of a pull request lead to now.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    /// The failed checks that want a run.
    pub starting: Vec<String>,
    /// What is wrong with each of them.
    pub mends: BTreeMap<String, String>,
    /// Whether it is to be looked again although nothing will have changed.
    pub waits: bool,
    /// Why a person has to go on instead: reason code and text.
    pub asks: Option<(&'static str, String)>,
}

/// The failed checks of a head, sorted by what they lead to.
#[derive(Debug, PartialEq, Eq)]
struct Sorted {
    /// They want a run.
    own: Vec<HeadCheck>,
    /// They fail on the base branch, too.
    on_base: Vec<String>,
}

fn sorted(seen: &CheckedHead, follow: Follow) -> Sorted {
    let failing = |checks: &[HeadCheck]| -> BTreeSet<String> {
        checks.iter().filter(|check| check.failure().is_some()).map(|check| check.name.clone()).collect()
    };
    let base = failing(&seen.on_base);
    let any_required = seen.checks.iter().any(|check| check.required == Some(true));
    let mut found = Sorted { own: Vec::new(), on_base: Vec::new() };
    for check in seen.checks.iter().filter(|check| check.failure().is_some()) {
        let follows = match follow {
            Follow::Required => !any_required || check.required == Some(true),
            Follow::All => true,
            Follow::None => false,
        };
        match (base.contains(&check.name), follows) {
            (true, _) => found.on_base.push(check.name.clone()),
            (false, true) => found.own.push(check.clone()),
            (false, false) => {}
        }
    }
    found
}

/// Whether the checks of a head can be answered: none runs any more, or enough time has gone by since the first failed.
fn is_at_rest(
    checks: &[HeadCheck],
    failed_at: DateTime<Utc>,
    now: DateTime<Utc>,
    table: &ChecksTable,
) -> bool {
    let running = checks.iter().any(|check| check.outcome == CheckOutcome::Running);
    // A clock that was set back does not make it wait for ever.
    let waited = now
        .signed_duration_since(failed_at)
        .to_std()
        .map_or(now < failed_at, |past| past >= table.longest_wait.0);
    !running || waited
}

impl Daemon {
    /// What the checks of a pull request lead to, after the last look at it.
    pub(super) async fn weigh_checks(&mut self, issue: &IssueRef, pull: &Pull) -> Result<Weighed, Error> {
        let (table, now) = (self.deps.checks.clone(), self.deps.clock.now());
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(Weighed::default()) };
        let looked =
            watch.pulls.looked_mut(pull.number).map(|looked| looked.state.checks().cloned().collect());
        let checks: Vec<HeadCheck> = looked.unwrap_or_default();
        let entry = watch.state.issues.entry(issue.number).or_default();
        let before = entry.checks.clone();
        let mut memory = before.clone().unwrap_or_default().at(&pull.head_sha);
        let weighed = if checks.iter().all(|check| check.failure().is_none()) {
            Ok(without_failure(&checks, &mut memory, issue, pull))
        } else {
            let failed_at = *memory.failed_at.get_or_insert(now);
            if memory.is_refused {
                Ok(Weighed::default())
            } else if is_at_rest(&checks, failed_at, now, &table) {
                self.weigh_failed(issue, pull, &table, &mut memory).await
            } else {
                Ok(Weighed { waits: true, ..Weighed::default() })
            }
        };
        let failed_at = memory.failed_at.filter(|_| weighed.as_ref().is_ok_and(|weighed| weighed.waits));
        self.note_waiting_checks(issue, failed_at.map(|at| at + table.longest_wait.0));
        self.remember(issue, before.as_ref(), memory);
        weighed
    }

    fn remember(&mut self, issue: &IssueRef, before: Option<&ChecksMemory>, memory: ChecksMemory) {
        if before == Some(&memory) {
            return;
        }
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        watch.state.issues.entry(issue.number).or_default().checks = Some(memory);
        self.save();
    }

    /// How long the checks that still run are waited for; `None` = they are not.
    fn note_waiting_checks(&mut self, issue: &IssueRef, until: Option<DateTime<Utc>>) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        match until {
            Some(until) => drop(watch.pulls.waiting_checks.insert(issue.number, until)),
            None => drop(watch.pulls.waiting_checks.remove(&issue.number)),
        }
    }

    /// No run begins for what has failed at the present commit, whatever else fails there. False = none was to begin.
    pub(super) fn refuse_checks(&mut self, issue: &IssueRef) -> bool {
        let Some(watch) = self.watch_of(&issue.repo) else { return false };
        if watch.pulls.waiting_checks.remove(&issue.number).is_none() {
            return false;
        }
        let memory = watch.state.issues.get_mut(&issue.number).and_then(|memory| memory.checks.as_mut());
        let Some(memory) = memory else { return false };
        memory.is_refused = true;
        self.save();
        true
    }

    /// Failed, and nothing more is waited for.
    async fn weigh_failed(
        &mut self,
        issue: &IssueRef,
        pull: &Pull,
        table: &ChecksTable,
        memory: &mut ChecksMemory,
    ) -> Result<Weighed, Error> {
        let client = self.quick_client();
        let seen = client.checked_head(&issue.repo, pull.number, &pull.base).await?;
        let (now, failed_at) = (self.deps.clock.now(), memory.failed_at);
        if failed_at.is_some_and(|failed_at| !is_at_rest(&seen.checks, failed_at, now, table)) {
            return Ok(Weighed { waits: true, ..Weighed::default() });
        }
        if seen.checks.iter().all(|check| check.failure().is_none()) {
            return Ok(without_failure(&seen.checks, memory, issue, pull));
        }
        let Sorted { mut own, on_base } = sorted(&seen, table.follow);
        if !on_base.is_empty() {
            tell_on_base(&client, issue, pull, &on_base).await?;
        }
        let reader = CheckReader { github: &client, repo: &issue.repo, table, redactor: None, blobs: None };
        let again = to_rerun(&reader, &own, table.rerun, memory).await?;
        if !again.is_empty() {
            // Noted before it is done: jobs are run again at most once.
            let checks: Vec<String> = again.values().flatten().cloned().collect();
            memory.rerun.extend(checks.iter().cloned());
            memory.reruns.push(CheckRerun { checks, head: memory.head.clone(), flaky: Vec::new() });
            self.remember(issue, None, memory.clone());
            let mut runs = false;
            for (run, names) in &again {
                let done = client.rerun_failed_jobs(&issue.repo, *run).await?;
                tracing::info!(%issue, run, names = names.join(", "), done, "failed jobs are run again");
                runs |= done;
            }
            if runs {
                memory.failed_at = None;
                return Ok(Weighed { waits: true, ..Weighed::default() });
            }
        }
        own.retain(|check| !memory.answered.contains(&check.name));
        if own.is_empty() {
            return Ok(Weighed::default());
        }
        let names: Vec<String> = own.iter().map(|check| check.name.clone()).collect();
        // Only whether it is the same as before is asked here; the run reads what it is told.
        let most = table.log_download_max.min(COMPARED);
        let table = ChecksTable { log_download_max: most, ..table.clone() };
        let read = CheckReader { table: &table, ..reader }.read(own).await.map_err(github)?;
        let wrong: BTreeMap<String, String> =
            read.iter().map(|read| (read.check.name.clone(), read.fingerprint())).collect();
        let same = wrong.iter().find(|(name, print)| memory.mended.get(*name) == Some(*print));
        if let Some((name, _)) = same.filter(|_| memory.mended_head != pull.head_sha) {
            memory.answered.extend(names);
            let text = format!(
                "The check `{}` of the pull request {} fails as it did before the follow-up run that was to mend it, at {}.",
                shown(name),
                pull.url,
                pull.head_sha
            );
            return Ok(Weighed { asks: Some(("same_failure", text)), ..Weighed::default() });
        }
        Ok(Weighed { starting: names, mends: wrong, ..Weighed::default() })
    }

    /// Notes that a run was started which is told of what has failed at a pull request, and is to mend it where `mends` says
    /// what is wrong; gives what it is to record.
    pub(super) fn checks_are_told(
        &mut self,
        issue: &IssueRef,
        mends: Option<BTreeMap<String, String>>,
    ) -> Vec<CheckRerun> {
        let Some(watch) = self.watch_of(&issue.repo) else { return Vec::new() };
        let Some(pull) = watch.state.issues.get(&issue.number).and_then(|memory| memory.pull) else {
            return Vec::new();
        };
        let head = watch.pulls.open.iter().find(|open| open.number == pull).map(|open| open.head_sha.clone());
        let (Some(head), Some(looked)) = (head, watch.pulls.looked_mut(pull)) else {
            return Vec::new();
        };
        let failed = looked.state.checks().filter(|check| check.failure().is_some());
        let failed: BTreeSet<String> = failed.map(|check| check.name.clone()).collect();
        let entry = watch.state.issues.entry(issue.number).or_default();
        if failed.is_empty() && entry.checks.is_none() {
            return Vec::new();
        }
        let mut memory = entry.checks.take().unwrap_or_default().at(&head);
        memory.answered.extend(failed);
        if let Some(mends) = mends {
            (memory.mended_head, memory.mended) = (head, mends);
        }
        let reruns = std::mem::take(&mut memory.reruns);
        entry.checks = Some(memory);
        reruns
    }
}

/// Nothing failed: what was run again and is green now was flaky, and what waits for a person is said once.
fn without_failure(
    checks: &[HeadCheck],
    memory: &mut ChecksMemory,
    issue: &IssueRef,
    pull: &Pull,
) -> Weighed {
    if checks.iter().any(|check| check.outcome == CheckOutcome::Running) {
        return Weighed::default();
    }
    memory.failed_at = None;
    for rerun in memory.reruns.iter_mut().filter(|rerun| rerun.head == memory.head) {
        for check in checks.iter().filter(|check| check.outcome == CheckOutcome::Passed) {
            if rerun.checks.contains(&check.name) && !rerun.flaky.contains(&check.name) {
                tracing::info!(%issue, check = check.name, code = "flaky_check", "green at the second try");
                rerun.flaky.push(check.name.clone());
            }
        }
    }
    let asks: Vec<&HeadCheck> =
        checks.iter().filter(|check| check.outcome == CheckOutcome::AsksPerson).collect();
    let new = asks.iter().any(|check| !memory.answered.contains(&check.name));
    if !new {
        return Weighed::default();
    }
    memory.answered.extend(asks.iter().map(|check| check.name.clone()));
    let names: Vec<String> = asks.iter().map(|check| format!("`{}`", shown(&check.name))).collect();
    let (url, head) = (&pull.url, &pull.head_sha);
    let text = format!("Checks of the pull request {url} wait for a person at {head}: {}.", names.join(", "));
    Weighed { asks: Some(("action_required", text)), ..Weighed::default() }
}

/// The workflow runs whose failed jobs are to be run again, with the checks of those jobs.
async fn to_rerun(
    reader: &CheckReader<'_>,
    own: &[HeadCheck],
    rerun: Rerun,
    memory: &ChecksMemory,
) -> Result<BTreeMap<u64, Vec<String>>, Error> {
    let mut again: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for check in own {
        let Some(job) = check.job.filter(|_| !memory.rerun.contains(&check.name)) else { continue };
        let wanted = match (rerun, check.failure()) {
            (Rerun::Never, _) => false,
            (Rerun::All, _) | (Rerun::Infrastructure, Some("timed_out" | "startup_failure")) => true,
            (Rerun::Infrastructure, _) => reader.lost_its_runner(check).await.map_err(github)?,
        };
        if wanted {
            again.entry(job.run).or_default().push(check.name.clone());
        }
    }
    Ok(again)
}

/// Nothing is kept here, so that only GitHub fails.
fn github(unread: Unread) -> Error {
    match unread {
        Unread::GitHub(error) => error,
        Unread::Store(error) => Error::internal("reading failed checks", &error),
    }
}

/// Says at the pull request what fails on its base branch as well.
async fn tell_on_base(client: &Client, issue: &IssueRef, pull: &Pull, names: &[String]) -> Result<(), Error> {
    let marker = request_marker(&IssueKey::Number(issue.number), "failing_on_base");
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", shown(name))).collect();
    let text = format!(
        "These checks fail on {} as well, so no follow-up run is started for them (`failing_on_base`): {}.\n",
        plain_line(&pull.base, LONGEST_NAME),
        names.join(", ")
    );
    client.ensure_comment(&issue.repo, pull.number, &marker, &text).await.map(|_| ())
}

fn shown(name: &str) -> String {
    plain_line(&name.replace('`', "'"), LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    fn check(name: &str, outcome: CheckOutcome, required: bool) -> HeadCheck {
        HeadCheck {
            name: name.to_owned(),
            run: None,
            outcome,
            required: Some(required),
            title: String::new(),
            summary: String::new(),
            link: None,
            job: None,
            annotations: 0,
        }
    }

    fn failed(name: &str, required: bool) -> HeadCheck {
        check(name, CheckOutcome::Failed("failure".to_owned()), required)
    }

    fn starting(checks: &[HeadCheck], on_base: &[HeadCheck], follow: Follow) -> Vec<String> {
        let seen = CheckedHead { checks: checks.to_vec(), on_base: on_base.to_vec() };
        sorted(&seen, follow).own.into_iter().map(|check| check.name).collect()
    }

    #[test]
    fn required_checks_start_or_all_where_none_is_required() {
        let checks = [failed("a", true), failed("b", false), check("c", CheckOutcome::Passed, false)];
        assert_eq!(starting(&checks, &[], Follow::Required), ["a"]);
        assert_eq!(starting(&checks, &[], Follow::All), ["a", "b"]);
        assert_eq!(starting(&checks, &[], Follow::None), [""; 0]);
        assert_eq!(starting(&checks[1..], &[], Follow::Required), ["b"]);
        let passed = check("d", CheckOutcome::Passed, true);
        assert_eq!(starting(&[failed("b", false), passed], &[], Follow::Required), [""; 0]);
    }

    #[test]
    fn what_fails_on_the_base_branch_is_not_its_own() {
        let seen = CheckedHead {
            checks: vec![failed("a", true), failed("b", true)],
            on_base: vec![failed("a", false), check("b", CheckOutcome::Running, false)],
        };
        let sorted = sorted(&seen, Follow::Required);
        assert_eq!(sorted.on_base, ["a"]);
        assert_eq!(sorted.own.iter().map(|check| &check.name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_head_is_answered_when_nothing_runs_or_after_a_while() {
        let (table, now) = (ChecksTable::default(), crate::sys::clock::Clock::system().now());
        let running = [failed("a", true), check("b", CheckOutcome::Running, true)];
        assert!(is_at_rest(&running[..1], now, now, &table));
        assert!(!is_at_rest(&running, now, now, &table));
        assert!(!is_at_rest(&running, now, now + TimeDelta::minutes(9), &table));
        assert!(is_at_rest(&running, now, now + TimeDelta::minutes(10), &table));
        assert!(is_at_rest(&running, now + TimeDelta::hours(1), now, &table));
    }
}
