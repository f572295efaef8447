//! What stands uncommitted in an issue's worktree when a run begins there, and no run of agentd made.

use super::commit::review;
use super::run::Run;
use super::stage::StageError;
use crate::domain::name::CommitId;
use crate::domain::outgoing::{commit_text, plain_line};
use crate::domain::stop::{Stop, StopDetail};
use crate::git::commit::CommitMessage;
use crate::git::error::GitError;
use crate::git::worktree::{ChangeKind, Worktree};
use crate::record::run_facts;
use crate::record::summary_text::{counted, plain};

/// Code of the warning that says what was found.
pub const FOUND_EDITS: &str = "found_edits";
/// Files that are named.
const LONGEST_LIST: usize = 10;
/// Longest title of the issue in the commit's subject.
const LONGEST_TITLE: usize = 50;

/// What people left there is no work of this run: new files stay and are in no commit, unless something changes them; what they changed of the
/// branch's files becomes a commit of its own, if it may leave. What an earlier run could not commit is its work, and is gone on with.
pub async fn keep_apart(run: &Run<'_>, worktree: &Worktree) -> Result<(), StageError> {
    if run.context.replay.is_some() || run.lease.predecessor.is_some() {
        return Ok(());
    }
    let Some(committed) = last_committed(run).await else { return Ok(()) };
    let failed = |error: GitError| not_kept_apart(worktree, &error);
    let Some(head) = worktree.head().await.map_err(failed)? else { return Ok(()) };
    // What a remote refused for its content stands there again, to be committed anew.
    let checkout = &run.context.checkout;
    let is_there = checkout.has_commit(&committed).await.map_err(failed)?
        && checkout.is_ancestor(&committed, &head).await.map_err(failed)?;
    if !is_there || worktree.merge_head().is_some() {
        return Ok(());
    }
    let found = worktree.status().await.map_err(failed)?;
    let (new, changed): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|change| change.kind == ChangeKind::Added);
    if !new.is_empty() {
        let new: Vec<String> = new.into_iter().map(|change| change.path).collect();
        let told = listed(&new, "new file");
        worktree.leave_out(new).await.map_err(failed)?;
        run.journal.warn(
            FOUND_EDITS,
            format!(
                "the worktree had {told}, which no run of agentd made: what is new stays there, in no commit unless something \
                 changes it; `agentd take` and `agentd give-back` hand it over"
            ),
        );
    }
    if changed.is_empty() {
        return Ok(());
    }
    let mentions = run.file_mentions().await;
    if let Some(refused) = review::of_worktree(run, (worktree, &mentions)).await.map_err(failed)? {
        return Err(refused.stop.into());
    }
    let changed: Vec<String> = changed.into_iter().map(|change| change.path).collect();
    let told = listed(&changed, "file");
    let author = run.context.identity().await.map_err(failed)?;
    let made = worktree.commit_all(&message(run, &told), &author).await.map_err(failed)?;
    let commit = made.map(|made| format!(" ({})", made.short())).unwrap_or_default();
    run.journal.warn(
        FOUND_EDITS,
        format!("the worktree had edits that no run of agentd made, of {told}: they are a commit of their own{commit}"),
    );
    Ok(())
}

/// The branch's commit after the commit stage of the issue's last run; `None` = it left work of its own uncommitted.
async fn last_committed(run: &Run<'_>) -> Option<CommitId> {
    let before = run.plan.lease_record.as_ref()?;
    let dir = run.context.state.run(&run.context.repo, before.run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir).ok().flatten());
    read.await.ok().flatten()?.committed.map(|committed| committed.head)
}

fn message(run: &Run<'_>, told: &str) -> CommitMessage {
    let title = plain_line(&run.without_secrets(&run.plan.issue.title), LONGEST_TITLE);
    CommitMessage {
        subject: format!("Edits found in the worktree: {}", commit_text(&title, None)),
        body: commit_text(
            &format!("No run of agentd made them. They are of {}.\n", run.without_secrets(told)),
            None,
        ),
        trailers: Vec::new(),
    }
}

fn listed(paths: &[String], what: &str) -> String {
    let shown: Vec<String> =
        paths.iter().take(LONGEST_LIST).map(|path| format!("`{}`", plain(path))).collect();
    let more = paths.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}: {}{more}", counted(paths.len(), what), shown.join(", "))
}

fn not_kept_apart(worktree: &Worktree, error: &GitError) -> Stop {
    let message = format!(
        "What stands uncommitted in {} could not be told from the run's own work: {error}.",
        worktree.display()
    );
    Stop::new(StopDetail::GitError, message)
}
