//! Asking a live run to stop from another process: a cell that the run watches.

use std::convert::Infallible;

use futures::StreamExt as _;

use crate::domain::stop::{Stop, StopDetail};
use crate::engine::stop::StopHandle;
use crate::store::port::{Cell, StoreError};
use crate::store::run_dir::RunDir;

const LAST_REPORT: &str = "stop\n";
const AT_ONCE: &str = "abort\n";

/// What is asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRequest {
    /// One last report, then the end (C-26).
    LastReport,
    /// The end at once.
    AtOnce,
}

/// Asks. The run hears of it within a moment if it lives.
pub fn ask(dir: &RunDir, request: StopRequest) -> Result<(), StoreError> {
    let word = match request {
        StopRequest::LastReport => LAST_REPORT,
        StopRequest::AtOnce => AT_ONCE,
    };
    dir.store().put(&cell(dir), Some(word))
}

/// Passes stop requests on to the run's own signal. Never returns.
pub(super) async fn listen(dir: &RunDir, stop: &StopHandle) -> Infallible {
    let mut asked = dir.store().watch(&cell(dir));
    while let Some(word) = asked.next().await {
        match word.as_deref() {
            Some(AT_ONCE) => {
                stop.abort(Stop::new(StopDetail::UserAbort, "A person asked the run to end at once."));
            }
            Some(LAST_REPORT) => {
                stop.ask(Stop::new(StopDetail::UserStop, "A person asked the run to stop."));
            }
            // Nobody asked.
            _ => {}
        }
    }
    std::future::pending().await
}

/// Forgets what was asked of a run that has ended.
pub(super) async fn forget(dir: &RunDir) {
    let dir = dir.clone();
    let forgotten = tokio::task::spawn_blocking(move || match dir.store().get(&cell(&dir))? {
        (_, None) => Ok(()),
        (_, Some(_)) => dir.store().put(&cell(&dir), None),
    });
    if let Ok(Err(error)) = forgotten.await {
        tracing::warn!(%error, "what was asked of an ended run is left behind");
    }
}

fn cell(dir: &RunDir) -> Cell {
    Cell::Stop { repo: dir.repo.clone(), run_id: dir.run_id }
}
