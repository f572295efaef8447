//! Which files each commit of a branch touches.

use super::checkout::{commit_id, oid};
use super::error::GitError;
use super::tree_diff::tree_diff;
use super::worktree::Worktree;
use crate::domain::name::CommitId;

/// Commits that are looked at, the newest ones.
const MOST: usize = 500;

impl Worktree {
    /// Commits between `base` and HEAD, oldest first, each with the paths that differ from its first parent.
    pub async fn commits_with_paths(
        &self,
        base: &CommitId,
    ) -> Result<Vec<(CommitId, Vec<String>)>, GitError> {
        let Some(head) = self.head().await? else { return Ok(Vec::new()) };
        let base = base.clone();
        self.checkout()
            .library(move |repository| {
                let mut walk = repository.revwalk()?;
                walk.set_sorting(git2::Sort::TOPOLOGICAL)?;
                walk.push(oid(&head)?)?;
                walk.hide(oid(&base)?)?;
                let mut found = Vec::new();
                for id in walk.take(MOST) {
                    let commit = repository.find_commit(id?)?;
                    let parent = commit.parents().next().map(|parent| parent.tree()).transpose()?;
                    let mut options = git2::DiffOptions::new();
                    let diff = tree_diff(repository, parent.as_ref(), Some(&commit.tree()?), &mut options)?;
                    let paths = diff.deltas().flat_map(|delta| {
                        [delta.old_file().path(), delta.new_file().path()]
                            .map(|path| path.map(|path| path.to_string_lossy().into_owned()))
                    });
                    let mut paths: Vec<String> = paths.flatten().collect();
                    paths.dedup();
                    found.push((commit_id(commit.id())?, paths));
                }
                found.reverse();
                Ok(found)
            })
            .await
    }
}
