//! Approvals on this machine: an issue whose call was approved there is worked on again, for whoever asked for it.

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::state_format::AskedBy;

/// What is said of a call that was denied.
const DENIED: &str = "its call was decided against; it is gone on with if that call is approved after all";

impl Daemon {
    /// Goes on where a call waited for an approval that is there now.
    pub(super) async fn heed_approvals(&mut self) {
        let waiting: Vec<(IssueRef, AskedBy)> = self
            .watches
            .iter()
            .flat_map(|watch| {
                let repo = &watch.watched.name;
                watch.state.issues.iter().filter_map(move |(number, memory)| {
                    let requester = memory.waits_for_approval()?.clone();
                    Some((IssueRef { repo: repo.clone(), number: *number }, requester))
                })
            })
            .collect();
        for (issue, requester) in waiting {
            if self.supervisor.get(&issue).is_some() {
                continue;
            }
            match (self.deps.approved)(issue.clone()).await {
                Some(true) => {}
                Some(false) => {
                    self.note_denied(&issue);
                    continue;
                }
                None => continue,
            }
            match self.queue(&issue, requester).await {
                Ok(true) => tracing::info!(%issue, "a call was approved; the issue is worked on again"),
                Ok(false) => self.leave_parked(&issue),
                Err(error) if error.is_absent() => self.leave_parked(&issue),
                Err(error) => {
                    tracing::warn!(%issue, %error, "an approved call could not be gone on with yet; it is tried again");
                }
            }
        }
    }

    /// Says that what waited was decided against. Whoever decided may think better of it, and approve it.
    fn note_denied(&mut self, issue: &IssueRef) {
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        let Some(parked) = memory.and_then(|memory| memory.parked.as_mut()) else { return };
        if parked.text != DENIED {
            DENIED.clone_into(&mut parked.text);
            tracing::info!(%issue, "what waited for an approval was decided against");
            self.save();
        }
    }

    /// The issue is closed or gone: nothing goes on with it by itself.
    fn leave_parked(&mut self, issue: &IssueRef) {
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(memory) = memory {
            memory.wait_no_more();
        }
    }
}
