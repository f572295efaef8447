//! What the agent left in its own git directory: branches and stashes are kept, and an operation that is half done is not taken for work.

use crate::domain::stop::{Stop, StopDetail};
use crate::git::error::GitError;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::Workspace;

/// Keeps what stands beside the branch, and looks whether git's markers of a conflict stand in the files, where the agent left a merge, a
/// rebase or a cherry-pick half done.
pub async fn look(run: &Run<'_>, workspace: &Workspace) -> Result<(), Stop> {
    let Some(sandbox) = &workspace.sandbox else { return Ok(()) };
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
    let Some(operation) = sandbox.unfinished() else { return Ok(()) };
    let failed = |error: GitError| {
        let message =
            format!("The work could not be committed: {error}. It is in {}.", workspace.worktree.display());
        Stop::new(StopDetail::GitError, message)
    };
    let files = workspace.worktree.with_markers().await.map_err(failed)?;
    if !files.is_empty() {
        return Err(failed(GitError::Unresolved { files }));
    }
    run.journal.warn(
        "operation_unfinished",
        format!("the agent left a {operation} half done in its own git directory; its files are committed as they stand"),
    );
    Ok(())
}
