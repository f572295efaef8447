//! Sinks: programs that get the run record once when a run is over. Nothing that they do changes the run (P-023,
//! P-024).

use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::event::Event;
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::FileJournal;
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, Ending, ProcessSpec};

/// How long a sink may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The sinks of a repository, and how they are started.
#[derive(Debug, Clone)]
pub struct Sinks {
    /// Each its argv.
    pub programs: Vec<Vec<String>>,
    /// Where they are started.
    pub folder: AbsPath,
    /// Their whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// Gives the record to every sink, and notes in the journal that this was tried. A record is emitted only once.
pub async fn emit(sinks: &Sinks, journal: &FileJournal) -> Result<(), JournalError> {
    if sinks.programs.is_empty() || journal.facts().emitted {
        return Ok(());
    }
    let path = journal.dir().record();
    let record = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    let record = match record {
        Ok(Ok(record)) => Ok(record),
        Ok(Err(error)) => Err(format!("the run record cannot be read: {error}")),
        Err(panic) => Err(panic.to_string()),
    };
    let problems = feed_all(sinks, &record).await;
    journal.append(Event::RecordEmitted { problems })?;
    journal.flush().await
}

/// Feeds a record to each sink; gives a sentence for each that did not take it.
pub async fn feed_all(sinks: &Sinks, record: &Result<Vec<u8>, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for argv in &sinks.programs {
        let fed = match record {
            Ok(record) => feed(argv, record.clone(), sinks).await,
            Err(problem) => Err(problem.clone()),
        };
        if let Err(problem) = fed {
            tracing::warn!(sink = argv.join(" "), problem, "a sink did not take the run record");
            problems.push(format!("{}: {problem}", argv.join(" ")));
        }
    }
    problems
}

async fn feed(argv: &[String], record: Vec<u8>, sinks: &Sinks) -> Result<(), String> {
    let (program, args) = argv.split_first().ok_or("no program is named")?;
    let spec = ProcessSpec::new(program, &sinks.folder)
        .args(args)
        .envs(sinks.environment.iter().cloned())
        .stdin(record)
        .timeout(PATIENCE)
        .output_cap(4096);
    let exit = process::run(spec, &CancellationToken::new()).await.map_err(|error| error.to_string())?;
    match (&exit.ending, exit.success()) {
        (Ending::Itself, true) => Ok(()),
        (Ending::Itself, false) => {
            let code =
                exit.code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
            Err(code)
        }
        _ => Err(format!("did not end within {} s", PATIENCE.as_secs())),
    }
}
