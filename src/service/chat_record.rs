//! The run record of a conversation's turn: everything that was asked, answered, decided and done, in one document. It
//! never changes the answer (C-10).

use super::host::{Opened, Service};
use crate::domain::run::Principal;
use crate::domain::run_output::rfc3339_of_ms;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;
use crate::record::sinks::{self, Sinks};
use crate::record::{report, run_record};
use crate::store::journal_file;
use crate::store::run_dir::RunDir;
use crate::sys::files;

/// Folds the record from the turn's journal, writes it, and feeds it to the sinks (P-023, P-024). `said`: what the user
/// asked, and what the answer is.
pub(super) async fn keep(
    service: &Service,
    opened: &Opened,
    user: &Principal,
    (asked, answered): (&str, &str),
    stop: Stop,
) {
    let (dir, user) = (opened.dir.clone(), user.clone());
    let (asked, answered) = (service.clean(asked), answered.to_owned());
    let inline = service.config.longest_inline();
    let work = move || write(&dir, user, (asked, answered), &stop, inline);
    let record = match tokio::task::spawn_blocking(work).await {
        Ok(Ok(record)) => Ok(record),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(panic.to_string()),
    };
    if let Err(problem) = &record {
        tracing::warn!(problem, "the record of a conversation could not be written");
    }
    // Each problem is in the log.
    let sinks = Sinks {
        programs: service.config.record.sinks.clone(),
        folder: service.base.clone(),
        environment: service.children.clone(),
    };
    sinks::feed_all(&sinks, &record).await;
}

fn write(
    dir: &RunDir,
    user: Principal,
    (asked, answered): (String, String),
    stop: &Stop,
    inline: usize,
) -> Result<Vec<u8>, JournalError> {
    let lines = journal_file::read(dir)?.lines;
    let facts = journal_file::facts_of(&lines);
    let digest = lines.last().map(|line| line.hash.clone()).unwrap_or_default();
    let mut output = report::unstarted(dir.run_id.0, asked.clone(), user, stop, facts.started_at);
    // A clock that was set back meanwhile makes no run end before it began.
    output.completed_at = rfc3339_of_ms(facts.last_at.max(facts.started_at));
    let question = report::record_text(dir, "question", asked, inline)?;
    let response = report::record_text(dir, "response", answered, inline)?;
    let mut record = run_record::fold(&facts, &output, &digest, question, response);
    "chat".clone_into(&mut record.agent_name);
    let failed = |message: String| JournalError { path: dir.record().display().to_string(), message };
    let json = serde_json::to_vec_pretty(&record).map_err(|error| failed(error.to_string()))?;
    files::write_private(&dir.record(), &json).map_err(|error| failed(error.to_string()))?;
    Ok(json)
}
