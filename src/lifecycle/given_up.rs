//! Runs that were killed too often. No step is visited any more. What they left in the worktree is committed with the
//! same checks as any work, and people are told where it is (D37, D66).

use super::commit;
use super::instance;
use super::run::Run;
use super::worktree;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;
use crate::repository::context::RepositoryContext;

/// What the commit says below its subject.
const SUMMARY: &str = "What runs that were killed had changed last; nothing has looked at it.";

/// Commits what the killed runs left, and gives their end with a sentence on where it is.
pub async fn keep(run: &Run<'_>, context: &RepositoryContext, killed: &Stop) -> Result<Stop, JournalError> {
    instance::begin(run, context).await?;
    let said = |what: String| Stop::new(killed.detail, format!("{} {what}", killed.message));
    let worktree = match worktree::prepare(run, context).await? {
        Ok(worktree) => worktree,
        Err(stop) => return Ok(said(format!("Its last edits are not committed: {}", stop.message))),
    };
    let before = worktree.head().await.ok().flatten();
    let (branch, place) = (worktree.branch().clone(), worktree.display());
    run.has_worktree(worktree);
    if let Err(refused) = commit::commit(run, context, SUMMARY).await? {
        return Ok(said(format!("Its last edits are not committed. {}", refused.message)));
    }
    let facts = run.journal.facts();
    let changed = facts.committed.as_ref().filter(|committed| !committed.change.is_empty());
    Ok(said(match changed.map(|committed| &committed.head) {
        Some(head) if before.as_ref() != Some(head) => format!(
            "Its last edits are committed on the local branch {branch} ({}) and not pushed; nothing has verified them.",
            head.short()
        ),
        Some(_) => {
            format!("No edits were left to commit in {place}; what was committed is on the branch {branch}.")
        }
        None => format!("It has left no change in {place}."),
    }))
}
