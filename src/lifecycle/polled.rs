//! The issue of an agent whose verdict is the issue's state (`poll:state`, D103). It is read before each visit, which
//! is free while it has not changed, and saves a visit when a person has closed it.

use std::time::Duration;

use super::run::Run;
use crate::domain::completion::Completion;
use crate::domain::stop::{Stop, StopDetail};
use crate::github::{ErrorKind, Fetched};
use crate::repository::context::RepositoryContext;

/// How long a look may take; the next visit looks again.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the last look found.
#[derive(Debug, Default)]
pub struct Polled {
    etag: Option<String>,
}

impl Polled {
    /// Looks at the issue. `Err`: it is closed, so the run ends here. An issue that cannot be read changes nothing.
    pub async fn look(&mut self, run: &Run<'_>, context: &RepositoryContext) -> Result<(), Stop> {
        let watches = run.plan.loaded.definition.completion == Completion::ExternalState;
        let (true, Some(github), Some(number)) = (watches, &context.github, run.tracked_issue()) else {
            return Ok(());
        };
        match github.patient(PATIENCE).issue_if_changed(&context.repo, number, self.etag.as_deref()).await {
            Ok(Fetched::Unchanged) => Ok(()),
            Ok(Fetched::Fresh(issue, etag)) if issue.issue.open => {
                self.etag = etag;
                Ok(())
            }
            Ok(Fetched::Fresh(..)) => Err(closed()),
            Err(error) if error.is_absent() || error.kind == ErrorKind::Moved => Err(closed()),
            Err(error) => {
                tracing::debug!(%error, "the issue could not be looked at before a visit");
                Ok(())
            }
        }
    }
}

fn closed() -> Stop {
    Stop::new(StopDetail::IssueClosed, "The issue was closed while the run worked on it.")
}
