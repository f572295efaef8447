//! What the agent left in its own git directory: branches and stashes are kept, and an operation that is half done is not taken for work.

use crate::domain::stop::{Stop, StopDetail};
use crate::git::error::GitError;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::Workspace;
use crate::sandbox::run_sandbox::RunSandbox;

/// Keeps what stands beside the branch, and looks whether git's markers of a conflict stand in the files, where the agent left a merge, a
/// rebase or a cherry-pick half done: now, or in an earlier run that was refused for them.
pub async fn look(run: &Run<'_>, workspace: &Workspace) -> Result<(), Stop> {
    let worktree = &workspace.worktree;
    let mut operation = None;
    if let Some(sandbox) = &workspace.sandbox {
        keep(run, sandbox).await;
        operation = sandbox.unfinished();
    }
    if operation.is_none() && !worktree.had_markers() {
        return Ok(());
    }
    let failed = |error: GitError| {
        let message = format!(
            "The work could not be committed: {error}. It is in {}: settle it there, and take the markers out.",
            worktree.display()
        );
        Stop::new(StopDetail::GitError, message)
    };
    let files = worktree.with_markers().await.map_err(failed)?;
    worktree.remember_markers(!files.is_empty()).map_err(|error| failed(error.into()))?;
    if !files.is_empty() {
        return Err(failed(GitError::Unresolved { files }));
    }
    if let Some(operation) = operation {
        run.journal.warn(
            "operation_unfinished",
            format!("the agent left a {operation} half done in its own git directory; its files are committed as they stand"),
        );
    }
    Ok(())
}

/// Keeps branches and stashes that the agent made beside the branch.
async fn keep(run: &Run<'_>, sandbox: &RunSandbox) {
    let prefix = format!("refs/agentd/left/{}", run.lease.run_id);
    match sandbox.keep_left(&prefix, run.lease.mapping.origin.commit.clone()).await {
        Ok(kept) if kept.is_empty() => {}
        Ok(kept) => {
            let kept: Vec<String> = kept.into_iter().map(|left| format!("{} ({})", left.what, left.reference)).collect();
            run.journal.warn(
                "commits_left",
                format!(
                    "the agent left work in its own git directory that is not on the branch. It is kept here: {}",
                    kept.join(", ")
                ),
            );
        }
        Err(why) => run.journal.warn(
            "commits_left",
            format!(
                "the agent left work in its own git directory that is not on the branch, and it could not be taken over: {why}. \
                 It stays in {}",
                sandbox.own_git().map(ToString::to_string).unwrap_or_default()
            ),
        ),
    }
}
