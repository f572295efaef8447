//! What a daemon has of a repository that it polls in a cluster.

use futures::FutureExt as _;
use serde_json::Value;

use crate::store::port::HeldLease;

/// That this node polls a repository.
#[derive(Debug)]
pub(in crate::daemon) struct Polling {
    /// `None` while what is remembered is written.
    pub held: Option<Box<dyn HeldLease>>,
    /// What the others know.
    pub shared: Value,
}

impl Polling {
    /// Whether another node may poll it now.
    pub fn is_lost(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.lost().now_or_never().is_some())
    }
}
