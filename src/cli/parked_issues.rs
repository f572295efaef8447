//! Issues of a state directory that wait for a person, whoever parked them: for `agentd status`, with and without a daemon.

use super::context::Context;
use super::error::CommandError;
use crate::conversation::parked::ParkedCell;
use crate::daemon::status_format::{IssueStatus, Status};
use crate::store::port::Cell;

/// Those that wait now, and those that were answered and that no run has gone on with. Blocks.
pub fn kept(context: &Context) -> Result<Vec<IssueStatus>, CommandError> {
    let state = context.state()?;
    let cells = state.store().cells().map_err(|error| CommandError::of_store(&error))?;
    let only = context.global.repo.as_ref();
    let mut found = Vec::new();
    for cell in cells {
        let Cell::Parked { repo, issue } = cell else { continue };
        let Some(number) = issue.number().filter(|_| only.is_none_or(|only| *only == repo)) else { continue };
        match ParkedCell::new(&state, &repo, &issue).read_now() {
            Ok(known) => {
                found.extend(known.now().map(|parked| IssueStatus::parked(&repo, number, parked)));
            }
            Err(error) => tracing::warn!(%repo, number, %error, "whether the issue waits cannot be told"),
        }
    }
    Ok(found)
}

/// What a daemon said, with what is kept: after its end that counts, and what it never heard of is told as well.
pub fn told_with(status: &mut Status, works: bool, kept: &[IssueStatus]) {
    if !works {
        status.waiting.retain(|one| !one.waits_for_person());
        status.parked.retain(|one| !one.waits_for_person());
    }
    for one in kept {
        let is_same = |known: &IssueStatus| known.repo == one.repo && known.issue == one.issue;
        let runs = status.running.iter().any(|run| run.repo == one.repo && run.issue == one.issue);
        if !runs && !status.parked.iter().chain(&status.waiting).any(is_same) {
            status.parked.push(one.clone());
        }
    }
}
