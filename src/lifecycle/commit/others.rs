//! Commits of others on the branch: merged into the run's work before it is verified and pushed. Nothing of theirs
//! is ever overwritten; where that cannot be, the work stays here on a ref of its own.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::message;
use crate::config::config_file::Publish;
use crate::domain::event::Event;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::others_merged::OthersMerged;
use crate::domain::refusal::Refusal;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::git::commit::CommitMessage;
use crate::git::error::GitError;
use crate::git::remote::Remote;
use crate::git::worktree::{Between, Worktree};
use crate::lifecycle::remote_look::RemoteLook;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::StageError;
use crate::record::summary_text::counted;

/// Code of the warning that says what others pushed.
pub const OTHERS_COMMITS: &str = "others_commits";
/// Files of others' commits that are named.
const NAMED: usize = 20;
/// Authors of others' commits whose logins are asked for.
const ASKED: usize = 10;

/// What others pushed that the branch here has not.
pub struct Theirs {
    /// The branch's commit here.
    pub head: CommitId,
    /// The branch's commit on the remote.
    pub tip: CommitId,
}

/// The end of a run in which git could not merge.
pub fn broken(error: GitError) -> Stop {
    Stop::new(StopDetail::GitError, format!("What others pushed could not be merged in: {error}."))
}

/// Fetches what others pushed to the branch. `None` = the branch here has all of it. `Err` = it cannot be merged in, and
/// nothing is pushed.
///
/// The look at the end of the flow counts for the commit that follows at once. What is pushed in between is found by the push,
/// which replaces nothing.
pub async fn newer(run: &Run<'_>, worktree: &Worktree) -> Result<Option<Theirs>, Stop> {
    let looked = || run.nothing_newer.lock().unwrap_or_else(PoisonError::into_inner);
    let again = looked().as_mut().is_some_and(RemoteLook::use_once_more);
    if again || run.plan.publish == Publish::None || run.context.replay.is_some() {
        return Ok(None);
    }
    let look = RemoteLook::begin();
    match look_there(run, worktree).await? {
        Found::Newer(theirs) => {
            *looked() = None;
            Ok(Some(theirs))
        }
        Found::Nothing(tip) => {
            *looked() = Some(look.found(tip));
            Ok(None)
        }
        Found::Unknown(refusal) => {
            // The push asks it too, and what is not pushed for that is pushed later.
            tracing::warn!(%refusal, "whether others pushed to the branch cannot be asked now");
            Ok(None)
        }
    }
}

/// The branch's commit on the remote, for the push: what was seen there just now, or else what it is now.
pub async fn seen_there(run: &Run<'_>, remote: &Remote) -> Result<Option<CommitId>, GitError> {
    let looked = run.nothing_newer.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match looked.filter(RemoteLook::is_fresh) {
        Some(look) => Ok(look.tip),
        None => run.context.checkout.remote_branch(remote, &run.lease.mapping.branch).await,
    }
}

enum Found {
    Newer(Theirs),
    /// The branch's commit on the remote, if it has one.
    Nothing(Option<CommitId>),
    /// The remote does not say it now.
    Unknown(Refusal),
}

async fn look_there(run: &Run<'_>, worktree: &Worktree) -> Result<Found, Stop> {
    let branch = &run.lease.mapping.branch;
    let tip = async {
        match run.context.authorised_remote().await? {
            Some(remote) => Ok(run.context.remote_tip(&remote, branch, true).await?.map(|tip| (remote, tip))),
            None => Ok::<_, Refusal>(None),
        }
    };
    let (remote, tip) = match tip.await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Found::Nothing(None)),
        Err(refusal) => return Ok(Found::Unknown(refusal)),
    };
    let Some(head) = worktree.head().await.map_err(broken)? else { return Ok(Found::Nothing(Some(tip))) };
    let checkout = &run.context.checkout;
    if checkout.is_ancestor(&tip, &head).await.map_err(broken)? {
        return Ok(Found::Nothing(Some(tip)));
    }
    if let Some(pushed) = checkout.last_pushed(&remote, branch).await.map_err(broken)?
        && !checkout.is_ancestor(&pushed, &tip).await.map_err(broken)?
    {
        return Err(displaced(run, &head, &set_back(branch, &tip, &pushed)).await);
    }
    Ok(Found::Newer(Theirs { head, tip }))
}

