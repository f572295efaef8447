//! What the handlers of the front share: the daemon's word, the runs that are kept, who may ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use secrecy::SecretString;
use tokio::sync::{Semaphore, broadcast, watch};

use super::access::Access;
use super::chat::Chat;
use super::deliveries::Deliveries;
#[cfg(feature = "nats")]
use super::other_nodes::OtherNodes;
use super::run_index::{Row, Rows, RunIndex, chosen};
use crate::daemon::status_format::{LogLine, Status};
use crate::daemon::{Hints, IssueRef, Progress};
use crate::domain::ledger_entry::CostSum;
use crate::domain::money::Money;
#[cfg(feature = "nats")]
use crate::record::mirror::NotShown;
use crate::service::TurnCosts;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;

/// What the front shows and may change: it can only give the daemon a hint.
#[derive(Clone)]
pub struct Front {
    /// What the daemon says of itself.
    pub status: watch::Receiver<Option<Arc<Status>>>,
    /// How far runs are.
    pub progress: Progress,
    /// Where runs are kept.
    pub state: StateDir,
    /// Makes the daemon look again.
    pub hints: Arc<Hints>,
    /// Secret of the webhooks; `None` = there are none.
    pub webhook_secret: Option<SecretString>,
    /// What everyone who asks has to send; `None` = nothing.
    pub token: Option<SecretString>,
    /// Names that it answers under beside its own.
    pub hosts: Vec<String>,
    /// The chat endpoint of the moment; `None` = there is none.
    pub chat: watch::Receiver<Option<Arc<Chat>>>,
    /// What all runs and conversations of a day may cost, as the configuration in force says; `None` = there is no cap.
    pub day_cap: watch::Receiver<Option<Money>>,
    /// In a cluster: the other nodes.
    #[cfg(feature = "nats")]
    pub others: Option<Arc<OtherNodes>>,
}

/// What the handlers share.
pub(super) struct Shared {
    pub front: Front,
    pub run_index: RunIndex,
    pub turn_costs: Arc<TurnCosts>,
    pub deliveries: Deliveries,
    pub access: Access,
    /// Room for listeners of the event stream, which stay: others are to find room, too.
    pub streams: Arc<Semaphore>,
}

/// Why nothing of a run is told.
pub(super) enum NotTold {
    /// There is no such run.
    NoRun,
    /// So many begin with that.
    Several(usize),
    /// In a cluster: it cannot be brought here.
    #[cfg(feature = "nats")]
    NotShown(NotShown),
}

impl Shared {
    /// The daemon's last word, with its runs' progress of now.
    pub fn own_status(&self) -> Option<Status> {
        let mut status = self.front.status.borrow().as_deref().cloned()?;
        for run in &mut status.running {
            let issue = IssueRef { repo: run.repo.clone(), number: run.issue };
            run.progress = self.front.progress.of(&issue);
        }
        Some(status)
    }

    /// Whether the cluster's store answers, as far as the daemon knows.
    pub fn store_answers(&self) -> bool {
        self.front.status.borrow().as_ref().is_none_or(|status| status.store_unavailable.is_none())
    }

    /// The same; in a cluster with what the other nodes say.
    pub async fn status(&self) -> Option<Status> {
        let own = self.own_status()?;
        #[cfg(feature = "nats")]
        if let Some(others) = &self.front.others {
            return Some(others.with_others(own).await);
        }
        Some(own)
    }

    /// Every run that is known, in a cluster those of all nodes.
    pub async fn rows(&self) -> Rows {
        #[cfg(feature = "nats")]
        if let Some(others) = &self.front.others {
            return others.rows(self.store_answers()).await;
        }
        Rows { all: self.run_index.rows().await, now: Clock::system().now() }
    }

    /// Those that ended, as they were within the last second.
    pub async fn ended(&self) -> Arc<[Row]> {
        #[cfg(feature = "nats")]
        if let Some(others) = &self.front.others {
            return others
                .rows(self.store_answers())
                .await
                .all
                .iter()
                .filter(|row| row.ended.is_some())
                .cloned()
                .collect();
        }
        self.run_index.ended().await
    }

    /// What conversations on this node cost, by day.
    pub async fn conversations(&self) -> BTreeMap<NaiveDate, CostSum> {
        let costs = Arc::clone(&self.turn_costs);
        tokio::task::spawn_blocking(move || costs.by_day()).await.unwrap_or_default()
    }

    /// A run by its id, a unique prefix of it, or `latest`.
    pub async fn run(&self, asked: &str) -> Result<(RunDir, Row, DateTime<Utc>), NotTold> {
        let rows = self.rows().await;
        let row = match chosen(&rows.all, asked)[..] {
            [] => return Err(NotTold::NoRun),
            [row] => row.clone(),
            ref several => return Err(NotTold::Several(several.len())),
        };
        #[cfg(feature = "nats")]
        if let Some(others) = &self.front.others {
            let brought = others.directory(row.run_id).await.ok_or(NotTold::NoRun)?;
            return Ok((brought.map_err(NotTold::NotShown)?, row, rows.now));
        }
        Ok((self.run_index.directory(&row), row, rows.now))
    }

    /// In a cluster: what runs on other nodes say from now on; `None` = there are none.
    pub fn lines_elsewhere(&self) -> Option<broadcast::Receiver<Arc<LogLine>>> {
        #[cfg(feature = "nats")]
        if let Some(others) = &self.front.others {
            return Some(others.lines());
        }
        None
    }
}
