//! The facts of a run, folded from its events: the one source of result, record, report and recovery.

use super::artifact::Artifact;
use super::budget::{BudgetKind, Budgets, IssueBudget, IssueBudgetState};
use super::event::{Bundle, Change, Effect, Event, LeaseTaken, RunStarted, VerifyCommand, WorktreeState};
use super::ledger_entry::{AccountingEntry, INTERRUPTED, LedgerTotals};
use super::name::CommitId;
use super::policy::EnvelopeStatus;
use super::question::{Answered, Question};
use super::run::{VisitRecord, Warning};
use super::sandbox::SandboxFacts;
use super::stop::{FlowEnd, Stop, StopDetail, StopReason};
use super::taken::TakenOver;
use super::trace::Item;

/// What the events of one run say. Same events, same facts.
#[derive(Debug, Clone, Default)]
pub struct RunFacts {
    /// Stage lease. Absent only in a file that is not a journal.
    pub lease: Option<LeaseTaken>,
    /// Time of the first event, milliseconds since 1970.
    pub started_at: i64,
    /// Time of the last event.
    pub last_at: i64,
    /// When its flow ended.
    pub flow_ended_at: Option<i64>,
    /// Stage worktree.
    pub worktree: Option<WorktreeState>,
    /// Commit the worktree stood on when the run began.
    pub first_head: Option<CommitId>,
    /// Stage instance.
    pub started: Option<RunStarted>,
    /// Finished visits, imported ones first.
    pub visits: Vec<VisitRecord>,
    /// How many of them were imported from a predecessor.
    pub imported: usize,
    /// The visit that began and did not finish.
    pub unfinished: Option<(u32, String)>,
    /// Last checkpoint of a visit that has finished: visit and commit.
    pub checkpoint: Option<(u32, CommitId)>,
    /// The checkpoint of the visit that has not finished yet. It has the visit's edits, and whoever makes the visit again begins without
    /// them.
    pub unfinished_checkpoint: Option<(u32, CommitId, Option<Bundle>)>,
    /// The last checkpoint that other nodes can have: visit, commit, and the bundle that it is in.
    pub bundled: Option<(u32, CommitId, Bundle)>,
    /// Every checkpoint: visit and commit.
    pub checkpoints: Vec<(u32, CommitId)>,
    /// The commits of checkpoints that other nodes can have, each once, and the bundles that they are in.
    pub bundles: Vec<(CommitId, Bundle)>,
    /// Every ledger line.
    pub ledger: Vec<AccountingEntry>,
    /// Notes.
    pub warnings: Vec<Warning>,
    /// Budgets that passed their soft ratio.
    pub soft_hits: Vec<BudgetKind>,
    /// The budgets that passed their soft limit under the present caps: what was used and the cap, in the budget's own
    /// unit.
    pub soft_limits: Vec<(BudgetKind, f64, f64)>,
    /// Who raised the caps while the run worked, and to which values. `started` has the newest ones.
    pub extensions: Vec<(String, Budgets)>,
    /// What it heard of the budget that all runs of the issue share.
    pub issue_budget: Vec<IssueBudget>,
    /// What the agent asked people.
    pub question: Option<Question>,
    /// What somebody answered to the run that this one goes on with.
    pub answered: Option<Answered>,
    /// Who took the work over.
    pub taken: Option<TakenOver>,
    /// The flow's end.
    pub flow_end: Option<FlowEnd>,
    /// The state of the branch after the commit stage.
    pub committed: Option<CommittedWork>,
    /// agentd's own verification.
    pub verification: Vec<VerifyCommand>,
    /// Effects: the last word on each.
    pub effects: Vec<(Effect, EffectState)>,
    /// The run's end.
    pub end: Option<Stop>,
    /// The files of the run directory as they were left; set once all of them were written.
    pub sealed: Option<Vec<Artifact>>,
    /// Whether the sinks were fed.
    pub emitted: bool,
    /// What held its programs.
    pub sandbox: Option<SandboxFacts>,
    /// Every other event, for folds that need more.
    pub other: Vec<(i64, Event)>,
}

/// See [`RunFacts::committed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedWork {
    /// Head of the branch.
    pub head: CommitId,
    /// Its tree.
    pub tree: String,
    /// Against the origin's commit.
    pub change: Change,
}

/// How far an effect got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectState {
    /// Tried; the process may have died before the answer.
    Planned,
    /// There, with its outcome.
    Done(String),
    /// Not done.
    Failed {
        /// The public reason.
        message: String,
        /// Whether a later try may succeed without a person's help.
        transient: bool,
        /// Whether it was refused for what the work holds.
        of_content: bool,
    },
}

