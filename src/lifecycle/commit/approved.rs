//! Changes that people approved: a file that leaves as an approved call left it. What something else made of it since, nobody approved.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::call_text::told_arguments;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::policy::Decision;
use crate::domain::run::RunId;
use crate::domain::trace::Item;
use crate::git::blob::LARGEST_FILE;
use crate::git::error::GitError;
use crate::git::outgoing::{Outgoing, OutgoingChange, OutgoingKind};
use crate::lifecycle::run::Run;
use crate::record::run_facts;

/// The trailer of agentd's commits that names their run.
pub const RUN_TRAILER: &str = "Agentd-Run";
/// Most earlier runs that are read.
const MOST_RUNS: usize = 20;

/// Files that calls wrote which a person had approved.
#[derive(Debug, Default)]
pub struct ApprovedFiles(BTreeMap<String, Vec<Content>>);

/// What a call left at a path.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// SHA-256 of what agentd's own tool wrote.
    Sha256(String),
    /// A server's tool wrote it, and does not say what.
    Untold,
}

impl ApprovedFiles {
    /// Of a run with those that it continues, and of earlier runs of the issue whose commits are to leave now.
    pub async fn of(run: &Run<'_>, bringing: &Outgoing) -> Self {
        let mut files = Self::default();
        files.add(&run.facts_with_predecessors().await);
        let earlier: BTreeSet<RunId> =
            bringing.messages.iter().filter_map(|(_, text)| run_of(text)).collect();
        let own = run.lease.run_id;
        for run_id in earlier.into_iter().rev().filter(|run_id| *run_id != own).take(MOST_RUNS) {
            if let Some(facts) = of_same_issue(run, run_id).await {
                files.add(&facts);
            }
        }
        files
    }

    fn add(&mut self, facts: &RunFacts) {
        let mut paths: BTreeMap<&str, String> = BTreeMap::new();
        for (_, event) in &facts.other {
            if let Event::ItemRecorded { item, .. } = event
                && let Item::ToolCallItem { call_id, arguments, .. } = item.as_ref()
                && let Some(path) = told_arguments(arguments).get("path").and_then(|path| path.as_str())
            {
                paths.insert(call_id, path.trim_start_matches("./").to_owned());
            }
        }
        // Calls of two visits may have one id: what counts is the decision before the call ran.
        let mut approved: BTreeSet<&str> = BTreeSet::new();
        let mut untold: BTreeSet<&str> = BTreeSet::new();
        for (_, event) in &facts.other {
            match event {
                Event::PolicyDecided(made) => {
                    let is_approved = made.decision == Decision::Allow && made.reason == "approved";
                    let call_id = made.call_id.as_str();
                    if is_approved {
                        approved.insert(call_id)
                    } else {
                        approved.remove(call_id)
                    };
                    if is_approved {
                        untold.insert(call_id);
                    }
                }
                Event::ToolFacts { call_id, facts, .. } if approved.contains(call_id.as_str()) => {
                    if let (Some(path), Some(sha256)) = (facts["path"].as_str(), facts["sha256"].as_str()) {
                        untold.remove(call_id.as_str());
                        self.note(path, Content::Sha256(sha256.to_owned()));
                    }
                }
                _ => {}
            }
        }
        for call_id in untold {
            if let Some(path) = paths.get(call_id) {
                self.note(path, Content::Untold);
            }
        }
    }

    fn note(&mut self, path: &str, content: Content) {
        self.0.entry(path.to_owned()).or_default().push(content);
    }

    /// Whether a person approved that something is written at a path.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Whether a change leaves a file as it was approved.
    pub async fn allow(&self, run: &Run<'_>, change: &OutgoingChange) -> Result<bool, GitError> {
        let Some(contents) = self.0.get(&change.path).filter(|_| change.kind == OutgoingKind::File) else {
            return Ok(false);
        };
        if contents.contains(&Content::Untold) {
            return Ok(true);
        }
        if change.bytes > LARGEST_FILE {
            return Ok(false);
        }
        let Some(bytes) = run.context.checkout.blob_of_id(&change.blob).await? else { return Ok(false) };
        Ok(forms(&bytes).into_iter().any(|form| contents.contains(&Content::Sha256(form))))
    }
}

/// Hashes of what a file in a worktree can have been of which git keeps these bytes: the same, with other ends of lines, or the file that
/// a pointer of Git LFS stands for.
fn forms(blob: &[u8]) -> Vec<String> {
    let mut forms = vec![sha256_hex(blob)];
    if let Ok(text) = std::str::from_utf8(blob) {
        forms.push(sha256_hex(text.replace("\r\n", "\n").replace('\n', "\r\n").as_bytes()));
        if text.starts_with("version https://git-lfs.github.com/spec/") {
            forms.extend(text.lines().filter_map(|line| line.strip_prefix("oid sha256:")).map(str::to_owned));
        }
    }
    forms
}

/// The run that a commit's message names.
pub(super) fn run_of(message: &str) -> Option<RunId> {
    let value = message.lines().rev().find_map(|line| line.strip_prefix(RUN_TRAILER)?.strip_prefix(": "));
    value.and_then(|value| value.trim().parse().ok()).map(RunId)
}

async fn of_same_issue(run: &Run<'_>, run_id: RunId) -> Option<RunFacts> {
    let dir = run.context.state.run(&run.context.repo, run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir).ok().flatten());
    let facts = read.await.ok().flatten()?;
    let is_same = facts.lease.as_ref().is_some_and(|lease| lease.issue.key == run.plan.issue.key);
    is_same.then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_what_git_makes_of_it() {
        let sha256 = |text: &str| sha256_hex(text.as_bytes());
        assert!(
            forms(b"a\nb\n").contains(&sha256("a\nb\n")) && forms(b"a\nb\n").contains(&sha256("a\r\nb\r\n"))
        );
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 3\n";
        assert!(forms(pointer.as_bytes()).contains(&"abc".to_owned()));
        assert!(!forms(b"a\n").contains(&sha256("b\n")));
    }

    #[test]
    fn a_commit_of_agentd_names_its_run_and_another_one_does_not() {
        let id = "01a22300-6401-7096-8b5b-e9dea2d1df68";
        assert_eq!(run_of(&format!("Title\n\nWords.\n\n{RUN_TRAILER}: {id}\n")).unwrap().to_string(), id);
        assert_eq!(run_of("Title\n\nAgentd-Run of something\n"), None);
    }
}
