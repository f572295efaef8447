//! Names that git and GitHub give to things: repository, branch, commit.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `owner/name` of a repository. GitHub ignores the case of letters, so names that differ only in case are equal.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct RepoName {
    owner: String,
    name: String,
}

impl RepoName {
    /// Parses `owner/name`; both parts keep to `[A-Za-z0-9._-]` and are neither `.` nor `..`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let invalid = || NameError::Repository(text.to_owned());
        let (owner, name) = text.split_once('/').ok_or_else(invalid)?;
        let plain = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        };
        if plain(owner) && plain(name) {
            Ok(Self { owner: owner.to_owned(), name: name.to_owned() })
        } else {
            Err(invalid())
        }
    }

    /// Reads the last two path segments of a remote's URL (`https://host/owner/name.git`, `git@host:owner/name`).
    pub fn from_remote_url(url: &str) -> Option<Self> {
        let trimmed = url.trim_end_matches('/').trim_end_matches(".git");
        let mut parts = trimmed.rsplit(['/', ':']).filter(|part| !part.is_empty());
        let name = parts.next()?;
        let owner = parts.next()?;
        Self::parse(&format!("{owner}/{name}")).ok()
    }

    /// The part before the slash.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl RepoName {
    fn folded(&self) -> (String, String) {
        (self.owner.to_ascii_lowercase(), self.name.to_ascii_lowercase())
    }
}

impl PartialEq for RepoName {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for RepoName {}

impl PartialOrd for RepoName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RepoName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.folded().cmp(&other.folded())
    }
}

impl std::hash::Hash for RepoName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl TryFrom<String> for RepoName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<RepoName> for String {
    fn from(name: RepoName) -> Self {
        name.to_string()
    }
}

/// A branch's short name (`feature/issue-7`), valid by git's ref-name rules.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

impl BranchName {
    /// A name that is valid by construction: `feature/issue-` with digits, or with lower-case letters and digits.
    pub(super) fn by_construction(name: String) -> Self {
        Self(name)
    }

    /// Takes a short or full (`refs/heads/x`) name, trims it, and checks git's rules (`git check-ref-format --branch`).
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let trimmed = text.trim();
        let short = trimmed.strip_prefix("refs/heads/").unwrap_or(trimmed);
        if is_branch_name(short) {
            Ok(Self(short.to_owned()))
        } else {
            Err(NameError::Branch(text.to_owned()))
        }
    }

    /// The short name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name, `refs/heads/…`.
    pub fn full(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

fn is_branch_name(name: &str) -> bool {
    let banned =
        |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\' | '\u{7f}');
    !name.is_empty()
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.starts_with("refs/")
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.chars().any(banned)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BranchName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<BranchName> for String {
    fn from(name: BranchName) -> Self {
        name.0
    }
}

/// A full object id: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId(String);

impl CommitId {
    /// Checks length and digits.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.trim();
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex && matches!(text.len(), 40 | 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::Commit(text.to_owned()))
        }
    }

    /// All digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..10]
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CommitId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<CommitId> for String {
    fn from(id: CommitId) -> Self {
        id.0
    }
}

/// A name that breaks the rules of what it names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not `owner/name`.
    #[error("\"{0}\" is not a repository name; write it as owner/name")]
    Repository(String),
    /// Not a valid branch name.
    #[error("\"{0}\" is not the name of a branch")]
    Branch(String),
    /// Not an object id.
    #[error("\"{0}\" is not a full commit id")]
    Commit(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g05_branch_names_are_normalised_or_refused() {
        assert_eq!(BranchName::parse(" refs/heads/develop ").unwrap().as_str(), "develop");
        for bad in
            ["", "-x", "a..b", "a b", "x.lock", "a//b", "/a", "a/", "@", "a@{b", "a\\b", ".a", "a/.b", "x."]
        {
            assert!(BranchName::parse(bad).is_err(), "{bad:?} passed");
        }
        assert!(BranchName::parse("feature/issue-7").is_ok());
    }

    #[test]
    fn the_repository_is_read_from_every_form_of_remote_url() {
        for url in [
            "https://github.com/o/n.git",
            "git@github.com:o/n",
            "ssh://git@host:22/o/n.git",
            "http://127.0.0.1:9/git/o/n.git",
        ] {
            assert_eq!(
                RepoName::from_remote_url(url).map(|n| n.to_string()).as_deref(),
                Some("o/n"),
                "{url}"
            );
        }
        assert!(RepoName::parse("../x").is_err());
    }
}
