//! A run that works on another node: assigned to it, and followed there until it has ended, for who polls its repository.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::assignment_format::{AssignmentEnd, AssignmentRequest};
use crate::daemon::outcome::RunSummary;
use crate::daemon::run_progress::Progress;
use crate::daemon::snapshot::IssueRef;
use crate::daemon::supervise::RunHandle;
use crate::domain::cluster::assignment::{AssignmentAnswer, AssignmentCell, Requested};
use crate::domain::cluster::cells::{RunKey, SessionId};
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};
use crate::store::assignments::{AssignmentId, Assignments};
use crate::store::port::StoreError;
use crate::sys::shutdown::Shutdown;

/// How long a node may leave an assignment unanswered before the run is placed anew.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked whether the node of a run lives.
const LOOK: Duration = Duration::from_secs(1);

/// The ends of runs on other nodes that were read, until what follows from them is kept.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon) struct Read(Arc<Mutex<BTreeMap<IssueRef, (AssignmentId, RunKey)>>>);

impl Read {
    fn note(&self, issue: IssueRef, assignment: (AssignmentId, RunKey)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(issue, assignment);
    }

    /// The assignment whose end was read, once.
    pub fn of(&self, issue: &IssueRef) -> Option<(AssignmentId, RunKey)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(issue)
    }
}

/// Does something with the store on a thread that may block.
pub(in crate::daemon) async fn blocking<T: Send + 'static>(
    assignments: &Arc<dyn Assignments>,
    work: impl FnOnce(&dyn Assignments) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let assignments = Arc::clone(assignments);
    let done = tokio::task::spawn_blocking(move || work(&*assignments)).await;
    done.unwrap_or_else(|panic| {
        Err(StoreError::Failed { action: "use", place: "the store".into(), words: panic.to_string() })
    })
}

/// A run that is to work on another node.
pub(in crate::daemon) struct Placed {
    pub assignments: Arc<dyn Assignments>,
    pub id: AssignmentId,
    pub issue: IssueRef,
    pub control: RunHandle,
    /// Who wants it to have more.
    pub extends: mpsc::UnboundedReceiver<String>,
    /// It is followed here no more: the daemon ends, or another node polls the repository.
    pub left: CancellationToken,
    /// The daemon's own.
    pub shutdown: Shutdown,
    pub progress: Progress,
    pub title: String,
    pub read: Read,
}

/// How it came out to place a run.
enum Outcome {
    /// It has ended there, or is left there.
    Ended(RunSummary),
    /// No node has it.
    NotTaken(String),
}

/// Gives a run to a node and follows it to its end. Where nobody takes it, `here` has it if this node has room.
pub(in crate::daemon) async fn run_elsewhere(
    mut placed: Placed,
    request: AssignmentRequest,
    here: impl Future<Output = RunSummary> + Send,
) -> RunSummary {
    let value = match serde_json::to_value(&request) {
        Ok(value) => value,
        Err(error) => return Stop::new(StopDetail::Internal, error.to_string()).into(),
    };
    let id = placed.id.clone();
    match blocking(&placed.assignments, move |assignments| assignments.assign(&id, value)).await {
        Ok(Some(assignment)) => {
            tracing::info!(issue = %placed.issue, node = placed.id.node, "assigning a run to another node");
            match placed.follow(assignment).await {
                Outcome::Ended(summary) => return summary,
                Outcome::NotTaken(why) => {
                    tracing::info!(issue = %placed.issue, node = placed.id.node, why, "the run is not worked on there");
                }
            }
        }
        // Somebody has the issue: whoever takes its lease is told who.
        Ok(None) => {}
        // It is too large for a cell, or the store is away.
        Err(error) => tracing::info!(issue = %placed.issue, "a run is not assigned to another node: {error}"),
    }
    placed.control.works_here();
    here.await
}

/// Follows a run that an earlier poller gave to a node.
pub(in crate::daemon) async fn follow_on(mut placed: Placed, assignment: AssignmentCell) -> RunSummary {
    match placed.follow(assignment).await {
        Outcome::Ended(summary) => summary,
        Outcome::NotTaken(why) => Stop::new(StopDetail::BranchBusy, why).into(),
    }
}

