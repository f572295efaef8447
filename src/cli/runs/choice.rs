//! Which runs are listed.

use crate::cli::args::ListArgs;
use crate::domain::facts::RunFacts;
use crate::record::finish::Standing;
use crate::store::run_dir::RunDir;

impl ListArgs {
    /// Whether nothing but the repository chooses.
    pub(super) fn takes_all(&self) -> bool {
        self.state.is_none() && self.issue.is_none() && self.since.is_none()
    }

    /// Whether a run is one of those that were asked for.
    pub(super) fn takes(&self, dir: &RunDir, facts: &RunFacts, standing: Standing, now: i64) -> bool {
        let of_issue = self.issue.as_ref().is_none_or(|issue| {
            let number = facts.lease.as_ref().and_then(|lease| lease.issue.key.number());
            number == Some(issue.number) && issue.repo.as_ref().is_none_or(|repo| *repo == dir.repo)
        });
        of_issue
            && self.state.is_none_or(|state| state.is_of(facts, standing))
            && self.since.is_none_or(|since| facts.started_at >= since.ms(now))
    }
}
