//! Recovery after a daemon or a sweep was killed or stopped. A run continues if its label is still there, if agentd
//! itself had removed it, or if it needed none. If a person removed the label, the run is finished without more work
//! (D37, D61).

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::supervise::UnfinishedRun;
use crate::domain::issue_state::IssueState;
use crate::domain::stop::{Stop, StopDetail};
use crate::github::IssueSnapshot;
use crate::issue::cut_off_runs::BegunBy;

impl Daemon {
    /// Looks at each unfinished run when GitHub gives the state of its issue. If GitHub cannot be asked now, it is
    /// asked next time.
    pub(super) async fn recover(&mut self) {
        let client = self.quick_client();
        let trigger = self.deps.labels.trigger.clone();
        for left in std::mem::take(&mut self.unfinished) {
            let UnfinishedRun { issue, begun } = left.clone();
            let Some(watch) = self.watch_of(&issue.repo) else { continue };
            if watch.candidate(issue.number).is_some() {
                continue;
            }
            // Its work is a person's, whatever became of the run: what they give back is gone on with.
            if self.is_taken_meanwhile(&issue).await {
                continue;
            }
            let Some(watch) = self.watch_of(&issue.repo) else { continue };
            match client.issue(&issue.repo, issue.number).await {
                // The poll lists it.
                Ok(fresh) if fresh.issue.open && fresh.has_label(&trigger) => {}
                Ok(fresh) if fresh.issue.open && begun == BegunBy::WritingLabels => {
                    tracing::info!(%issue, "a killed run had begun to write its labels; it is brought to its end");
                    watch.completing.insert(issue.number);
                    watch.recover(fresh);
                }
                Ok(fresh) if fresh.issue.open && begun == BegunBy::Swept => {
                    tracing::info!(%issue, "a run of a sweep was cut off; it is gone on with");
                    watch.go_on_sweeping(fresh);
                }
                Ok(fresh) if fresh.issue.open && begun == BegunBy::FollowUp => self.look_anew(&issue),
                Ok(fresh) if fresh.issue.open && begun == BegunBy::GoesOn => {
                    tracing::info!(%issue, "a run that went on with what a person decided was cut off; it is gone on with");
                    watch.recover(fresh);
                }
                Err(error) if !error.is_not_here() => {
                    if self.troubles.again(format!("run of {issue}"), &error.to_string()) {
                        tracing::warn!(%issue, %error, "the issue of a run that was cut off could not be read yet; it is tried again");
                    }
                    self.unfinished.push(left);
                }
                Ok(fresh) if self.is_said_to_have_ended(&fresh) => self.end_here(issue).await,
                _ => self.give_up(issue).await,
            }
        }
    }

    /// Whether the labels say how a run ended that is cut off for all that is known here, as after an older copy of the state directory
    /// was put back. Who only takes the trigger label off leaves the label of the run under way.
    fn is_said_to_have_ended(&self, fresh: &IssueSnapshot) -> bool {
        let labels = &self.deps.labels;
        !fresh.has_label(&labels.running) && labels.ends().any(|label| fresh.has_label(label))
    }

    /// Ends the record of such a run. What its issue says stays.
    async fn end_here(&mut self, issue: IssueRef) {
        if !(self.deps.abandon)(issue.clone()).await {
            return;
        }
        tracing::warn!(
            %issue,
            "the issue's labels say how its last run ended, and the state directory does not know it, as after an older copy of it \
             was put back: the issue is left as it is"
        );
        if let Some(watch) = self.watch_of(&issue.repo)
            && let Some(memory) = watch.state.issues.get_mut(&issue.number)
        {
            (memory.requester, memory.answers) = (None, None);
        }
        self.save();
    }

    /// A follow-up run was not brought to its end: its issue is done as before, and what is wrong with the pull request now
    /// starts another one, which goes on from there.
    fn look_anew(&mut self, issue: &IssueRef) {
        tracing::info!(%issue, "a follow-up run was cut off; its pull request is looked at anew");
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        watch.state.attend.insert(issue.number);
        if let Some(followed) = &mut watch.state.issues.entry(issue.number).or_default().followed {
            followed.take_back();
            followed.fingerprint.clear();
        }
        if let Some(checks) = &mut watch.state.issues.entry(issue.number).or_default().checks {
            checks.answered.clear();
        }
        let text =
            "A further run for its pull request was cut off; the pull request is looked at anew.".to_owned();
        self.plan_outcome(issue, IssueState::Done, "follow_up_cut_off", Some(text));
    }

    async fn give_up(&mut self, issue: IssueRef) {
        if (self.deps.abandon)(issue.clone()).await {
            let message = "agentd was killed or stopped in the middle of the run, and when it was back the issue was \
                           closed or its trigger label was off.";
            let stop = Stop::new(StopDetail::Interrupted, message);
            self.take_outcome((issue, stop.into()));
        }
    }
}
