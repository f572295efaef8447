//! A person takes the work on an issue over: from the run that works, at the border of its turn, or where none does.
//!
//! From then on nothing starts on the issue, and agentd touches no file of its worktree, until the work is given back.

use std::collections::BTreeMap;
use std::time::Duration;

use super::beside;
use super::lease::recovery;
use super::stop_request::{self, StopRequest};
use crate::conversation::parked::parked_format::{HandOverRequest, Parked, ParkedIssue, Taken, WaitsFor};
use crate::conversation::parked::{self, ParkedCell};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::mapping::worktree_of;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::domain::taken::TakenOver;
use crate::issue::{shown_lease, status_comment};
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::repository::refused::no_nodes_key;
use crate::store::port::{LeaseNotTaken, StoreError};
use crate::sys::holder_format::Holder;
use crate::sys::paths::AbsPath;

/// How long the lease is taken for at most while an issue is parked, or given back.
pub(super) const LASTS: Duration = Duration::from_secs(10 * 60);

/// What became of a wish to take work over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Took {
    /// A run works: it was asked, and ends with its turn.
    Asked(RunId),
    /// A process uses the issue for a moment: it is tried again.
    Busy,
    /// The person has it.
    Has(Box<HasWork>),
}

/// Who has the work, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HasWork {
    /// Who.
    pub by: String,
    /// The run it was taken from, or the last one.
    pub run_id: RunId,
    /// The branch.
    pub branch: BranchName,
    /// The worktree.
    pub worktree: AbsPath,
    /// Whether the remote has all of the branch, as it was last seen there.
    pub is_pushed: bool,
}

/// What is kept of an issue that waits for people.
pub(super) fn cell(context: &RepositoryContext, key: &IssueKey) -> ParkedCell {
    ParkedCell::new(&context.state, &context.repo, key)
}

pub(super) fn unreadable(error: StoreError) -> Refusal {
    if error.is_for_want_of_a_right() {
        return no_nodes_key(&error);
    }
    Refusal::new(StopDetail::OutputWriteFailed, format!("Who has the work cannot be kept: {error}."))
}

fn invalid(message: String) -> Refusal {
    Refusal::new(StopDetail::InvalidInput, message)
}

/// Takes the work over for somebody, or asks the run that works. What was asked is kept, so that nobody else begins.
pub async fn take(context: &RepositoryContext, key: &IssueKey, over: &TakenOver) -> Result<Took, Refusal> {
    let lease = context.look(context.lease(key)).await?;
    let mapping = lease.as_ref().and_then(|lease| mapping_of(lease.record.as_ref()?));
    if let Some(holder) = lease.and_then(|lease| lease.holder) {
        return ask(context, (key, mapping.as_ref()), &holder, over).await;
    }
    let held = match context.take(context.lease(key), "agentd take", LASTS).await {
        Ok(held) => held,
        Err(LeaseNotTaken::Busy(_) | LeaseNotTaken::Full { .. }) => return Ok(Took::Busy),
        Err(LeaseNotTaken::Store(error)) => return Err(unreadable(error)),
    };
    let mapping = held.record().and_then(mapping_of);
    let taken = park(context, key, mapping, over).await;
    if let Err(error) = held.release() {
        tracing::warn!(%error, "the lease was let go without saying so in its file");
    }
    taken.map(|has| Took::Has(Box::new(has)))
}

/// What was asked of a run that has ended otherwise is done now. `None` = there is nothing to do.
pub async fn take_as_asked(
    context: &RepositoryContext,
    key: &IssueKey,
    asked: &HandOverRequest,
) -> Result<Option<Took>, Refusal> {
    let lease = context.look(context.lease(key)).await?;
    let newest = lease.and_then(|lease| mapping_of(lease.record.as_ref()?)).map(|mapping| mapping.run_id);
    if newest == Some(asked.run_id) {
        return take(context, key, &asked.over).await.map(Some);
    }
    // Another run has begun since, and was not asked.
    let asked = asked.clone();
    let drop = move |issue: &mut ParkedIssue| {
        if issue.asked.as_ref() == Some(&asked) {
            issue.asked = None;
        }
    };
    cell(context, key).update(drop).await.map_err(unreadable)?;
    Ok(None)
}

