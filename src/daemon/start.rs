//! The start of one run: the issue read once more, what was heard taken, and the request made.

use super::main_loop::Daemon;
use super::outcome::RunSummary;
use super::snapshot::{IssueRef, Selection};
use super::state_format::AskedBy;
use super::supervise::{RunHandle, StartRequest};
use crate::conversation::inbox::InboxCell;
use crate::conversation::inbox::inbox_format::Inbox;
use crate::domain::issue::ObjectiveSource;
use crate::github::{Error, IssueSnapshot};

impl Daemon {
    /// Reads the issue once more and starts the run (S36). False = what was decided on has changed; decide again.
    pub(super) async fn start(&mut self, issue: &IssueRef) -> bool {
        if self.is_taken_meanwhile(issue).await {
            return false;
        }
        if !self.is_still_due(issue).await {
            return true;
        }
        let fresh = match self.quick_client().issue(&issue.repo, issue.number).await {
            Ok(fresh) => fresh,
            Err(error) if error.is_transient() => return true,
            Err(error) => {
                tracing::info!(%issue, %error, "not started");
                if let Some(watch) = self.watch_of(&issue.repo) {
                    watch.drop_candidate(issue.number);
                }
                return true;
            }
        };
        let trigger = self.deps.labels.trigger.clone();
        let Ok(labelled) = self.labelled_follow_up(issue, &fresh).await else { return true };
        let Some(watch) = self.watch_of(&issue.repo) else { return true };
        let Some((listed, selection)) = watch.candidate(issue.number) else { return true };
        // The label asks for the run. If it was removed since, the run is not wanted, whoever listed it.
        let asked = selection == Selection::Trigger || listed.has_label(&trigger);
        if !fresh.issue.open || (asked && !fresh.has_label(&trigger)) {
            watch.drop_candidate(issue.number);
            return true;
        }
        if !watch.refresh(issue.number, &fresh) {
            return false;
        }
        let Some(mut admission) = watch.admission(issue.number).cloned() else { return false };
        admission.labelled = admission.labelled.or(labelled);
        watch.count_swept(issue.number);
        let memory = watch.state.issues.entry(issue.number).or_default();
        memory.parked = None;
        memory.out_of_money = None;
        memory.untold = None;
        let resume = memory.resume.take();
        memory.answers = admission.labelled;
        let scheduled = selection == Selection::Sweep && !fresh.has_label(&trigger);
        memory.requester = admission.actor.as_ref().filter(|_| !scheduled).map(|actor| AskedBy {
            login: actor.login.clone(),
            id: actor.id,
            at: Some(admission.asked.at),
            how: admission.asked.how,
        });
        let wanted = watch.pulls.wanted.remove(&issue.number);
        if let Some(wanted) = &wanted {
            let followed = memory.followed.get_or_insert_default();
            followed.count(wanted.cause);
            followed.fingerprint.clone_from(&wanted.fingerprint);
            followed.begin(&wanted.tried);
        } else if let Some(followed) = &mut memory.followed {
            followed.tried = None;
        }
        let unlabelled = selection != Selection::Trigger && !fresh.has_label(&trigger);
        let completes = unlabelled && watch.completing.contains(&issue.number);
        let swept = unlabelled && selection == Selection::Sweep;
        let source = if swept { ObjectiveSource::Sweep } else { ObjectiveSource::Issue };
        let control = RunHandle::below(&self.draining.runs);
        control.asked_by_label(&trigger);
        let other_definition = self.other_definition(issue);
        // What waits is this run's, whatever starts it.
        let cell = self.inbox(issue);
        if let Err(error) = cell.update(Inbox::take).await {
            tracing::error!(%issue, %error, "not started: what was heard cannot be noted as told");
            return true;
        }
        let mends = wanted.as_ref().map(|wanted| wanted.mends.clone()).filter(|mends| !mends.is_empty());
        let check_reruns = self.checks_are_told(issue, mends);
        self.freed.insert(issue.clone());
        let (catches_up, follow_up, remarks) = match wanted {
            None => (false, None, Vec::new()),
            Some(wanted) => (wanted.conflicts, Some(wanted.told), wanted.remarks),
        };
        let request = StartRequest {
            principal: admission.principal(source),
            permission: admission.permission,
            asked: admission.asked.clone(),
            issue: issue.clone(),
            title: fresh.issue.title.clone(),
            catches_up,
            completes,
            other_definition,
            follow_up,
            remarks,
            check_reruns,
            source,
            answers: admission.labelled.filter(|_| selection == Selection::Trigger || labelled.is_some()),
            resume,
            control: control.clone(),
        };
        let begun = request.begun(unlabelled);
        let run = giving_back(cell, self.placed_run(request, unlabelled).await);
        tracing::info!(%issue, source = ?source, "starting a run");
        self.supervisor.spawn(issue.clone(), control, self.deps.clock.now(), begun, run);
        self.tell();
        true
    }

    /// The labelling that a follow-up run answers as well: the trigger is on when it begins, so nobody wants another run for it.
    async fn labelled_follow_up(
        &mut self,
        issue: &IssueRef,
        fresh: &IssueSnapshot,
    ) -> Result<Option<u64>, Error> {
        let trigger = self.deps.labels.trigger.clone();
        let follows =
            self.watch_of(&issue.repo).is_some_and(|watch| watch.pulls.wanted.contains_key(&issue.number));
        if !follows || !fresh.has_label(&trigger) {
            return Ok(None);
        }
        let labelling = self.quick_client().last_labelling(&issue.repo, issue.number, &trigger).await;
        let labelling = labelling.inspect_err(|error| tracing::warn!(%issue, %error, "not started yet"))?;
        Ok(labelling.map(|labelling| labelling.event))
    }
}

/// A run that gives back what was heard where there is none: nothing was told then.
async fn giving_back(cell: InboxCell, run: impl Future<Output = RunSummary>) -> RunSummary {
    let summary = run.await;
    if summary.run_id.is_none()
        && let Err(error) = cell.update(|inbox| inbox.give_back(false)).await
    {
        tracing::error!(%error, "what was heard could not be given back");
    }
    summary
}
