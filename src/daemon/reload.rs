//! Reload: what is on disk is in force from the next start on; what is broken is said, and the last good stays (S9, S10).

use std::time::Duration;

use super::parts::Parts;
use super::poll::Watch;
use super::watch::Daemon;

/// Changes in this time are one: editors write more than once.
const TOGETHER: Duration = Duration::from_millis(300);

impl Daemon {
    /// Reads the configuration again. Runs under way keep what they started with.
    pub(super) async fn reload(&mut self) {
        let Some((reload, changed)) = self.parts.reload.clone() else { return };
        tokio::time::sleep(TOGETHER).await;
        // What came meanwhile is in what is read now.
        let _more = tokio::time::timeout(Duration::ZERO, changed.notified()).await;
        match reload().await {
            Ok(parts) => {
                self.take_over(parts);
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

    fn take_over(&mut self, new: Parts) {
        let mut before = std::mem::take(&mut self.watches);
        for watched in &new.repositories {
            let place = before.iter().position(|watch| watch.watched.name == watched.name);
            let mut watch = match place {
                Some(place) => before.swap_remove(place),
                None => Watch::new(watched.clone(), Default::default()),
            };
            watch.watched = watched.clone();
            self.watches.push(watch);
        }
        // A repository that is no longer watched stays until its runs have ended.
        let running = self.supervisor.issues();
        before.retain(|watch| running.iter().any(|issue| issue.repo == watch.watched.name));
        for watch in &mut before {
            watch.listing.clear();
            watch.state.sweeping.clear();
        }
        self.watches.append(&mut before);
        let old = std::mem::replace(&mut self.parts, new);
        self.parts.shutdown = old.shutdown;
        self.parts.state_dir = old.state_dir;
        self.parts.listen = old.listen;
        self.parts.reload = old.reload;
    }
}
