//! Files of a worktree that a commit does not have, by when they were last changed. Nothing of them is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::time::{SystemTime, UNIX_EPOCH};

use git2::{ObjectType, Oid, Repository, Tree};

use super::error::GitError;
use super::worktree::Worktree;
use crate::sys::files;

/// Most entries of folders that are looked at.
const MOST: usize = 1_000_000;

/// A folder that is still to be looked at.
struct Folder {
    /// Relative to the worktree; empty = the worktree itself.
    path: PathBuf,
    /// What the commit has there.
    tree: Option<Oid>,
    /// The topmost folder around it that the commit does not have.
    beside: Option<PathBuf>,
}

/// What was found in a folder that the commit does not have.
struct Found {
    files: usize,
    first: PathBuf,
}

impl Worktree {
    /// The files that `tree` does not have and whose last change fits, each by its path. Of a folder that it does not have and in which
    /// several fit, the folder stands there, with their number.
    pub async fn unkept_files(
        &self,
        tree: &str,
        fits: impl Fn(i64) -> bool + Send + 'static,
    ) -> Result<Vec<(String, usize)>, GitError> {
        let (root, tree) = (self.path().as_path().to_owned(), tree.to_owned());
        self.checkout().library(move |repository| look(repository, &root, &tree, &fits)).await
    }
}

fn look(
    repository: &Repository,
    root: &Path,
    tree: &str,
    fits: &dyn Fn(i64) -> bool,
) -> Result<Vec<(String, usize)>, GitError> {
    let mut open = vec![Folder { path: PathBuf::new(), tree: Some(Oid::from_str(tree)?), beside: None }];
    let mut found: BTreeMap<PathBuf, Found> = BTreeMap::new();
    let mut left = MOST;
    while let Some(folder) = open.pop() {
        let known = folder.tree.map(|id| repository.find_tree(id)).transpose()?;
        // One that is not there any more has nothing.
        let Ok(entries) = fs::read_dir(root.join(&folder.path)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if folder.path.as_os_str().is_empty() && name == ".git" {
                continue;
            }
            let Some(rest) = left.checked_sub(1) else { return Ok(listed(found)) };
            left = rest;
            let path = folder.path.join(&name);
            let (kind, tree) = in_commit(known.as_ref(), name.as_encoded_bytes());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // A submodule has a commit of its own.
                if kind != Some(ObjectType::Commit) {
                    let beside = folder.beside.clone().or_else(|| tree.is_none().then(|| path.clone()));
                    open.push(Folder { path, tree, beside });
                }
                continue;
            }
            if kind.is_none() && changed(&root.join(&path)).is_some_and(fits) {
                let place = folder.beside.clone().unwrap_or_else(|| path.clone());
                let place = found.entry(place).or_insert(Found { files: 0, first: path });
                place.files += 1;
            }
        }
    }
    Ok(listed(found))
}

/// What a folder of the commit has under a name: its kind, and the folder itself where it is one.
fn in_commit(known: Option<&Tree<'_>>, name: &[u8]) -> (Option<ObjectType>, Option<Oid>) {
    let entry = known.and_then(|tree| tree.get_name_bytes(name));
    let kind = entry.as_ref().and_then(|entry| entry.kind());
    (kind, entry.filter(|_| kind == Some(ObjectType::Tree)).map(|entry| entry.id()))
}

/// When a file was last changed, in milliseconds since 1970. One that has several names, as package managers make them, is changed by each
/// name that it gets anywhere; of such a file it counts when it was made or written.
fn changed(path: &Path) -> Option<i64> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let meta = path.symlink_metadata().ok()?;
        if meta.nlink() > 1 {
            let of = |at: SystemTime| at.duration_since(UNIX_EPOCH).ok();
            let newest =
                [meta.created().ok(), meta.modified().ok()].into_iter().flatten().filter_map(of).max()?;
            return i64::try_from(newest.as_millis()).ok();
        }
    }
    files::stamp(path)?.changed_ms()
}

fn listed(found: BTreeMap<PathBuf, Found>) -> Vec<(String, usize)> {
    let shown = |(place, found): (PathBuf, Found)| match found.files {
        1 => (found.first.to_string_lossy().into_owned(), 1),
        many => (format!("{}/", place.to_string_lossy()), many),
    };
    found.into_iter().map(shown).collect()
}
