//! The issue while a run works on it (D39, D103), read before a visit, which is free while it has not changed: before each
//! one for an agent that asks for the issue's state, and now and then for a run in the foreground, which has nobody else who
//! looks whether a person has closed it or taken the trigger label off.

use std::time::Duration;

use crate::domain::completion::Completion;
use crate::domain::issue::ObjectiveSource;
use crate::domain::stop::Stop;
use crate::github::Fetched;
use crate::issue::unwanted;
use crate::lifecycle::run::Run;

/// How long a look may take; the next visit looks again.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a run in the foreground goes on without a look: a look takes as long as GitHub's answer, and visits may be quick.
const PAUSE: Duration = Duration::from_secs(1);

/// What the last look found.
#[derive(Debug, Default)]
pub struct Polled {
    etag: Option<String>,
    /// When it was, in the run's time. The run begins with one.
    at: Duration,
}

impl Polled {
    /// Looks at the issue. `Err`: nobody wants the work any more, so the run ends here. An issue that cannot be read
    /// changes nothing.
    pub async fn look(&mut self, run: &Run<'_>) -> Result<(), Stop> {
        let now = run.clock.elapsed();
        let alone = run.plan.request.source == ObjectiveSource::Cli && now >= self.at + PAUSE;
        let looks = alone || run.plan.loaded.definition.completion == Completion::ExternalState;
        let (true, Some(github), Some(number)) = (looks, &run.context.github, run.tracked_issue()) else {
            return Ok(());
        };
        self.at = now;
        match github.patient(PATIENCE).issue_if_changed(&run.context.repo, number, self.etag.as_deref()).await
        {
            Ok(Fetched::Unchanged) => Ok(()),
            Ok(Fetched::Fresh(issue, _)) if !issue.issue.open => Err(unwanted::closed()),
            Ok(Fetched::Fresh(issue, etag)) => {
                self.etag = etag;
                if is_unlabelled(run, &issue.issue.labels) { Err(unwanted::unlabelled()) } else { Ok(()) }
            }
            Err(error) => match unwanted::not_here(&error) {
                Some(stop) => Err(stop),
                None => {
                    tracing::debug!(%error, "the issue could not be looked at before a visit");
                    Ok(())
                }
            },
        }
    }
}

/// Whether the label that the run began with is gone. In a cluster a node that was overtaken would see the end of the
/// other one's run; there the poller looks.
fn is_unlabelled(run: &Run<'_>, labels: &[String]) -> bool {
    let trigger = &run.context.config.github.labels.trigger;
    let has = |labels: &[String]| labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    run.context.state.shared().is_none() && has(&run.plan.issue.labels) && !has(labels)
}
