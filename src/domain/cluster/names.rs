//! How the streams and subjects of a cluster are called. Everything of a cluster has its name in it.

use uuid::Uuid;

use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;

/// Most characters of a cluster's name.
pub const LONGEST_CLUSTER_NAME: usize = 32;
/// Most characters of a node's name.
pub const LONGEST_NODE_NAME: usize = 64;

/// A stream that a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// The last value of each cell.
    Cells,
    /// The journals.
    Log,
    /// A row a run.
    Runs,
    /// What people ask of nodes, issues and runs.
    Ctl,
    /// What each node last said of itself.
    Status,
    /// Artifacts and bundles, in the object store's own form.
    Blobs,
}

impl StreamKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Cells, Self::Log, Self::Runs, Self::Ctl, Self::Status, Self::Blobs];

    /// Its word in the stream's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cells => "cells",
            Self::Log => "log",
            Self::Runs => "runs",
            Self::Ctl => "ctl",
            Self::Status => "status",
            Self::Blobs => "blobs",
        }
    }
}

/// The names of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    cluster: String,
}

impl Names {
    /// Names of a cluster. `None` if that is no name of one: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
    pub fn of(cluster: &str) -> Option<Self> {
        is_name(cluster, LONGEST_CLUSTER_NAME).then(|| Self { cluster: cluster.to_owned() })
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The name of a stream.
    pub fn stream(&self, kind: StreamKind) -> String {
        match kind {
            StreamKind::Blobs => format!("OBJ_{}", self.bucket()),
            _ => format!("agentd_{}_{}", self.cluster, kind.word()),
        }
    }

    /// The object store's name.
    pub fn bucket(&self) -> String {
        format!("agentd_{}_blobs", self.cluster)
    }

    /// What a stream takes, as subjects with wildcards.
    pub fn subjects(&self, kind: StreamKind) -> Vec<String> {
        let c = &self.cluster;
        match kind {
            StreamKind::Cells => vec![format!("agentd.{c}.cell.>")],
            StreamKind::Log => vec![format!("agentd.{c}.log.*.*.*")],
            StreamKind::Runs => vec![format!("agentd.{c}.run.*.*.*")],
            StreamKind::Ctl => vec![format!("agentd.{c}.ctl.*.*.*")],
            StreamKind::Status => vec![format!("agentd.{c}.status.*")],
            StreamKind::Blobs => {
                let bucket = self.bucket();
                vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")]
            }
        }
    }

    /// The subject of a cell: its kind, then what tells it from others of the kind.
    pub fn cell(&self, kind: &str, rest: &[&str]) -> String {
        let mut subject = format!("agentd.{}.cell.{kind}", self.cluster);
        for part in rest {
            subject.push('.');
            subject.push_str(&token(part));
        }
        subject
    }

    /// The subject of a cell of a repository.
    pub fn cell_of(&self, kind: &str, repo: &RepoName, rest: &[&str]) -> String {
        let mut parts = vec![repo.owner(), repo.name()];
        parts.extend(rest);
        self.cell(kind, &parts)
    }

    /// The subject of what a node says of itself.
    pub fn status(&self, node: &str) -> String {
        format!("agentd.{}.status.{}", self.cluster, token(node))
    }

    /// The subject of messages that something happened in a repository. No stream keeps them.
    pub fn wake(&self) -> String {
        format!("agentd.{}.wake", self.cluster)
    }

    /// The subject of a run's journal.
    pub fn log(&self, repo: &RepoName, run: &str) -> String {
        format!("agentd.{}.log.{}.{}.{}", self.cluster, token(repo.owner()), token(repo.name()), token(run))
    }

    /// The subject of a run's row.
    pub fn row(&self, repo: &RepoName, run: &str) -> String {
        format!("agentd.{}.run.{}.{}.{}", self.cluster, token(repo.owner()), token(repo.name()), token(run))
    }

    /// The subjects of the rows of a repository's runs.
    pub fn rows_of(&self, repo: &RepoName) -> String {
        format!("agentd.{}.run.{}.{}.*", self.cluster, token(repo.owner()), token(repo.name()))
    }

    /// The subject of what is asked of a node. It is among the issues, of no repository.
    pub fn control_of_node(&self, node: &str) -> String {
        let nobody = token("");
        format!("agentd.{}.ctl.{nobody}.{nobody}.{}", self.cluster, token(node))
    }

    /// The subject of what is asked of an issue's run.
    pub fn control_of(&self, repo: &RepoName, issue: u64) -> String {
        format!("agentd.{}.ctl.{}.{}.{issue}", self.cluster, token(repo.owner()), token(repo.name()))
    }

    /// The subject of what a person asks of an issue or its run. It is among the issues, with an id behind the issue's key.
    pub fn request(&self, repo: &RepoName, issue: &IssueKey, id: Uuid) -> String {
        let rest = token(&format!("{issue}-{id}"));
        format!("agentd.{}.ctl.{}.{}.{rest}", self.cluster, token(repo.owner()), token(repo.name()))
    }

    /// The subject of a chain of seals, by the hash of its first line. It is among the journals, of no repository.
    pub fn seals(&self, first: &str) -> String {
        let nobody = token("");
        format!("agentd.{}.log.{nobody}.{nobody}.seals-{}", self.cluster, token(first))
    }

    /// The subjects of all chains of seals.
    pub fn all_seals(&self) -> String {
        let nobody = token("");
        format!("agentd.{}.log.{nobody}.{nobody}.*", self.cluster)
    }

    /// The subjects of the journals of a repository, or of all.
    pub fn logs(&self, only: Option<&RepoName>) -> String {
        match only {
            Some(repo) => {
                format!("agentd.{}.log.{}.{}.*", self.cluster, token(repo.owner()), token(repo.name()))
            }
            None => format!("agentd.{}.log.>", self.cluster),
        }
    }
}

/// Between a node's name and the number of a process beside its daemon. No node's own name has it.
pub const BESIDE: char = '+';

/// The node that a session is of: its name without the number of a process beside its daemon.
pub fn node_of(session: &str) -> &str {
    session.split(BESIDE).next().unwrap_or(session)
}

/// The last tokens of a subject, decoded; `None` where one was not made by [`token`], or there are fewer.
pub fn last_tokens<const N: usize>(subject: &str) -> Option<[String; N]> {
    let tokens: Vec<&str> = subject.split('.').collect();
    let from = tokens.len().checked_sub(N)?;
    let decoded: Option<Vec<String>> = tokens[from..].iter().map(|token| text_of(token)).collect();
    decoded?.try_into().ok()
}

/// Whether a text is a name of `a-z`, `0-9`, `_` and `-`, not longer than that.
pub fn is_name(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(is_plain)
}

/// A text as one token of a subject: in lower case, and each byte outside of `a-z0-9_-` as `=` and two hexadecimal digits.
/// Whatever the text is, the token has neither dot nor wildcard nor space, and is not empty.
pub fn token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.to_lowercase().bytes() {
        match is_plain(byte) {
            true => token.push(byte.into()),
            false => token.push_str(&format!("={byte:02X}")),
        }
    }
    // What is empty still is one token.
    if token.is_empty() { "=".to_owned() } else { token }
}

