//! A person gives work back: what they changed is committed in their name, what they pushed is brought in, and a run goes on.
//!
//! Each part finds what is done already, and only the last one lets a run go on: killed anywhere, it is done again. So it is where it was
//! given back and no run has gone on with it, because none could begin.

use chrono::{DateTime, Utc};

use super::commit::new_files;
use super::lease::recovery;
use super::shared_work;
use super::taken::{LASTS, cell, not_here, unreadable, write};
use crate::config::config_file::Auto;
use crate::conversation::parked::parked_format::{
    GivenBack, GivingBack, Over, ParkedAnswer, ParkedIssue, Taken,
};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::mapping::worktree_of;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::outgoing::commit_text;
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::shell_words;
use crate::domain::stop::StopDetail;
use crate::git::by_hand::{self, Brought};
use crate::git::commit::CommitMessage;
use crate::git::prepare::WorktreeError;
use crate::git::worktree::Worktree;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::repository::resources::blocking;
use crate::store::port::{HeldLease, LeaseNotTaken};

/// Most files of a person's that are kept although the list leaves them out of commits, and most of them that are named.
const MOST_KEPT: usize = 200;
const MOST_SHOWN: usize = 10;
/// Changed files that the agent is told of by name.
const MOST_FILES: usize = 50;

/// Work that was given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GaveBack {
    /// The run that it was taken from, or the last one.
    pub run_id: RunId,
    /// Whether that run had reached its objective, or its record is damaged: then another one begins, and goes on with none.
    pub is_done: bool,
    /// Where the branch stands.
    pub head: CommitId,
    /// What the person had left uncommitted, if anything.
    pub commit: Option<CommitId>,
    /// What differs from where it was taken, a line a file.
    pub changed: Vec<String>,
    /// Files of the person's that the list of excluded files keeps out of commits.
    pub kept_out: Vec<String>,
    /// The node that has the worktree they worked in, where that is none that lives.
    pub stays_on: Option<String>,
}

