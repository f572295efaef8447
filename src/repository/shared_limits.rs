//! In a cluster: limits of GitHub that one process met are heeded by all with the same credential.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::task::AbortHandle;

use crate::domain::cluster::cells::read;
use crate::domain::cluster::quota::{QUOTA_SCHEMA, QuotaCell};
use crate::github::Client;
use crate::store::port::{Cell, CellChange, CommitOutcome, StoreError};
use crate::store::run_dir::StateDir;

/// How long until limits that could not be told are told again.
const AGAIN: Duration = Duration::from_secs(1);

/// Limits are told and heard until it is dropped.
#[derive(Debug)]
pub struct SharedLimits(AbortHandle);

impl Drop for SharedLimits {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the others of the limits that this client meets, and holds it back for theirs. `None` = nothing is shared.
pub fn share(client: &Client, state: &StateDir) -> Option<SharedLimits> {
    state.shared()?;
    let (client, state) = (client.clone(), state.clone());
    Some(SharedLimits(tokio::spawn(keep(client, state)).abort_handle()))
}

async fn keep(client: Client, state: StateDir) {
    let cell = Cell::Quota(client.credential_id());
    let (mut met, mut others) = (client.limits_met(), state.store().watch(&cell));
    let mut untold = false;
    loop {
        tokio::select! {
            Some(text) = others.next() => {
                let Some(text) = text else { continue };
                match read::<QuotaCell>(&text, QUOTA_SCHEMA) {
                    Ok(cell) => client.hold_back(&cell.limits),
                    Err(error) => tracing::warn!("limits that other nodes met cannot be read: {error}"),
                }
            }
            Ok(()) = met.changed() => untold = !tell(&client, &state, &cell).await,
            () = tokio::time::sleep(AGAIN), if untold => untold = !tell(&client, &state, &cell).await,
        }
    }
}

/// False: they could not be told.
async fn tell(client: &Client, state: &StateDir, cell: &Cell) -> bool {
    let (limits, store, cell) = (client.own_limits(), state.store().clone(), cell.clone());
    let told = tokio::task::spawn_blocking(move || -> Result<(), StoreError> {
        loop {
            let (after, text) = store.get(&cell)?;
            // What cannot be read is a later version's, which is left as it is.
            let now = text.map(|text| read::<QuotaCell>(&text, QUOTA_SCHEMA)).transpose();
            let Ok(Some(next)) = now.map(|now| now.unwrap_or_default().with(&limits)) else { return Ok(()) };
            let value = serde_json::to_string(&next).ok();
            if store.commit(&[CellChange { cell: cell.clone(), after, value }])? == CommitOutcome::Done {
                return Ok(());
            }
        }
    });
    match told.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!("a limit of GitHub is not told to the other nodes yet: {error}");
            false
        }
        Err(panic) => {
            tracing::error!(%panic, "a limit of GitHub is not told to the other nodes");
            true
        }
    }
}
