//! How a stage of the work ends: with what the next stage takes, or with the work as far as it came.

use std::sync::Arc;

use super::run::Run;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;
use crate::git::worktree::Worktree;
use crate::sandbox::run_sandbox::RunSandbox;
use crate::sys::sandbox::ProcessSandbox;

/// What a stage of the work gives.
pub enum Stage<'a, T> {
    /// What the next stage takes.
    Next(T),
    /// The run is over before its flow could end.
    Over(Box<Worked<'a>>),
}

/// Why a stage did not come to its own end.
pub enum StageError {
    /// The run ends here, for this reason.
    Stopped(Stop),
    /// Nothing can be recorded any more.
    Journal(JournalError),
}

impl StageError {
    /// The reason why the run ends here.
    pub fn stop(self) -> Result<Stop, JournalError> {
        match self {
            Self::Stopped(stop) => Ok(stop),
            Self::Journal(error) => Err(error),
        }
    }
}

impl From<Stop> for StageError {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<JournalError> for StageError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Where a run works.
pub struct Workspace {
    /// The worktree.
    pub worktree: Worktree,
    /// The sandbox of the run's programs; `None` = the run ended before there was one.
    pub sandbox: Option<Arc<RunSandbox>>,
}

impl Workspace {
    /// The sandbox of agentd's own commands, if there is one.
    pub fn of_commands(&self, run: &Run<'_>) -> Option<&ProcessSandbox> {
        self.sandbox.as_ref()?.of_commands(&run.plan.loaded.definition.boundaries.sandbox)
    }

    /// Records what programs asked of the network since the last time.
    pub fn record_asked(&self, run: &Run<'_>) -> Result<(), JournalError> {
        let sandbox = self.sandbox.as_ref();
        sandbox.map_or(Ok(()), |sandbox| sandbox.record_asked(&run.journal, &run.plan.redactor))
    }
}

/// A run whose work is over, by itself or cut short.
pub struct Worked<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// Why it is over, as far as is known now.
    pub stop: Stop,
    /// Where it worked; `None` = it ended before there was a worktree.
    pub workspace: Option<Workspace>,
}
