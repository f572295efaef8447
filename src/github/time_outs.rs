//! Jobs of GitHub Actions that ran into their time limit: GitHub calls them cancelled, and only an annotation says why.

use super::checks::is_denied;
use super::client::Client;
use super::error::Error;
use crate::domain::head_check::{CheckOutcome, HeadCheck};
use crate::domain::name::RepoName;

/// What GitHub writes then, in lower case.
const OVER: &str = "exceeded the maximum execution time";
/// Annotations of one check run that are looked at.
const MOST: usize = 50;
/// Check runs that are remembered.
const REMEMBERED: usize = 1_000;

impl Client {
    /// Cancelled checks whose time was over have timed out. Each is asked for once.
    pub(super) async fn tell_time_outs(
        &self,
        repo: &RepoName,
        checks: &mut [HeadCheck],
    ) -> Result<(), Error> {
        for check in checks.iter_mut().filter(|check| check.outcome == CheckOutcome::Cancelled) {
            let Some(run) = check.run.filter(|_| check.job.is_some() && check.annotations > 0) else {
                continue;
            };
            if self.has_timed_out(repo, run).await? {
                check.outcome = CheckOutcome::Failed("timed_out".to_owned());
            }
        }
        Ok(())
    }

    async fn has_timed_out(&self, repo: &RepoName, run: u64) -> Result<bool, Error> {
        let key = (repo.clone(), run);
        if let Some(known) = self.memory().time_outs.lock().await.get(&key) {
            return Ok(*known);
        }
        let found = match self.annotations(repo, run, MOST).await {
            Ok(found) => found.iter().any(|one| one.message.to_ascii_lowercase().contains(OVER)),
            Err(error) if is_denied(&error) => false,
            Err(error) => return Err(error),
        };
        let mut known = self.memory().time_outs.lock().await;
        known.insert(key, found);
        if known.len() > REMEMBERED {
            known.pop_first();
        }
        Ok(found)
    }
}
