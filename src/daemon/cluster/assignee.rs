//! In a cluster: runs that the pollers of other nodes gave to this one. They work here as any run does; what follows from their ends
//! is their poller's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::assigned_run::blocking;
use super::assignment_format::{AssignmentEnd, AssignmentRequest};
use super::own_slots::OwnSlots;
use crate::daemon::outcome::RunSummary;
use crate::daemon::run_progress::Progress;
use crate::daemon::snapshot::IssueRef;
use crate::daemon::supervise::{RunHandle, Start, StartRequest, Supervisor};
use crate::domain::cluster::assignment::{AssignmentAnswer, AssignmentCell, Requested};
use crate::domain::cluster::cells::RunKey;
use crate::domain::stop::StopDetail;
use crate::issue::unwanted;
use crate::store::assignments::{AssignmentId, Assignments};
use crate::sys::clock::Clock;
use crate::sys::shutdown::Shutdown;

/// How long until a poller that could not be told is told again.
const AGAIN: Duration = Duration::from_secs(2);

/// A run of another node's poller.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct AssignedRun {
    pub since: DateTime<Utc>,
    pub control: RunHandle,
    id: AssignmentId,
    key: RunKey,
    /// What its poller asks of it, and how many of the extensions it has.
    requested: Requested,
    extended: usize,
    /// Whether its poller knows the run.
    is_named: bool,
    /// Whether it began for this node's own poller, which has its task, and another one follows it now.
    is_handed_over: bool,
}

/// Those at work, and how one is started. Clones are the same.
#[derive(Clone, Default)]
pub(in crate::daemon) struct AssignedRuns(Arc<Shared>);

#[derive(Default)]
struct Shared {
    runs: Mutex<BTreeMap<IssueRef, AssignedRun>>,
    start: Mutex<Option<Start>>,
    /// Ends that their pollers were not told yet.
    untold: Mutex<Vec<Untold>>,
    /// The last ends for which there was no assignment any more. In a store that has begun anew it may come again.
    told_nobody: Mutex<VecDeque<Untold>>,
}

/// Most of those ends.
const MOST_TOLD_NOBODY: usize = 32;

impl AssignedRuns {
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<IssueRef, AssignedRun>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run that began for this node's own poller is about to be followed by another one's: what that one asks is heard.
    pub fn begin_to_hand_over(
        &self,
        issue: IssueRef,
        control: RunHandle,
        since: DateTime<Utc>,
        (id, key): (AssignmentId, RunKey),
    ) {
        let run = AssignedRun {
            since,
            control,
            id,
            key,
            requested: Requested::default(),
            extended: 0,
            is_named: false,
            is_handed_over: false,
        };
        self.all().insert(issue, run);
    }

    /// The other one follows it.
    pub fn is_handed_over(&self, issue: &IssueRef) {
        if let Some(run) = self.all().get_mut(issue) {
            run.is_handed_over = true;
        }
    }

    /// Whether another one follows a run that began for this node's own poller.
    pub fn has_handed_over(&self, issue: &IssueRef) -> bool {
        self.all().get(issue).is_some_and(|run| run.is_handed_over)
    }

    /// Such a run is followed by this node's own poller again.
    pub fn take_back(&self, issue: &IssueRef) {
        self.all().remove(issue);
    }

    /// Such a run has ended: its poller is told. False: there is no such one.
    pub fn has_ended(&self, issue: &IssueRef, summary: &RunSummary) -> bool {
        if !self.has_handed_over(issue) {
            return false;
        }
        self.end(issue, summary.clone());
        true
    }

    fn end(&self, issue: &IssueRef, summary: RunSummary) {
        let Some(run) = self.all().remove(issue) else { return };
        match serde_json::to_value(AssignmentEnd::from(summary)) {
            Ok(summary) => self.untold().push((run.id, run.key, summary)),
            Err(error) => tracing::error!(%issue, %error, "the end of a run cannot be written"),
        }
    }

    fn told_nobody(&self) -> MutexGuard<'_, VecDeque<Untold>> {
        self.0.told_nobody.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An end for which there was no assignment is to be told now that there is one. False: there is no such end.
    fn tell_again(&self, id: &AssignmentId, key: &RunKey) -> bool {
        let mut ends = self.told_nobody();
        let Some(at) = ends.iter().position(|(of, by, _)| of == id && by == key) else { return false };
        self.untold().extend(ends.remove(at));
        true
    }