/// The text of a token.
fn text_of(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let mut bytes = Vec::new();
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            byte if is_plain(byte) => bytes.push(byte),
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    #[test]
    fn streams_and_subjects_are_named_under_the_cluster() {
        let names = Names::of("main").unwrap();
        let repo = RepoName::parse("Octo/Hello.World").unwrap();
        assert_eq!(names.stream(StreamKind::Cells), "agentd_main_cells");
        assert_eq!(names.stream(StreamKind::Blobs), "OBJ_agentd_main_blobs");
        assert_eq!(names.log(&repo, "0199"), "agentd.main.log.octo.hello=2Eworld.0199");
        assert_eq!(names.cell_of("issue", &repo, &["7"]), "agentd.main.cell.issue.octo.hello=2Eworld.7");
        let asked = names.request(&repo, &IssueKey::Number(7), Uuid::nil());
        assert_eq!(asked, "agentd.main.ctl.octo.hello=2Eworld.7-00000000-0000-0000-0000-000000000000");
        let [owner, name, run] = last_tokens("agentd.main.log.octo.hello=2Eworld.0199").unwrap();
        assert_eq!((owner.as_str(), name.as_str(), run.as_str()), ("octo", "hello.world", "0199"));
        for bad in ["", "Main", "a.b", "a b", "a*", &"a".repeat(33)] {
            assert_eq!(Names::of(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_one_token_and_gives_its_text_back(text in any::<String>()) {
            let token = token(&text);
            assert!(!token.is_empty() && token.bytes().all(|byte| is_plain(byte) || byte == b'=' || byte.is_ascii_uppercase()));
            assert_eq!(text_of(&token), Some(text.to_lowercase()));
        }
    }
}
