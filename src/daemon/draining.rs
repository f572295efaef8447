//! How a daemon's runs hear that it ends. In a cluster where another node can go on with them, each first finishes the visit that is
//! under way, so that nothing is done twice.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cluster::assigned_run::blocking;
use crate::domain::name::RepoName;
use crate::store::assignments::{Assignments, NodeRoom};
use crate::sys::shutdown::Shutdown;

/// The way from the process's stop to the runs.
#[derive(Clone)]
pub(super) struct Draining {
    /// The process.
    process: Shutdown,
    /// What the runs hear.
    pub runs: Shutdown,
    /// How long a visit may take.
    within: Duration,
    /// Whether an operator asked for it, so that it is not asked who could go on.
    is_asked: Arc<AtomicBool>,
}

impl Draining {
    /// `within`: how long runs may take to the end of their visits; `None` = they stop at once, as where no other node can go on.
    pub fn new(process: &Shutdown, within: Option<Duration>) -> Self {
        let runs = match within {
            Some(_) => Shutdown::new(),
            None => process.child(),
        };
        Self { process: process.clone(), runs, within: within.unwrap_or_default(), is_asked: Arc::default() }
    }

    /// An operator asks: the daemon ends, whether or not another node is there.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.process.request_stop();
    }

    /// Passes on what the process is told. `serves`: the repositories whose runs others would go on with.
    pub async fn pass_on(self, assignments: Arc<dyn Assignments>, serves: Vec<RepoName>) -> Infallible {
        self.process.stopped().await;
        if self.is_asked.load(Ordering::Acquire) || other_goes_on(&assignments, &serves).await {
            tracing::info!("the runs of this node end behind their visits; other nodes go on with them");
            self.runs.request_drain();
            tokio::select! {
                () = tokio::time::sleep(self.within) => {
                    tracing::warn!("a visit takes longer than cluster.drain_timeout: what is under way stops");
                }
                () = self.process.aborted() => {}
            }
        }
        if !self.process.aborting() {
            self.runs.request_stop();
            self.process.aborted().await;
        }
        self.runs.request_abort();
        std::future::pending().await
    }
}

/// Whether a living node takes runs of one of these repositories. Where that cannot be told, none does.
async fn other_goes_on(assignments: &Arc<dyn Assignments>, serves: &[RepoName]) -> bool {
    let found = blocking(assignments, |assignments| assignments.nodes()).await.unwrap_or_else(|error| {
        tracing::debug!("the other nodes cannot be looked at: {error}");
        Vec::new()
    });
    let goes_on = |node: &NodeRoom| !node.is_own && serves.iter().any(|repo| node.serves(repo));
    found.iter().any(goes_on)
}
