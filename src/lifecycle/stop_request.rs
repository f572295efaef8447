//! Asking a live run to stop from another process: a cell that the run watches.

use std::convert::Infallible;

use futures::future::ready;
use futures::{StreamExt as _, stream};

use super::run::Run;
use crate::domain::issue::ObjectiveSource;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::taken::TakenOver;
use crate::engine::stop::StopHandle;
use crate::store::port::{Cell, StoreError};
use crate::store::run_dir::RunDir;

const LAST_REPORT: &str = "stop\n";
const AT_ONCE: &str = "abort\n";
/// Begins the word of somebody who takes the work over; who it is follows as JSON.
const TAKE: &str = "take ";

/// What is asked of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopRequest {
    /// One last report, then the end (C-26).
    LastReport,
    /// The end at once.
    AtOnce,
    /// The end at the border of the turn: a person goes on.
    Take(TakenOver),
}

/// Asks. The run hears of it within a moment if it lives.
pub fn ask(dir: &RunDir, request: &StopRequest) -> Result<(), StoreError> {
    let word = match request {
        StopRequest::LastReport => LAST_REPORT.to_owned(),
        StopRequest::AtOnce => AT_ONCE.to_owned(),
        StopRequest::Take(over) => {
            format!("{TAKE}{}\n", serde_json::to_string(over).unwrap_or_default())
        }
    };
    dir.store().put(&cell(dir), Some(&word))
}

/// Passes stop requests on to the run's own signal. Never returns.
pub(super) async fn listen(run: &Run<'_>, stop: &StopHandle) -> Infallible {
    let dir = run.journal.dir();
    let own = dir.store().watch(&cell(dir));
    let unheard = match before(run) {
        Some(before) => before.store().watch(&cell(&before)).filter(|word| ready(is_end(word))).boxed(),
        None => stream::pending().boxed(),
    };
    let mut asked = stream::select(own, unheard);
    while let Some(word) = asked.next().await {
        match word.as_deref() {
            Some(AT_ONCE) => {
                stop.abort(Stop::new(StopDetail::UserAbort, "A person asked the run to end at once."));
            }
            Some(LAST_REPORT) => {
                stop.ask(Stop::new(StopDetail::UserStop, "A person asked the run to stop."));
            }
            Some(word) => {
                let over = word.strip_prefix(TAKE).and_then(|over| serde_json::from_str(over.trim()).ok());
                if let Some(over) = over {
                    let message = taken(&over, run);
                    run.set_taken_by(over);
                    stop.ask(Stop::new(StopDetail::Taken, message));
                }
            }
            // Nobody asked.
            None => {}
        }
    }
    std::future::pending().await
}

/// The run that was cut off and that this one goes on with by itself: what it was asked and did not hear any more is meant for this one.
/// Whoever goes on with it by hand wants something else.
fn before(run: &Run<'_>) -> Option<RunDir> {
    let by_itself = run.plan.request.source != ObjectiveSource::Cli && run.plan.request.resume.is_none();
    let before = run.lease.predecessor.as_ref().filter(|_| by_itself)?;
    let dir = run.journal.dir();
    Some(dir.state().run(&dir.repo, before.run_id))
}

fn is_end(word: &Option<String>) -> bool {
    matches!(word.as_deref(), Some(LAST_REPORT | AT_ONCE))
}

/// How people are told that somebody has the work.
fn taken(over: &TakenOver, run: &Run<'_>) -> String {
    let number = &run.plan.issue.key;
    format!(
        "{} took the work over, on the branch {}. To give it back: the comment `/agentd give-back TEXT`, or \
         `agentd give-back {number}` on agentd's machine.",
        over.by, run.lease.mapping.branch
    )
}

/// Forgets what was asked of a run that has ended.
pub(super) async fn forget(run: &Run<'_>) {
    let dirs: Vec<RunDir> = before(run).into_iter().chain([run.journal.dir().clone()]).collect();
    let forgotten = tokio::task::spawn_blocking(move || {
        for dir in dirs {
            if dir.store().get(&cell(&dir))?.1.is_some() {
                dir.store().put(&cell(&dir), None)?;
            }
        }
        Ok::<_, StoreError>(())
    });
    if let Ok(Err(error)) = forgotten.await {
        tracing::warn!(%error, "what was asked of an ended run is left behind");
    }
}

fn cell(dir: &RunDir) -> Cell {
    Cell::Stop { repo: dir.repo.clone(), run_id: dir.run_id }
}
