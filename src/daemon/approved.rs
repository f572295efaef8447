//! Approvals on this machine: an issue whose call was approved there is worked on again, for whoever asked for it.

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::state_format::ParkedLabel;
use crate::domain::issue::IssueKey;
use crate::github::Error;
use crate::issue::approval::PULL_REQUEST_OVER;
use crate::issue::status_comment;
use crate::record::rendering;

/// What is said of a call that was denied.
const CALL_DENIED: &str =
    "its call was decided against; it is gone on with if that call is approved after all";

impl Daemon {
    /// Goes on where a call waited for an approval that is there now.
    pub(super) async fn heed_approvals(&mut self) {
        for (issue, requester) in self.remembered(|memory| memory.waits_for_approval().cloned()) {
            if self.supervisor.get(&issue).is_some() {
                continue;
            }
            match (self.deps.approved)(issue.clone(), requester.principal().id).await {
                Some(true) => {}
                Some(false) => {
                    self.note_denied(&issue).await;
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
    async fn note_denied(&mut self, issue: &IssueRef) {
        let is_new = |parked: &&mut ParkedLabel| parked.text != CALL_DENIED;
        if self.parked(issue).filter(is_new).is_none() {
            return;
        }
        if self.tell_denied(issue, CALL_DENIED).await {
            tracing::info!(%issue, "what waited for an approval was decided against");
        }
    }

    /// The issue's comments and what is shown of it say that its calls were decided against, and by whom. False = GitHub does not answer
    /// now, and nothing says so yet.
    pub(super) async fn tell_denied(&mut self, issue: &IssueRef, why: &str) -> bool {
        let told = async {
            self.tell_dropped(issue, why).await?;
            let (client, status) = (self.quick_client(), rendering::marker(&IssueKey::Number(issue.number)));
            let found = client.find_comment(&issue.repo, issue.number, &status).await?;
            if let Some(text) = found.and_then(|found| rendering::approval_denied(&found.body, why)) {
                let of = (&issue.repo, issue.number);
                status_comment::ensure(&client, self.deps.state.store(), of, &text).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = told.await {
            tracing::warn!(%issue, %error, "that a call was decided against could not be told");
            if error.is_transient() {
                return false;
            }
        }
        if let Some(parked) = self.parked(issue) {
            why.clone_into(&mut parked.text);
        }
        self.save();
        true
    }

    /// The comment that asked for approvals says that nobody is asked any more, and why.
    pub(super) async fn tell_dropped(&self, issue: &IssueRef, why: &str) -> Result<(), Error> {
        let client = self.quick_client();
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), "approval");
        if client.find_comment(&issue.repo, issue.number, &marker).await?.is_some() {
            let text = rendering::approval_dropped(why);
            client.ensure_comment(&issue.repo, issue.number, &marker, &text).await?;
        }
        Ok(())
    }

    /// The pull request is over, and with it the calls that a follow-up run left to people.
    pub(super) async fn end_round_calls(&mut self, issue: &IssueRef) -> Result<(), String> {
        let Some(run) = (self.deps.end_calls)(issue.clone()).await? else { return Ok(()) };
        tracing::info!(%issue, %run, "what waited for an approval is over with the pull request");
        self.leave_parked(issue);
        let told = async {
            self.tell_dropped(issue, PULL_REQUEST_OVER).await?;
            let status = rendering::marker(&IssueKey::Number(issue.number));
            let found = self.quick_client().find_comment(&issue.repo, issue.number, &status).await?;
            match found.filter(|found| found.body.contains(&run.to_string())) {
                Some(found) => self.tell_status_over(issue, (run, &found.body), PULL_REQUEST_OVER).await,
                None => Ok(()),
            }
        };
        told.await.map_err(|error| error.to_string())
    }

    /// Nothing goes on with the issue by itself: it is closed or gone, or nobody decides any more.
    pub(super) fn leave_parked(&mut self, issue: &IssueRef) {
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(memory) = memory {
            memory.wait_no_more();
        }
    }
}
