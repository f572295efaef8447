//! A check of a pull request's head: a check run or a commit status, as GitHub has it.

use serde::{Deserialize, Serialize};

/// A check run or a commit status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadCheck {
    /// Its name; of a status its context.
    pub name: String,
    /// The check run's id; `None` = a commit status.
    pub run: Option<u64>,
    /// How it ended, or that it did not.
    pub outcome: CheckOutcome,
    /// Whether the base branch wants it before a merge; `None` = that was not asked.
    pub required: Option<bool>,
    /// What it says in short.
    pub title: String,
    /// What it says at length, Markdown.
    pub summary: String,
    /// Where people see it.
    pub link: Option<String>,
    /// The job of GitHub Actions behind it.
    pub job: Option<JobId>,
    /// How many lines it says something of.
    pub annotations: u64,
}

/// A job of GitHub Actions, and the workflow run that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobId {
    /// The workflow run.
    pub run: u64,
    /// The job.
    pub job: u64,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// It has not.
    Running,
    /// As it should.
    Passed,
    /// It failed; GitHub's word for how.
    Failed(String),
    /// It waits for a person.
    AsksPerson,
    /// It was ended from outside: by a person, for a newer run, or because its time was over, which only its annotations tell.
    Cancelled,
    /// In a way that says nothing: neutral, skipped, stale.
    Nothing,
}

/// A failed check as a run was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRead {
    /// Its name.
    pub check: String,
    /// The commit that it checked.
    pub head: String,
    /// GitHub's word for how it failed.
    pub conclusion: String,
    /// Whether the base branch wants it before a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Whether it fails on the base branch's tip, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failing_on_base: bool,
    /// Over what went wrong, without its numbers.
    pub errors_sha256: String,
    /// Bytes of its log before the ones that were read; absent = there is no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_skipped: Option<u64>,
    /// Why there is no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_log: Option<String>,
}

/// Failed jobs that were run again before a model was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckRerun {
    /// The checks.
    pub checks: Vec<String>,
    /// The commit that they check.
    pub head: String,
    /// Those of them that passed then, without a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaky: Vec<String>,
}

impl CheckOutcome {
    /// A check run's, by its status and conclusion, in any case of letters.
    pub fn of_run(status: &str, conclusion: Option<&str>) -> Self {
        let Some(conclusion) = conclusion.filter(|_| status.eq_ignore_ascii_case("completed")) else {
            return Self::Running;
        };
        let word = conclusion.to_ascii_lowercase();
        match word.as_str() {
            "success" => Self::Passed,
            "failure" | "timed_out" | "startup_failure" => Self::Failed(word),
            "action_required" => Self::AsksPerson,
            "cancelled" => Self::Cancelled,
            _ => Self::Nothing,
        }
    }

    /// A commit status', in any case of letters.
    pub fn of_status(state: &str) -> Self {
        let word = state.to_ascii_lowercase();
        match word.as_str() {
            "success" => Self::Passed,
            "failure" | "error" => Self::Failed(word),
            "pending" | "expected" => Self::Running,
            _ => Self::Nothing,
        }
    }
}

impl HeadCheck {
    /// How it failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            CheckOutcome::Failed(word) => Some(word),
            _ => None,
        }
    }
}

impl JobId {
    /// The job that an address of a check's page names (`…/actions/runs/1/job/2`).
    pub fn of_link(link: &str) -> Option<Self> {
        let (_, rest) = link.split_once("/actions/runs/")?;
        let mut parts = rest.split(['/', '?', '#']);
        let run = parts.next()?.parse().ok()?;
        let named = parts.next().is_some_and(|word| word == "job" || word == "jobs");
        let job = parts.next()?.parse().ok()?;
        named.then_some(Self { run, job })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_failures_are_failures() {
        let run = |conclusion| CheckOutcome::of_run("COMPLETED", Some(conclusion));
        for word in ["failure", "timed_out", "startup_failure"] {
            assert_eq!(run(word), CheckOutcome::Failed(word.to_owned()));
        }
        assert_eq!(run("cancelled"), CheckOutcome::Cancelled);
        for word in ["neutral", "skipped", "stale"] {
            assert_eq!(run(word), CheckOutcome::Nothing);
        }
        assert_eq!(run("ACTION_REQUIRED"), CheckOutcome::AsksPerson);
        assert_eq!(CheckOutcome::of_run("in_progress", None), CheckOutcome::Running);
        assert_eq!(CheckOutcome::of_status("ERROR"), CheckOutcome::Failed("error".to_owned()));
        assert_eq!(CheckOutcome::of_status("EXPECTED"), CheckOutcome::Running);
    }

    #[test]
    fn a_job_is_known_by_its_page() {
        let job = JobId::of_link("https://github.com/o/n/actions/runs/12/job/34?pr=5");
        assert_eq!(job, Some(JobId { run: 12, job: 34 }));
        assert_eq!(JobId::of_link("https://ci.example.com/runs/12/job/34"), None);
        assert_eq!(JobId::of_link("https://github.com/o/n/actions/runs/12"), None);
    }
}