/// Whether an event tells what whoever ended a dead run found out: the run has ended with its last event before.
pub fn is_found_out_later(event: &Event) -> bool {
    match event {
        Event::RunEnded { stop } => stop.detail == StopDetail::Interrupted,
        Event::LlmAttempted { entry } | Event::ToolFinished { entry } => {
            entry.error.as_deref() == Some(INTERRUPTED)
        }
        _ => false,
    }
}

impl RunFacts {
    /// Folds events with their times (milliseconds since 1970), in journal order.
    pub fn fold(events: impl IntoIterator<Item = (i64, Event)>) -> Self {
        let mut facts = Self::default();
        for (at, event) in events {
            facts.take(at, event);
        }
        facts
    }

    /// Takes the next event in.
    pub fn take(&mut self, at: i64, event: Event) {
        // Events after the end are about the files and not about the run. They change nothing in the facts.
        match event {
            Event::FilesSealed { files, .. } => return self.sealed = Some(files),
            Event::RecordEmitted { .. } => return self.emitted = true,
            _ => {}
        }
        if self.lease.is_none() {
            self.started_at = at;
        }
        if !is_found_out_later(&event) {
            self.last_at = at;
        }
        match event {
            Event::LeaseTaken(lease) => self.lease = Some(*lease),
            Event::WorktreeReady { state, head } => {
                self.worktree = Some(state);
                self.first_head = Some(head);
            }
            Event::RunStarted(started) => self.started = Some(*started),
            Event::VisitImported(visit) => {
                self.imported += 1;
                self.visits.push(*visit);
            }
            Event::VisitStarted { visit, step_id } => self.unfinished = Some((visit, step_id)),
            Event::VisitFinished(visit) => {
                self.unfinished = None;
                // Of a process that died right behind it, this is all there is of the flow's end.
                self.flow_end = visit.failed.clone().map(FlowEnd::failed);
                self.visits.push(*visit);
                if let Some((visit, commit, bundle)) = self.unfinished_checkpoint.take() {
                    self.count_checkpoint(visit, commit, bundle);
                }
            }
            Event::Checkpoint { visit, commit, bundle, .. } => {
                // Steps are visited again after a commit: what others pushed is worked out.
                self.committed = None;
                self.checkpoints.push((visit, commit.clone()));
                if let Some(bundle) = &bundle
                    && self.bundles.last().is_none_or(|(last, _)| *last != commit)
                {
                    self.bundles.push((commit.clone(), bundle.clone()));
                }
                match &self.unfinished {
                    Some((unfinished, _)) if *unfinished == visit => {
                        self.unfinished_checkpoint = Some((visit, commit, bundle));
                    }
                    _ => self.count_checkpoint(visit, commit, bundle),
                }
            }
            Event::LlmAttempted { entry } | Event::ToolFinished { entry } => self.ledger.push(*entry),
            Event::SandboxChosen(sandbox) => self.sandbox = Some(sandbox),
            Event::Warned(warning) => self.warnings.push(warning),
            Event::BudgetSoftLimit { kind, used, cap } => self.soft_limit(at, kind, (used, cap)),
            Event::BudgetExtended { by, budgets } => {
                self.soft_limits.clear();
                if let Some(started) = &mut self.started {
                    started.budgets = budgets.clone();
                }
                self.extensions.push((by, budgets));
            }
            Event::QuestionAsked(question) => self.question = Some(question),
            Event::QuestionAnswered(answered) => self.answered = Some(answered),
            Event::Taken(over) => self.taken = Some(over),
            Event::IssueBudget(news) => {
                if let Some(started) = &mut self.started
                    && news.state == IssueBudgetState::Extended
                {
                    started.issue_given += news.given;
                }
                self.issue_budget.push(news);
            }
            Event::FlowEnded { stop, completion_reason, .. } => {
                self.flow_end = Some(FlowEnd { stop, completion_reason });
                self.flow_ended_at = Some(at);
            }
            Event::Committed { head, tree, change, .. } => {
                self.committed = Some(CommittedWork { head, tree, change });
            }
            Event::Verified(command) => self.verification.push(*command),
            Event::EffectPlanned { effect } => self.effect(effect, EffectState::Planned),
            Event::EffectDone { effect, outcome } => self.effect(effect, EffectState::Done(outcome)),
            Event::EffectFailed { effect, message, transient, of_content } => {
                self.effect(effect, EffectState::Failed { message, transient, of_content });
            }
            Event::RunEnded { stop } => self.end = Some(stop),
            Event::OthersMerged(ref merged) => {
                if let (Some(lease), Some(origin)) = (&mut self.lease, &merged.origin) {
                    lease.origin.commit = origin.clone();
                }
                self.other.push((at, event));
            }
            Event::ItemRecorded { ref item, .. } => {
                self.follow_handoff(item);
                self.other.push((at, event));
            }
            other => self.other.push((at, other)),
        }
    }

