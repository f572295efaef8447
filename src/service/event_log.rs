//! The log of a conversation: each event of its journal has a level of its own (S-034…S-036).

use std::sync::Arc;

use futures::future::BoxFuture;
use tracing::Level;

use crate::domain::artifact::Artifact;
use crate::domain::event::Event;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use crate::domain::run::{ForcedFinal, RunId};
use crate::engine::journal::{Journal, JournalError};
use crate::engine::shortage::WAITS_FOR_MONEY;

/// Code of the journal's note that holds an error's technical words.
pub(super) const ERROR_CODE: &str = "agent_error";

/// A journal that tells the log what it is given. Texts in events are redacted already.
pub(super) struct LoggedJournal {
    inner: Arc<dyn Journal>,
    run: RunId,
}

impl LoggedJournal {
    pub(super) fn new(inner: Arc<dyn Journal>, run: RunId) -> Self {
        Self { inner, run }
    }
}

impl LoggedJournal {
    fn tell(&self, event: &Event) {
        if let Some((level, words)) = entry(event) {
            let run = self.run;
            match level {
                Level::ERROR => tracing::error!(%run, "{words}"),
                Level::WARN => tracing::warn!(%run, "{words}"),
                Level::INFO => tracing::info!(%run, "{words}"),
                _ => tracing::debug!(%run, "{words}"),
            }
        }
    }
}

impl Journal for LoggedJournal {
    fn append(&self, event: Event) -> Result<(), JournalError> {
        self.tell(&event);
        self.inner.append(event)
    }

    fn append_with_next(&self, event: Event) -> Result<(), JournalError> {
        self.tell(&event);
        self.inner.append_with_next(event)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        self.inner.flush()
    }

    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>> {
        self.inner.keep(path, bytes)
    }

    fn kept<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<Vec<u8>, JournalError>> {
        self.inner.kept(artifact)
    }
}

/// Level and words of an event; `None` for what only the journal needs.
fn entry(event: &Event) -> Option<(Level, String)> {
    Some(match event {
        Event::LlmAttempted { entry } => llm(entry),
        Event::ToolStarted { tool, .. } => (Level::INFO, format!("executing tool: {tool}")),
        Event::ToolFinished { entry } => tool(entry),
        Event::FinalTurnForced { reason: ForcedFinal::MaxTurns, turn } => {
            (Level::WARN, format!("the last iteration is over; turn {turn} is the summary"))
        }
        Event::FinalTurnForced { reason: ForcedFinal::MaxCost, turn } => {
            let why = "the money does not cover a request with them, as the end of this says; `budgets.max_cost` holds for one \
                       answer, `budgets.max_cost_per_day` for all of a day";
            (Level::WARN, format!("turn {turn} is answered without tools: {why}"))
        }
        Event::FinalTurnForced { reason, turn } => {
            (Level::WARN, format!("turn {turn} is the last one: {reason:?}"))
        }
        Event::BoundParamOverridden { tool, name } => {
            (Level::WARN, format!("tool {tool}: the model's `{name}` was replaced by the host's"))
        }
        Event::ToolsChanged(changed) => (Level::INFO, format!("the tools changed: {}", changed.words())),
        Event::BudgetSoftLimit { kind, used, cap } => {
            (Level::WARN, format!("budget {}: {used} of {cap} is used", kind.as_str()))
        }
        Event::SessionClosed(closed) => match &closed.failure {
            Some(failure) => (Level::ERROR, format!("{}: {}", failure.error_name, failure.error_message)),
            None => (Level::INFO, format!("done after {} turns", closed.turns)),
        },
        Event::ReplyRejected { reason, attempt, .. } => {
            (Level::DEBUG, format!("attempt {attempt}: the reply cannot be used: {reason}"))
        }
        Event::Warned(warning) if warning.code == ERROR_CODE => (Level::ERROR, warning.text.clone()),
        // Who waits has logged it.
        Event::Warned(warning) if warning.code == WAITS_FOR_MONEY => return None,
        Event::Warned(warning) => (Level::WARN, warning.text.clone()),
        _ => return None,
    })
}

fn llm(entry: &AccountingEntry) -> (Level, String) {
    let AccountingKind::Llm { provider, model, http_status, .. } = &entry.what else {
        return (Level::DEBUG, String::new());
    };
    let place = format!("iteration {}, attempt {}", entry.turn, entry.attempt.unwrap_or(1));
    match (&entry.status, http_status) {
        (AccountingStatus::Ok, _) => {
            (Level::INFO, format!("{place}: {provider}/{model} answered in {} ms", entry.latency))
        }
        (AccountingStatus::Failed, Some(429)) => {
            (Level::WARN, format!("{place}: {provider}/{model} limits requests"))
        }
        (AccountingStatus::Failed, _) => {
            let error = entry.error.as_deref().unwrap_or("no reply");
            (Level::ERROR, format!("{place}: {provider}/{model}: {error}"))
        }
    }
}

fn tool(entry: &AccountingEntry) -> (Level, String) {
    let AccountingKind::Tool { command, .. } = &entry.what else { return (Level::DEBUG, String::new()) };
    match &entry.error {
        None => (Level::INFO, format!("tool {command} ran for {} ms", entry.latency)),
        Some(error) => (Level::ERROR, format!("tool {command} failed: {error}")),
    }
}