impl Placed {
    async fn follow(&mut self, assignment: AssignmentCell) -> Outcome {
        let key = assignment.key;
        let mut cells = self.assignments.follow(&self.id);
        let (begun, mut taker): (Instant, Option<SessionId>) = (Instant::now(), None);
        let mut run_id: Option<RunId> = None;
        let mut look = tokio::time::interval(LOOK);
        let mut told = false;
        loop {
            tokio::select! {
                changed = cells.next() => match changed.flatten() {
                    Some(cell) if cell.key == key => match cell.answer {
                        AssignmentAnswer::Open => {}
                        AssignmentAnswer::Declined { why } => {
                            self.forget(&key).await;
                            return Outcome::NotTaken(why);
                        }
                        AssignmentAnswer::Taken { by, run_id: run } => {
                            taker = Some(by);
                            self.control.is_taken();
                            run_id = run.and_then(|run| run.parse().ok()).map(RunId);
                            if let Some(run) = &run_id {
                                self.progress.note(&self.issue, &self.title, &run.to_string());
                            }
                        }
                        AssignmentAnswer::Ended { summary } => return Outcome::Ended(self.ended(summary, &key)),
                    },
                    _ => return Outcome::NotTaken("the assignment is there no more".to_owned()),
                },
                () = self.left.cancelled() => return self.leave(&key, taker.is_some(), run_id).await,
                () = self.shutdown.stopped() => return self.leave(&key, taker.is_some(), run_id).await,
                () = self.control.shutdown.stopped(), if !told => {
                    told = true;
                    self.ask(&key, Requested { stop: Some(self.control.why().detail.as_str().to_owned()), ..Requested::default() }).await;
                }
                Some(by) = self.extends.recv() => {
                    self.ask(&key, Requested { extended_by: vec![by], ..Requested::default() }).await;
                }
                _ = look.tick() => {
                    if let Some(why) = self.is_lost(&key, taker.as_ref(), begun).await {
                        return Outcome::NotTaken(why);
                    }
                }
            }
        }
    }

    /// Why nobody works on it; then it is assigned no more. `None` = somebody does, or may yet.
    async fn is_lost(&self, key: &RunKey, taker: Option<&SessionId>, begun: Instant) -> Option<String> {
        let why = match taker {
            None if begun.elapsed() < ANSWERS_WITHIN => return None,
            None => "the node did not answer".to_owned(),
            Some(by) => {
                let session = by.clone();
                match blocking(&self.assignments, move |assignments| assignments.session_lives(&session))
                    .await
                {
                    Ok(true) => return None,
                    Ok(false) => "the node is gone".to_owned(),
                    // What cannot be asked counts as living.
                    Err(_) => return None,
                }
            }
        };
        let (id, key) = (self.id.clone(), key.clone());
        let withdrawn = blocking(&self.assignments, move |assignments| assignments.withdraw(&id, &key)).await;
        matches!(withdrawn, Ok(true)).then_some(why)
    }

    /// It is followed no more: what nobody has is taken back, and the rest is left where it is, for the next poller.
    async fn leave(&self, key: &RunKey, is_taken: bool, run_id: Option<RunId>) -> Outcome {
        if !is_taken {
            let (id, key) = (self.id.clone(), key.clone());
            let withdrawn =
                blocking(&self.assignments, move |assignments| assignments.withdraw(&id, &key)).await;
            tracing::debug!(issue = %self.issue, ?withdrawn, "an assignment was taken back");
        }
        let stop = Stop::new(StopDetail::Shutdown, "It is followed here no more; the run works on.");
        Outcome::Ended(RunSummary { run_id, ..stop.into() })
    }

    async fn ask(&self, key: &RunKey, requested: Requested) {
        let (id, key) = (self.id.clone(), key.clone());
        if let Err(error) =
            blocking(&self.assignments, move |assignments| assignments.ask(&id, &key, requested)).await
        {
            tracing::warn!(issue = %self.issue, "the node of the run cannot be asked: {error}");
        }
    }

    async fn forget(&self, key: &RunKey) {
        let (id, key) = (self.id.clone(), key.clone());
        if let Err(error) =
            blocking(&self.assignments, move |assignments| assignments.forget(&id, &key)).await
        {
            tracing::debug!(issue = %self.issue, "an assignment stays: {error}");
        }
    }

    fn ended(&self, summary: serde_json::Value, key: &RunKey) -> RunSummary {
        self.read.note(self.issue.clone(), (self.id.clone(), key.clone()));
        match serde_json::from_value::<AssignmentEnd>(summary) {
            Ok(end) => end.into(),
            Err(error) => {
                let told = format!("how the run on {} ended cannot be read: {error}", self.id.node);
                Stop::new(StopDetail::BranchBusy, told).into()
            }
        }
    }
}