    fn soft_limit(&mut self, at: i64, kind: BudgetKind, (used, cap): (f64, f64)) {
        if !self.soft_hits.contains(&kind) {
            self.soft_hits.push(kind);
        }
        self.soft_limits.push((kind, used, cap));
        let (used, cap) = (kind.shown(used), kind.shown(cap));
        let text = format!("{} is nearly used up: {used} of {cap}", kind.as_str());
        self.warnings.push(Warning { code: "budget_soft_limit".to_owned(), at, text });
    }

    fn count_checkpoint(&mut self, visit: u32, commit: CommitId, bundle: Option<Bundle>) {
        if let Some(bundle) = bundle {
            self.bundled = Some((visit, commit.clone(), bundle));
        }
        self.checkpoint = Some((visit, commit));
    }

    /// A handoff that waited for an approval, and was made since, leads on from its visit.
    fn follow_handoff(&mut self, item: &Item) {
        let Item::HandoffItem { to, output, .. } = item else { return };
        let Some(last) = self.visits.last_mut().filter(|_| self.unfinished.is_none()) else { return };
        let was_held = last.carried.handoff.as_ref().is_some_and(|held| held.to == *to);
        if was_held && output.status == EnvelopeStatus::Ok {
            last.leads_on();
        }
    }

    fn effect(&mut self, effect: Effect, state: EffectState) {
        self.effects.retain(|(known, _)| *known != effect);
        self.effects.push((effect, state));
    }

    /// Whether all the work was done, and only committing or publishing it failed. Then the successor does that, and no model
    /// is asked again.
    pub fn is_unpublished(&self) -> bool {
        self.end.as_ref().is_some_and(|end| self.is_unpublished_by(end))
    }

    fn is_unpublished_by(&self, end: &Stop) -> bool {
        // One whose work is not proven keeps that end, and its draft is missing.
        let has_no_draft = end.reason() == StopReason::NoEvidence && self.cannot_be_published_now();
        self.flow_end.as_ref().is_some_and(|ended| ended.stop.success())
            && (matches!(end.detail, StopDetail::GithubError | StopDetail::GitError) || has_no_draft)
            && !self.is_refused()
    }

    fn cannot_be_published_now(&self) -> bool {
        let publishes = |effect: Effect| !matches!(effect, Effect::Comment | Effect::Labels);
        let passes = |state: &EffectState| matches!(state, EffectState::Failed { transient: true, .. });
        self.effects.iter().any(|(effect, state)| publishes(*effect) && passes(state))
    }

    /// Whether the remote refused what the work holds. The work is made anew then: a model is told what was said, and the same is not
    /// brought there again.
    pub fn is_refused(&self) -> bool {
        matches!(self.effect_state(Effect::Push), Some(EffectState::Failed { of_content: true, .. }))
    }

    /// Whether it was not published because another service could not be reached then; `end`: how the run ends.
    pub fn is_unpublished_for_now(&self, end: &Stop) -> bool {
        self.is_unpublished_by(end) && self.cannot_be_published_now()
    }

    /// Whether the run has made the issue say how it ended: its labels, and its status comment.
    pub fn is_written_back(&self) -> bool {
        let failed = matches!(self.effect_state(Effect::Comment), Some(EffectState::Failed { .. }));
        self.outcome(Effect::Labels).is_some() && !failed
    }

    /// Where an effect stands.
    pub fn effect_state(&self, effect: Effect) -> Option<&EffectState> {
        self.effects.iter().find(|(known, _)| *known == effect).map(|(_, state)| state)
    }

    /// Outcome of an effect that is done.
    pub fn outcome(&self, effect: Effect) -> Option<&str> {
        match self.effect_state(effect) {
            Some(EffectState::Done(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// The first verify command that does not pass on the tree that was committed (D83).
    pub fn red(&self) -> Option<&VerifyCommand> {
        self.verification.iter().find(|command| !command.passed())
    }

    /// Sums over the ledger; equal to the sums over `accounting.jsonl` by construction.
    pub fn totals(&self) -> LedgerTotals {
        LedgerTotals::of(&self.ledger)
    }
}
