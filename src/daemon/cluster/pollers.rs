//! In a cluster: which repositories this node polls. A repository is one node's, for as long as its session lives; the others look
//! whether it does. What the poller remembers of the repository goes with it to the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::handing_over::next_poller;
use super::polling::Polling;
use crate::daemon::hints::Hinted;
use crate::daemon::main_loop::Daemon;
use crate::daemon::poll::Watch;
use crate::daemon::snapshot::IssueRef;
use crate::daemon::state_format::RepositoryState;
use crate::daemon::supervise::UnfinishedRun;
use crate::domain::name::RepoName;
use crate::github::{IssueSnapshot, PageCache};
use crate::issue::cut_off_runs::BegunBy;
use crate::store::assignments::Wake;
use crate::store::port::{HeldLease, LeaseKey, LeaseNotTaken, StoreError};
use crate::store::run_dir::StateDir;

/// A repository that was taken, and what is remembered of it.
pub(in crate::daemon) type Taken = (Box<dyn HeldLease>, Option<RepositoryState>);

/// What is remembered of a repository, for other nodes: the pages of unchanged lists are each node's own.
fn told(state: &RepositoryState) -> Value {
    let state = RepositoryState { pages: PageCache::default(), ..state.clone() };
    serde_json::to_value(state).unwrap_or_default()
}

impl Daemon {
    /// In a cluster: why this node may not take part in it; `None` = it may.
    pub fn refused(&self) -> Option<&str> {
        self.cluster.refused.as_deref()
    }

    /// The state directory that it works with.
    pub fn state(&self) -> &StateDir {
        &self.deps.state
    }

    /// In a cluster: takes over what the pollers of the repositories remember, for a look that is none of theirs. Blocks.
    pub(in crate::daemon) fn read_pollers(&mut self) -> Result<(), StoreError> {
        if self.deps.state.shared().is_none() {
            return Ok(());
        }
        for watch in &mut self.watches {
            let found = self.deps.state.store().look(&LeaseKey::Poller(watch.watched.name.clone()));
            if let Some(remembered) = remembered(found.and_then(|found| found.record).as_ref())? {
                watch.state = remembered;
            }
        }
        Ok(())
    }

    /// Lets go of what another node may have, and takes what nobody polls.
    pub(in crate::daemon) async fn look_at_pollers(&mut self) {
        if self.deps.look_at_pollers.is_none() {
            return;
        }
        let lost = self.watches.extract_if(.., |watch| watch.polling.as_ref().is_none_or(Polling::is_lost));
        for watch in lost.collect::<Vec<_>>() {
            tracing::warn!(repo = %watch.watched.name, "another node may poll the repository now");
            self.cluster.resting.push(Watch::new(watch.watched, watch.state));
        }
        self.look_at_github().await;
        let nodes = self.living().await;
        self.cluster.own_name = nodes
            .iter()
            .find(|node| node.is_own)
            .map(|node| node.node.clone())
            .or(self.cluster.own_name.take());
        // Each works with the same credential, as a rule.
        self.deps.client.share_pace(nodes.len());
        self.hand_over(&nodes).await;
        self.look_for_left().await;
        self.cluster.nodes.clone_from(&nodes);
        if self.cluster.store_health.schema.is_some() {
            // What nobody polls is for who knows the schema in force.
            return;
        }
        // A stop may end this at any moment: a repository is always in one of both lists.
        let names: Vec<RepoName> =
            self.cluster.resting.iter().map(|watch| watch.watched.name.clone()).collect();
        for name in names {
            let comes_first = next_poller(&name, &nodes).is_none_or(|next| next.is_own);
            // Who comes first takes what nobody polls; where it does not, another one does at its next look.
            if !comes_first && self.cluster.left_to_first.insert(name.clone()) {
                continue;
            }
            self.cluster.left_to_first.remove(&name);
            match self.taken(&name).await {
                Ok((held, remembered)) => {
                    tracing::info!(repo = %name, "this node polls the repository now");
                    self.begin_to_poll(&name, held, remembered);
                    self.troubles.over(&format!("polling {name}"));
                    self.adopt(&name).await;
                    // What works is gone on with already.
                    let supervisor = &self.supervisor;
                    self.unfinished.retain(|left| supervisor.get(&left.issue).is_none());
                    let left = (self.deps.find_left)(name).await;
                    self.unfinished.extend(left);
                }
                Err(LeaseNotTaken::Busy(_) | LeaseNotTaken::Full { .. }) => {}
                Err(LeaseNotTaken::Store(StoreError::NameTaken(words) | StoreError::TooNew(words))) => {
                    self.cluster.refused = Some(words);
                }
                // Whose key is no node's never becomes one. A right that is taken from a node may be given back.
                Err(LeaseNotTaken::Store(error))
                    if error.is_for_want_of_a_right() && self.cluster.own_name.is_none() =>
                {
                    self.cluster.refused = Some(error.to_string());
                }
                Err(LeaseNotTaken::Store(error)) => {
                    if self.troubles.again(format!("polling {name}"), &error.to_string()) {
                        tracing::warn!(repo = %name, "it cannot be told who polls the repository: {error}");
                    }
                }
            }
        }
    }