impl GaveBack {
    /// What is to be said of files that are in no commit, or in none that can be had.
    pub fn left_out(&self, branch: &BranchName) -> Option<String> {
        if let Some(node) = &self.stays_on {
            return Some(format!("What was not pushed stays on the node {node}, which does not answer."));
        }
        let shown: Vec<&str> = self.kept_out.iter().take(MOST_SHOWN).map(String::as_str).collect();
        let more = self.kept_out.len().saturating_sub(MOST_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let kept = match is_litter(&self.kept_out) {
            true => "they stay in the worktree as long as that is there".to_owned(),
            false => format!("a copy is on {}", new_files::kept_on_of(branch)),
        };
        (!shown.is_empty()).then(|| {
            format!(
                "Not committed, since the built-in list or `commit.exclude` keeps such files out: {}{more}; {kept}.",
                shown.join(", ")
            )
        })
    }
}

/// So many files are what a build leaves, and nobody's writing.
fn is_litter(files: &[String]) -> bool {
    files.len() >= MOST_KEPT
}

fn invalid(message: String) -> Refusal {
    Refusal::new(StopDetail::InvalidInput, message)
}

fn conflict(message: String) -> Refusal {
    Refusal::new(StopDetail::MappingConflict, message)
}

/// Gives the work on an issue back. What stands in the way is the error, and then nothing but commits was made. `elsewhere`: although the
/// worktree that the person works in is on a node that is gone.
pub async fn give_back(
    context: &RepositoryContext,
    key: &IssueKey,
    giving: &GivingBack,
    elsewhere: bool,
) -> Result<GaveBack, Refusal> {
    taken(context, key).await?;
    let held = match context.take(context.lease(key), "agentd give-back", LASTS).await {
        Ok(held) => held,
        Err(LeaseNotTaken::Busy(holder)) => {
            let who = holder.map_or_else(|| "another process".to_owned(), |holder| holder.to_string());
            let message = format!("The work on issue {key} cannot be given back while {who} uses it.");
            return Err(Refusal::new(StopDetail::BranchBusy, message).hint("try again in a moment"));
        }
        Err(error @ LeaseNotTaken::Full { .. }) => {
            return Err(Refusal::new(StopDetail::BranchBusy, error.to_string()));
        }
        Err(LeaseNotTaken::Store(error)) => return Err(unreadable(error)),
    };
    let (held, given) = under_lease(context, (key, giving, elsewhere), held).await;
    if let Some(held) = held
        && let Err(error) = held.release()
    {
        tracing::warn!(%error, "the lease was let go without saying so in its file");
    }
    given
}

/// Who has the work, or gave it back last, and the run.
async fn taken(
    context: &RepositoryContext,
    key: &IssueKey,
) -> Result<(RunId, DateTime<Utc>, Taken), Refusal> {
    let issue = cell(context, key).read().await.map_err(unreadable)?;
    let taken = issue.in_hands().map(|(parked, taken)| (parked.run_id, parked.since, taken.clone()));
    taken.ok_or_else(|| {
        let nobody = format!("Nobody has taken the work on issue {key} over.");
        invalid(nobody).hint(format!("agentd take {key}; agentd why {key} says what becomes of it"))
    })
}

/// Gives the lease again, unless that is lost.
async fn under_lease(
    context: &RepositoryContext,
    (key, giving, elsewhere): (&IssueKey, &GivingBack, bool),
    held: Box<dyn HeldLease>,
) -> (Option<Box<dyn HeldLease>>, Result<GaveBack, Refusal>) {
    let mapping = held.record().and_then(mapping_of);
    if let Some(node) = recovery::node_elsewhere(context, mapping.as_ref()).await {
        let given = match from_elsewhere(context, (key, giving), (node, elsewhere)).await {
            Ok((taken, back)) => go_on(context, (key, giving), &taken, back).await,
            Err(refusal) => Err(refusal),
        };
        return (Some(held), given);
    }
    let (taken, worktree, back) = match brought_in(context, (key, giving)).await {
        Ok(brought) => brought,
        Err(refusal) => return (Some(held), Err(refusal)),
    };
    let (held, kept) = keep_for_others(context, mapping, &worktree, held).await;
    if let Err(refusal) = kept {
        return (held, Err(refusal));
    }
    (held, go_on(context, (key, giving), &taken, back).await)
}

/// In a cluster: what the person made of it can be had by the node that goes on with it.
async fn keep_for_others(
    context: &RepositoryContext,
    mapping: Option<MappingRecord>,
    worktree: &Worktree,
    mut held: Box<dyn HeldLease>,
) -> (Option<Box<dyn HeldLease>>, Result<(), Refusal>) {
    let Some(mapping) = mapping else { return (Some(held), Ok(())) };
    let left = match shared_work::of_person((context, &mapping), worktree).await {
        Ok(Some(left)) => left,
        Ok(None) => return (Some(held), Ok(())),
        Err(error) => return (Some(held), Err(error.into())),
    };
    let record = MappingRecord { unpushed: Some(left), ..mapping };
    let noted = tokio::task::spawn_blocking(move || {
        let noted = held.set_record(serde_json::to_value(&record).unwrap_or_default());
        (held, noted)
    });
    match noted.await {
        Ok((held, noted)) => (Some(held), noted.map_err(unreadable)),
        Err(panic) => {
            let refusal = Refusal::new(StopDetail::Internal, "agentd has a defect; the log has the details.");
            (None, Err(refusal.technical(panic.to_string())))
        }
    }
}

/// What the person made of the work, in commits of its branch.
async fn brought_in(
    context: &RepositoryContext,
    (key, giving): (&IssueKey, &GivingBack),
) -> Result<(Taken, Worktree, GaveBack), Refusal> {
    let (run_id, at, taken) = taken(context, key).await?;
    let is_done = taken.is_done || (!giving.ends && !can_go_on(context, run_id).await?);
    let lfs = context.config.worktree.lfs == Auto::Auto;
    let (root, name) = (context.worktree_root(), worktree_of(key));
    let found = context.checkout.worktree_by_hand((&root, &name), &taken.branch, lfs).await;
    let worktree = found.map_err(|error| not_usable(&error))?.ok_or_else(|| {
        let path = root.join(&name);
        let (checkout, place) = (context.checkout.root().to_string(), path.to_string());
        let git = |args: &[&str]| {
            let all: Vec<&str> = ["git", "-C", &checkout, "worktree"].iter().chain(args).copied().collect();
            shell_words::line(&all)
        };
        match path.as_path().is_dir() {
            true => invalid(format!(
                "{place} is no worktree of {checkout} any more, as where one of them was moved."
            ))
            .hint(format!("mend that: {}", git(&["repair", &place]))),
            // It may be known there still.
            false => invalid(format!("The worktree {place} is gone."))
                .hint(format!("make it again: {}", git(&["add", "-f", &place, taken.branch.as_str()]))),
        }
    })?;
    worktree.remove_commit_locks()?;
    worktree.something_ran();
    let commit = commit(context, key, (&worktree, taken.left.as_ref()), giving).await?;
    let kept_out = worktree.kept_out_since(at.into(), MOST_KEPT).await?;
    if !kept_out.is_empty() && !is_litter(&kept_out) {
        worktree.keep_excluded(&kept_out, &new_files::kept_on(&worktree)).await?;
    }
    bring_in(context, &worktree).await?;
    let head = worktree.head().await?.unwrap_or_else(|| taken.head.clone());
    // What a run had left and is no commit yet is not what they changed.
    let changed = by_hand::lines(&context.checkout.changed_between(&taken.head, &head).await?, MOST_FILES);
    let back = GaveBack { run_id, is_done, head, commit, changed, kept_out, stays_on: None };
    Ok((taken, worktree, back))
}

/// Work whose worktree is another node's: what its person pushed is gone on with. Who works in that worktree gives it back there, where
/// nothing of theirs is left behind; elsewhere only by saying so, and where the node does not live.
async fn from_elsewhere(
    context: &RepositoryContext,
    (key, giving): (&IssueKey, &GivingBack),
    (node, elsewhere): (String, bool),
) -> Result<(Taken, GaveBack), Refusal> {
    let (run_id, _, taken) = taken(context, key).await?;
    if taken.is_in_worktree() && lives(context, &node).await? {
        return Err(not_here(key, &node));
    }
    if taken.is_in_worktree() && !elsewhere {
        let command = shell_words::line(&["agentd", "give-back", &key.to_string(), "--elsewhere"]);
        return Err(not_here(key, &node).hint(format!(
            "where {node} is gone for good: `{command}` goes on from what was pushed, and the rest stays there"
        )));
    }
    let is_done = taken.is_done || (!giving.ends && !can_go_on(context, run_id).await?);
    let pushed = match context.authorised_remote().await? {
        Some(remote) => context.remote_tip(&remote, &taken.branch, true).await?,
        None => None,
    };
    let head = pushed.unwrap_or_else(|| taken.head.clone());
    let checkout = &context.checkout;
    let is_known = checkout.has_commit(&taken.head).await? && checkout.has_commit(&head).await?;
    let changed = match is_known {
        true => by_hand::lines(&checkout.changed_between(&taken.head, &head).await?, MOST_FILES),
        false => Vec::new(),
    };
    let stays_on = taken.is_in_worktree().then_some(node);
    let back = GaveBack { run_id, is_done, head, commit: None, changed, kept_out: Vec::new(), stays_on };
    Ok((taken, back))
}

/// Whether a daemon of this node answers.
async fn lives(context: &RepositoryContext, node: &str) -> Result<bool, Refusal> {
    let Some(assignments) = context.state.store().assignments() else { return Ok(false) };
    let nodes = blocking(move || assignments.nodes()).await?.map_err(unreadable)?;
    Ok(nodes.iter().any(|one| one.node == node))
}

/// Whether the run that the work was taken from can be gone on with. Where its record is damaged the next run begins on the
/// branch as it stands.
async fn can_go_on(context: &RepositoryContext, run_id: RunId) -> Result<bool, Refusal> {
    match recovery::resumed(context, run_id).await {
        Ok(before) => Ok(before.is_some()),
        // The others' store may only be away.
        Err(error) if context.state.shared().is_some() => {
            let message = format!("What was made of the work is not known: {error}.");
            Err(Refusal::new(StopDetail::OutputWriteFailed, message))
        }
        Err(error) => {
            tracing::warn!(%run_id, %error, "the run's record is damaged: the next run begins anew on its branch");
            Ok(false)
        }
    }
}

/// Lets the work go on, or ends it.
async fn go_on(
    context: &RepositoryContext,
    (key, giving): (&IssueKey, &GivingBack),
    taken: &Taken,
    back: GaveBack,
) -> Result<GaveBack, Refusal> {
    if giving.ends {
        end(context, key, (taken, &back), giving).await?;
    }
    let (given, giving) = (back.clone(), giving.clone());
    let keep = move |issue: &mut ParkedIssue| {
        issue.asked = None;
        let Some(taken) = issue.in_hands_mut() else { return };
        taken.giving_back = None;
        taken.is_done = given.is_done;
        taken.given =
            Some(GivenBack { head: given.head.clone(), changed: given.changed.clone(), by_id: giving.by_id });
        let Some(parked) = issue.parked.as_mut() else { return };
        if giving.ends {
            parked.over = Some(Over::Ended("user_stop".to_owned()));
        } else {
            // What was said before, no run was told.
            let said = parked.answer.take().map(|answer| answer.text).filter(|_| giving.text.is_empty());
            let (text, by) = (said.unwrap_or_else(|| giving.text.clone()), giving.by.clone());
            let permission = giving.permission;
            parked.answer = Some(ParkedAnswer { text, by, permission, at: giving.at, plan: None });
        }
    };
    cell(context, key).update(keep).await.map_err(unreadable)?;
    Ok(back)
}

fn not_usable(error: &WorktreeError) -> Refusal {
    let detail = if error.is_conflict() { StopDetail::MappingConflict } else { StopDetail::GitError };
    Refusal::new(detail, format!("The work cannot be given back: {error}."))
}

/// Commits what the person left, as their own git would. What a run had left before, and they did not touch, is that run's still.
async fn commit(
    context: &RepositoryContext,
    key: &IssueKey,
    (worktree, before): (&Worktree, Option<&CommitId>),
    giving: &GivingBack,
) -> Result<Option<CommitId>, Refusal> {
    let left = worktree.not_carried().await?;
    if !left.is_empty() {
        let message = format!("No commit here would have this: {}.", left.join("; "));
        return Err(conflict(message).hint(
            "commit and push what is in a submodule in its own repository, or put it back; have git ignore the rest, or move it away",
        ));
    }
    if worktree.status().await?.is_empty() {
        return Ok(None);
    }
    let Some(person) = worktree.person(|name| context.env.get(name).map(str::to_owned)).await? else {
        let message = format!("Git does not know in whose name to commit what is in {}.", worktree.path());
        return Err(invalid(message)
            .hint("git config --global user.name NAME")
            .hint("git config --global user.email ADDRESS")
            .hint("or commit it yourself there, and give it back then"));
    };
    let suffix = key.number().map(|number| format!(" (#{number})")).unwrap_or_default();
    let message = CommitMessage {
        subject: format!("Changes by hand{suffix}"),
        body: commit_text(&giving.text, None),
        trailers: Vec::new(),
    };
    worktree.commit_since(before, &message, &person).await.map_err(|error| {
        Refusal::new(
            StopDetail::GitError,
            format!("What is in {} could not be committed: {error}.", worktree.path()),
        )
    })
}

/// Has what was pushed to the branch meanwhile in it.
async fn bring_in(context: &RepositoryContext, worktree: &Worktree) -> Result<(), Refusal> {
    let Some(remote) = context.authorised_remote().await? else { return Ok(()) };
    let branch = worktree.branch();
    let Some(tip) = context.remote_tip(&remote, branch, true).await? else { return Ok(()) };
    let Some(head) = worktree.head().await? else { return Ok(()) };
    let checkout = &context.checkout;
    if checkout.is_ancestor(&tip, &head).await? {
        return Ok(());
    }
    let path = worktree.path().to_string();
    let git = |words: &[&str]| shell_words::line(&[&["git", "-C", &path], words].concat());
    if let Some(pushed) = checkout.last_pushed(&remote, branch).await?
        && !checkout.is_ancestor(&pushed, &tip).await?
    {
        let message = format!(
            "The branch {branch} on the remote is at {}, without what agentd pushed last ({}). What is here is at {}.",
            tip.short(),
            pushed.short(),
            head.short()
        );
        return Err(conflict(message).hint(format!(
            "to go on with what is there: `{}`; to go on with both: `{}`",
            git(&["reset", "--hard", tip.short()]),
            git(&["merge", tip.short()])
        )));
    }
    let message = CommitMessage {
        subject: format!("Merge {branch} of the remote"),
        body: String::new(),
        trailers: Vec::new(),
    };
    match worktree.bring_in(&tip, &message, &context.identity().await?).await? {
        Brought::There | Brought::Merged => Ok(()),
        Brought::Conflicts(files) => {
            let message = format!(
                "What was pushed to {branch} ({}) conflicts with what is here in {}. Nothing is lost: both are as they were.",
                tip.short(),
                files.join(", ")
            );
            Err(conflict(message).hint(format!(
                "`{}`, then work the conflict out, commit, and give it back again",
                git(&["merge", tip.short()])
            )))
        }
    }
}

/// Nothing goes on: the issue says so, as after a run that a person ended.
async fn end(
    context: &RepositoryContext,
    key: &IssueKey,
    (taken, back): (&Taken, &GaveBack),
    giving: &GivingBack,
) -> Result<(), Refusal> {
    let is_pushed = context.last_seen(&taken.branch).await?.as_ref() == Some(&back.head);
    let place = if is_pushed { "" } else { "; the remote does not have all of it" };
    let trigger = &context.config.github.labels.trigger;
    let text = format!(
        "**{} gave the work on this issue back, and nothing goes on.**\n\nIt is on the branch `{}` ({}){place}. For another run on \
         it, put the label `{trigger}` on again.\n",
        giving.by,
        taken.branch,
        back.head.short()
    );
    let state = IssueState::after(StopDetail::UserStop).unwrap_or(IssueState::Attention);
    Ok(write(context, key, &text, state).await?)
}
