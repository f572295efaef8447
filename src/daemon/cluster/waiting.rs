//! A daemon of a cluster whose store is away when it starts: it has the state directory, says what it waits for, and does nothing else.

use std::sync::Arc;

use tokio::sync::watch;

use crate::daemon::loading::{DaemonError, DaemonFiles, StateError};
use crate::daemon::published_status::PublishedStatus;
use crate::daemon::status_format::{LimitsStatus, SCHEMA, Status};
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::host::Host;

/// It waits.
#[derive(Debug)]
pub struct Waiting {
    published: PublishedStatus,
    clock: Clock,
}

impl Waiting {
    /// Says why the store cannot be used, for who has taken the state directory, of which only this node's files are used. `listen`:
    /// the address of the HTTP front. Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(
        state: &StateDir,
        clock: Clock,
        listen: Option<String>,
        error: &str,
    ) -> Result<Self, DaemonError> {
        let waiting = Self { published: PublishedStatus::new(Some(DaemonFiles::of(state))), clock };
        let now = waiting.clock.now();
        waiting.published.set_store_error(Some(error.to_owned()), now)?;
        waiting.published.publish(Status {
            schema_version: SCHEMA.to_owned(),
            pid: Host::current().pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now,
            at: now,
            // It writes only what changes.
            poll_interval_ms: None,
            stopping: false,
            listen,
            reload_error: None,
            store_unavailable: None,
            clock_skew: None,
            store_full: None,
            store_slow: None,
            store_begun_anew: None,
            schema_unknown: None,
            repositories: Vec::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            parked: Vec::new(),
            limits: LimitsStatus::default(),
            nodes: Vec::new(),
            stale_since: None,
        })?;
        Ok(waiting)
    }

    /// What it says of itself, each time that it changes.
    pub fn statuses(&self) -> watch::Receiver<Option<Arc<Status>>> {
        self.published.statuses()
    }

    /// Says why the store cannot be used now; `None` = it can. Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn found(&self, error: Option<String>) -> Result<(), StateError> {
        self.published.set_store_error(error, self.clock.now()).map(drop)
    }
}
