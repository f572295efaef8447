//! Checks as people write them in a scenario, with their annotations, jobs and logs.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::check::{Annotation, Check, Job, Log};

/// `[[repositories.checks]]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CheckFile {
    /// Branch or commit id it stands on; a branch may come into being later.
    pub on: String,
    /// Context of the status, name of the check run.
    pub name: String,
    /// `status` (default) or `run`.
    #[serde(default)]
    pub kind: CheckKindFile,
    /// A status' state (`success`, `failure`, `error`, `pending`); a run's conclusion, absent while it runs.
    pub outcome: Option<String>,
    /// A status' longer text, a run's title.
    pub description: Option<String>,
    /// Whether the base branch wants it before a merge.
    #[serde(default)]
    pub required: bool,
    /// What a run says at length.
    pub summary: Option<String>,
    /// Still more.
    pub text: Option<String>,
    /// What a run says of single lines.
    #[serde(default)]
    pub annotations: Vec<AnnotationFile>,
    /// Where another service shows it.
    pub details_url: Option<String>,
    /// The job of GitHub Actions behind a run.
    pub job: Option<JobFile>,
}

/// `[[repositories.checks.annotations]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnnotationFile {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// `notice`, `warning` or `failure`.
    pub level: String,
    /// What is wrong.
    pub message: String,
    /// In short.
    pub title: Option<String>,
}

/// `[repositories.checks.job]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobFile {
    /// The workflow's name; default `CI`. Jobs of one workflow on one commit are one workflow run.
    pub workflow: Option<String>,
    /// What the workflow was started by; default `pull_request`.
    pub event: Option<String>,
    /// Whether its workflow was started once more on the commit: the jobs of the workflow run before stay beside it.
    pub once_more: bool,
    /// The runner's name; default `GitHub Actions 1`; empty: it never had one.
    pub runner: Option<String>,
    /// Steps: name and conclusion.
    pub steps: Vec<(String, String)>,
    /// Its log.
    pub log: String,
    /// Bytes of filling after `log`.
    pub filling: u64,
    /// The log's end, after the filling.
    pub tail: String,
    /// The status that the log is refused with: 404 or 410.
    pub log_status: Option<u16>,
    /// Conclusions of the next attempts in order; `running` = it does not end.
    pub reruns: Vec<String>,
}

/// The two kinds of checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKindFile {
    /// A commit status.
    #[default]
    Status,
    /// A check run.
    Run,
}

impl CheckFile {
    /// The check with that id; `run` = the workflow run of its job and that run's attempt.
    pub fn check(&self, id: u64, run: (u64, u64), at: DateTime<Utc>) -> Check {
        Check {
            id,
            on: self.on.clone(),
            name: self.name.clone(),
            run: self.kind == CheckKindFile::Run,
            outcome: self.outcome.clone(),
            description: self.description.clone(),
            at,
            required: self.required,
            summary: self.summary.clone(),
            text: self.text.clone(),
            annotations: self.annotations.iter().map(AnnotationFile::annotation).collect(),
            details_url: self.details_url.clone(),
            job: self.job.as_ref().map(|job| job.job(run)),
        }
    }

    /// The workflow of its job.
    pub fn workflow(&self) -> Option<String> {
        self.job.as_ref().map(|job| job.workflow.clone().unwrap_or_else(|| "CI".to_owned()))
    }
}

impl AnnotationFile {
    fn annotation(&self) -> Annotation {
        Annotation {
            path: self.path.clone(),
            line: self.line,
            level: self.level.clone(),
            message: self.message.clone(),
            title: self.title.clone(),
        }
    }
}

impl JobFile {
    fn job(&self, (run, attempt): (u64, u64)) -> Job {
        Job {
            run,
            workflow: self.workflow.clone().unwrap_or_else(|| "CI".to_owned()),
            event: self.event.clone().unwrap_or_else(|| "pull_request".to_owned()),
            attempt,
            runner: self.runner.clone().unwrap_or_else(|| "GitHub Actions 1".to_owned()),
            steps: self.steps.clone(),
            log: Log {
                head: self.log.clone(),
                filling: self.filling,
                tail: self.tail.clone(),
                refused: self.log_status,
            },
            reruns: self.reruns.clone(),
        }
    }
}
