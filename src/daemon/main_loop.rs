//! The daemon itself: tick, dispatch, handle what ended, until it is stopped. It decides when runs start; the run
//! pipeline does the work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::cluster::Cluster;
use super::dependencies::Dependencies;
use super::draining::Draining;
use super::hints::Hints;
use super::loading::{DaemonError, DaemonFiles, StateError};
use super::outcome::RunSummary;
use super::poll::{Frame, Watch};
use super::published_status::{PublishedStatus, watch_store};
use super::run_progress::Progress;
use super::schedule::{Action, schedule};
use super::snapshot::{Facts, IssueRef, Presence, Running, SchedulerSnapshot};
use super::start_rules::{Reason, refusal};
use super::state_format::{BackOff, DaemonState, IssueMemory};
use super::status_format::Status;
use super::still_wanted::LOOK_AGAIN;
use super::supervise::{Supervisor, UnfinishedRun};
use super::troubles::Troubles;
use crate::domain::issue_state::IssueState;
use crate::domain::name::RepoName;
use crate::domain::stop::Stop;
use crate::github::Client;
use crate::repository::shared_limits;
use crate::store::port::HeldLease;
use crate::sys::memory;

/// About so many issues something is asked in one tick, with a few requests for each.
const ASKED_IN_A_TICK: usize = 16;
/// However often it is woken, there is this much between two ticks.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Before a shorter pause memory is kept for a while: what comes next would read it again.
const LONG_PAUSE: Duration = Duration::from_secs(4);
/// Where all pauses are short, it is given back this often.
const GIVEN_BACK_EACH: Duration = Duration::from_secs(60);
/// Merged worktrees are looked for this often.
const CLEAN_UP_EACH: Duration = Duration::from_secs(3600);
/// How long runs get to end after an abort.
const LAST_GRACE: Duration = Duration::from_secs(10);

/// What a daemon did, for `--once` and `agentd sweep`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonReport {
    /// Runs that ended, refused starts too.
    pub ended: Vec<(IssueRef, RunSummary)>,
    /// What was not started, and why (I49).
    pub waiting: Vec<(IssueRef, Reason)>,
    /// Repositories whose last poll failed; public text.
    pub failed_polls: Vec<(RepoName, String)>,
}

