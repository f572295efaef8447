//! Reload: the files on disk count from the next start on. A broken file is reported, and the last known good one stays
//! (S9, S10).

use std::time::Duration;

use super::dependencies::Dependencies;
use super::main_loop::Daemon;
use super::poll::Watch;
use super::snapshot::IssueRef;
use super::state_format::BackOff;
use crate::repository::shared_limits;

/// Changes in this time are one: editors write more than once.
const TOGETHER: Duration = Duration::from_millis(300);

impl Daemon {
    /// Reads the configuration again. Runs under way keep what they started with.
    pub(super) async fn reload(&mut self) {
        let Some((reload, changed)) = self.deps.reload.clone() else { return };
        tokio::time::sleep(TOGETHER).await;
        // What came meanwhile is in what is read now.
        let _more = tokio::time::timeout(Duration::ZERO, changed.notified()).await;
        match reload().await {
            Ok(deps) => {
                self.take_over(deps);
                self.reload_error = None;
                tracing::info!(
                    repositories = self.watches.len(),
                    "the configuration was read again and is in force"
                );
            }
            Err(error) => {
                tracing::error!(%error, "the configuration on disk cannot be used; the last good one stays in force");
                self.reload_error = Some(error);
            }
        }
        self.save();
    }

    /// Tries again to open repositories that could not be opened, after longer and longer pauses. The others go on
    /// meanwhile.
    pub(super) async fn open_rest(&mut self) {
        let now = self.deps.clock.now();
        if self.deps.unopened.is_empty() || self.opening.as_ref().is_some_and(|pause| pause.holds(now)) {
            return;
        }
        // The first time is now: it was tried at the start.
        let Some(open) = self.deps.open_again.clone().filter(|_| self.opening.is_some()) else {
            self.opening = Some(BackOff::held(None, now, "out of reach"));
            return;
        };
        match open().await {
            Ok(deps) => self.take_over(deps),
            Err(error) => self.deps.unopened.iter_mut().for_each(|(_, why)| why.clone_from(&error)),
        }
        self.opening = match self.deps.unopened.is_empty() {
            true => None,
            false => Some(BackOff::held(self.opening.as_ref(), now, "out of reach")),
        };
        for (repo, why) in self.deps.unopened.clone() {
            if self.troubles.again(format!("opening {repo}"), &why) {
                tracing::warn!(%repo, why, "a repository cannot be opened yet; it is tried again");
            }
        }
        self.save();
    }

    /// Whether the configuration names a repository, so that it is looked at.
    pub(super) fn is_configured(&self, watch: &Watch) -> bool {
        self.deps.repositories.iter().any(|watched| watched.name == watch.watched.name)
    }

    /// Forgets the repositories that were taken out of the configuration, once their last run has ended and its labels are written.
    pub(super) fn leave_repositories(&mut self) {
        let running = self.supervisor.issues();
        let configured: Vec<_> = self.deps.repositories.iter().map(|watched| watched.name.clone()).collect();
        let is_over = |watch: &mut Watch| {
            let name = &watch.watched.name;
            let is_writing = || watch.state.issues.values().any(|memory| memory.pending_outcome.is_some());
            !configured.contains(name) && !running.iter().any(|issue| issue.repo == *name) && !is_writing()
        };
        // In a cluster the repository is given back, which may take a while.
        for watch in self.watches.extract_if(.., is_over) {
            tracing::info!(repo = %watch.watched.name, "the repository is left: the configuration names it no more");
            drop(tokio::task::spawn_blocking(move || drop(watch.polling)));
        }
    }

    fn take_over(&mut self, new: Dependencies) {
        let mut before = std::mem::take(&mut self.watches);
        before.append(&mut self.cluster.resting);
        for watched in &new.repositories {
            let place = before.iter().position(|watch| watch.watched.name == watched.name);
            let mut watch = match place {
                Some(place) => before.swap_remove(place),
                None => Watch::new(watched.clone(), self.saved.of(&watched.name)),
            };
            watch.watched = watched.clone();
            // What was configured otherwise is tried at once.
            (watch.state.pause, watch.state.suspicion) = (None, None);
            self.watches.push(watch);
        }
        // A repository that is no longer watched stays until its runs have ended.
        let running = self.supervisor.issues();
        let left =
            before.extract_if(.., |watch| !running.iter().any(|issue| issue.repo == watch.watched.name));
        // In a cluster the repository is given back, which may take a while.
        left.for_each(|watch| drop(tokio::task::spawn_blocking(move || drop(watch.polling))));
        for watch in &mut before {
            watch.listing.clear();
            watch.state.sweeping.clear();
        }
        self.watches.append(&mut before);
        if self.deps.look_at_pollers.is_some() {
            let (polled, resting) =
                std::mem::take(&mut self.watches).into_iter().partition(|watch| watch.polling.is_some());
            (self.watches, self.cluster.resting) = (polled, resting);
        }
        let old = std::mem::replace(&mut self.deps, new);
        // What dead processes left in a repository is looked at once, when it is opened.
        let is_new = |issue: &IssueRef| {
            let was_unopened = old.unopened.iter().any(|(repo, _)| *repo == issue.repo);
            was_unopened && self.deps.repositories.iter().any(|one| one.name == issue.repo)
        };
        let left = self.deps.unfinished.iter().filter(|left| is_new(&left.issue));
        self.unfinished.extend(left.cloned());
        for (repo, _) in &old.unopened {
            if self.deps.repositories.iter().any(|one| one.name == *repo) {
                let times = self.troubles.over(&format!("opening {repo}")).unwrap_or_default();
                tracing::info!(%repo, times, "the repository is open now");
            }
        }
        self.deps.shutdown = old.shutdown;
        self.deps.state = old.state;
        self.deps.reload = old.reload;
        self.deps.open_again = old.open_again;
        self.cluster.shared_limits = shared_limits::share(&self.deps.client, &self.deps.state);
    }
}
