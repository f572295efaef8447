//! How a run that is to be gone on with was begun, as what is remembered of a repository says it to the next poller.

use serde::{Deserialize, Serialize};

/// How a run was begun, and how far it got with its issue's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BegunBy {
    /// By the trigger label: where it is off, a person took it off.
    Labelled,
    /// By a sweep, without it.
    Swept,
    /// Without it, to put right what was wrong with the pull request.
    FollowUp,
    /// Without it, because what an earlier run waited for was decided.
    GoesOn,
    /// It had begun to write the labels: it was agentd that took the trigger off.
    WritingLabels,
}