async fn ask(
    context: &RepositoryContext,
    (key, mapping): (&IssueKey, Option<&MappingRecord>),
    holder: &Holder,
    over: &TakenOver,
) -> Result<Took, Refusal> {
    // What is asked reaches a run of the cluster wherever it works; who asks by a comment goes on with what it pushes.
    let reaches = over.pushes && context.state.shared().is_some();
    let Some(dir) = beside::run_of(context, (key, mapping), holder, reaches)? else {
        return Ok(Took::Busy);
    };
    let asked = HandOverRequest { run_id: dir.run_id, over: over.clone() };
    let keep = move |issue: &mut ParkedIssue| {
        // A run that has handed it over is only still on its way out.
        if issue.taken().is_none() {
            issue.asked.get_or_insert_with(|| asked.clone()).run_id = asked.run_id;
        }
    };
    cell(context, key).update(keep).await.map_err(unreadable)?;
    let (run_id, request) = (dir.run_id, StopRequest::Take(over.clone()));
    let asked = tokio::task::spawn_blocking(move || stop_request::ask(&dir, &request)).await;
    match asked {
        Ok(Ok(())) => Ok(Took::Asked(run_id)),
        Ok(Err(error)) => Err(unreadable(error)),
        Err(panic) => {
            Err(Refusal::new(StopDetail::Internal, "agentd has a defect; the log has the details.")
                .technical(panic.to_string()))
        }
    }
}

/// What another node made of an issue is nobody's here: a worktree that is here all the same is older.
pub(super) async fn is_here(
    context: &RepositoryContext,
    key: &IssueKey,
    mapping: Option<&MappingRecord>,
) -> Result<(), Refusal> {
    let Some(node) = recovery::node_elsewhere(context, mapping).await else { return Ok(()) };
    let again = format!("or have the next run work here: agentd run {key}");
    Err(not_here(key, &node).hint(again))
}

pub(super) fn not_here(key: &IssueKey, node: &str) -> Refusal {
    let message =
        format!("What was last made of the work on issue {key} is on the node {node}, and not here.");
    invalid(message).hint(format!("do it on {node}"))
}

/// The branch as the remote has it, where that is all of the work although it was made on another node.
async fn pushed_elsewhere(
    context: &RepositoryContext,
    mapping: Option<&MappingRecord>,
) -> Result<Option<CommitId>, Refusal> {
    let Some(mapping) = mapping.filter(|mapping| mapping.unpushed.is_none()) else { return Ok(None) };
    match context.authorised_remote().await? {
        Some(remote) => context.remote_tip(&remote, &mapping.branch, true).await,
        None => Ok(None),
    }
}

/// The issue is the person's. The lease is held.
async fn park(
    context: &RepositoryContext,
    key: &IssueKey,
    mapping: Option<MappingRecord>,
    over: &TakenOver,
) -> Result<HasWork, Refusal> {
    let known = cell(context, key).read().await.map_err(unreadable)?;
    let worktree = context.worktree_root().join(worktree_of(key));
    // Who asks by a comment needs no worktree, where the remote has all of the branch.
    let pushed = match is_here(context, key, mapping.as_ref()).await {
        Ok(()) => None,
        Err(refusal) if over.pushes => match known.taken() {
            Some((_, taken)) => Some(taken.head.clone()),
            None => Some(pushed_elsewhere(context, mapping.as_ref()).await?.ok_or(refusal)?),
        },
        Err(refusal) => return Err(refusal),
    };
    let Some(mapping) = mapping.filter(|_| pushed.is_some() || worktree.as_path().is_dir()) else {
        let message = format!("Issue {key} has no worktree here: there is nothing to take over.");
        return Err(invalid(message).hint(format!(
            "`/agentd run` in a comment, or agentd run {key} on agentd's machine, begins the work"
        )));
    };
    if let Some((parked, taken)) = known.taken() {
        if taken.by != over.by {
            let message = format!("{} has the work on issue {key} already.", taken.by);
            return Err(invalid(message).hint(format!("`/agentd give-back TEXT` in a comment, or agentd give-back {key} on agentd's machine, gives it back")));
        }
        let has = has(context, taken, (parked.run_id, worktree)).await?;
        if !parked.is_posted {
            show(context, key, &has).await;
        }
        return Ok(has);
    }
    if let Some(parked) = known.now().filter(|parked| parked.answer.is_some()) {
        let (message, hint) = match parked.waits_for {
            WaitsFor::GiveBack(_) => (
                format!("The work on issue {key} was given back, and the next run goes on with it."),
                format!("take it over once that run works; {} begins it", parked.goes_on_by(key)),
            ),
            WaitsFor::Answer { .. } | WaitsFor::Plan { .. } => (
                format!("Issue {key} waits for nobody any more: run {} is gone on with.", parked.run_id),
                format!("take it over once its run works; {} begins it", parked.goes_on_by(key)),
            ),
        };
        return Err(invalid(message).hint(hint));
    }
    let head = match &pushed {
        Some(head) => Some(head.clone()),
        None => context.checkout.local_branch(&mapping.branch).await?,
    };
    let Some(head) = head else {
        return Err(invalid(format!("The branch {} of issue {key} is gone.", mapping.branch)));
    };
    let mut left = None;
    // The run may have been killed before it did so itself, and whoever takes its work runs git there.
    if pushed.is_none()
        && let Some(worktree) = context.checkout.find_worktree(&context.worktree_root(), &worktree_of(key))?
    {
        worktree.end_cut_off_set_up().await?;
        for folder in worktree.own_submodule_links().await? {
            tracing::warn!(folder = %folder.display(), "a program had put a repository of its own there; its .git was moved away");
        }
        if !worktree.is_clean().await? {
            let reference = format!("refs/agentd/taken/{}", mapping.branch);
            left = Some(
                worktree
                    .checkpoint(&reference, "agentd: what a run had left when it was taken over\n")
                    .await?,
            );
        }
    }
    let dir = context.state.run(&context.repo, mapping.run_id);
    let facts = tokio::task::spawn_blocking(move || run_facts::read(&dir).ok()).await.ok().flatten();
    let taken = Taken {
        by: over.by.clone(),
        branch: mapping.branch,
        head,
        left,
        is_done: facts.and_then(|facts| facts.end).is_some_and(|end| end.success()),
        before: known.now().map(|parked| parked.waits_for.clone()),
        giving_back: None,
        given: None,
    };
    let has = has(context, &taken, (mapping.run_id, worktree)).await?;
    let before = taken.before.clone();
    let parked = Parked::taken(mapping.run_id, taken, context.clock.now(), context.state.state_name());
    let keep = move |issue: &mut ParkedIssue| {
        issue.asked = None;
        issue.parked = Some(parked.clone());
    };
    cell(context, key).update(keep).await.map_err(unreadable)?;
    show(context, key, &has).await;
    if let (Some(before), Some(github), Some(number)) = (&before, &context.github, key.number()) {
        let why = format!("{} has taken the work over", has.by);
        if let Err(error) = parked::ask_no_more(github, (&context.repo, number), before, &why).await {
            tracing::warn!(%error, "that nothing is waited for any more could not be told on the issue");
        }
    }
    Ok(has)
}