/// Says that a branch lacks on the remote what was there before.
fn set_back(branch: &BranchName, tip: &CommitId, pushed: &CommitId) -> String {
    format!(
        "The branch {branch} on the remote is at {}, without what agentd pushed last ({})",
        tip.short(),
        pushed.short()
    )
}

/// Merges in what others pushed beside commits that were never pushed from here, before the run works. What conflicts waits
/// for the end of the run, as what they push while it works.
pub async fn merge_at_start(run: &Run<'_>, worktree: &Worktree, tip: &CommitId) -> Result<(), Stop> {
    let Some(head) = worktree.head().await.map_err(broken)? else { return Ok(()) };
    let has_it = run.context.checkout.is_ancestor(tip, &head).await.map_err(broken)?;
    if has_it || worktree.merge_head().is_some() || !worktree.is_clean().await.map_err(broken)? {
        return Ok(());
    }
    let files = merge(run, worktree, tip).await?;
    if files.is_empty() {
        return commit(run, worktree, &of_remote(run)).await.map(drop);
    }
    worktree.leave_merge().await.map_err(broken)?;
    run.journal.warn(
        "conflicts",
        format!(
            "What others pushed ({}) conflicts with commits that are only here, in {}; it is merged in when the work is done",
            tip.short(),
            files.join(", ")
        ),
    );
    Ok(())
}

/// Merges in what others pushed to the branch since. True = the branch has another commit now. A stop = it cannot be
/// done, and nothing is pushed.
pub async fn merge_in(run: &Run<'_>, worktree: &Worktree) -> Result<bool, StageError> {
    if let Some(recorded) = &run.context.replay {
        return match recorded.merged_at_end() {
            Some(merged) => again(run, worktree, merged).await,
            None => Ok(false),
        };
    }
    let Some(theirs) = newer(run, worktree).await? else { return Ok(false) };
    let told = tell(run, worktree, &theirs).await;
    let files = merge(run, worktree, &theirs.tip).await?;
    if !files.is_empty() {
        worktree.leave_merge().await.map_err(broken)?;
        return Err(conflicting(run, &theirs, &files).await.into());
    }
    let visit = run.journal.facts().visits.len() as u32;
    record(run, OthersMerged { visit, commit: theirs.tip, conflicts: files, told, origin: None })?;
    Ok(commit(run, worktree, &of_remote(run)).await?)
}

/// A replay merges what the recorded run merged.
async fn again(run: &Run<'_>, worktree: &Worktree, merged: &OthersMerged) -> Result<bool, StageError> {
    let files = merge(run, worktree, &merged.commit).await?;
    if !files.is_empty() {
        worktree.leave_merge().await.map_err(broken)?;
        let text = format!("What others pushed conflicts in this replay in {}.", files.join(", "));
        return Err(Stop::new(StopDetail::GitError, text).into());
    }
    run.journal.warn(OTHERS_COMMITS, merged.told.clone());
    record(run, merged.clone())?;
    run.goes_onto(merged.origin.clone());
    Ok(commit(run, worktree, &of_remote(run)).await?)
}

/// Merges a commit into the files. Gives what conflicts and stands between marks now; nothing = the merge waits for its commit.
pub async fn merge(run: &Run<'_>, worktree: &Worktree, tip: &CommitId) -> Result<Vec<String>, Stop> {
    let author = run.context.identity().await.map_err(broken)?;
    worktree.merge_base_in(tip, &author).await.map_err(broken)
}

/// The subject of a merge of what others pushed.
fn of_remote(run: &Run<'_>) -> String {
    format!("Merge {} of the remote", run.lease.mapping.branch)
}

/// Commits a merge that waits for it.
pub async fn commit(run: &Run<'_>, worktree: &Worktree, subject: &str) -> Result<bool, Stop> {
    let author = run.context.identity().await.map_err(broken)?;
    let merge = CommitMessage { subject: subject.to_owned(), ..message::of(run, "") };
    Ok(worktree.commit_all(&merge, &author).await.map_err(broken)?.is_some())
}

