//! A run that has its lease: what every later stage works with.

use std::borrow::Cow;
use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::extender::Extender;
use super::lease::Lease;
use super::plan::Plan;
use super::recovery::Predecessor;
use super::run_observer::RunObserver;
use crate::domain::budget::BudgetKind;
use crate::domain::facts::RunFacts;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::engine::clock::RunClock;
use crate::engine::journal::JournalError;
use crate::engine::session_trace::WITHHELD;
use crate::engine::stop::{StopSignal, StopState};
use crate::git::worktree::Worktree;
use crate::record::report;
use crate::record::run_journal::RunJournal;
use crate::repository::context::RepositoryContext;
use crate::repository::resources::run_mark;
use crate::sandbox::run_sandbox::RunSandbox;
use crate::sys::sandbox::ProcessSandbox;

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
    context: &'a RepositoryContext,
    stop: StopSignal,
    pub(super) extender: Extender,
    worktree: OnceLock<Worktree>,
    sandbox: OnceLock<Arc<RunSandbox>>,
    /// The budgets that people were told of already; one asks at a time.
    pub(super) told: tokio::sync::Mutex<Vec<BudgetKind>>,
}

impl<'a> Run<'a> {
    /// A run whose lease was just taken.
    pub fn new(
        plan: &'a Plan,
        lease: &'a Lease,
        context: &'a RepositoryContext,
        watch: &RunObserver,
    ) -> Self {
        let clock = RunClock::starting(context.clock.now());
        Self {
            plan,
            lease,
            journal: RunJournal::new(Arc::clone(&lease.journal), context.clock.clone()),
            clock,
            context,
            stop: watch.signal(),
            extender: watch.extender(),
            worktree: OnceLock::new(),
            sandbox: OnceLock::new(),
            told: tokio::sync::Mutex::default(),
        }
    }

    /// The environment of a process of this run: what children inherit, and the mark by which a successor finds what a
    /// killed run left running.
    pub fn child_environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.context.child_environment();
        environment.push(run_mark(self.lease.run_id));
        environment
    }

    /// The sandbox of the run's programs, from the stage instance on.
    pub fn sandbox(&self) -> Option<&Arc<RunSandbox>> {
        self.sandbox.get()
    }

    /// The sandbox of agentd's own commands, if there is one.
    pub fn caged(&self) -> Option<&ProcessSandbox> {
        self.sandbox()?.caged(&self.plan.loaded.definition.boundaries.sandbox)
    }

    pub(super) fn has_sandbox(&self, sandbox: Arc<RunSandbox>) {
        // Set once, by the stage instance.
        let _already = self.sandbox.set(sandbox);
    }

    /// Whether someone asked to stop.
    pub fn stop(&self) -> StopSignal {
        self.stop.clone()
    }

    /// The abort, if one was asked for. It comes before any other end of the run (C-08).
    pub fn aborted(&self) -> Option<Stop> {
        match self.stop.state() {
            StopState::Abort(stop) => Some(stop),
            StopState::Running | StopState::Graceful(_) => None,
        }
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

    /// The worktree, from its stage on.
    pub fn worktree(&self) -> Option<&Worktree> {
        self.worktree.get()
    }

    pub(super) fn has_worktree(&self, worktree: Worktree) {
        // Set once, by the pipeline.
        let _already = self.worktree.set(worktree);
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
        tracing::error!(%error, "the run's record cannot be written");
        let stop = Stop::new(
            StopDetail::OutputWriteFailed,
            format!("The run's record could not be written: {error}."),
        );
        let mut facts = Arc::unwrap_or_clone(self.journal.facts());
        facts.end = Some(stop);
        report::output(&facts, self.journal.file())
    }
}