async fn has(
    context: &RepositoryContext,
    taken: &Taken,
    (run_id, worktree): (RunId, AbsPath),
) -> Result<HasWork, Refusal> {
    let is_pushed = context.last_seen(&taken.branch).await?.as_ref() == Some(&taken.head);
    Ok(HasWork { by: taken.by.clone(), run_id, branch: taken.branch.clone(), worktree, is_pushed })
}

/// The issue's comment and labels say who has the work; best effort, and tried again where it is taken again.
async fn show(context: &RepositoryContext, key: &IssueKey, has: &HasWork) {
    let text = format!(
        "**{} has the work on this issue.**\n\nIt is on the branch `{}`. Nothing starts here until it is given back: by the \
         comment `/agentd give-back TEXT`, or `agentd give-back {key}` on agentd's machine.\n{}",
        has.by,
        has.branch,
        shown_lease::parked_line(&context.state)
    );
    match write(context, key, &text, IssueState::NeedsInput).await {
        Err(error) => tracing::warn!(%error, "the issue does not say yet who has its work"),
        Ok(()) => {
            let shown = |issue: &mut ParkedIssue| {
                issue.parked.iter_mut().for_each(|parked| parked.is_posted = true);
            };
            if let Err(error) = cell(context, key).update(shown).await {
                tracing::warn!(%error, "that the issue says who has its work could not be noted");
            }
        }
    }
}

/// Writes the status comment and the labels of an issue on which no run works.
pub(super) async fn write(
    context: &RepositoryContext,
    key: &IssueKey,
    text: &str,
    state: IssueState,
) -> Result<(), crate::github::Error> {
    let (Some(github), Some(number)) = (&context.github, key.number()) else { return Ok(()) };
    let of = (&context.repo, number);
    status_comment::ensure(github, context.state.store(), of, text).await?;
    let current = github.issue(&context.repo, number).await?.issue.labels;
    github.ensure_labels(&context.repo, number, &current, state, &context.config.github.labels).await
}

/// The worktrees that people have, each with who: nothing else touches them. One of which that cannot be told is left alone,
/// too.
pub async fn worktrees(context: &RepositoryContext) -> BTreeMap<String, String> {
    let listed = context.checkout.list_worktrees(&context.worktree_root()).await.unwrap_or_default();
    let mut held = BTreeMap::new();
    for name in listed.into_iter().map(|listed| listed.name) {
        let Some(key) = name.strip_prefix("issue-").map(IssueKey::of_text) else { continue };
        match cell(context, &key).read().await {
            Ok(issue) => {
                held.extend(
                    issue.taken().map(|(_, taken)| (name, format!("{} has the work in it", taken.by))),
                );
            }
            Err(error) => drop(held.insert(name, format!("whether a person has it is not known: {error}"))),
        }
    }
    held
}
