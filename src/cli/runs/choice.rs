//! Which runs are listed.

use chrono::DateTime;

use crate::cli::args::ListArgs;
#[cfg(feature = "nats")]
use crate::cli::elsewhere;
#[cfg(feature = "nats")]
use crate::domain::cluster::run_row::RunRow;
use crate::domain::facts::RunFacts;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::Stop;
use crate::record::finish::RunState;
use crate::store::run_dir::RunDir;

impl ListArgs {
    /// Whether a run of the cluster is one of those that were asked for.
    #[cfg(feature = "nats")]
    pub(in crate::cli) fn takes_row(&self, row: &RunRow, now: i64) -> bool {
        let of_issue = self.issue.as_ref().is_none_or(|issue| {
            row.issue.as_ref() == Some(&issue.key)
                && issue.repo.as_ref().is_none_or(|repo| row.repo.eq_ignore_ascii_case(&repo.to_string()))
        });
        let stop = elsewhere::stop_of(row);
        of_issue
            && self.state.is_none_or(|state| state.is_of_stop(stop.as_ref(), row.issue.is_some()))
            && self.since.is_none_or(|since| row.started_at >= since.ms(now))
    }

    /// Whether nothing but the repository chooses.
    pub(in crate::cli) fn takes_all(&self) -> bool {
        self.state.is_none() && self.issue.is_none() && self.since.is_none()
    }

    /// Whether a run is one of those that were asked for.
    pub(super) fn takes(&self, dir: &RunDir, facts: &RunFacts, standing: RunState, now: i64) -> bool {
        let of_issue = self.issue.as_ref().is_none_or(|issue| {
            let key = facts.lease.as_ref().map(|lease| &lease.issue.key);
            key == Some(&issue.key) && issue.repo.as_ref().is_none_or(|repo| *repo == dir.repo)
        });
        of_issue
            && self.state.is_none_or(|state| state.is_of(facts, standing))
            && self.since.is_none_or(|since| facts.started_at >= since.ms(now))
    }

    /// The same of one of which the result alone can be read.
    pub(super) fn takes_output(&self, dir: &RunDir, output: &RunOutput, now: i64) -> bool {
        let of_issue = self.issue.as_ref().is_none_or(|issue| {
            let key = output.mapping.as_ref().map(|mapping| &mapping.issue);
            key == Some(&issue.key) && issue.repo.as_ref().is_none_or(|repo| *repo == dir.repo)
        });
        let stop = Stop::new(output.stop_detail, String::new());
        let started = DateTime::parse_from_rfc3339(&output.started_at).map(|at| at.timestamp_millis());
        of_issue
            && self.state.is_none_or(|state| state.is_of_stop(Some(&stop), true))
            && self.since.is_none_or(|since| started.is_ok_and(|at| at >= since.ms(now)))
    }
}
