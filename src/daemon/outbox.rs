//! The outbox of outcomes: what a run's end or a refusal means is noted in the state first, then written to the issue until it is there.

use super::main_loop::Daemon;
use super::outbox_writer::{Written, write_outcome};
use super::outcome::{Afterwards, RunSummary, afterwards};
use super::pause::WorksFor;
use super::snapshot::{IssueRef, Selection};
use super::start_rules::in_one_sentence;
use super::state_format::{AskedBy, BackOff, OutOfMoney, ParkedLabel, PauseCause, PendingOutcome, UntoldRun};
use crate::domain::issue_state::IssueState;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::github::{ErrorKind, IssueSnapshot};

/// So many issues that wait say so in one tick: writing is what GitHub limits most.
const SHOWN_IN_A_TICK: usize = 16;

fn log_end(issue: &IssueRef, summary: &RunSummary) {
    let detail = summary.stop.detail.as_str();
    match summary.run_id {
        Some(_) => tracing::info!(%issue, detail, "a run ended"),
        None => {
            let why = in_one_sentence(&summary.stop.message);
            tracing::info!(%issue, detail, why, "nothing was begun");
        }
    }
}

impl Daemon {
    /// Takes the end of a run. What follows is in the state before anything is written to GitHub.
    pub(super) fn take_outcome(&mut self, (issue, summary): (IssueRef, RunSummary)) {
        log_end(&issue, &summary);
        let detail = summary.stop.detail;
        // Where another node polls the repository now, that one reads it.
        let read = self.cluster.read_ends.of(&issue).filter(|_| self.watch_of(&issue.repo).is_some());
        self.cluster.kept_ends.extend(read);
        self.deps.progress.forget(&issue);
        self.waiting.retain(|(waiting, _)| *waiting != issue);
        let now = self.deps.clock.now();
        let is_swept = self.watch_of(&issue.repo).is_some_and(|watch| watch.sweeps(issue.number));
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        let refused = matches!(afterwards(&summary), Afterwards::Write { .. });
        let mut is_told_again = false;
        let requester = memory.and_then(|memory| {
            match &mut memory.followed {
                Some(followed) if summary.failed_before_work && PauseCause::of(&summary).is_some() => {
                    is_told_again = followed.was_unanswered();
                }
                Some(followed) if summary.failed_before_work => followed.failed_before_work(now),
                Some(followed) => followed.started(summary.run_id.is_some(), refused),
                None => {}
            }
            if summary.run_id.is_some() {
                memory.closed = None;
            }
            if (summary.run_id.is_none() || summary.failed_before_work)
                && let Some(checks) = &mut memory.checks
            {
                // Nobody worked on what it was to mend.
                checks.mended.clear();
            }
            memory.requester.take()
        });
        if summary.failed_before_work
            && let Some(watch) = self.watch_of(&issue.repo)
        {
            // What it was started with waits again.
            watch.state.attend.insert(issue.number);
        }
        // What people wrote waits, and starts another follow-up run: then nobody has to ask for it.
        let whom = match &requester {
            _ if is_told_again => None,
            Some(by) => Some(WorksFor::Person(by)),
            None => is_swept.then_some(WorksFor::Sweep),
        };
        let waits = self.heed_end(&issue, &summary, whom);
        self.remember_end(&issue, &summary, requester.as_ref());
        if self.cut_off_by_full_disk(&issue, &summary) {
            // It waits for room on the disk and continues then. Its labels are written when it is over.
            let why = in_one_sentence(&summary.stop.message);
            tracing::warn!(%issue, why, "the disk is full: the run is gone on with when there is room");
            if let Some(watch) = self.watch_of(&issue.repo) {
                let memory = watch.state.issues.entry(issue.number).or_default();
                memory.back_off = BackOff::after(None, now, &summary.stop.message);
            }
            self.ended.push((issue, summary));
            return self.save();
        }
        match afterwards(&summary) {
            // Its label stays, and so does its place in the queue.
            Afterwards::Write { .. } if waits => {}
            Afterwards::Write { state, refusal } => {
                if let Some(memory) =
                    self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number))
                {
                    memory.back_off = None;
                }
                let text = refusal.clone().unwrap_or_else(|| summary.stop.message.clone());
                // Planned either way: what it means for the state is the same.
                self.plan_outcome(&issue, state, detail.as_str(), refusal);
                if let Some(parked) = self.parked(&issue) {
                    parked.text = text;
                    parked.requester = requester.filter(|_| detail == StopDetail::ApprovalPending);
                }
                match summary.run_id {
                    // Not written again, because a new trigger label asks for the next run.
                    _ if summary.written_back => self.outcome_is_written(&issue),
                    Some(run_id) => self.note_untold(&issue, run_id, &summary),
                    None => {}
                }
            }
            // Another node is asked at once, or waited for.
            Afterwards::TryAgain { .. } if summary.other_definition.is_some() => {}
            Afterwards::TryAgain { counts } => {
                let why = summary.stop.message.clone();
                let memory = self
                    .watch_of(&issue.repo)
                    .map(|watch| watch.state.issues.entry(issue.number).or_default());
                let Some(memory) = memory else { return };
                let previous = memory.back_off.as_ref();
                let next = if counts {
                    BackOff::after(previous, now, &why)
                } else {
                    Some(BackOff::held(previous, now, &why))
                };
                memory.back_off.clone_from(&next);
                if next.is_none() {
                    let text = format!("Starting failed again and again, the last time because: {why}");
                    self.plan_outcome(&issue, IssueState::Attention, detail.as_str(), Some(text));
                }
            }
            Afterwards::Leave => {}
        }
        self.ended.push((issue, summary));
        self.save();
    }

    /// GitHub took no labels from a run: perhaps not its comment either.
    fn note_untold(&mut self, issue: &IssueRef, run_id: RunId, summary: &RunSummary) {
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(pending) = memory.and_then(|memory| memory.pending_outcome.as_mut()) {
            let (message, pull_request) = (summary.stop.message.clone(), summary.pull_request.clone());
            pending.run = Some(UntoldRun { run_id, message, pull_request });
        }
    }

    /// What of an end counts for the next run: its pull request, and whoever it worked for where its money was used up.
    fn remember_end(&mut self, issue: &IssueRef, summary: &RunSummary, requester: Option<&AskedBy>) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        if let (Some(by), Some(run_id), StopDetail::MaxCost) =
            (requester, summary.run_id, summary.stop.detail)
        {
            let ended = OutOfMoney { run_id, given: summary.given, by: by.clone() };
            watch.state.issues.entry(issue.number).or_default().out_of_money = Some(ended);
        }
        if let Some(pull) = summary.pull_number() {
            watch.state.issues.entry(issue.number).or_default().pull = Some(pull);
            watch.take_pulls();
        }
    }

    /// Whether a run could not write its files because the disk is full. What it could report is reported.
    pub(super) fn cut_off_by_full_disk(&mut self, issue: &IssueRef, summary: &RunSummary) -> bool {
        let wrote_nothing =
            matches!(summary.stop.detail, StopDetail::OutputWriteFailed | StopDetail::GitError);
        if summary.run_id.is_none() || summary.written_back || !wrote_nothing {
            return false;
        }
        let state = self.deps.state.clone();
        let disk = self.watch_of(&issue.repo).and_then(|watch| watch.disk(state.path()));
        disk.is_some_and(|room| room.is_full())
    }

    pub(super) fn parked(&mut self, issue: &IssueRef) -> Option<&mut ParkedLabel> {
        self.watch_of(&issue.repo)?.state.issues.get_mut(&issue.number)?.parked.as_mut()
    }

    /// A person has nothing to do about the issue any more.
    fn parked_is_over(&mut self, issue: &IssueRef) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        if let Some(memory) = watch.state.issues.get_mut(&issue.number) {
            memory.parked = None;
        }
    }

    /// Notes what has to be written to an issue.
    pub(super) fn plan_outcome(
        &mut self,
        issue: &IssueRef,
        state: IssueState,
        code: &str,
        refusal: Option<String>,
    ) {
        let now = self.deps.clock.now();
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let labelled = watch.admission(issue.number).and_then(|admission| admission.labelled);
        let memory = watch.state.issues.entry(issue.number).or_default();
        if matches!(state, IssueState::Attention | IssueState::NeedsInput) {
            let text = refusal.clone().unwrap_or_default();
            memory.parked = Some(ParkedLabel { code: code.to_owned(), text, at: now, requester: None });
        }
        let answers = memory.answers.take().or(labelled);
        memory.pending_outcome = Some(PendingOutcome { state, refusal, answers, run: None, problem: None });
        watch.drop_swept(issue.number);
        self.save();
    }

    /// Writes everything that is noted; what fails stays noted for the next time.
    pub(super) async fn empty_outbox(&mut self) {
        if !self.may_poll() {
            return;
        }
        // What is planned is known to the next poller before it is done.
        self.share().await;
        let client = self.quick_client();
        for (issue, wanted) in self.remembered(|memory| memory.pending_outcome.clone()) {
            if self.troubles.rests(&format!("labels of {issue}")) {
                continue;
            }
            let labels = &self.deps.labels;
            let written = write_outcome(&client, self.deps.state.store(), &issue, &wanted, labels).await;
            let written = match written {
                Ok(written) => written,
                Err(error) => {
                    // That GitHub wants to be left alone is said by the poll.
                    if matches!(error.kind, ErrorKind::RateLimited { .. }) {
                        break;
                    }
                    let why = error.to_string();
                    if self.troubles.again(format!("labels of {issue}"), &why) {
                        tracing::warn!(%issue, %error, detail = error.technical(), "the issue's labels could not be written yet; it is tried again");
                        self.note_problem(&issue, why);
                    }
                    continue;
                }
            };
            if let Some(times) = self.troubles.over(&format!("labels of {issue}")) {
                tracing::info!(%issue, times, "the issue's labels are written now");
            }
            match written {
                Written::Labels { before, untold } => {
                    let memory = self
                        .watch_of(&issue.repo)
                        .and_then(|watch| watch.state.issues.get_mut(&issue.number));
                    if let Some(closed) = memory.and_then(|memory| memory.closed.as_mut()) {
                        closed.before = closed.before.or(before);
                    }
                    if let (Some(error), Some(run)) = (untold, wanted.run) {
                        self.note_untold_end(&issue, run, &error);
                    }
                }
                Written::Gone { became: Some(became) } => {
                    tracing::info!(%issue, became, "nobody is asked any more what is to become of it");
                    self.parked_is_over(&issue);
                }
                Written::Gone { became: None } => {}
            }
            self.outcome_is_written(&issue);
            self.save();
        }
    }

    /// Why an end is not on the issue yet is shown.
    fn note_problem(&mut self, issue: &IssueRef, why: String) {
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(pending) = memory.and_then(|memory| memory.pending_outcome.as_mut()) {
            pending.problem = Some(why);
            self.save();
        }
    }

    /// An end is on the issue.
    fn outcome_is_written(&mut self, issue: &IssueRef) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        // Until it is listed again, it is not asked for: the list in hand still shows the label.
        watch.drop_candidate(issue.number);
        if let Some(memory) = watch.state.issues.get_mut(&issue.number) {
            memory.pending_outcome = None;
            memory.back_off = None;
            memory.asked_by = None;
        }
        watch.state.issues.retain(|_, memory| !memory.is_empty());
    }

    /// Removes the queued label of an issue that is not asked for any more (closed, or its trigger was removed).
    pub(super) async fn unqueue(&mut self) {
        let (client, queued) = (self.quick_client(), self.deps.labels.queued.clone());
        for watch in &mut self.watches {
            for left in std::mem::take(&mut watch.left) {
                let Some(number) = left.issue.key.number().filter(|_| left.has_label(&queued)) else {
                    continue;
                };
                let issue = IssueRef { repo: watch.watched.name.clone(), number };
                if self.supervisor.get(&issue).is_some() {
                    continue;
                }
                if let Err(error) = client.remove_label(&issue.repo, number, &queued).await {
                    tracing::warn!(%issue, %error, "the queued label could not be taken off");
                }
            }
        }
    }

    /// Issues that wait for something that ends by itself say so; of many, some in each tick.
    pub(super) async fn show_waiting(&mut self) {
        let labels = &self.deps.labels;
        let others = || labels.others(IssueState::Queued);
        let mut unshown: Vec<(IssueRef, IssueSnapshot)> = Vec::new();
        for (issue, _) in self.waiting.iter().filter(|(_, reason)| reason.is_wait()) {
            let watch = self.watches.iter().find(|watch| watch.watched.name == issue.repo);
            let candidate = watch.and_then(|watch| watch.candidate(issue.number));
            let Some((snapshot, Selection::Trigger)) = candidate else { continue };
            if !snapshot.has_label(&labels.queued) || others().any(|other| snapshot.has_label(other)) {
                unshown.push((issue.clone(), snapshot.clone()));
            }
        }
        for (issue, snapshot) in unshown.into_iter().take(SHOWN_IN_A_TICK) {
            // Polls and runs go first where many issues wait.
            if !self.deps.client.has_room() {
                break;
            }
            self.show_one_waiting(&issue, snapshot).await;
        }
    }

    async fn show_one_waiting(&mut self, issue: &IssueRef, snapshot: IssueSnapshot) {
        let (client, labels) = (self.quick_client(), self.deps.labels.clone());
        let current = snapshot.issue.labels;
        if let Err(error) =
            client.ensure_labels(&issue.repo, issue.number, &current, IssueState::Queued, &labels).await
        {
            tracing::warn!(%issue, %error, "the queued label could not be put on");
        } else if let Some(watch) = self.watch_of(&issue.repo) {
            watch.note_labels(issue.number, |names| {
                names.retain(|name| {
                    !labels.others(IssueState::Queued).any(|other| other.eq_ignore_ascii_case(name))
                });
                if !names.iter().any(|name| name.eq_ignore_ascii_case(&labels.queued)) {
                    names.push(labels.queued.clone());
                }
            });
        }
    }
}
