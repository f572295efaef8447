//! The issue: what someone asked for, as read from the tracker or from a file.

use serde::{Deserialize, Serialize};

use super::canonical::sha256_hex;
use super::name::RepoName;

/// Hexadecimal digits of an issue file's word, behind its `0`.
const DIGITS: usize = 8;

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

    /// The key of an issue from a file whose name has no number (D30): no number begins with a 0.
    pub fn of_content(text: &str) -> Self {
        Self::Word(format!("0{}", &sha256_hex(text.as_bytes())[..DIGITS]))
    }

    /// How a run of it is begun.
    pub fn run_command(&self) -> String {
        match self {
            Self::Number(number) => format!("agentd run {number}"),
            Self::Word(_) => "agentd run --issue-file FILE.md".to_owned(),
        }
    }

    /// The key that a text is made of.
    pub fn of_text(text: &str) -> Self {
        match text.parse() {
            Ok(number) if !is_word(text) => Self::Number(number),
            _ => Self::Word(text.to_owned()),
        }
    }
}

/// Whether a text is what [`IssueKey::of_content`] makes.
pub fn is_word(text: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix('0').is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(digit))
}

impl From<u64> for IssueKey {
    fn from(number: u64) -> Self {
        Self::Number(number)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_word_also_where_all_of_its_digits_are_decimal() {
        for word in ["09041b177", "012345678"] {
            assert_eq!(IssueKey::of_text(word), IssueKey::Word(word.to_owned()));
        }
        assert_eq!(IssueKey::of_text("12345678"), IssueKey::Number(12_345_678));
        let made = IssueKey::of_content("# Do it").to_string();
        assert!(is_word(&made), "{made}");
        for no in ["9041b177", "09041b17", "09041B177", "0904.b177", ""] {
            assert!(!is_word(no), "{no}");
        }
    }
}
