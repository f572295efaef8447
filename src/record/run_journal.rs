//! The journal of one run, as its stages write it: events, notes for people, and effects before and after they are tried.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::domain::artifact::Artifact;
use crate::domain::event::{Effect, Event};
use crate::domain::facts::RunFacts;
use crate::domain::run::Warning;
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::FileJournal;
use crate::store::journal_format::HeardLine;
use crate::store::run_dir::RunDir;
use crate::sys::clock::Clock;

/// A run's journal, and the clock that its notes are dated by.
#[derive(Clone)]
pub struct RunJournal {
    file: Arc<FileJournal>,
    clock: Clock,
}

impl RunJournal {
    /// The journal of a run whose first event is written.
    pub fn new(file: Arc<FileJournal>, clock: Clock) -> Self {
        Self { file, clock }
    }

    /// The journal itself.
    pub fn file(&self) -> &Arc<FileJournal> {
        &self.file
    }

    /// The directory of the run.
    pub fn dir(&self) -> &RunDir {
        self.file.dir()
    }

    /// Its lines from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<HeardLine>> {
        self.file.listen()
    }

    /// What it says so far.
    pub fn facts(&self) -> Arc<RunFacts> {
        self.file.facts()
    }

    /// Appends an event.
    pub fn record(&self, event: Event) -> Result<(), JournalError> {
        self.file.append(event)
    }

    /// Waits until all that was appended is on disk.
    pub async fn flush(&self) -> Result<(), JournalError> {
        self.file.flush().await
    }

    /// Keeps a file beside it.
    pub async fn keep(&self, name: &str, bytes: Vec<u8>) -> Result<Artifact, JournalError> {
        self.file.keep(name, bytes).await
    }

    /// A note for people. If it cannot be written it is logged, and the run goes on.
    pub fn note(&self, warning: Warning) {
        tracing::warn!(target: "agentd::note", code = warning.code, "{}", warning.text);
        if let Err(error) = self.record(Event::Warned(warning)) {
            tracing::error!(%error, "a note is not in the journal");
        }
    }

    /// As [`RunJournal::note`], with the time of now.
    pub fn warn(&self, code: &str, text: impl Into<String>) {
        self.note(Warning { code: code.to_owned(), at: self.clock.now_ms(), text: text.into() });
    }

    /// Says, durably, that an effect will be tried now.
    pub async fn plan_effect(&self, effect: Effect) -> Result<(), JournalError> {
        self.record(Event::EffectPlanned { effect })?;
        self.flush().await
    }

    /// Says that it is there.
    pub fn effect_done(&self, effect: Effect, outcome: &str) -> Result<(), JournalError> {
        self.record(Event::EffectDone { effect, outcome: outcome.to_owned() })
    }

    /// Says that it could not be done, and why in public words.
    ///
    /// `transient`: whether a later try may succeed without a person's help.
    pub fn effect_failed(&self, effect: Effect, message: &str, transient: bool) -> Result<(), JournalError> {
        self.failed(effect, message, (transient, false))
    }

    /// Says that the remote refused it for what the work holds, and why in public words.
    pub fn effect_refused(&self, effect: Effect, message: &str) -> Result<(), JournalError> {
        self.failed(effect, message, (false, true))
    }

    fn failed(
        &self,
        effect: Effect,
        message: &str,
        (transient, of_content): (bool, bool),
    ) -> Result<(), JournalError> {
        tracing::warn!(target: "agentd::note", "{} failed: {message}", effect.as_str());
        self.record(Event::EffectFailed { effect, message: message.to_owned(), transient, of_content })
    }

    /// A defect of agentd in the middle of a stage, as the journal's error so that the pipeline ends in order.
    pub fn defect(&self, message: &str) -> JournalError {
        JournalError { path: self.dir().path.display().to_string(), message: message.to_owned() }
    }
}
