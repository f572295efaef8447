//! A run that has its lease: what every later stage works with.

use std::borrow::Cow;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::comment_state::StatusComment;
use super::extender::Extender;
use super::lease::recovery::Predecessor;
use super::lease::{Lease, Leased};
use super::plan::Plan;
use super::remote_look::RemoteLook;
use super::run_observer::RunObserver;
use crate::domain::budget::BudgetKind;
use crate::domain::facts::RunFacts;
use crate::domain::name::CommitId;
use crate::domain::policy::{PolicyPrincipal, ProposalContext};
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::domain::taken::TakenOver;
use crate::engine::clock::RunClock;
use crate::engine::journal::JournalError;
use crate::engine::session_trace::WITHHELD;
use crate::engine::stop::{StopSignal, StopState};
use crate::github;
use crate::record::file_mentions::FileMentions;
use crate::record::report;
use crate::record::run_facts;
use crate::record::run_journal::RunJournal;
use crate::repository::context::RepositoryContext;
use crate::repository::resources::run_mark;
use crate::sys::shutdown;

/// Code of the warning that says where people locked a conversation.
pub const LOCKED: &str = "locked";

/// One run under way.
pub struct Run<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// The held lease.
    pub lease: &'a Lease,
    /// What is written of it.
    pub journal: RunJournal,
    /// Time since the run began, for budgets and records.
    pub clock: RunClock,
    /// Its repository.
    pub context: &'a RepositoryContext,
    stop: StopSignal,
    /// Set once the pull request that the run began with was seen merged: the origin's commit that the work goes onto, where that is another.
    onto: OnceLock<Option<CommitId>>,
    taken: OnceLock<TakenOver>,
    pub(super) extender: Extender,
    /// The last look at the remote's branch, if it had nothing that the one here lacks.
    pub(super) nothing_newer: Mutex<Option<RemoteLook>>,
    /// The budgets that people were told of already; one asks at a time.
    pub(super) told: tokio::sync::Mutex<Vec<BudgetKind>>,
    /// Its status comment; one writes at a time.
    pub(super) status_comment: tokio::sync::Mutex<StatusComment>,
}

impl<'a> Run<'a> {
    /// Where proposals of the run itself come from, outside of any step.
    pub fn proposal_context(&self) -> ProposalContext {
        ProposalContext {
            agent: self.plan.loaded.definition.name.clone(),
            step: String::new(),
            principal: PolicyPrincipal::new(&self.plan.request.principal, self.plan.request.permission),
            repo: self.context.repo.to_string(),
            issue: self.plan.issue.key.clone(),
            branch: self.lease.mapping.branch.to_string(),
        }
    }

    /// A run whose lease was just taken.
    pub fn new(leased: &'a Leased, context: &'a RepositoryContext, observer: &RunObserver) -> Self {
        let Leased { plan, lease, .. } = leased;
        let clock = RunClock::starting(context.clock.now());
        Self {
            plan,
            lease,
            journal: RunJournal::new(Arc::clone(&lease.journal), context.clock.clone()),
            clock,
            context,
            stop: observer.signal(),
            onto: OnceLock::new(),
            taken: OnceLock::new(),
            extender: observer.extender(),
            nothing_newer: Mutex::default(),
            told: tokio::sync::Mutex::default(),
            status_comment: tokio::sync::Mutex::default(),
        }
    }

