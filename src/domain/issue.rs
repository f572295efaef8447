//! The issue: what someone asked for, as read from the tracker or from a file.

use serde::{Deserialize, Serialize};

use super::name::RepoName;

/// An issue as agentd works on it. Its texts are untrusted. They enter prompts only cleaned and fenced (S-050).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Issue {
    /// Where it lives.
    pub repo: RepoName,
    /// What branch, worktree and instance are named by: the number, or a word for an issue from a file (D30).
    pub key: IssueKey,
    /// First line of the objective; never blank.
    pub title: String,
    /// Markdown, possibly empty.
    pub body: String,
    /// Web address, where there is one.
    pub url: Option<String>,
    /// GitHub's node id, where there is one.
    pub node_id: Option<String>,
    /// Whether it can still be worked on.
    pub open: bool,
    /// Label names as GitHub spells them.
    pub labels: Vec<String>,
    /// Login of the author.
    pub author: Option<String>,
    /// RFC 3339, as GitHub gave it.
    pub updated_at: Option<String>,
}

/// The part of the mapping that tells issues of one repository apart.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(untagged)]
pub enum IssueKey {
    /// A tracker's number.
    Number(u64),
    /// A word made from an issue file's content (D30): lower-case letters and digits.
    Word(String),
}

impl IssueKey {
    /// The number, where the issue has one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }

    /// The key that a text is made of.
    pub fn of_text(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Word(text.to_owned()), Self::Number)
    }
}

impl std::fmt::Display for IssueKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Where the objective came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveSource {
    /// The trigger label.
    Issue,
    /// `agentd run`.
    Cli,
    /// A scheduled or manual sweep.
    Sweep,
}