    /// Takes a repository that nobody polls, or that was given to this node, with what is remembered of it.
    pub(in crate::daemon) async fn taken(&self, repo: &RepoName) -> Result<Taken, LeaseNotTaken> {
        let (store, lease) = (self.deps.state.store().clone(), LeaseKey::Poller(repo.clone()));
        let taken = tokio::task::spawn_blocking(move || {
            let held = store.take(&lease, "daemon", Duration::ZERO)?;
            // A held lease that is not used is given back here, which blocks.
            remembered(held.record()).map(|state| (held, state)).map_err(LeaseNotTaken::Store)
        });
        taken.await.unwrap_or_else(|panic| {
            let (action, place) = ("take", format!("the polling of {repo}"));
            Err(LeaseNotTaken::Store(StoreError::Failed { action, place, words: panic.to_string() }))
        })
    }

    /// This node polls a repository from now on.
    pub(in crate::daemon) fn begin_to_poll(
        &mut self,
        repo: &RepoName,
        held: Box<dyn HeldLease>,
        remembered: Option<RepositoryState>,
    ) {
        let Some(place) = self.cluster.resting.iter().position(|watch| watch.watched.name == *repo) else {
            return;
        };
        let remembered = remembered.map(|remembered| remembered.for_start(self.started_at));
        let mut watch = begun(self.cluster.resting.remove(place), held, remembered);
        let left = std::mem::take(&mut watch.state.cut_off).into_iter();
        let left = left
            .map(|(number, begun)| UnfinishedRun { issue: IssueRef { repo: repo.clone(), number }, begun });
        self.unfinished.extend(left);
        self.watches.push(watch);
    }

    /// Deliveries, and people who ask to look now, may come to any node: those that poll what they mean are told.
    pub(in crate::daemon) fn wake_pollers(&self, hinted: &Hinted) {
        let Some(assignments) = &self.cluster.assignments else { return };
        let resting =
            self.cluster.resting.iter().map(|watch| watch.watched.name.to_string().to_ascii_lowercase());
        let is_meant = |name: &String| hinted.now || hinted.somewhere || hinted.repositories.contains(name);
        let meant: Vec<Wake> =
            resting.filter(is_meant).map(|repository| Wake { repository, now: hinted.now }).collect();
        if !meant.is_empty() {
            assignments.wake(meant);
        }
    }

    /// Whether this node may act for the repositories that it polls. In a cluster only while its session is acknowledged.
    pub(in crate::daemon) fn may_poll(&mut self) -> bool {
        self.watches.iter_mut().all(|watch| match &mut watch.polling {
            Some(Polling { held: Some(held), .. }) => held.renew(Duration::ZERO).is_ok(),
            Some(_) => false,
            None => true,
        })
    }

