//! Changes that people approved: a file that leaves as an approved call left it. What something else made of it since, nobody approved.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::domain::call_text::told_arguments;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::name::CommitId;
use crate::domain::policy::Decision;
use crate::domain::rules::APPROVED;
use crate::domain::run::RunId;
use crate::domain::trace::Item;
use crate::git::blob::LARGEST_FILE;
use crate::git::error::GitError;
use crate::git::outgoing::{Outgoing, OutgoingChange, OutgoingKind};
use crate::lifecycle::run::Run;
use crate::record::{run_facts, summary_text};

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
    /// SHA-256 of what agentd's own tool wrote, all of it approved.
    Whole(String),
    /// The same of what it changed: what was approved is the change of what stood there.
    Edited { before: String, after: String },
    /// A server's tool or an agent program wrote it, and does not say what.
    Untold,
}

impl Content {
    /// What the facts of an approved call say that it left.
    fn of(tool: &str, facts: &Value) -> Option<(String, Self)> {
        let text = |name: &str| facts[name].as_str().map(str::to_owned);
        let content = match tool {
            _ if facts["untold"] == true => Self::Untold,
            "write_file" => Self::Whole(text("sha256")?),
            "edit_file" => Self::Edited { before: text("sha256_before")?, after: text("sha256")? },
            _ => return None,
        };
        Some((text("path")?.trim_start_matches("./").to_owned(), content))
    }
}

impl ApprovedFiles {
    /// Of a run with those that it continues, and of earlier runs of the issue whose commits are to leave now.
    pub async fn of(run: &Run<'_>, bringing: &Outgoing) -> Self {
        let mut files = Self::default();
        files.add(&run.facts_with_predecessors().await);
        let own = run.lease.run_id;
        let mut earlier: BTreeMap<RunId, Vec<&CommitId>> = BTreeMap::new();
        for (commit, text) in &bringing.messages {
            if let Some(run_id) = run_of(text).filter(|run_id| *run_id != own) {
                earlier.entry(run_id).or_default().push(commit);
            }
        }
        for (run_id, commits) in earlier.into_iter().rev().take(MOST_RUNS) {
            // Whoever can commit can write a trailer: the run itself says which commits are its own.
            if let Some(facts) = of_same_issue(run, run_id).await
                && facts.committed.as_ref().is_some_and(|made| commits.contains(&&made.head))
            {
                files.add(&facts);
            }
        }
        files
    }

    fn add(&mut self, facts: &RunFacts) {
        // Calls of two visits may have one id: what counts is the decision before the call ran.
        let mut approved: BTreeSet<&str> = BTreeSet::new();
        for (_, event) in &facts.other {
            match event {
                Event::PolicyDecided(made) => {
                    let call_id = made.call_id.as_str();
                    if made.decision == Decision::Allow && made.reason == APPROVED {
                        approved.insert(call_id)
                    } else {
                        approved.remove(call_id)
                    };
                }
                Event::ToolFacts { call_id, tool, facts, .. } if approved.contains(call_id.as_str()) => {
                    if let Some((path, content)) = Content::of(tool, facts) {
                        self.0.entry(path).or_default().push(content);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether a person approved that something is written at a path.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Whether a change leaves a file as it was approved.
    pub async fn allow(&self, run: &Run<'_>, change: &OutgoingChange) -> Result<bool, GitError> {
        let is_file = change.kind == OutgoingKind::File && !change.mode_changed;
        let Some(contents) = self.0.get(&change.path).filter(|_| is_file) else { return Ok(false) };
        if contents.contains(&Content::Untold) {
            return Ok(true);
        }
        if change.bytes > LARGEST_FILE {
            return Ok(false);
        }
        let mut before = BTreeSet::new();
        for blob in &change.before {
            if let Some(bytes) = run.context.checkout.blob_of_id(blob).await? {
                before.extend(forms(&bytes));
            }
        }
        let Some(bytes) = run.context.checkout.blob_of_id(&change.blob).await? else { return Ok(false) };
        let allowed = reached(contents, &before);
        Ok(forms(&bytes).iter().any(|form| allowed.contains(form.as_str())))
    }
}

/// Commands that a person approved and that executed files of this run's change: the call does not show what they hold.
pub async fn changed_scripts(run: &Run<'_>) -> Vec<String> {
    let facts = run.facts_with_predecessors().await;
    let Some(committed) = &facts.committed else { return Vec::new() };
    let mut argv: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut told = Vec::new();
    for (_, event) in &facts.other {
        match event {
            Event::ItemRecorded { item, .. } => {
                if let Item::ToolCallItem { call_id, arguments, .. } = item.as_ref()
                    && let Some(words) = told_arguments(arguments)["argv"].as_array()
                {
                    let words = words.iter().filter_map(|word| word.as_str().map(str::to_owned));
                    argv.insert(call_id, words.collect());
                }
            }
            Event::PolicyDecided(made) if made.decision == Decision::Allow && made.reason == APPROVED => {
                let words = argv.get(made.call_id.as_str()).map(Vec::as_slice).unwrap_or_default();
                let changed = committed.change.executed_by(words, &[]);
                if !changed.is_empty() {
                    told.push(format!(
                        "`{}` was approved by a person, and {}: what that holds was not part of the call that they saw",
                        summary_text::plain(&words.join(" ")),
                        summary_text::changed_script(&changed)
                    ));
                }
            }
            _ => {}
        }
    }
    told.dedup();
    told
}

/// What approved calls lead to from what stood there before: hashes. An edit of what something else wrote leads nowhere.
fn reached<'c>(contents: &'c [Content], before: &BTreeSet<String>) -> BTreeSet<&'c str> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    loop {
        let known = reached.len();
        for content in contents {
            match content {
                Content::Whole(sha256) => reached.insert(sha256),
                Content::Edited { before: from, after }
                    if before.contains(from) || reached.contains(from.as_str()) =>
                {
                    reached.insert(after)
                }
                Content::Edited { .. } | Content::Untold => false,
            };
        }
        if reached.len() == known {
            return reached;
        }
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
    fn an_edit_counts_from_what_stood_there_or_what_was_approved_and_not_from_what_else_was_written() {
        let edited =
            |before: &str, after: &str| Content::Edited { before: before.into(), after: after.into() };
        let before = BTreeSet::from(["base".to_owned()]);
        let contents = [edited("other", "bad"), edited("two", "three"), edited("base", "two")];
        assert_eq!(reached(&contents, &before), BTreeSet::from(["two", "three"]));
        assert_eq!(reached(&[Content::Whole("all".into()), edited("all", "more")], &before).len(), 2);
        assert_eq!(Content::of("read_file", &serde_json::json!({ "path": "a", "sha256": "x" })), None);
    }

    #[test]
    fn a_commit_of_agentd_names_its_run_and_another_one_does_not() {
        let id = "01a22300-6401-7096-8b5b-e9dea2d1df68";
        assert_eq!(run_of(&format!("Title\n\nWords.\n\n{RUN_TRAILER}: {id}\n")).unwrap().to_string(), id);
        assert_eq!(run_of("Title\n\nAgentd-Run of something\n"), None);
    }
}
