//! The files of a clone that agentd manages: they are those of a commit, and nothing that git does not have is deleted for them.

use std::fs;
use std::path::{Path, PathBuf};

use git2::{Delta, DiffDelta, DiffOptions, FileMode, Index, Repository};

use super::checkout::{Checkout, oid, remove_stale_locks};
use super::error::GitError;
use super::tree_diff::tree_diff;
use crate::domain::name::CommitId;

impl Checkout {
    /// Makes the files of a managed clone those of a commit.
    pub async fn stand_on(&self, commit: &CommitId) -> Result<(), GitError> {
        let _turn = self.turn().await?;
        // The holder of the lock is alone here. What lies there was left by a git that was killed.
        remove_stale_locks(self.common_dir())?;
        let (root, wanted) = (self.root().clone(), commit.clone());
        let look = move |repository: &Repository| makes_room(repository, root.as_path(), &wanted);
        self.library(look).await?;
        let args = ["checkout", "--quiet", "--force", "--detach", commit.as_str()];
        self.call(args).await?.with_hooks(false).done().await
    }
}

/// Refuses a commit that has a file or a link where a folder of the clone holds files that are in no index: worktrees are in one that git
/// ignores, and what is ignored git deletes to make room.
fn makes_room(repository: &Repository, root: &Path, commit: &CommitId) -> Result<(), GitError> {
    let wanted = repository.find_commit(oid(commit)?)?.tree()?;
    // A clone without files has no folders either.
    let Ok(now) = repository.head().and_then(|head| head.peel_to_tree()) else { return Ok(()) };
    let diff = tree_diff(repository, Some(&now), Some(&wanted), DiffOptions::new().include_typechange(true))?;
    let index = repository.index()?;
    // For a submodule git leaves a folder as it is.
    let takes_place = |delta: &DiffDelta<'_>| {
        delta.status() != Delta::Deleted && delta.new_file().mode() != FileMode::Commit
    };
    for delta in diff.deltas().filter(takes_place) {
        let Some(path) = delta.new_file().path() else { continue };
        let place = root.join(path);
        let is_folder = place.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if is_folder && let Some(lost) = unknown_below(&index, root, path) {
            return Err(GitError::InTheWay {
                commit: commit.short().to_owned(),
                path: path.display().to_string(),
                lost: lost.display().to_string(),
            });
        }
    }
    Ok(())
}

/// A file below a folder that the index does not have; links are not followed.
fn unknown_below(index: &Index, root: &Path, folder: &Path) -> Option<PathBuf> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                _ if index.get_path(&path, 0).is_some() => {}
                _ => return Some(path),
            }
        }
    }
    None
}