/// Records that others' commits were merged into the files.
pub fn record(run: &Run<'_>, merged: OthersMerged) -> Result<(), JournalError> {
    run.journal.record(Event::OthersMerged(Box::new(merged)))
}

/// The end of a run whose work conflicts with what others pushed.
pub async fn conflicting(run: &Run<'_>, theirs: &Theirs, files: &[String]) -> Stop {
    let why = format!(
        "Others pushed {} to the branch {}, which conflicts in {}",
        theirs.tip.short(),
        run.lease.mapping.branch,
        files.join(", ")
    );
    displaced(run, &theirs.head, &why).await
}

/// Keeps the work on a ref that is never pushed, and gives the end that says so.
pub async fn displaced(run: &Run<'_>, head: &CommitId, why: &str) -> Stop {
    let reference = format!("refs/agentd/displaced/{}", run.lease.run_id);
    match run.context.checkout.keep_at(&reference, head).await {
        Ok(()) => Stop::new(
            StopDetail::BranchMoved,
            format!("{why}. Nothing was pushed; the work is kept on {reference} ({}).", head.short()),
        ),
        Err(error) => {
            Stop::new(StopDetail::GitError, format!("{why}. The work could not be kept on a ref: {error}."))
        }
    }
}

/// Says what others pushed: who, and which files. Gives the words.
pub async fn tell(run: &Run<'_>, worktree: &Worktree, theirs: &Theirs) -> String {
    let text = match worktree.between(&theirs.head, &theirs.tip).await {
        // It has all of what is there: somebody set it back.
        Ok(found) if found.commits.is_empty() => {
            set_back(&run.lease.mapping.branch, &theirs.tip, &theirs.head)
        }
        Ok(found) => run.without_secrets(&described(run, &found).await),
        Err(_) => format!("Others pushed {} to the branch", theirs.tip.short()),
    };
    // A run that works the conflict out hears of it before its end, and says it once.
    if !run.journal.facts().warnings.iter().any(|warning| warning.text == text) {
        run.journal.warn(OTHERS_COMMITS, text.clone());
    }
    text
}

async fn described(run: &Run<'_>, found: &Between) -> String {
    let newest: BTreeMap<&str, &CommitId> =
        found.commits.iter().map(|commit| (commit.author.as_str(), &commit.id)).collect();
    let mut authors = Vec::new();
    for (at, (name, id)) in newest.into_iter().enumerate() {
        let login = match &run.context.github {
            // Who cannot be asked for keeps the name of the commit.
            Some(github) if at < ASKED => github.commit_author(&run.context.repo, id).await.ok().flatten(),
            _ => None,
        };
        authors.push(login.unwrap_or_else(|| name.to_owned()));
    }
    pushed(authors, found)
}

fn pushed(mut authors: Vec<String>, found: &Between) -> String {
    for author in authors.iter_mut().filter(|author| author.trim().is_empty()) {
        "somebody".clone_into(author);
    }
    authors.sort_unstable();
    authors.dedup();
    let mut files: Vec<String> = found
        .files
        .iter()
        .take(NAMED)
        .map(|file| format!("{} +{} \u{2212}{}", file.path, file.added, file.removed))
        .collect();
    if found.files.len() > NAMED {
        files.push(format!("and {} more", found.files.len() - NAMED));
    }
    if files.is_empty() {
        files.push(format!("{}, without a change of files", counted(found.commits.len(), "commit")));
    }
    format!("{} pushed to the branch: {}", authors.join(", "), files.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::worktree::LogEntry;

    #[test]
    fn commits_without_an_author_or_a_change_are_told_in_words() {
        let commit = LogEntry {
            id: CommitId::parse(&"a".repeat(40)).unwrap(),
            subject: String::new(),
            message: String::new(),
            author: String::new(),
        };
        let found = Between { commits: vec![commit.clone(), commit], files: Vec::new() };
        let told = pushed(vec![" ".to_owned(), "ada".to_owned(), String::new()], &found);
        assert_eq!(told, "ada, somebody pushed to the branch: 2 commits, without a change of files");
    }
}
