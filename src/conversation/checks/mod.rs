//! Failed checks: what they say, the end of their logs, and whether that is the same as before.
//!
//! `log_lines` makes clean lines of a log, `excerpt` the part that is told, `digest` both with the secrets taken out, and
//! this file reads a check and tells it. When a check is answered at all is the daemon's to decide.

mod digest;
mod excerpt;
mod log_lines;

use std::sync::Arc;

use tokio::sync::mpsc;

pub use self::digest::Keep;
use self::digest::{Digest, Reading};
use crate::config::checks_file::ChecksTable;
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::head_check::HeadCheck;
use crate::domain::name::RepoName;
use crate::domain::redaction::Redactor;
use crate::domain::untrusted::{fence_with, plain, without_marks};
use crate::github::{Annotation, Client, Error, Job, JobLog, NoLog, Opened};
use crate::store::port::{Blobs, StoreError};

/// Longest title, summary and message of an annotation that is told, in characters.
const LONGEST_SUMMARY: usize = 4_000;
const LONGEST_MESSAGE: usize = 500;
/// Pieces of a log that wait between network and disk.
const WAITING: usize = 8;
/// Error lines that make one failure the same as another.
const ERROR_LINES: usize = 10;

/// What agents write in annotations when the runner was lost.
const LOST: [&str; 4] = [
    "lost communication with the server",
    "received a shutdown signal",
    "runner has been disconnected",
    "hosted runner encountered an error",
];

/// Why checks could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// GitHub.
    #[error(transparent)]
    GitHub(#[from] Error),
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads failed checks of one repository.
pub struct CheckReader<'a> {
    /// Where from.
    pub github: &'a Client,
    /// Of which repository.
    pub repo: &'a RepoName,
    /// How much.
    pub table: &'a ChecksTable,
    /// Takes secrets out of logs; `None` = nothing of them is told or kept.
    pub redactor: Option<Arc<Redactor>>,
    /// Where whole logs are kept for the run.
    pub blobs: Option<Arc<dyn Blobs>>,
}

/// A failed check with what it says.
#[derive(Debug)]
pub struct ReadCheck {
    /// The check.
    pub check: HeadCheck,
    /// The step of its job that failed.
    pub failed_step: Option<String>,
    /// Of single lines.
    pub annotations: Vec<Annotation>,
    /// Its log.
    pub log: Log,
}

/// The log of a check.
#[derive(Debug)]
pub enum Log {
    /// It was read.
    Read {
        /// What is told of it.
        excerpt: String,
        /// Lines that say what went wrong.
        errors: Vec<String>,
        /// Handles of its parts.
        parts: Vec<(String, Artifact)>,
        /// Bytes before what was read.
        skipped: u64,
    },
    /// There is none; why.
    Missing(&'static str),
}

impl CheckReader<'_> {
    /// Reads what failed checks say. What they said is not there is said, and is no error.
    ///
    /// # Errors
    /// GitHub does not answer, or a log cannot be kept.
    pub async fn read(&self, failed: Vec<HeadCheck>) -> Result<Vec<ReadCheck>, Unread> {
        let mut found = Vec::new();
        let mut left = self.table.log_bytes_total;
        for (place, check) in failed.into_iter().enumerate() {
            let read = self.one(check, place + 1, left.min(self.table.log_bytes)).await?;
            if let Log::Read { excerpt, .. } = &read.log {
                left = left.saturating_sub(excerpt.len());
            }
            found.push(read);
        }
        Ok(found)
    }

    /// Whether the runner failed a check's job, and not the work.
    pub async fn lost_its_runner(&self, check: &HeadCheck) -> Result<bool, Unread> {
        let annotations = match check.run.filter(|_| check.annotations > 0) {
            Some(run) => self.github.annotations(self.repo, run, self.table.max_annotations).await?,
            None => Vec::new(),
        };
        if annotations.iter().any(is_loss) {
            return Ok(true);
        }
        let Some(id) = check.job else { return Ok(false) };
        Ok(self.github.job(self.repo, id.job).await?.is_some_and(|job| !job.had_runner))
    }

    async fn one(&self, check: HeadCheck, number: usize, budget: usize) -> Result<ReadCheck, Unread> {
        let annotations = match check.run.filter(|_| check.annotations > 0) {
            Some(run) => self.github.annotations(self.repo, run, self.table.max_annotations).await?,
            None => Vec::new(),
        };
        let job = match check.job {
            Some(id) => self.github.job(self.repo, id.job).await?,
            None => None,
        };
        let log = match check.job {
            Some(id) => self.log(id.job, job.as_ref(), number, budget).await?,
            None => Log::Missing("it is no job of GitHub Actions"),
        };
        let failed_step = job.and_then(|job| job.failed_step).map(|step| step.name);
        Ok(ReadCheck { check, failed_step, annotations, log })
    }

