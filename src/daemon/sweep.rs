//! Sweeps: what the daemon would work on, and on request every open issue of people who may ask for it; by the schedule or
//! now, within a repository's filter, through the same rules and slots.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::cron;
use super::dependencies::Dependencies;
use super::loading::DaemonError;
use super::main_loop::{Daemon, DaemonReport};
use super::poll::{Watch, number, seen};
use super::snapshot::IssueRef;
use super::start_rules::Reason;
use super::still_wanted::LOOK_AGAIN;
use crate::config::config_file::SweepSelect;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::stop::StopDetail;
use crate::github::{Client, Error, IssueSnapshot, PageCache};
use crate::record::finish;

impl Daemon {
    /// One sweep over every repository now: starts what matches as slots come free, and ends when all of it has ended.
    /// Does not poll, needs no daemon, and minds none that runs.
    pub async fn sweep_now(deps: Dependencies) -> Result<DaemonReport, DaemonError> {
        let mut daemon = Self::beside(deps)?;
        daemon.look_at_store().await;
        let shutdown = daemon.deps.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.stopped() => {}
            () = daemon.list_sweeps() => {}
        }
        let mut ended = Vec::new();
        let (mut others, mut met_others) = (daemon.runs_of_others().await, false);
        loop {
            let before = std::mem::replace(&mut others, daemon.runs_of_others().await);
            if others != before || std::mem::take(&mut met_others) {
                daemon.list_again().await;
            }
            if !shutdown.stopping() {
                daemon.dispatch().await;
            }
            // Where nothing runs here, others have the slots, whether they were seen above or have begun since.
            let full = |reason: &Reason| matches!(reason, Reason::Full(_) | Reason::RepositoryFull(_));
            let is_full = daemon.waiting.iter().any(|(_, reason)| full(reason));
            if (daemon.supervisor.is_empty() && !is_full) || shutdown.stopping() {
                let mut report = daemon.drain().await;
                report.ended.splice(0..0, ended);
                return Ok(report);
            }
            tokio::select! {
                () = shutdown.stopped() => {}
                // A slot that another process has comes free without a word, and nothing is polled.
                () = tokio::time::sleep(LOOK_AGAIN) => drop(daemon.unless_stopped(Self::look_at_runs).await),
                one = daemon.supervisor.ended() => {
                    let (issue, end) = (one.0.clone(), &one.2);
                    let is_others = end.run_id.is_none() && end.stop.detail == StopDetail::BranchBusy;
                    daemon.take_end(one);
                    if is_others && let Some(watch) = daemon.watch_of(&issue.repo) {
                        watch.give_place_back(issue.number);
                        met_others = true;
                    }
                    daemon.empty_outbox().await;
                    ended.append(&mut daemon.ended);
                }
            }
        }
    }

    async fn list_sweeps(&mut self) {
        let client = self.deps.client.clone();
        let (who, now) = (self.asking().await, self.deps.clock.now());
        self.find_parked().await;
        for watch in &mut self.watches {
            match watch.list_sweep(&client, &who, watch.sweep_limit()).await {
                Ok(listed) => watch.begin_sweep(listed, now),
                Err(error) => watch.sweep_failed(&error, now),
            }
        }
    }

    /// What such a sweep would take, by repository; starts and changes nothing.
    pub async fn sweep_preview(deps: Dependencies) -> Result<Vec<Previewed>, DaemonError> {
        let daemon = Self::beside(deps)?;
        let who = daemon.asking().await;
        let mut found = Vec::new();
        for watch in &daemon.watches {
            let listed = watch.list_sweep(&daemon.deps.client, &who, watch.sweep_limit()).await;
            let would_be_taken =
                |issue: IssueSnapshot| WouldBeTaken { waits: !watch.could_start(&issue, &who), issue };
            let listed = listed.map(|listed| listed.into_iter().map(would_be_taken).collect());
            let listed = listed.map_err(|error| error.to_string());
            let (repo, run_caps) = (watch.watched.name.clone(), watch.watched.run_caps);
            found.push(Previewed { repo, run_caps, listed });
        }
        Ok(found)
    }

    /// What a run asked on an issue is answered first: a sweep begins nothing anew there, and goes on where it is decided.
    async fn find_parked(&mut self) {
        let store = self.deps.state.store().clone();
        let parked = tokio::task::spawn_blocking(move || store.parked()).await;
        let parked = parked.map_or(Ok(Vec::new()), |parked| parked).unwrap_or_else(|error| {
            tracing::warn!(%error, "which issues wait for a person cannot be told");
            Vec::new()
        });
        for (repo, key) in parked {
            let Some(number) = key.number() else { continue };
            let issue = IssueRef { repo, number };
            if self.watch_of(&issue.repo).is_none() || self.supervisor.get(&issue).is_some() {
                continue;
            }
            if let Err(error) = self.note_parked(&issue).await {
                tracing::warn!(%issue, %error, "whether the issue waits for a person cannot be told");
            }
        }
    }

    /// What another process did meanwhile, or does, is not done again; its place is another issue's.
    async fn list_again(&mut self) {
        self.find_parked().await;
        let (client, who) = (self.deps.client.clone(), self.asking().await);
        let own = self.supervisor.issues();
        for watch in &mut self.watches {
            if watch.state.sweeping.is_empty() {
                continue;
            }
            match watch.list_sweep(&client, &who, watch.state.sweep_left).await {
                Ok(listed) => watch.sweep_on(listed, &own),
                Err(error) => {
                    tracing::warn!(repo = %watch.watched.name, %error, "the sweep could not list the issues again");
                }
            }
        }
    }

    async fn asking(&self) -> Asking {
        let state = self.deps.state.clone();
        let living = move || {
            let runs = state.runs(None).unwrap_or_default();
            let living = runs
                .iter()
                .filter_map(|dir| Some((dir.repo.clone(), finish::living(dir)?.issue.key.number()?)));
            living.collect::<BTreeSet<_>>()
        };
        let mut at_work = tokio::task::spawn_blocking(living).await.unwrap_or_default();
        at_work.extend(self.supervisor.issues().into_iter().map(|issue| (issue.repo, issue.number)));
        Asking {
            labels: self.deps.labels.clone(),
            min_permission: self.deps.min_permission,
            now: self.deps.clock.now(),
            at_work,
        }
    }

    /// Takes the list of every repository whose sweep is due. A first start, and a schedule that is new, count from now: nothing was
    /// missed.
    pub(super) async fn start_due_sweeps(&mut self, now: DateTime<Utc>) {
        let client = self.deps.client.clone();
        let mut who = None;
        for place in 0..self.watches.len() {
            let watch = &mut self.watches[place];
            let sweep = &watch.watched.sweep;
            let Some(schedule) = sweep.schedule.as_deref() else {
                watch.state.swept_at = None;
                continue;
            };
            let named = format!("{schedule} {}", sweep.timezone);
            // A file of an earlier version names none.
            let is_new = watch.state.sweep_schedule.as_ref().is_some_and(|before| *before != named);
            // A clock that was set back must not hold sweeps off until it is there again.
            let since = watch.state.swept_at.filter(|_| !is_new).unwrap_or(now).min(now);
            watch.state.swept_at = Some(since);
            watch.state.sweep_schedule = Some(named);
            match cron::due(schedule, sweep.timezone, since, now) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => {
                    tracing::error!(repo = %watch.watched.name, %error, "no sweep");
                    continue;
                }
            }
            let who = match &who {
                Some(who) => who,
                None => who.insert(self.asking().await),
            };
            self.find_parked().await;
            let watch = &mut self.watches[place];
            match watch.list_sweep(&client, who, watch.sweep_limit()).await {
                Ok(listed) => watch.begin_sweep(listed, now),
                // Not swept: it is due again at the next tick.
                Err(error) => {
                    tracing::warn!(repo = %watch.watched.name, %error, "the sweep could not list the issues");
                }
            }
        }
    }
}

