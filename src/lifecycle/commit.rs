//! Keeps the work: one commit of what the flow left in the worktree.

use std::collections::BTreeSet;

use super::closure;
use super::new_files::{self, Words};
use super::review;
use super::run::Run;
use crate::domain::event::{Change, Event, FileChange};
use crate::domain::outgoing::{commit_text, plain_line};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::git::commit::CommitMessage;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::repository::context::RepositoryContext;

/// Longest subject line of a commit, in characters.
const LONGEST_SUBJECT: usize = 72;

/// Commits what the flow left (D13, D66) and says what the branch changes. `Err` inside: git refused; nothing is lost.
pub async fn commit(
    run: &Run<'_>,
    context: &RepositoryContext,
    summary: &str,
) -> Result<Result<Change, Stop>, JournalError> {
    let Some(worktree) = run.worktree() else { return Ok(Ok(Change::default())) };
    let words = Words::of(run, context).await;
    let made = match new_files::sort(run, context, (worktree, &words)).await {
        Ok(made) => made,
        Err(error) => return Ok(Err(not_committed(worktree, &error))),
    };
    match review::of_worktree(run, context, (worktree, &words)).await {
        Ok(None) => {}
        Ok(Some(refused)) => return Ok(Err(refused)),
        Err(error) => return Ok(Err(not_committed(worktree, &error))),
    }
    match committed(run, context, (worktree, &made), summary).await {
        Ok(event) => {
            let Event::Committed { change, .. } = &event else {
                return Err(run.journal.defect("not a commit"));
            };
            let change = change.clone();
            run.journal.record(event)?;
            Ok(Ok(change))
        }
        Err(error) => Ok(Err(not_committed(worktree, &error))),
    }
}

fn not_committed(worktree: &Worktree, error: &GitError) -> Stop {
    let message = format!("The work could not be committed: {error}. It is in {}.", worktree.display());
    Stop::new(StopDetail::GitError, message)
}

async fn committed(
    run: &Run<'_>,
    context: &RepositoryContext,
    (worktree, made): (&Worktree, &BTreeSet<String>),
    summary: &str,
) -> Result<Event, GitError> {
    let commit = worktree.commit_all(&message(run, context, summary), &context.identity().await?).await?;
    let base = &run.lease.mapping.origin.commit;
    let head = worktree.head().await?.unwrap_or_else(|| base.clone());
    let tree = context.checkout.tree_of_commit(&head).await?;
    let files = worktree.changes(base).await?;
    let commits = worktree.commits(base).await?.len();
    let files = files
        .into_iter()
        .map(|file| FileChange {
            by_command: made.contains(&file.path),
            path: file.path,
            added: file.added,
            removed: file.removed,
        })
        .collect();
    let change = Change { files, commits: u32::try_from(commits).unwrap_or(u32::MAX) };
    Ok(Event::Committed { head, tree, made: commit.is_some(), change })
}

fn message(run: &Run<'_>, context: &RepositoryContext, summary: &str) -> CommitMessage {
    let issue = &run.plan.issue;
    let places = context.host_paths();
    let told = |text: &str| places.told(text).into_owned();
    let own = run.tracked_issue().filter(|_| closure::closes_by_merge(run, &run.journal.facts()));
    let suffix = run.tracked_issue().map(|number| format!(" (#{number})")).unwrap_or_default();
    let room = LONGEST_SUBJECT.saturating_sub(suffix.chars().count());
    // GitHub reads commit messages like comments. A merged one closes issues, notifies people and skips checks (D36).
    let subject = commit_text(&plain_line(&told(&run.without_secrets(&issue.title)), room), None);
    let mut trailers = vec![("Agentd-Run".to_owned(), run.lease.run_id.to_string())];
    trailers.extend(context.config.commit.trailers.iter().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    }));
    CommitMessage {
        subject: format!("{subject}{suffix}"),
        body: wrapped(&told(&run.without_secrets(&commit_text(summary, own)))),
        trailers,
    }
}

/// Paragraphs wrapped at 72 columns, lists left as they are.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > 72 {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_body_is_wrapped_and_keeps_its_lines() {
        let long = "word ".repeat(30);
        let wrapped = wrapped(&format!("{long}\n\n- a list item\n- another"));
        assert!(wrapped.lines().all(|line| line.chars().count() <= 72), "{wrapped}");
        assert!(wrapped.ends_with("\n\n- a list item\n- another\n"), "{wrapped}");
    }
}
