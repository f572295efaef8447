//! A daemon whose cluster's store is away when it starts waits for it, and says so.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::daemon_front::DaemonFront;
use super::error::CommandError;
use super::repositories;
use crate::config::cluster_file::StoreKind;
use crate::daemon::Waiting;
use crate::domain::stop::StopDetail;
use crate::sys::clock::Clock;
use crate::sys::shutdown::Shutdown;

/// The pause after the first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Waits until the store that the configuration names can be used; on files it can. False = the daemon was told to end meanwhile.
pub async fn wait(context: &Context, shutdown: &Shutdown, front: &DaemonFront) -> Result<bool, CommandError> {
    let config = context.config()?;
    if config.cluster.store == StoreKind::Files {
        return Ok(true);
    }
    let mut pause = PAUSES.0;
    let mut waiting: Option<Arc<Waiting>> = None;
    loop {
        let opened = tokio::select! {
            biased;
            () = shutdown.stopped() => return Ok(false),
            opened = repositories::state(context, &config) => opened,
        };
        let error = match opened {
            Ok(_) => {
                if let Some(waiting) = waiting {
                    found(waiting, None).await?;
                    context.output.note("the cluster's store answers now");
                }
                return Ok(true);
            }
            Err(error) if error.detail == Some(StopDetail::StoreUnavailable) => error,
            Err(error) => return Err(error),
        };
        if let Some(waiting) = &waiting {
            found(Arc::clone(waiting), Some(error.message)).await?;
        } else {
            context.output.note(format!("{error}: waiting for it"));
            let begun = begin(context, error.message, front).await?;
            waiting = Some(Arc::new(begun));
        }
        tokio::select! {
            biased;
            () = shutdown.stopped() => return Ok(false),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Says from now on why the daemon waits, on its page and to whoever asks, too.
async fn begin(context: &Context, error: String, front: &DaemonFront) -> Result<Waiting, CommandError> {
    let state = context.state()?;
    let listen = front.address().await;
    let begun = tokio::task::spawn_blocking(move || Waiting::begin(&state, Clock::system(), listen, &error));
    let waiting = begun.await.map_err(|panic| CommandError::failed(panic.to_string()))??;
    front.answer_waiting(&waiting).await?;
    Ok(waiting)
}

async fn found(waiting: Arc<Waiting>, error: Option<String>) -> Result<(), CommandError> {
    let written = tokio::task::spawn_blocking(move || waiting.found(error)).await;
    if let Err(error) = written.map_err(|panic| CommandError::failed(panic.to_string()))? {
        tracing::warn!(%error, "the daemon's status could not be written");
    }
    Ok(())
}
