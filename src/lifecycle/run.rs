//! A run that has its lease: what every later room works with, and how it writes to the journal.

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::enclosure::Enclosure;
use super::guidance::{self, Extender};
use super::lease::Lease;
use super::plan::Plan;
use super::recovery::Predecessor;
use super::report;
use super::site::Site;
use super::watch::Watch;
use crate::domain::event::{Effect, Event};
use crate::domain::facts::RunFacts;
use crate::domain::run::Warning;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::clock::RunClock;
use crate::engine::journal::{Journal, JournalError};
use crate::engine::stop::{StopSignal, StopState};
use crate::git::worktree::Worktree;
use crate::store::journal_file::FileJournal;
use crate::sys::cage::Caged;

/// Variable in the environment of each process that a run starts; its value is the run's id.
pub const RUN_MARK: &str = "AGENTD_RUN";

/// One run under way.
pub struct Run<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// The held lease.
    pub lease: &'a Lease,
    /// Time since the run began, for budgets and records.
    pub clock: RunClock,
    site: &'a Site,
    stop: StopSignal,
    pub(super) extender: Extender,
    worktree: OnceLock<Worktree>,
    enclosure: OnceLock<Arc<Enclosure>>,
    pub(super) told: guidance::Told,
}

impl<'a> Run<'a> {
    /// A run whose lease was just taken.
    pub fn new(plan: &'a Plan, lease: &'a Lease, site: &'a Site, watch: &Watch) -> Self {
        let clock = RunClock::starting(site.clock.now());
        Self {
            plan,
            lease,
            clock,
            site,
            stop: watch.signal(),
            extender: watch.extender(),
            worktree: OnceLock::new(),
            enclosure: OnceLock::new(),
            told: guidance::Told::default(),
        }
    }

    /// The journal.
    pub fn journal(&self) -> &Arc<FileJournal> {
        &self.lease.journal
    }

    /// The environment of a process of this run: what children inherit, and the mark by which a successor finds what a
    /// killed run left running.
    pub fn child_environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.site.child_environment();
        environment.push(self.mark());
        environment
    }

    /// The mark of this run's processes.
    pub fn mark(&self) -> (OsString, OsString) {
        (RUN_MARK.into(), self.lease.run_id.to_string().into())
    }

    /// The place of the run's programs, from the instance's room on.
    pub fn enclosure(&self) -> Option<&Arc<Enclosure>> {
        self.enclosure.get()
    }

    /// The cage of agentd's own commands, where there is one.
    pub fn caged(&self) -> Option<&Caged> {
        self.enclosure()?.caged(&self.plan.loaded.definition.boundaries.sandbox)
    }

    pub(super) fn has_enclosure(&self, enclosure: Arc<Enclosure>) {
        // Set once, by the instance's room.
        let _already = self.enclosure.set(enclosure);
    }

    /// Whether someone asked to stop.
    pub fn stop(&self) -> StopSignal {
        self.stop.clone()
    }

    /// The abort that was asked for, if one was: it outranks what the run comes to meanwhile (C-08).
    pub fn aborted(&self) -> Option<Stop> {
        match self.stop.state() {
            StopState::Abort(stop) => Some(stop),
            StopState::Running | StopState::Graceful(_) => None,
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
        self.facts().started.as_ref().map_or(budgets, |started| &started.budgets).max_wall_time
    }

    /// The end of a run whose wall time is used up.
    pub fn out_of_time(&self) -> Option<Stop> {
        self.wall_time_left().is_zero().then(|| {
            let cap = self.wall_time_cap();
            Stop::new(StopDetail::MaxWallTime, format!("The budget of {cap:?} wall time is used up."))
        })
    }

    /// The worktree, from its room on.
    pub fn worktree(&self) -> Option<&Worktree> {
        self.worktree.get()
    }

    pub(super) fn has_worktree(&self, worktree: Worktree) {
        // Set once, by the walk.
        let _already = self.worktree.set(worktree);
    }

    /// The number of the issue in the tracker, where it is there.
    pub fn tracked_issue(&self) -> Option<u64> {
        self.plan.request.issue.tracked()
    }

    /// Appends an event.
    pub fn record(&self, event: Event) -> Result<(), JournalError> {
        self.journal().append(event)
    }

    /// A note for people. One that cannot be written is logged; what it is about goes on.
    pub fn note(&self, warning: Warning) {
        tracing::warn!(target: "agentd::note", code = warning.code, "{}", warning.text);
        if let Err(error) = self.record(Event::Warned(warning)) {
            tracing::error!(%error, "a note is not in the journal");
        }
    }

    /// As [`Run::note`], with the time of now.
    pub fn warn(&self, code: &str, text: impl Into<String>) {
        self.note(Warning { code: code.to_owned(), at: self.site.clock.now_ms(), text: text.into() });
    }

    /// Says in the journal, durably, that an effect will be tried now.
    pub async fn plan_effect(&self, effect: Effect) -> Result<(), JournalError> {
        self.record(Event::EffectPlanned { effect })?;
        self.journal().flush().await
    }

    /// Says that it is there.
    pub fn effect_done(&self, effect: Effect, outcome: &str) -> Result<(), JournalError> {
        self.record(Event::EffectDone { effect, outcome: outcome.to_owned() })
    }

    /// Says that it could not be done, and why in public words.
    pub fn effect_failed(&self, effect: Effect, message: &str) -> Result<(), JournalError> {
        tracing::warn!(target: "agentd::note", "{} failed: {message}", effect.as_str());
        self.record(Event::EffectFailed { effect, message: message.to_owned() })
    }

    /// What the journal says so far.
    pub fn facts(&self) -> Arc<RunFacts> {
        self.journal().facts()
    }

    /// The run output as it would be if the run ended now with `stop`.
    pub fn output(&self, stop: &Stop) -> (RunOutput, RunFacts) {
        let mut facts = Arc::unwrap_or_clone(self.facts());
        facts.end = Some(stop.clone());
        let output = report::output(&facts, self.journal());
        (output, facts)
    }

    /// The record could not be written: the outcome still gets out (C-10).
    pub(super) fn output_lost(&self, error: &JournalError) -> RunOutput {
        tracing::error!(%error, "the run's record cannot be written");
        let stop = Stop::new(
            StopDetail::OutputWriteFailed,
            format!("The run's record could not be written: {error}."),
        );
        let mut facts = Arc::unwrap_or_clone(self.facts());
        facts.end = Some(stop);
        report::output(&facts, self.journal())
    }

    /// A defect of agentd in the middle of a room, as the journal's error so that the walk ends orderly.
    pub(super) fn defect(&self, message: &str) -> JournalError {
        JournalError { path: self.journal().dir().path.display().to_string(), message: message.to_owned() }
    }
}
