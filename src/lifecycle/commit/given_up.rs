//! Runs that were killed too often. No step is visited any more. What they left in the worktree is committed with the
//! same checks as any work, and people are told where it is (D37, D66).

use super::{Committed, keep};
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;
use crate::git::worktree::Worktree;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::{Stage, StageError, Worked, Workspace};
use crate::lifecycle::{instance, worktree};

/// What the commit says below its subject.
const SUMMARY: &str = "What runs that were killed had changed last; nothing has looked at it.";

/// Commits what the killed runs left; the stop reason says where it is.
pub async fn commit<'a>(run: &'a Run<'a>, killed: &Stop) -> Result<Committed<'a>, JournalError> {
    instance::begin(run).await?;
    let said = |what: String| Stop::new(killed.detail, format!("{} {what}", killed.message));
    let worktree = match worktree::prepare(run).await? {
        Stage::Next(prepared) => prepared.worktree,
        Stage::Over(mut worked) => {
            worked.stop = said(format!("Its last edits are not committed: {}", worked.stop.message));
            return Ok(Committed { worked: *worked, has_tree: false });
        }
    };
    let stop = match keep_and_say(run, &worktree).await {
        Ok(what) => said(what),
        Err(error) => said(format!("Its last edits are not committed. {}", error.stop()?.message)),
    };
    let workspace = Some(Workspace { worktree, sandbox: None });
    Ok(Committed { worked: Worked { run, stop, workspace }, has_tree: false })
}

async fn keep_and_say(run: &Run<'_>, worktree: &Worktree) -> Result<String, StageError> {
    let before = worktree.head().await.ok().flatten();
    let (branch, place) = (worktree.branch(), worktree.display());
    keep(run, worktree, SUMMARY).await?;
    let facts = run.journal.facts();
    let changed = facts.committed.as_ref().filter(|committed| !committed.change.is_empty());
    Ok(match changed.map(|committed| &committed.head) {
        Some(head) if before.as_ref() != Some(head) => format!(
            "Its last edits are committed on the local branch {branch} ({}) and not pushed; nothing has verified them.",
            head.short()
        ),
        Some(_) => {
            format!("No edits were left to commit in {place}; what was committed is on the branch {branch}.")
        }
        None => format!("It has left no change in {place}."),
    })
}