    /// Gives what is remembered of the repositories to the next node that polls them. False: not all of it is there yet.
    pub(in crate::daemon) async fn share(&mut self) -> bool {
        let mut is_all = true;
        for watch in &mut self.watches {
            let Some(polling) = &mut watch.polling else { continue };
            watch.state.cut_off =
                cut_off(&watch.watched.name, &self.unfinished, &watch.recovering, &watch.completing);
            let now = told(&watch.state);
            if now == polling.shared {
                continue;
            }
            let Some(mut held) = polling.held.take() else {
                is_all = false;
                continue;
            };
            if held.renew(Duration::ZERO).is_err() {
                // It is shared once the session is acknowledged again; it is not waited for.
                polling.held = Some(held);
                is_all = false;
                continue;
            }
            let value = now.clone();
            let written = tokio::task::spawn_blocking(move || {
                let written = held.set_record(value);
                (held, written)
            });
            match written.await {
                Ok((held, Ok(()))) => *polling = Polling { held: Some(held), shared: now },
                Ok((held, Err(error))) => {
                    tracing::warn!(repo = %watch.watched.name, "what is remembered is not shared: {error}");
                    polling.held = Some(held);
                    is_all = false;
                }
                Err(panic) => {
                    tracing::error!(repo = %watch.watched.name, %panic, "what is remembered is lost");
                    is_all = false;
                }
            }
        }
        is_all
    }

    /// Leaves the repositories to other nodes.
    pub(in crate::daemon) async fn give_back_all(&mut self) {
        self.share().await;
        for watch in &mut self.watches {
            let Some(mut held) = watch.polling.take().and_then(|polling| polling.held) else { continue };
            if held.renew(Duration::ZERO).is_err() {
                // That ends with the session.
                continue;
            }
            let released = tokio::task::spawn_blocking(move || held.release());
            if let Ok(Err(error)) = released.await {
                tracing::debug!("a repository could not be given back: {error}");
            }
        }
    }
}

/// The runs that are still to be gone on with, for a later poller.
fn cut_off(
    repo: &RepoName,
    unfinished: &[UnfinishedRun],
    recovering: &[IssueSnapshot],
    completing: &BTreeSet<u64>,
) -> BTreeMap<u64, BegunBy> {
    let of_repo = unfinished.iter().filter(|left| left.issue.repo == *repo);
    let left = of_repo.map(|left| (left.issue.number, left.begun));
    let numbers = recovering.iter().filter_map(|issue| issue.issue.key.number());
    let begun = |number| match completing.contains(&number) {
        true => BegunBy::WritingLabels,
        false => BegunBy::GoesOn,
    };
    left.chain(numbers.map(|number| (number, begun(number)))).collect()
}

/// What the last poller of a repository remembered. What cannot be read, such as a later version's, is left to who can.
fn remembered(record: Option<&Value>) -> Result<Option<RepositoryState>, StoreError> {
    let read = record.map(|record| serde_json::from_value(record.clone())).transpose();
    let unread = |error: serde_json::Error| StoreError::Failed {
        action: "read",
        place: "what the last poller remembered".to_owned(),
        words: error.to_string(),
    };
    read.map_err(unread)
}

/// A repository that this node begins to poll. What this node itself knew of lists may be used.
fn begun(watch: Watch, held: Box<dyn HeldLease>, remembered: Option<RepositoryState>) -> Watch {
    let mut state = RepositoryState { cut_off: BTreeMap::new(), ..watch.state };
    if let Some(remembered) = remembered {
        state = RepositoryState { pages: state.pages, ..remembered };
    }
    let shared = held.record().cloned().unwrap_or_default();
    let mut watch = Watch::new(watch.watched, state);
    watch.polling = Some(Polling { held: Some(held), shared });
    watch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_of_the_last_poller_is_not_written_over() {
        assert!(matches!(remembered(None), Ok(None)));
        let told = told(&RepositoryState::default());
        assert!(matches!(remembered(Some(&told)), Ok(Some(_))));
        assert!(matches!(
            remembered(Some(&serde_json::json!("another form"))),
            Err(StoreError::Failed { .. })
        ));
    }
}
