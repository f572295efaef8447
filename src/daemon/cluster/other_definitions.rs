//! In a cluster: runs of dead nodes that some nodes may not go on with, because their definition is another one. Each node with room is
//! asked once. Where none may, one that may is waited for, for a lease; then the work is done anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::daemon::snapshot::IssueRef;
use crate::domain::run::RunId;
use crate::sys::clock::Stopwatch;

/// What is known of such runs.
#[derive(Debug, Default)]
pub(in crate::daemon) struct OtherDefinitions(BTreeMap<IssueRef, Known>);

#[derive(Debug)]
struct Known {
    run: RunId,
    since: Stopwatch,
    /// Nodes that may not go on with it.
    refused_by: BTreeSet<String>,
}

impl OtherDefinitions {
    /// A node may not go on with a run.
    pub fn note(&mut self, issue: IssueRef, run: RunId, node: String) {
        let fresh = || Known { run, since: Stopwatch::start(), refused_by: BTreeSet::new() };
        let known = self.0.entry(issue).or_insert_with(fresh);
        if known.run != run {
            *known = fresh();
        }
        known.refused_by.insert(node);
    }

    /// A run has begun.
    pub fn forget(&mut self, issue: &IssueRef) {
        self.0.remove(issue);
    }

    /// Whether a node may have a run, as far as is known.
    pub fn may(&self, issue: &IssueRef, node: &str, lease: Duration) -> bool {
        let known = self.0.get(issue);
        known.is_none_or(|known| known.since.elapsed() >= lease || !known.refused_by.contains(node))
    }

    /// Whether a node that may is waited for; `None` = there is no such run.
    pub fn is_waiting(&self, issue: &IssueRef, lease: Duration) -> Option<bool> {
        self.0.get(issue).map(|known| known.since.elapsed() < lease)
    }
}
