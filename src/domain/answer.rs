//! What came of a remark that asks for something: as the agent reports it, and as it is told on GitHub.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::name::CommitId;
use super::remark::ThreadOutcome;
use super::run::RunId;

/// The member of a report that holds outcomes.
pub const OUTCOMES: &str = "threads";

/// An outcome as an agent reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedOutcome {
    /// The thread's id, or the id of a remark without a thread.
    pub thread: String,
    /// What came of it.
    pub outcome: ThreadOutcome,
    /// For the people who wrote it.
    pub text: String,
}

/// The outcomes in a report: `threads: [{thread, outcome, text}]`. What has another form is passed over.
pub fn reported(output: &Map<String, Value>) -> Vec<ReportedOutcome> {
    let entries = output.get(OUTCOMES).and_then(Value::as_array).into_iter().flatten();
    let read = entries.filter_map(|entry| {
        Some(ReportedOutcome {
            thread: entry["thread"].as_str()?.trim().to_owned(),
            outcome: ThreadOutcome::parse(entry["outcome"].as_str()?.trim())?,
            text: entry["text"].as_str().unwrap_or_default().trim().to_owned(),
        })
    });
    read.collect()
}

/// See [`super::event::Event::ThreadOutcome`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The thread's id, or the id of a remark without a thread.
    pub thread: String,
    /// What came of it.
    pub outcome: ThreadOutcome,
    /// For the people who wrote it.
    pub text: String,
    /// The run that it is the outcome of. Runs that go on with it keep it, so that it is told once.
    #[schemars(with = "uuid::Uuid")]
    pub run: RunId,
    /// The branch's head before that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub base: Option<CommitId>,
    /// The pushed commit that proves a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub commit: Option<CommitId>,
    /// What the report has to admit about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limitation: Option<String>,
    /// Whether it was compared with what was pushed, and is about to be told on GitHub.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_are_read_and_what_is_none_is_passed_over() {
        let output = json!({ "threads": [
            { "thread": "T1", "outcome": "changed", "text": " done " },
            { "thread": "T2", "outcome": "perhaps" },
            { "outcome": "asks" }, 7,
            { "thread": "review-3", "outcome": "asks" },
        ] });
        let found = reported(output.as_object().unwrap());
        let found: Vec<_> =
            found.iter().map(|one| (one.thread.as_str(), one.outcome, one.text.as_str())).collect();
        assert_eq!(found, [("T1", ThreadOutcome::Changed, "done"), ("review-3", ThreadOutcome::Asks, "")]);
        assert_eq!(reported(&Map::new()), []);
    }
}
