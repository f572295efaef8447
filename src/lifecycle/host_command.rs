//! A command of the operator's (set-up, verify): it ends when the run is to end at once.

use tokio_util::sync::CancellationToken;

use crate::engine::stop::StopSignal;
use crate::sys::process::{self, Exit, ProcessError, ProcessSpec};

/// Runs it to its end. Whoever asks for an abort waits until the command has ended, too.
pub async fn run(spec: ProcessSpec, stop: &StopSignal) -> Result<Exit, ProcessError> {
    let cancel = CancellationToken::new();
    let aborted = cancel.clone();
    let running = process::run(spec, &cancel);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        _ = stop.wait_aborted() => {
            aborted.cancel();
            running.await
        }
    }
}
