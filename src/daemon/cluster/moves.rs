//! In a cluster: runs that an operator wants to go on elsewhere. Whoever works on one ends it behind its visit; its poller then gives it to
//! another node.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;

use super::open_requests::OpenRequests;
use crate::daemon::draining::Draining;
use crate::daemon::run_progress::Progress;
use crate::daemon::snapshot::IssueRef;
use crate::daemon::supervise::{Start, StartRequest};
use crate::domain::cluster::control::Move;
use crate::domain::run::RunId;
use crate::store::assignments::{Assignments, Control};

/// The last move of each issue. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon) struct Moves(Arc<watch::Sender<BTreeMap<IssueRef, Move>>>);

impl Moves {
    /// The move of an issue's run, if that is its newest one.
    pub fn of(&self, issue: &IssueRef, newest: Option<RunId>) -> Option<Move> {
        self.0.borrow().get(issue).filter(|asked| Some(asked.run_id) == newest).cloned()
    }

    /// Hears what operators ask, for as long as it is polled.
    pub async fn listen(self, assignments: Arc<dyn Assignments>, draining: Draining, requests: OpenRequests) {
        let mut controls = assignments.controls();
        while let Some(control) = controls.next().await {
            match control {
                Control::Drain { by } => {
                    tracing::info!(by, "this node is drained");
                    draining.ask();
                }
                Control::Move(asked) => {
                    let issue = IssueRef { repo: asked.repository.clone(), number: asked.issue };
                    self.0.send_modify(|moves| drop(moves.insert(issue, asked)));
                }
                Control::Request(message) => requests.hear(*message),
            }
        }
    }

    /// Runs start as by `start`, and end behind their visit once they are to go on elsewhere.
    pub fn heeded(&self, start: &Start, progress: &Progress) -> Start {
        let (moves, start, progress) = (self.clone(), Arc::clone(start), progress.clone());
        Arc::new(move |request: StartRequest| {
            let (moves, progress) = (moves.clone(), progress.clone());
            let (issue, control) = (request.issue.clone(), request.control.clone());
            let run = start(request);
            async move {
                let is_moved = async {
                    let mut changes = moves.0.subscribe();
                    // The sender is never dropped while it is listened to.
                    while !moves.concerns(&issue, &progress) && changes.changed().await.is_ok() {}
                    tracing::info!(%issue, "the run is to go on elsewhere: it ends behind its visit");
                    control.shutdown.request_drain();
                    std::future::pending::<std::convert::Infallible>().await
                };
                tokio::select! {
                    summary = run => summary,
                    never = is_moved => match never {},
                }
            }
            .boxed()
        })
    }

    fn concerns(&self, issue: &IssueRef, progress: &Progress) -> bool {
        let run = progress.run_of(issue);
        self.0.borrow().get(issue).is_some_and(|asked| run == Some(asked.run_id.to_string()))
    }
}
