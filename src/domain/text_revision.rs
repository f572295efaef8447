//! Which revision of an issue's text a run works on, and how the run was asked for.

use serde::{Deserialize, Serialize};

/// Which revision of an issue's text a run works on: that of the time when somebody with permission asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRevision {
    /// How the run was asked for.
    pub asked: AskedHow,
    /// Who asked: the labeller, or the author of the comment or of the issue. Absent for the local operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When, RFC 3339; absent = the text is the one of the run's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Since when the title is as it is, and who wrote it. Absent = since the issue was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<TextChange>,
    /// Since when the body is as it is, and who wrote it. Absent = since the issue was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<TextChange>,
    /// Later changes by people without permission to ask for runs. They do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A change of an issue's title or body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextChange {
    /// When, RFC 3339.
    pub at: String,
    /// Login; absent = the account is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How a run was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskedHow {
    /// By the label.
    Label,
    /// By a command in a comment.
    Comment,
    /// By opening the issue: a sweep lists it, and no label asks for a run.
    Author,
    /// On the command line.
    Operator,
}