    fn untold(&self) -> MutexGuard<'_, Vec<Untold>> {
        self.0.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts runs like this from now on.
    pub fn start_by(&self, start: &Start) {
        *self.0.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(start));
    }

    fn start(&self) -> Option<Start> {
        self.0.start.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is needed to take runs in.
pub(in crate::daemon) struct Assignee {
    pub assignments: Arc<dyn Assignments>,
    pub assigned: AssignedRuns,
    pub own_slots: OwnSlots,
    pub progress: Progress,
    pub clock: Clock,
    /// Told to take nothing more.
    pub shutdown: Shutdown,
    /// What runs hear.
    pub runs: Shutdown,
}

/// The end of a run that its poller was not told yet.
type Untold = (AssignmentId, RunKey, Value);

impl Assignee {
    /// Takes runs in until the daemon is told to stop, and ends when the last one has ended.
    pub fn open(self) -> JoinHandle<()> {
        tokio::spawn(self.run())
    }

    async fn run(self) {
        let mut assignments = self.assignments.to_this_node();
        let mut runs = Supervisor::new();
        let mut changes = self.progress.changes();
        loop {
            let is_idle = self.assigned.all().is_empty();
            if self.shutdown.stopping() && is_idle {
                // Whom it does not reach now sees that this session has ended, and on the issue how the run did.
                return self.tell_ends().await;
            }
            let has_untold = !self.assigned.untold().is_empty();
            tokio::select! {
                () = self.shutdown.stopped(), if is_idle => {}
                (issue, _, summary) = runs.ended() => {
                    tracing::info!(%issue, detail = summary.stop.detail.as_str(), "a run for another node ended");
                    self.assigned.end(&issue, summary);
                    self.progress.forget(&issue);
                    self.tell_ends().await;
                }
                () = tokio::time::sleep(AGAIN), if has_untold => self.tell_ends().await,
                Some((id, cell)) = assignments.next() => match cell {
                    Some(cell) if cell.answer == AssignmentAnswer::Open => self.take(id, cell, &mut runs).await,
                    Some(cell) => {
                        let is_untold = |(at, key, _): &Untold| *at == id && *key == cell.key;
                        let is_known = self.hear(&id, &cell)
                            || self.assigned.untold().iter().any(is_untold)
                            || self.assigned.tell_again(&id, &cell.key);
                        if !is_known && matches!(cell.answer, AssignmentAnswer::Taken { .. }) {
                            // It was taken although the store did not say so in time: nothing began. Of another session it stays.
                            self.decline(&id, &cell.key, "it was not begun there".to_owned()).await;
                        }
                    }
                    None => {}
                },
                // One that was handed over may have ended.
                Ok(()) = changes.changed(), if !is_idle => {
                    self.assigned.all().iter_mut().for_each(|(issue, run)| self.heed(issue, run));
                    self.name_runs().await;
                    self.tell_ends().await;
                }
            }
        }
    }

    async fn take(&self, id: AssignmentId, cell: AssignmentCell, runs: &mut Supervisor) {
        let slot = self.own_slots.take().filter(|_| !self.shutdown.stopping());
        let Some((slot, start)) = slot.zip(self.assigned.start()) else {
            return self.decline(&id, &cell.key, "it has no room for a run at the moment".to_owned()).await;
        };
        let request: AssignmentRequest = match serde_json::from_value(cell.request) {
            Ok(request) => request,
            // Another version assigns it: its poller works on it itself.
            Err(error) => {
                return self.decline(&id, &cell.key, format!("it cannot be read there: {error}")).await;
            }
        };
        let (at, key) = (id.clone(), cell.key.clone());
        match blocking(&self.assignments, move |assignments| assignments.accept(&at, &key)).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tracing::warn!("a run cannot be taken from another node: {error}"),
        }
        let (control, since) = (RunHandle::below(&self.runs), self.clock.now());
        let issue = IssueRef { repo: request.repo.clone(), number: request.issue };
        tracing::info!(%issue, by = cell.by.node, "starting a run for another node");
        let unlabelled = request.unlabelled;
        let request = StartRequest::of_assigned(request, control.clone());
        let begun = request.begun(unlabelled);
        let run = start(request);
        let assigned = AssignedRun {
            since,
            control: control.clone(),
            id,
            key: cell.key,
            requested: Requested::default(),
            extended: 0,
            is_named: false,
            is_handed_over: false,
        };
        self.assigned.all().insert(issue.clone(), assigned);
        runs.spawn(issue, control, since, begun, async move {
            let _slot = slot;
            run.await
        });
    }

    async fn decline(&self, id: &AssignmentId, key: &RunKey, why: String) {
        let (at, key) = (id.clone(), key.clone());
        let answer = move |assignments: &dyn Assignments| {
            assignments.answer(&at, &key, AssignmentAnswer::Declined { why })
        };
        if let Err(error) = blocking(&self.assignments, answer).await {
            tracing::debug!("its poller finds out by itself that a run is not taken: {error}");
        }
    }

    /// What its poller asks of a run. False: no such run works here.
    fn hear(&self, id: &AssignmentId, cell: &AssignmentCell) -> bool {
        let mut assigned = self.assigned.all();
        let found = assigned.iter_mut().find(|(_, run)| run.id == *id && run.key == cell.key);
        let Some((issue, run)) = found else { return false };
        run.requested.clone_from(&cell.requested);
        self.heed(issue, run);
        true
    }

    /// Does what was asked of a run, as far as it is at a point where it can.
    fn heed(&self, issue: &IssueRef, run: &mut AssignedRun) {
        for by in run.requested.extended_by.iter().skip(run.extended) {
            match run.control.extender.extend(by) {
                Ok(Some(_)) => tracing::info!(%issue, by, "the run was given more"),
                // It has not begun its work.
                Ok(None) => break,
                Err(error) => tracing::warn!(%issue, by, %error, "the run could not be given more"),
            }
            run.extended += 1;
        }
        let word = run.requested.stop.as_deref();
        let why = word.and_then(|word| StopDetail::ALL.iter().find(|one| one.as_str() == word));
        let Some(why) = why.filter(|_| !run.control.shutdown.stopping()) else { return };
        // A run that writes its labels has taken the label off itself.
        if *why == StopDetail::LabelRemoved && self.progress.is_writing_labels(issue) {
            return;
        }
        tracing::info!(%issue, why = why.as_str(), "asking a run to stop");
        run.control.stop(unwanted::of(*why));
    }

    /// Tells pollers which runs they are, once there are any.
    async fn name_runs(&self) {
        let mut unnamed = Vec::new();
        for (issue, run) in self.assigned.all().iter_mut().filter(|(_, run)| !run.is_named) {
            if let Some(run_id) = self.progress.run_of(issue) {
                run.is_named = true;
                unnamed.push((run.id.clone(), run.key.clone(), run_id));
            }
        }
        for (id, key, run) in unnamed {
            let name = move |assignments: &dyn Assignments| assignments.name(&id, &key, &run);
            if let Err(error) = blocking(&self.assignments, name).await {
                tracing::debug!("its poller does not know a run: {error}");
            }
        }
    }

    /// Tells pollers how their runs ended. Who cannot be told now is told later.
    async fn tell_ends(&self) {
        let untold = std::mem::take(&mut *self.assigned.untold());
        for (id, key, summary) in untold {
            let (at, of, end) =
                (id.clone(), key.clone(), AssignmentAnswer::Ended { summary: summary.clone() });
            let told =
                blocking(&self.assignments, move |assignments| assignments.answer(&at, &of, end)).await;
            match told {
                Ok(true) => {}
                Ok(false) => {
                    let mut ends = self.assigned.told_nobody();
                    ends.push_back((id, key, summary));
                    if ends.len() > MOST_TOLD_NOBODY {
                        ends.pop_front();
                    }
                }
                Err(error) => {
                    tracing::warn!(repo = %id.repo, issue = id.number, "the run's poller is not told yet: {error}");
                    self.assigned.untold().push((id, key, summary));
                }
            }
        }
    }
}
