//! Blobless clones: every commit is here, and the contents of the files of those commits that somebody works with.
//!
//! git would fetch each missing file when it comes to it, one by one and without agentd's credentials. So what is worked with is brought
//! before, many at a time. Each part is kept: what was cut off is gone on with.

use std::collections::BTreeSet;

use git2::{ObjectType, OdbLookupFlags, Oid, Repository, Tree};

use super::checkout::Checkout;
use super::error::GitError;
use super::remote::{FETCH, Remote, WITHOUT_CONTENTS};
use super::worktree_plan::WorktreePlan;
use crate::domain::name::CommitId;

/// Contents that are fetched in one go.
const PART: usize = 5_000;

impl Checkout {
    /// Whether the contents of files come only when they are brought.
    pub async fn is_blobless(&self) -> Result<bool, GitError> {
        Ok(self.hardening(self.common_dir()).await?.blobless)
    }

    /// Brings the contents of all files of a commit, as far as they are not here. In a clone that has everything, nothing is done.
    ///
    /// # Errors
    /// The remote does not give them; what it gave until then is kept.
    pub async fn bring_contents(&self, remote: &Remote, commit: &CommitId) -> Result<(), GitError> {
        if !self.is_blobless().await? {
            return Ok(());
        }
        let wanted = commit.clone();
        let missing = self.library(move |repository| missing(repository, &wanted)).await?;
        for part in missing.chunks(PART) {
            let mut args = [&FETCH[..FETCH.len() - 1], &[WITHOUT_CONTENTS, "--stdin", "--"]].concat();
            let target = remote.target();
            args.push(&target);
            let names: String = part.iter().map(|blob| format!("{blob}\n")).collect();
            // No commit that is here says anything about which contents are.
            let alone = [("fetch.negotiationAlgorithm".to_owned(), "noop".to_owned())];
            let args = args.into_iter().map(str::to_owned).collect();
            self.fetch_call(remote, args).await?.config(alone).stdin(names).done().await?;
        }
        Ok(())
    }

    /// Brings what a worktree is made from and compared with: the tips of its branch, its base, and where they part.
    pub(super) async fn bring_contents_of(
        &self,
        plan: &WorktreePlan,
        remote_tip: Option<&CommitId>,
    ) -> Result<(), GitError> {
        let Some(remote) = plan.remote.as_ref() else { return Ok(()) };
        if !self.is_blobless().await? {
            return Ok(());
        }
        let local = self.local_branch(&plan.branch).await?;
        for tip in [Some(&plan.base), local.as_ref(), remote_tip].into_iter().flatten() {
            if !self.has_commit(tip).await? {
                continue;
            }
            self.bring_contents(remote, tip).await?;
            if let Some(fork) = self.fork(tip, &plan.base).await? {
                self.bring_contents(remote, &fork).await?;
            }
        }
        Ok(())
    }

    /// The commit where two parted; `None` = they have none in common.
    pub async fn fork(&self, one: &CommitId, other: &CommitId) -> Result<Option<CommitId>, GitError> {
        let (one, other) = (one.clone(), other.clone());
        let fork = self.library(move |repository| {
            let oid = |commit: &CommitId| Oid::from_str(commit.as_str());
            match repository.merge_base(oid(&one)?, oid(&other)?) {
                Ok(fork) => Ok(Some(fork.to_string())),
                Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
        Ok(fork.await?.and_then(|fork| CommitId::parse(&fork).ok()))
    }
}

/// The contents of a commit's files that are not here.
fn missing(repository: &Repository, commit: &CommitId) -> Result<Vec<Oid>, GitError> {
    let odb = repository.odb()?;
    let tree = repository.find_commit(Oid::from_str(commit.as_str())?)?.tree()?;
    let (mut seen, mut missing) = (BTreeSet::from([tree.id()]), BTreeSet::new());
    let mut open: Vec<Tree<'_>> = vec![tree];
    while let Some(tree) = open.pop() {
        for entry in &tree {
            match entry.kind() {
                Some(ObjectType::Tree) if seen.insert(entry.id()) => {
                    open.push(repository.find_tree(entry.id())?);
                }
                Some(ObjectType::Blob) if !odb.exists_ext(entry.id(), OdbLookupFlags::NO_REFRESH) => {
                    missing.insert(entry.id());
                }
                // A submodule's commit is no file; a tree that was seen has no other files.
                _ => {}
            }
        }
    }
    Ok(missing.into_iter().collect())
}