    /// The environment of a process of this run: what children inherit, and the mark by which a successor finds what a
    /// killed run left running.
    pub fn child_environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.context.child_environment();
        environment.push(run_mark(self.lease.run_id));
        environment
    }

    /// Whether someone asked to stop.
    pub fn stop(&self) -> StopSignal {
        self.stop.clone()
    }

    /// The origin's commit that the branch's changes are those against.
    pub fn base(&self) -> &CommitId {
        self.onto.get().and_then(Option::as_ref).unwrap_or(&self.lease.mapping.origin.commit)
    }

    /// The pull request that the run began with is merged, and the work goes onto this commit; `None` = onto the one that it began from.
    pub fn goes_onto(&self, commit: Option<CommitId>) {
        let _first = self.onto.set(commit);
    }

    /// Whether the work is apart from the merged pull request that the run began with.
    pub fn goes_on_after_merge(&self) -> bool {
        self.onto.get().is_some()
    }

    /// Whether it repairs the issue's pull request, or goes on with a run that does.
    pub fn is_follow_up(&self) -> bool {
        self.journal.facts().lease.as_ref().is_some_and(|lease| lease.follow_up)
    }

    /// Somebody takes the work over: the first one counts.
    pub fn set_taken_by(&self, over: TakenOver) {
        let _first = self.taken.set(over);
    }

    /// Who takes the work over.
    pub fn taken_by(&self) -> Option<&TakenOver> {
        self.taken.get()
    }

    /// The abort, if one was asked for. It comes before any other end of the run (C-08).
    pub fn aborted(&self) -> Option<Stop> {
        match self.stop.state() {
            StopState::Abort(stop) => Some(stop),
            StopState::Running | StopState::BeforeNextVisit(_) | StopState::Graceful(_) => None,
        }
    }

    /// What is known of the run and of the runs that it continues.
    pub async fn facts_with_predecessors(&self) -> RunFacts {
        let own = Arc::unwrap_or_clone(self.journal.facts());
        run_facts::with_predecessors(&self.context.state, &self.context.repo, own).await
    }

    /// Which files the run and the runs that it continues speak of.
    pub async fn file_mentions(&self) -> FileMentions {
        FileMentions::of(&self.facts_with_predecessors().await, self.journal.dir())
    }

    /// The end that the run has whatever its last stages come to: that of a failure, or an abort, which outranks even that
    /// (C-08).
    pub fn end_whatever_comes(&self, stop: &Stop) -> Option<Stop> {
        let own = (!stop.success()).then(|| stop.clone());
        match &own {
            Some(stop) if stop.reason() == StopReason::HumanRequested => own,
            _ => self.aborted().or(own),
        }
    }

    /// A text for GitHub, checked once more. Removing comments and hidden characters may have joined the parts of a
    /// secret.
    pub fn without_secrets(&self, text: &str) -> String {
        self.plan.redactor.redact(text).map_or_else(|_| WITHHELD.to_owned(), Cow::into_owned)
    }

    /// Says, once, that people locked what the run wants to write on. It goes on.
    pub fn note_locked(&self, error: &github::Error) {
        let is_said = self.journal.facts().warnings.iter().any(|warning| warning.code == LOCKED);
        if error.is_locked() && !is_said {
            self.journal.warn(LOCKED, format!("Not everything could be told: {error}."));
        }
    }

    /// What is left of the wall time; zero = the budget is used up (C-13).
    pub fn wall_time_left(&self) -> Duration {
        let spent = self.lease.predecessor.as_ref().map(Predecessor::spent).unwrap_or_default();
        self.wall_time_cap().saturating_sub(spent.wall_time + self.clock.elapsed())
    }

    /// The cap of the wall time, as it was raised last.
    pub fn wall_time_cap(&self) -> Duration {
        let budgets = &self.plan.budgets;
        self.journal.facts().started.as_ref().map_or(budgets, |started| &started.budgets).max_wall_time
    }

    /// The end of a run whose wall time is used up.
    pub fn out_of_time(&self) -> Option<Stop> {
        self.wall_time_left().is_zero().then(|| {
            let cap = self.wall_time_cap();
            Stop::new(StopDetail::MaxWallTime, format!("The budget of {cap:?} wall time is used up."))
        })
    }

    /// The number of the issue in the tracker, where it is there.
    pub fn tracked_issue(&self) -> Option<u64> {
        self.plan.request.issue.tracked()
    }

    /// The run output as it would be if the run ended now with `stop`.
    pub fn output(&self, stop: &Stop) -> (RunOutput, RunFacts) {
        let mut facts = Arc::unwrap_or_clone(self.journal.facts());
        facts.end = Some(stop.clone());
        let output = report::output(&facts, self.journal.file());
        (output, facts)
    }

    /// The record could not be written: the outcome still gets out (C-10).
    pub(super) fn output_lost(&self, error: &JournalError) -> RunOutput {
        let stop = if self.context.state.shared().is_some() && shutdown::has_given_up() {
            let words = "The program was told to stop, and the cluster's store has not answered. What the run did is on this host; \
                         the next daemon, or the next `agentd run`, goes on with it.";
            tracing::warn!("{words}");
            Stop::new(StopDetail::Shutdown, words)
        } else {
            tracing::error!(%error, "the run's record cannot be written");
            Stop::new(
                StopDetail::OutputWriteFailed,
                format!("The run's record could not be written: {error}."),
            )
        };
        let mut output = self.output(&stop).0;
        if !self.lease.journal.dir().record().exists()
            && let Some(error) = &mut output.error
        {
            // Nobody is sent to a file that is not there.
            error.detail_ref = None;
        }
        output
    }
}