/// What a sweep would take of a repository.
#[derive(Debug)]
pub struct Previewed {
    /// The repository.
    pub repo: RepoName,
    /// What one run of it may cost, and all runs of a day.
    pub run_caps: (Money, Option<Money>),
    /// The issues, most important first, or why they could not be listed.
    pub listed: Result<Vec<WouldBeTaken>, String>,
}

impl Previewed {
    /// How many runs would begin: what waits for something else takes no place.
    pub fn runs(&self) -> usize {
        self.listed.iter().flatten().filter(|one| !one.waits).count()
    }
}

/// An issue that a sweep would take.
#[derive(Debug)]
pub struct WouldBeTaken {
    /// The issue.
    pub issue: IssueSnapshot,
    /// Whether it waits for something else, such as an issue that blocks it.
    pub waits: bool,
}

/// Who and what asks for a run.
struct Asking {
    labels: LabelsTable,
    min_permission: ActorPermission,
    now: DateTime<Utc>,
    /// Issues that a run works on, of whatever process here.
    at_work: BTreeSet<(RepoName, u64)>,
}

impl Watch {
    /// Whether a run of this issue could start if there is room for it.
    fn could_start(&self, issue: &IssueSnapshot, who: &Asking) -> bool {
        let Some(number) = number(issue) else { return false };
        let memory = self.state.issues.get(&number);
        let held = memory.is_some_and(|memory| {
            memory.parked.is_some()
                || memory.taken
                || memory.back_off.as_ref().is_some_and(|back_off| back_off.holds(who.now))
        });
        let waits = [issue.open_blockers, issue.open_sub_issues].into_iter().flatten().any(|open| open > 0);
        let is_blocked = self.watched.depends && waits;
        let is_at_work = who.at_work.contains(&(self.watched.name.clone(), number));
        !(held || is_blocked || is_at_work || self.parked.contains_key(&number))
    }

