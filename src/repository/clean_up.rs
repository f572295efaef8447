//! Cleaning up worktrees whose work is merged, and long enough ago: by hand, and by the daemon in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::context::RepositoryContext;
use super::mapping_format::{MappingRecord, mapping_of};
use crate::domain::name::{BranchName, CommitId};
use crate::domain::refusal::Refusal;
use crate::domain::shell_words;
use crate::git::prune::{ListedWorktree, NOT_MADE, PrunePlan, Pruned, other_branch};
use crate::sys::holder_format::Holder;

/// How long a lease is taken for at most while its worktree goes.
const LASTS: Duration = Duration::from_secs(10 * 60);

/// A worktree and what is known of its issue.
#[derive(Debug, Clone)]
pub struct KnownWorktree {
    /// The worktree.
    pub listed: ListedWorktree,
    /// The mapping, where a run made it.
    pub mapping: Option<MappingRecord>,
    /// Who works in it.
    pub holder: Option<Holder>,
}

impl KnownWorktree {
    /// Why agentd never removes it: it is not known to have made it for an issue, and on that branch.
    pub fn is_not_ours(&self) -> Option<String> {
        let listed = &self.listed;
        if !listed.is_made {
            return Some(NOT_MADE.to_owned());
        }
        let Some(mapping) = &self.mapping else {
            return Some("no run is known for which agentd made it".to_owned());
        };
        let on = listed.branch.as_ref().filter(|on| **on != mapping.branch.as_str())?;
        Some(other_branch(on, &mapping.branch))
    }
}

/// The repository's worktrees.
pub async fn list(context: &RepositoryContext) -> Result<Vec<KnownWorktree>, Refusal> {
    let mut found = Vec::new();
    for listed in context.checkout.list_worktrees(&context.worktree_root()).await? {
        let lease = context.look(context.lease_of(&listed.name)).await?;
        let mapping = lease.as_ref().and_then(|lease| mapping_of(lease.record.as_ref()?));
        let holder = lease.and_then(|lease| lease.holder);
        found.push(KnownWorktree { listed, mapping, holder });
    }
    Ok(found)
}

/// Has git keep agentd's refs in one file, once there are many. Where that fails, such as beside another git that does it, the next time is
/// soon enough.
pub async fn pack_refs(context: &RepositoryContext) {
    match context.checkout.pack_own_refs().await {
        Ok(true) => tracing::debug!(repo = %context.repo, "agentd's refs are packed"),
        Ok(false) => {}
        Err(error) => tracing::debug!(repo = %context.repo, %error, "agentd's refs could not be packed"),
    }
}

/// The same of objects. It may take a while where a repository is large.
async fn pack_objects(context: &RepositoryContext) {
    match context.checkout.pack_loose_objects().await {
        Ok(true) => tracing::debug!(repo = %context.repo, "objects are packed"),
        Ok(false) => {}
        Err(error) => tracing::debug!(repo = %context.repo, %error, "objects could not be packed"),
    }
}

/// Removes worktrees that agentd made, that are merged, clean and were last worked on at least `age` ago. The others stay, each
/// with its reason; `taken` = those that people work in, with who that is.
pub async fn clean_up(
    context: &RepositoryContext,
    age: Duration,
    dry_run: bool,
    taken: &BTreeMap<String, String>,
) -> Result<Vec<Pruned>, Refusal> {
    let known = list(context).await?;
    let mut held = BTreeMap::new();
    // Held until the end, so that no run begins in a worktree that goes.
    let mut leases = Vec::new();
    for one in &known {
        let name = &one.listed.name;
        let why = taken.get(name).cloned();
        if let Some(why) = why.or_else(|| reason_to_hold(one, context.clock.now(), age)) {
            held.insert(name.clone(), why);
        } else if !dry_run {
            match context.take(context.lease_of(name), "worktrees prune", LASTS).await {
                Ok(lease) => leases.push(lease),
                Err(error) => {
                    held.insert(name.clone(), format!("its lease is {error}"));
                }
            }
        }
    }
    let free: Vec<&KnownWorktree> = known.iter().filter(|one| !held.contains_key(&one.listed.name)).collect();
    let configured =
        context.repository.origin_branch.as_deref().and_then(|name| BranchName::parse(name).ok());
    let branches = free.iter().filter_map(|one| Some(one.mapping.as_ref()?.origin.branch.clone()));
    let origins = origins(context, branches.chain(configured.clone()).collect()).await;
    let mut own_merged = BTreeMap::new();
    for one in &free {
        let Some(mapping) = &one.mapping else { continue };
        let mut merged = merged_heads(context, &mapping.branch).await;
        merged.extend(origins.get(&mapping.origin.branch).cloned());
        own_merged.insert(one.listed.name.clone(), merged);
    }
    let plan = PrunePlan {
        root: context.worktree_root(),
        merged_into: configured.and_then(|branch| origins.get(&branch).cloned()),
        own_merged,
        free: free
            .iter()
            .filter_map(|one| Some((one.listed.name.clone(), one.mapping.as_ref()?.branch.clone())))
            .collect(),
        held,
        dry_run,
    };
    let pruned = context.checkout.prune(&plan).await?;
    drop(leases);
    if !dry_run {
        pack_refs(context).await;
        pack_objects(context).await;
    }
    Ok(pruned)
}

fn reason_to_hold(one: &KnownWorktree, now: DateTime<Utc>, age: Duration) -> Option<String> {
    if let Some(holder) = &one.holder {
        return Some(format!("a run works in it: {holder}"));
    }
    if let Some(why) = one.is_not_ours() {
        let remove = shell_words::line(&["git", "worktree", "remove", &one.listed.path.to_string()]);
        return Some(format!("{why}; once nobody needs it: {remove}"));
    }
    let (seconds, _) = one.mapping.as_ref()?.run_id.0.get_timestamp()?.to_unix();
    let began = DateTime::<Utc>::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    let until = began + TimeDelta::from_std(age).unwrap_or(TimeDelta::days(36_500));
    (until > now)
        .then(|| format!("it is kept until {} (worktree.retention)", until.format("%Y-%m-%dT%H:%M:%SZ")))
}

/// The present commits of the origin branches, by their names. A branch that cannot be fetched proves nothing.
async fn origins(
    context: &RepositoryContext,
    branches: BTreeSet<BranchName>,
) -> BTreeMap<BranchName, CommitId> {
    let mut commits = BTreeMap::new();
    for branch in branches {
        match context.origin_commit(&branch).await {
            Ok(Some(commit)) => drop(commits.insert(branch, commit)),
            Ok(None) => {}
            Err(refusal) => tracing::warn!(%branch, %refusal, "what is merged into it cannot be told"),
        }
    }
    commits
}

/// Heads of a branch's merged pull requests, if there is a tracker.
async fn merged_heads(context: &RepositoryContext, branch: &BranchName) -> Vec<CommitId> {
    context.merged_heads(branch, None, true).await.unwrap_or_else(|error| {
        tracing::warn!(%branch, %error, "whether its pull request was merged cannot be told");
        Vec::new()
    })
}
