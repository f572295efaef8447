//! What the handlers of the front share: the daemon's word, the runs that are kept, who may ask.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::{Semaphore, watch};

use super::access::Access;
use super::chat::Chat;
use super::deliveries::Deliveries;
use super::run_index::RunIndex;
use crate::daemon::status_format::Status;
use crate::daemon::{Hints, IssueRef, Progress};
use crate::domain::money::Money;
use crate::store::run_dir::StateDir;

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
}

/// What the handlers share.
pub(super) struct Shared {
    pub front: Front,
    pub run_index: RunIndex,
    pub deliveries: Deliveries,
    pub access: Access,
    /// Room for listeners of the event stream, which stay: others are to find room, too.
    pub streams: Arc<Semaphore>,
}

impl Shared {
    /// The daemon's last word, with the runs' progress of now.
    pub fn status(&self) -> Option<Status> {
        let mut status = self.front.status.borrow().as_deref().cloned()?;
        for run in &mut status.running {
            let issue = IssueRef { repo: run.repo.clone(), number: run.issue };
            run.progress = self.front.progress.of(&issue);
        }
        Some(status)
    }

    /// What the runs under way have cost, in US dollars.
    pub fn live_cost(&self) -> f64 {
        let running = self.status().map(|status| status.running).unwrap_or_default();
        let costs = running.iter().filter_map(|run| run.progress.as_ref()).map(|run| run.cost_usd);
        costs.sum::<Money>().dollars()
    }
}