    /// How many issues a sweep may take; `None` = all.
    fn sweep_limit(&self) -> Option<u64> {
        self.watched.sweep.limit.map(Into::into)
    }

    /// The open issues that the filter matches and no run has ended on, most important first, of those that could start at most
    /// `most`. Those without the trigger label only where all are selected, and of authors who might put it on themselves.
    async fn list_sweep(
        &self,
        client: &Client,
        who: &Asking,
        most: Option<u64>,
    ) -> Result<Vec<IssueSnapshot>, Error> {
        let (sweep, labels) = (&self.watched.sweep, &who.labels);
        let all = sweep.select == SweepSelect::All;
        let mut wanted: Vec<&str> = sweep.labels.iter().map(String::as_str).collect();
        if !all {
            // A blank label would match everything.
            if labels.trigger.trim().is_empty() {
                return Ok(Vec::new());
            }
            wanted.push(&labels.trigger);
        }
        let listing = client.list_open(&self.watched.name, &wanted, &mut PageCache::default()).await?;
        let matches = |issue: &IssueSnapshot| {
            let milestone = sweep.milestone.as_ref().is_none_or(|wanted| {
                issue.milestone.as_ref().is_some_and(|title| title.trim().eq_ignore_ascii_case(wanted.trim()))
            });
            let handled =
                labels.ends().any(|label| issue.has_label(label)) && !issue.has_label(&labels.trigger);
            milestone && !handled
        };
        let mut found: Vec<IssueSnapshot> = listing.issues.into_iter().filter(matches).collect();
        found.sort_by_key(|issue| match seen(issue) {
            super::snapshot::Seen::Issue { priority, created_at, .. } => {
                (priority.unwrap_or(u8::MAX), created_at.unwrap_or(DateTime::<Utc>::MAX_UTC), number(issue))
            }
            _ => (u8::MAX, DateTime::<Utc>::MAX_UTC, number(issue)),
        });
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let mut taken = Vec::new();
        let (mut ready, mut waiting) = (0, 0);
        let mut known: BTreeMap<String, ActorPermission> = BTreeMap::new();
        for issue in found {
            if ready >= most {
                break;
            }
            // What waits for something else takes no other issue's place; as many of these are told of.
            let count = if self.could_start(&issue, who) { &mut ready } else { &mut waiting };
            if *count >= most {
                continue;
            }
            if issue.has_label(&labels.trigger) {
                *count += 1;
                taken.push(issue);
                continue;
            }
            let Some(author) = issue.issue.author.clone() else { continue };
            let permission = match known.get(&author) {
                Some(permission) => *permission,
                None => client.permission(&self.watched.name, &author).await?,
            };
            known.insert(author, permission);
            if permission >= who.min_permission {
                *count += 1;
                taken.push(issue);
            }
        }
        Ok(taken)
    }

    /// Makes a sweep's list the candidates beside the labelled ones.
    fn begin_sweep(&mut self, listed: Vec<IssueSnapshot>, now: DateTime<Utc>) {
        tracing::info!(repo = %self.watched.name, issues = listed.len(), "sweeping");
        self.state.sweeping = listed;
        self.state.sweep_left = self.sweep_limit();
        self.state.sweep_counted.clear();
        self.state.swept_at = Some(now);
        self.health.polled_at.get_or_insert(now);
    }

    /// A run of this issue starts: once as many issues have one as a sweep may take, the rest of its list is dropped. What is gone on
    /// with was counted before.
    pub(super) fn count_swept(&mut self, started: u64) {
        if !self.sweeps(started) || !self.state.sweep_counted.insert(started) {
            return;
        }
        let Some(left @ 1..) = &mut self.state.sweep_left else { return };
        *left -= 1;
        if *left == 0 {
            let counted = &self.state.sweep_counted;
            self.state.sweeping.retain(|issue| number(issue).is_some_and(|one| counted.contains(&one)));
        }
    }

    /// Nothing was begun for this issue, as another process works on it: its place is another issue's.
    fn give_place_back(&mut self, started: u64) {
        if self.state.sweep_counted.remove(&started)
            && let Some(left) = &mut self.state.sweep_left
        {
            *left += 1;
        }
    }

    /// Makes a newer list that of the sweep, which keeps what `running` says it works on.
    fn sweep_on(&mut self, listed: Vec<IssueSnapshot>, running: &[IssueRef]) {
        let repo = &self.watched.name;
        let is_own = |one: &IssueSnapshot| {
            running.iter().any(|run| run.repo == *repo && Some(run.number) == number(one))
        };
        self.state.sweeping.retain(|one| is_own(one));
        self.state.sweeping.extend(listed.into_iter().filter(|one| !is_own(one)));
    }

    fn sweep_failed(&mut self, error: &Error, now: DateTime<Utc>) {
        tracing::warn!(repo = %self.watched.name, %error, detail = error.technical(), "the sweep could not list the issues");
        self.state.sweeping.clear();
        self.health.failing_since.get_or_insert(now);
        self.health.error = Some(error.to_string());
    }
}