    /// Reads a log. A connection that breaks is tried once more; what was read until then is not told.
    async fn log(&self, id: u64, job: Option<&Job>, number: usize, budget: usize) -> Result<Log, Unread> {
        for _ in 0..2 {
            let log = match self.github.open_job_log(self.repo, id, self.table.log_download_max).await? {
                Opened::Log(log) => log,
                Opened::Nothing(NoLog::Missing) => {
                    return Ok(Log::Missing("GitHub has none, or does not show it"));
                }
                Opened::Nothing(NoLog::Gone) => return Ok(Log::Missing("GitHub has deleted it")),
                Opened::Nothing(NoLog::Unreadable) => {
                    return Ok(Log::Missing("GitHub's link to it does not work"));
                }
            };
            let skipped = log.skipped;
            let keep = self.blobs.clone().map(|blobs| Keep { blobs, name: format!("checks/log-{number}") });
            let reading = Reading {
                redactor: self.redactor.clone(),
                keep,
                step: job.and_then(|job| job.failed_step.clone()),
                budget,
                headless: skipped > 0,
            };
            if let Some(Digest { excerpt, errors, parts }) = through(log, reading).await? {
                return Ok(Log::Read { excerpt, errors, parts, skipped });
            }
        }
        Ok(Log::Missing("the connection breaks while it is read"))
    }
}

/// Whether GitHub says there that the runner was lost.
fn is_loss(one: &Annotation) -> bool {
    let message = one.message.to_lowercase();
    LOST.iter().any(|words| message.contains(words))
}

/// Pulls a log through its reading. `None` = the connection broke.
async fn through(mut log: JobLog, reading: Reading) -> Result<Option<Digest>, Unread> {
    let (send, receive) = mpsc::channel(WAITING);
    let work = tokio::task::spawn_blocking(move || reading.run(receive));
    let mut broken = false;
    while let Some(piece) = log.next().await {
        match piece {
            Ok(piece) => {
                if send.send(piece).await.is_err() {
                    // The reader has an error to tell.
                    break;
                }
            }
            Err(error) => {
                tracing::debug!(error, "a log broke off");
                broken = true;
                break;
            }
        }
    }
    drop(send);
    let digest = work.await.map_err(|error| StoreError::Failed {
        action: "read",
        place: "a log".to_owned(),
        words: error.to_string(),
    })??;
    Ok((!broken).then_some(digest))
}

impl ReadCheck {
    /// Of what went wrong: the same words for the same failure, whatever the times and numbers in them.
    pub fn fingerprint(&self) -> String {
        let mut said: Vec<String> = Vec::new();
        if let Log::Read { errors, .. } = &self.log {
            said.extend(errors.iter().take(ERROR_LINES).map(|line| without_numbers(line)));
        }
        let failures = self.annotations.iter().filter(|one| one.level == "failure");
        said.extend(
            failures.take(ERROR_LINES).map(|one| without_numbers(&format!("{}: {}", one.path, one.message))),
        );
        if said.is_empty() {
            said.push(without_numbers(&format!("{}\n{}", self.check.title, self.check.summary)));
        }
        sha256_hex(said.join("\n").as_bytes())
    }

    /// The handles by which its log can be read.
    pub fn parts(&self) -> &[(String, Artifact)] {
        match &self.log {
            Log::Read { parts, .. } => parts,
            Log::Missing(_) => &[],
        }
    }

    /// What a run is told of it, fenced: a machine wrote it, and it gives no orders.
    pub fn told(&self, redactor: Option<&Redactor>) -> String {
        let clean = |text: &str, most: usize| {
            let text = plain(text, most).text;
            match redactor.map(|redactor| redactor.redact(&text)) {
                Some(Ok(clean)) => clean.into_owned(),
                Some(Err(_)) => String::new(),
                None => text,
            }
        };
        let check = &self.check;
        let mut text = format!("check: {}\n", clean(&check.name, 200));
        text.push_str(&format!("conclusion: {}\n", check.failure().unwrap_or("none")));
        let required = match check.required {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        text.push_str(&format!("required: {required}\n"));
        if let Some(step) = &self.failed_step {
            text.push_str(&format!("failed step: {}\n", clean(step, 200)));
        }
        if let Some(link) = &check.link {
            text.push_str(&format!("link: {}\n", clean(link, 500)));
        }
        for (name, said) in [("title", &check.title), ("summary", &check.summary)] {
            if !said.trim().is_empty() {
                text.push_str(&format!("{name}: {}\n", clean(said, LONGEST_SUMMARY).trim()));
            }
        }
        if !self.annotations.is_empty() {
            text.push_str("annotations:\n");
            for one in &self.annotations {
                let message = clean(&one.message, LONGEST_MESSAGE).replace('\n', " ");
                text.push_str(&format!("{}:{}: {}: {message}\n", clean(&one.path, 300), one.line, one.level));
            }
        }
        match &self.log {
            Log::Missing(why) => text.push_str(&format!("no log: {why}\n")),
            Log::Read { excerpt, skipped, .. } => {
                match skipped {
                    0 => text.push_str("log:\n"),
                    skipped => text.push_str(&format!("log (its first {skipped} bytes were not read):\n")),
                }
                text.push_str(excerpt);
            }
        }
        let unmarked = without_marks(&text);
        let id = &sha256_hex(unmarked.as_bytes())[..12];
        let attributes =
            [("kind", "check"), ("standing", "machine"), ("source", "check of the pull request")];
        let mut told = fence_with(&attributes, id, &unmarked, Default::default());
        let handles: Vec<&str> = self.parts().iter().map(|(handle, _)| handle.as_str()).collect();
        if !handles.is_empty() {
            told.push_str(&format!(
                "\n(tool_output reads the whole log by the handle {}.)",
                handles.join(", ")
            ));
        }
        told
    }
}

/// A line with every number in it as `0`.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c.is_ascii_digit() {
            true if text.ends_with('0') => {}
            true => text.push('0'),
            false => text.push(c),
        }
    }
    text
}
