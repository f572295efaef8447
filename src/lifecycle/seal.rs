//! Stage seal: the run's end is recorded, and everything that it leaves is written and sealed.
//!
//! Takes a published run. Leaves result, run record, evidence, report and signature, all of them folded from the journal.
//! After a crash in it, whoever finds the run writes the same from the same events.

use std::sync::Arc;

use super::publish::Published;
use super::stage::Worked;
use crate::domain::event::Event;
use crate::domain::run_output::RunOutput;
use crate::engine::journal::JournalError;
use crate::record::{report, seal as files, sinks};

/// Ends the run; gives the run output.
pub async fn seal(published: Published<'_>) -> Result<RunOutput, JournalError> {
    let Worked { run, stop, workspace } = published.into_worked();
    if run.lease.given_up.is_some() {
        run.lease.give_up().await;
    }
    if let Some(sandbox) = workspace.and_then(|workspace| workspace.sandbox) {
        sandbox.close();
    }
    run.journal.record(Event::RunEnded { stop })?;
    run.journal.flush().await?;
    let journal = Arc::clone(run.journal.file());
    let (key, clock) = (run.context.config.record.seal_key.clone(), run.context.clock.clone());
    let written = tokio::task::spawn_blocking(move || {
        let output = report::write(journal.dir())?;
        files::seal(&journal, key.as_deref(), &clock)?;
        Ok::<_, JournalError>(output)
    });
    let output = written.await.map_err(|panic| run.journal.defect(&panic.to_string()))??;
    run.journal.flush().await?;
    sinks::emit(&run.context.sinks(), run.journal.file()).await?;
    Ok(output)
}