/// A daemon.
pub struct Daemon {
    pub(super) deps: Dependencies,
    pub(super) watches: Vec<Watch>,
    pub(super) supervisor: Supervisor,
    pub(super) files: DaemonFiles,
    pub(super) started_at: DateTime<Utc>,
    pub(super) waiting: Vec<(IssueRef, Reason)>,
    /// Running issues that were closed or lost their label.
    pub(super) gone: BTreeMap<IssueRef, Stop>,
    /// Whether there are issues left about which something is to be asked, for a tick that follows at once.
    pub(super) asks_more: bool,
    pub(super) ended: Vec<(IssueRef, RunSummary)>,
    /// What earlier processes left and was not looked at yet.
    pub(super) unfinished: Vec<UnfinishedRun>,
    /// What is wrong with the configuration on disk.
    pub(super) reload_error: Option<String>,
    /// What fails at present, so that it is said once.
    pub(super) troubles: Troubles,
    /// How long until what could not be opened is tried again.
    pub(super) opening: Option<BackOff>,
    /// The name of agentd's account, for mentions; empty = not known.
    pub(super) name: String,
    /// Issues whose inboxes were freed of what a run of an earlier daemon had taken.
    pub(super) freed: BTreeSet<IssueRef>,
    pub(super) began: Instant,
    published: Arc<PublishedStatus>,
    pub(super) saved: DaemonState,
    pub(super) hints: Arc<Hints>,
    /// Hinted when a pull request was merged or closed: its worktree may go.
    pub(super) over: Arc<Notify>,
    /// How the runs hear that the daemon ends.
    pub(super) draining: Draining,
    pub(super) cluster: Cluster,
    /// Held for as long as the daemon lives; a sweep of its own has none and writes no state.
    lease: Option<Box<dyn HeldLease>>,
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn told(changed: Option<Arc<Notify>>) {
    match changed {
        Some(changed) => changed.notified().await,
        None => std::future::pending().await,
    }
}

pub(super) struct AbortOnDrop(pub(super) tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("watches", &self.watches.len()).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Takes the state directory for itself and reads what an earlier daemon left.
    pub fn open(deps: Dependencies) -> Result<Self, DaemonError> {
        let lease = DaemonFiles::of(&deps.state).take()?;
        Self::open_with(deps, lease)
    }

    /// The same for who has taken the state directory already.
    pub fn open_with(deps: Dependencies, lease: Box<dyn HeldLease>) -> Result<Self, DaemonError> {
        let files = DaemonFiles::of(&deps.state);
        Self::with(deps, files, Some(lease))
    }

    /// A daemon that only sweeps once, beside another one or not: reads the state, writes none.
    pub(super) fn beside(deps: Dependencies) -> Result<Self, DaemonError> {
        let files = DaemonFiles::of(&deps.state);
        let mut daemon = Self::with(Dependencies { look_at_pollers: None, ..deps }, files, None)?;
        daemon.read_pollers()?;
        Ok(daemon)
    }

    fn with(
        deps: Dependencies,
        files: DaemonFiles,
        lease: Option<Box<dyn HeldLease>>,
    ) -> Result<Self, DaemonError> {
        let (saved, started_at) = (files.load()?, deps.clock.now());
        let watches = deps
            .repositories
            .iter()
            .map(|watched| Watch::new(watched.clone(), saved.of(&watched.name).for_start(started_at)));
        let (watches, resting) = match deps.look_at_pollers {
            Some(_) => (Vec::new(), watches.collect()),
            None => (watches.collect(), Vec::new()),
        };
        Ok(Self {
            watches,
            supervisor: Supervisor::new(),
            published: Arc::new(PublishedStatus::new(lease.is_some().then(|| files.clone()))),
            files,
            started_at,
            waiting: Vec::new(),
            gone: BTreeMap::new(),
            asks_more: false,
            ended: Vec::new(),
            unfinished: deps.unfinished.clone(),
            reload_error: None,
            troubles: Troubles::default(),
            opening: None,
            name: String::new(),
            freed: BTreeSet::new(),
            began: Instant::now(),
            saved,
            hints: Arc::default(),
            over: Arc::default(),
            draining: Draining::new(&deps.shutdown, None),
            cluster: Cluster::of(&deps, resting),
            lease,
            deps,
        })
    }

    /// Makes the daemon look again: for webhooks and people.
    pub fn hints(&self) -> Arc<Hints> {
        Arc::clone(&self.hints)
    }

    /// What the daemon says of itself, each time that it changes; `None` before the first tick.
    pub fn statuses(&self) -> watch::Receiver<Option<Arc<Status>>> {
        self.published.statuses()
    }

    /// Where the runs say how far they are.
    pub fn progress(&self) -> Progress {
        self.deps.progress.clone()
    }

    /// Ticks until it is told to stop, then waits for the runs.
    pub async fn run(&mut self) -> DaemonReport {
        let (over, looks_seldom) = (Arc::clone(&self.over), self.deps.poll_interval >= LONG_PAUSE);
        let cleaning = self.deps.clean_up.clone().map(|clean_up| {
            tokio::spawn(async move {
                loop {
                    clean_up().await;
                    // It looks at much, and the next poll may be a minute away.
                    if looks_seldom {
                        tokio::task::spawn_blocking(memory::give_back);
                    }
                    let _either_way = tokio::time::timeout(CLEAN_UP_EACH, over.notified()).await;
                }
            })
        });
        let _ends_with_us = cleaning.map(|task| AbortOnDrop(task.abort_handle()));
        let _draining = self.hear_operators();
        self.unless_stopped(Self::look_at_store).await;
        self.cluster.assignee = self.open_assignee();
        self.cluster.shared_limits = shared_limits::share(&self.deps.client, &self.deps.state);
        self.tell_room();
        let _looks = self.deps.look_at_pollers.map(|every| {
            let (published, state) = (Arc::clone(&self.published), self.deps.state.clone());
            let watching = watch_store(published, state, self.deps.clock.clone(), every);
            AbortOnDrop(tokio::spawn(watching).abort_handle())
        });
        let (mut everywhere, mut more) = (true, false);
        let (mut began, mut given_back) = (Instant::now(), Instant::now());
        while !self.deps.shutdown.stopping() {
            self.unless_stopped(Self::look_at_store).await;
            self.unless_stopped(Self::look_at_pollers).await;
            if self.cluster.refused.is_some() {
                break;
            }
            if everywhere {
                began = Instant::now();
                more = self.unless_stopped(Self::tick).await.unwrap_or(false);
            } else {
                self.unless_stopped(Self::tick_where_rung).await;
            }
            everywhere = true;
            let (now, earliest) = (Instant::now(), Instant::now() + LEAST_PAUSE);
            // From one poll's start to the next one's, however long the ticks are.
            let next = if more { earliest } else { earliest.max(began + self.deps.poll_interval) };
            let is_time = next - now >= LONG_PAUSE || now - given_back >= GIVEN_BACK_EACH;
            if self.supervisor.is_empty() && is_time {
                // The memory of the poll and of ended runs is not needed while nothing happens.
                given_back = now;
                tokio::task::spawn_blocking(memory::give_back);
            }
            loop {
                let shutdown = self.deps.shutdown.clone();
                let (hints, requests) = (Arc::clone(&self.hints), self.cluster.requests.clone());
                let changed = self.deps.reload.as_ref().map(|(_, changed)| Arc::clone(changed));
                let quiet = self.quiet();
                let pollers = self.deps.look_at_pollers.map(|every| Instant::now() + every);
                let looked_at = self.watches.iter().filter_map(|watch| watch.next_look(quiet)).min();
                let ended = tokio::select! {
                    biased;
                    () = shutdown.stopped() => break,
                    () = told(changed) => {
                        self.reload().await;
                        break;
                    }
                    ended = self.supervisor.ended() => ended,
                    hinted = async { tokio::time::sleep_until(earliest).await; hints.next().await } => {
                        self.note(&hinted);
                        if hinted.now {
                            break;
                        }
                        continue;
                    }
                    () = until(pollers) => {
                        let polled = self.watches.len();
                        self.unless_stopped(Self::look_at_store).await;
                        self.unless_stopped(Self::look_at_pollers).await;
                        if self.watches.len() > polled {
                            break;
                        }
                        continue;
                    }
                    () = requests.came() => {
                        self.unless_stopped(Self::heed_requests).await;
                        continue;
                    }
                    () = until(looked_at) => {
                        everywhere = false;
                        break;
                    }
                    () = tokio::time::sleep_until(next) => break,
                };
                let issue = ended.0.clone();
                self.take_end(ended);
                self.tell();
                self.look_for_rest_of(&issue);
                self.unless_stopped(Self::after_end).await;
            }
        }
        self.drain().await
    }

    /// One tick, then waits for what it started; nothing more is started.
    pub async fn once(&mut self) -> DaemonReport {
        self.unless_stopped(Self::look_at_pollers).await;
        while self.unless_stopped(Self::tick).await == Some(true) {}
        self.drain().await
    }

    /// A step can be cancelled at any await. Everything that must not be lost is in the state before.
    /// `None` = it was stopped first.
    pub(super) async fn unless_stopped<T>(&mut self, step: impl AsyncFnOnce(&mut Self) -> T) -> Option<T> {
        let shutdown = self.deps.shutdown.clone();
        let done = tokio::select! {
            biased;
            () = shutdown.stopped() => None,
            done = step(self) => Some(done),
        };
        self.save();
        if self.share().await {
            self.forget_ends().await;
        }
        done
    }

    /// What people wrote on an issue while its run was ending has waited for that, and does not wait for the next poll as well.
    fn look_for_rest_of(&mut self, issue: &IssueRef) {
        if let Some(watch) = self.watch_of(&issue.repo)
            && watch.is_fresh()
            && watch.state.attend.contains(&issue.number)
        {
            watch.hint(false);
        }
    }

    async fn after_end(&mut self) {
        self.empty_outbox().await;
        self.dispatch().await;
    }

    /// A client that waits for no limit and no silent repository inside a tick. It tries again in the next tick.
    pub(super) fn quick_client(&self) -> Client {
        self.deps.client.in_passing()
    }

    /// Runs the scheduler and its decisions until there are no new ones. Of many issues about which something is to be asked, as after a
    /// start, it asks about some: the others have their turn in the next tick, and who labels an issue meanwhile does not wait for them.
    pub(super) async fn dispatch(&mut self) {
        if !self.may_poll() {
            return;
        }
        self.look_at_nodes().await;
        let (mut asked, mut unasked) = (0, Vec::new());
        // Each round learns or changes something. The limit is only a guard against a defect.
        for _ in 0..4 {
            let actions = self.scheduled().await;
            self.waiting = actions
                .iter()
                .filter_map(|action| match action {
                    Action::Wait(issue, reason) => Some((issue.clone(), reason.clone())),
                    Action::Ask(issue) => Some((issue.clone(), Reason::AdmissionPending)),
                    _ => None,
                })
                .collect();
            let mut again = false;
            for action in actions {
                match action {
                    Action::Ask(issue) if asked == ASKED_IN_A_TICK => unasked.push(issue),
                    Action::Ask(issue) => {
                        asked += 1;
                        let (client, trigger) = (self.quick_client(), self.deps.labels.trigger.clone());
                        let now = self.deps.clock.now();
                        if let Some(watch) = self.watch_of(&issue.repo) {
                            watch.ask(&client, &trigger, issue.number, now).await;
                        }
                        again = true;
                    }
                    Action::Start(issue) => again |= !self.start(&issue).await,
                    Action::Refuse(issue, reason) => {
                        tracing::info!(%issue, code = reason.code(), "refused");
                        let text = reason.to_string();
                        if self.refuse_follow_up(&issue) {
                            self.hold_back(&issue, reason.code(), text);
                        } else {
                            self.plan_outcome(&issue, IssueState::Attention, reason.code(), Some(text));
                        }
                        again = true;
                    }
                    Action::Wait(..) => {}
                    Action::Stop(issue, why) => {
                        if let Some(live) = self.supervisor.get(&issue) {
                            tracing::info!(%issue, why = why.detail.as_str(), "asking a run to stop");
                            live.control.stop(why);
                        }
                        self.gone.remove(&issue);
                    }
                }
            }
            self.empty_outbox().await;
            if !again {
                break;
            }
        }
        // Where no slot is free, they have time.
        self.asks_more = unasked.iter().any(|issue| self.has_room(&issue.repo));
        self.show_waiting().await;
    }

    /// Whether another run may begin in a repository, as far as the slots go.
    fn has_room(&self, repo: &RepoName) -> bool {
        let limits = self.limits_now();
        let issues = self.supervisor.issues();
        let there = issues.iter().filter(|issue| issue.repo == *repo).count();
        issues.len() < limits.all && there < limits.per_repository
    }

    /// What the scheduler decides. What others have under way is looked at only where something could begin: it costs a look at every lease.
    async fn scheduled(&self) -> Vec<Action> {
        let mut snapshot = self.snapshot();
        let actions = schedule(&snapshot);
        if !actions.iter().any(|action| matches!(action, Action::Start(_))) {
            return actions;
        }
        snapshot.others = self.runs_of_others().await;
        if snapshot.others.is_empty() { actions } else { schedule(&snapshot) }
    }

    /// How many runs other processes have under way, where they have any.
    pub(super) async fn runs_of_others(&self) -> BTreeMap<RepoName, usize> {
        let mut others = BTreeMap::new();
        for watch in &self.watches {
            let repo = watch.watched.name.clone();
            let runs = (self.deps.others_runs)(repo.clone()).await;
            others.extend((runs > 0).then_some((repo, runs)));
        }
        others
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        let frame = Frame {
            labels: &self.deps.labels,
            min_permission: self.deps.min_permission,
            state_dir: self.deps.state.path(),
            now: self.deps.clock.now(),
        };
        let issues = self.supervisor.issues();
        SchedulerSnapshot {
            candidates: self
                .watches
                .iter()
                .flat_map(|watch| watch.facts(frame, &issues))
                .map(|facts| Facts { waits_for_definition: self.waits_for_definition(&facts.issue), ..facts })
                .collect(),
            running: issues
                .into_iter()
                .map(|issue| Running { gone: self.gone.get(&issue).cloned(), issue })
                .collect(),
            others: BTreeMap::new(),
            limits: self.limits_now(),
            daemon: self.presence(),
        }
    }

    pub(super) fn watch_of(&mut self, repo: &RepoName) -> Option<&mut Watch> {
        self.watches.iter_mut().find(|watch| watch.watched.name == *repo)
    }

    /// The issues of which something is remembered, with that.
    pub(super) fn remembered<T>(&self, of: impl Fn(&IssueMemory) -> Option<T>) -> Vec<(IssueRef, T)> {
        let mut found = Vec::new();
        for watch in &self.watches {
            let repo = &watch.watched.name;
            let issues = watch.state.issues.iter();
            found.extend(issues.filter_map(|(number, memory)| {
                Some((IssueRef { repo: repo.clone(), number: *number }, of(memory)?))
            }));
        }
        found
    }

    /// What is remembered of an issue.
    pub(super) fn memory(&self, issue: &IssueRef) -> Option<&IssueMemory> {
        let watch = self.watches.iter().find(|watch| watch.watched.name == issue.repo)?;
        watch.state.issues.get(&issue.number)
    }

    /// Waits for every run; the first signal has reached them already, the second ends them.
    pub(super) async fn drain(&mut self) -> DaemonReport {
        let mut deadline: Option<Instant> = None;
        let mut assignee = self.cluster.assignee.take().map(|(shutdown, task)| {
            shutdown.request_stop();
            task
        });
        self.tell_room();
        self.announce();
        self.save();
        self.leave_all().await;
        while !self.supervisor.is_empty() || assignee.is_some() {
            let looks = self.deps.look_at_pollers.map(|every| Instant::now() + every);
            let shutdown = self.deps.shutdown.clone();
            let is_stopping = shutdown.stopping();
            let out_of_time = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = self.supervisor.ended() => {
                    self.take_end(ended);
                    if !shutdown.aborting() {
                        self.empty_outbox().await;
                    }
                }
                () = shutdown.aborted(), if deadline.is_none() => deadline = Some(Instant::now() + LAST_GRACE),
                _ = async { if let Some(task) = &mut assignee { task.await.ok() } else { std::future::pending().await } } => {
                    assignee = None;
                }
                () = until(looks), if !shutdown.aborting() => self.leave_all().await,
                // Nothing is polled any more, and nobody else says that a run is not wanted.
                () = tokio::time::sleep(LOOK_AGAIN), if !is_stopping => {
                    self.unless_stopped(Self::look_at_runs).await;
                }
                () = out_of_time => {
                    self.supervisor.abort_all();
                    if let Some(task) = assignee.take() {
                        task.abort();
                    }
                }
            }
        }
        if !self.deps.shutdown.aborting() {
            self.empty_outbox().await;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = self.left_waiting();
        self.save();
        self.give_back_all().await;
        let failed_polls = self
            .watches
            .iter()
            .filter_map(|watch| Some((watch.watched.name.clone(), watch.health.error.clone()?)));
        DaemonReport {
            ended: std::mem::take(&mut self.ended),
            waiting,
            failed_polls: failed_polls.chain(self.deps.unopened.clone()).collect(),
        }
    }

    /// What waits once nothing runs and no daemon works: the last word of this one. In a cluster other nodes tell of it.
    fn left_waiting(&self) -> Vec<(IssueRef, Reason)> {
        if self.deps.look_at_pollers.is_some() {
            return Vec::new();
        }
        let SchedulerSnapshot { candidates, .. } = self.snapshot();
        let (all, own) = ((0, self.deps.limits.all), (0, self.deps.limits.per_repository));
        let left = candidates.into_iter().filter_map(|facts| {
            let reason = match refusal(&facts, all, own, Presence::Absent)? {
                // Nobody reads it now.
                Reason::AdmissionPending | Reason::DependenciesPending => Reason::NoDaemon,
                reason => reason,
            };
            Some((facts.issue, reason))
        });
        left.collect()
    }

    /// Writes state and status. A state that cannot be written stops nothing and is reported (C-10).
    pub(super) fn save(&mut self) {
        if self.lease.is_some() {
            self.save_state();
        }
        self.tell();
    }

    /// Says what stands now. A run that begins or ends is told of at once: what a tick does behind it may take minutes.
    pub(super) fn tell(&mut self) {
        let written = self.published.publish(self.status());
        self.wrote("the daemon's status", written);
    }

    fn save_state(&mut self) {
        let mut state = DaemonState::default();
        for watch in self.watches.iter().chain(&self.cluster.resting) {
            state.repositories.insert(watch.watched.name.clone(), watch.state.clone());
        }
        let now = self.deps.clock.now();
        for (repo, known) in &self.saved.repositories {
            if state.repositories.contains_key(repo) {
                continue;
            }
            // What cannot be opened now is remembered for when it can.
            let is_unopened = self.deps.unopened.iter().any(|(unopened, _)| unopened == repo);
            if let Some(known) = if is_unopened { Some(known.clone()) } else { known.left(now) } {
                state.repositories.insert(repo.clone(), known);
            }
        }
        if state != self.saved {
            let written = self.files.save(&state);
            if written.is_ok() {
                self.saved = state;
            }
            self.wrote("the daemon's state", written);
        }
    }

    fn wrote(&mut self, what: &'static str, written: Result<(), StateError>) {
        match written {
            Ok(()) => {
                if let Some(times) = self.troubles.over(what) {
                    tracing::info!(times, "{what} can be written again");
                }
            }
            Err(error) if self.troubles.again(what, &error.to_string()) => {
                tracing::error!(%error, "{what} could not be written; it is tried again");
            }
            Err(_) => {}
        }
    }
}
