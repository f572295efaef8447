//! Signals that end a command.

use super::error::CommandError;
use crate::sys::shutdown::Shutdown;

/// Listens to them from now on.
pub fn listen() -> Result<Shutdown, CommandError> {
    Shutdown::on_signals()
        .map_err(|error| CommandError::failed(format!("signals cannot be listened to: {error}")))
}

/// Does what nothing is lost of when it is left before its end; a signal ends it.
pub async fn unless_stopped<T>(
    shutdown: &Shutdown,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::select! {
        biased;
        done = work => done,
        () = shutdown.stopped() => Err(CommandError::failed("told to stop; nothing was begun")),
    }
}
