//! What the checks of the pull request found.

use std::sync::Arc;

use crate::conversation::checks::{CheckReader, Log, ReadCheck, Unread};
use crate::domain::briefing::KeptLog;
use crate::domain::head_check::{CheckRead, HeadCheck};
use crate::domain::redaction::Redactor;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::github::{Client, ErrorKind, Pull};
use crate::repository::context::RepositoryContext;
use crate::store::port::Blobs;

/// What was read of checks.
#[derive(Debug, Default)]
pub struct Checks {
    /// What is told of each of them.
    pub told: Vec<String>,
    /// Each failed one.
    pub read: Vec<CheckRead>,
    /// Clean logs by their handles.
    pub logs: Vec<KeptLog>,
}

/// Reads every failed check of the head, those that start no run as well.
pub async fn read(
    pull: &Pull,
    redactor: &Arc<Redactor>,
    blobs: Option<Arc<dyn Blobs>>,
    (github, context): (&Client, &RepositoryContext),
) -> Result<Checks, Refusal> {
    let head = match github.checked_head(&context.repo, pull.number, &pull.base).await {
        Ok(head) => head,
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden { .. }) => {
            tracing::debug!(%error, "the checks may not be read");
            return Ok(Checks::default());
        }
        Err(error) => return Err(error.into()),
    };
    let failed: Vec<HeadCheck> = head.checks.into_iter().filter(|check| check.failure().is_some()).collect();
    if failed.is_empty() {
        return Ok(Checks::default());
    }
    let reader = CheckReader {
        github,
        repo: &context.repo,
        table: &context.config.checks,
        redactor: Some(Arc::clone(redactor)),
        blobs,
    };
    let read = reader.read(failed).await.map_err(|unread| match unread {
        Unread::GitHub(error) => Refusal::from(error),
        Unread::Store(error) => Refusal::new(
            StopDetail::OutputWriteFailed,
            format!("The log of a check cannot be kept: {error}."),
        ),
    })?;
    let on_base = |name: &str| head.on_base.iter().any(|base| base.name == name && base.failure().is_some());
    let mut found = Checks::default();
    for one in &read {
        let mut told = one.told(Some(redactor));
        if on_base(&one.check.name) {
            told.push_str("\n(It fails on the base branch as well.)");
        }
        found.told.push(format!("A check of the pull request failed:\n{told}"));
        found.read.push(record(one, &pull.head_sha, on_base(&one.check.name)));
        found.logs.extend(
            one.parts().iter().map(|(handle, file)| KeptLog { handle: handle.clone(), file: file.clone() }),
        );
    }
    Ok(found)
}

fn record(read: &ReadCheck, head: &str, on_base: bool) -> CheckRead {
    let (log_skipped, no_log) = match &read.log {
        Log::Read { skipped, .. } => (Some(*skipped), None),
        Log::Missing(why) => (None, Some((*why).to_owned())),
    };
    CheckRead {
        check: read.check.name.clone(),
        head: head.to_owned(),
        conclusion: read.check.failure().unwrap_or_default().to_owned(),
        required: read.check.required,
        failing_on_base: on_base,
        errors_sha256: read.fingerprint(),
        log_skipped,
        no_log,
    }
}
