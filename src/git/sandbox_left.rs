//! What an agent leaves in its own git directory beside the branch: stashes, other branches, an operation that is half done.
//!
//! The directory goes with the sandbox. What only it has is kept on refs of the repository before that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::blob::LARGEST_FILE;
use super::checkout::{contains, oid};
use super::error::GitError;
use super::plain_head::plain_head;
use super::sandbox_git::{SandboxGit, alternates, copy_objects};
use super::worktree::Worktree;
use crate::domain::name::{BranchName, CommitId};
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;

/// Most refs of one directory that are kept.
const MOST_REFS: usize = 100;
/// Longest file of refs that is read.
const LONGEST_REFS: u64 = 4 << 20;
const HEADS: &str = "refs/heads/";
/// The operations of git that end with a commit, by what says that one is under way.
const OPERATIONS: [(&str, &str); 5] = [
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
];

/// Stands in a worktree's administrative directory while git's markers keep its files from being committed.
const MARKERS: &str = "agentd-markers";

/// Something that an agent left in its own git directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftRef {
    /// In words: `a stash`, `the branch wip`.
    pub what: String,
    /// Where it is kept.
    pub reference: String,
}

impl SandboxGit {
    /// The operation of git that the agent left half done.
    pub fn unfinished(&self) -> Option<&'static str> {
        let is_there = |name: &str| self.dir().join(name).as_path().symlink_metadata().is_ok();
        OPERATIONS.iter().find(|(name, _)| is_there(name)).map(|(_, operation)| *operation)
    }

    /// Whether it has branches or stashes beside these branches.
    pub fn holds_more(&self, branches: &[&BranchName]) -> bool {
        let shown =
            |name: &str| name == "head" || branches.iter().any(|branch| name == format!("heads/{branch}"));
        self.left().keys().any(|name| !shown(name))
    }

    /// Removes what stands beside the directory. Blocks.
    pub fn remove_all_else(&self) -> Result<(), FileError> {
        let Some(folder) = self.dir().parent() else { return Ok(()) };
        for entry in fs::read_dir(folder.as_path()).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && path != self.dir().as_path() => {
                    files::remove_dir(&path)?;
                }
                Ok(kind) if !kind.is_dir() => drop(files::remove_file(&path)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// What its refs and stashes name, by names that can end a ref. Plain files alone are read, and no link is followed.
    fn left(&self) -> BTreeMap<String, (String, CommitId)> {
        let mut found = BTreeMap::new();
        if let Some(head) = plain_head(self.dir()) {
            found.insert("head".to_owned(), ("commits without a branch".to_owned(), head));
        }
        let packed = text(&self.dir().join("packed-refs"));
        let packed = packed.lines().filter_map(|line| {
            let (commit, name) = line.split_once(' ')?;
            Some((name.strip_prefix(HEADS)?.to_owned(), CommitId::parse(commit).ok()?))
        });
        for (name, commit) in packed.chain(loose(&self.dir().join("refs/heads"))) {
            found.insert(format!("heads/{name}"), (format!("the branch {name}"), commit));
        }
        let stashes = text(&self.dir().join("logs/refs/stash"));
        let stashes = stashes.lines().filter_map(|line| CommitId::parse(line.split(' ').nth(1)?).ok());
        for (place, commit) in stashes.enumerate() {
            found.insert(format!("stash/{place}"), ("a stash".to_owned(), commit));
        }
        found
    }
}

/// The branches that stand in files of their own.
fn loose(heads: &AbsPath) -> Vec<(String, CommitId)> {
    let (mut folders, mut found) = (vec![heads.as_path().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
            if kind.is_dir() && folders.len() < MOST_REFS {
                folders.push(path);
            } else if kind.is_file()
                && found.len() < MOST_REFS
                && let Some(name) = path.strip_prefix(heads.as_path()).ok().and_then(Path::to_str)
                && let Ok(place) = AbsPath::new(&path)
                && let Ok(commit) = CommitId::parse(text(&place).trim())
            {
                found.push((name.to_owned(), commit));
            }
        }
    }
    found
}

fn text(file: &AbsPath) -> String {
    let bytes = files::read_plain(file.as_path(), LONGEST_REFS).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Worktree {
    /// Keeps on refs below `prefix` what an agent's git directory has beside the branch and what was shown there: branches, stashes, a
    /// head that stands apart. Its configuration is not read, and every object is hashed again.
    ///
    /// # Errors
    /// A sentence on why it cannot be kept; the directory is to stay then.
    pub async fn keep_left(
        &self,
        own: &SandboxGit,
        prefix: &str,
        shown: &[CommitId],
    ) -> Result<Vec<LeftRef>, String> {
        let words = |error: GitError| error.to_string();
        let head = self.head().await.map_err(words)?;
        let shown: Vec<CommitId> = shown.iter().cloned().chain(head).collect();
        let (source, prefix) = (own.clone(), prefix.to_owned());
        let borrowed = alternates(self.checkout().common_dir());
        let keep = move |repository: &git2::Repository| {
            let known = |commit: &CommitId| {
                shown.iter().any(|one| one == commit || contains(repository, one, commit).unwrap_or(false))
            };
            let left: Vec<_> =
                source.left().into_iter().filter(|(_, (_, commit))| !known(commit)).take(MOST_REFS).collect();
            if left.is_empty() {
                return Ok(Ok(Vec::new()));
            }
            if let Err(why) = copy_objects(&source, &borrowed, &repository.odb()?) {
                return Ok(Err(why));
            }
            let mut kept: Vec<LeftRef> = Vec::new();
            let mut held = BTreeSet::new();
            for (name, (what, commit)) in left {
                // A branch that is checked out is the head, too.
                if !held.insert(commit.to_string()) {
                    continue;
                }
                let reference = format!("{prefix}/{name}");
                if git2::Reference::is_valid_name(&reference) && repository.find_commit(oid(&commit)?).is_ok()
                {
                    repository.reference(&reference, oid(&commit)?, true, "left by an agent")?;
                    kept.push(LeftRef { what, reference });
                }
            }
            Ok(Ok(kept))
        };
        self.checkout().library(keep).await.map_err(words)?
    }

    /// Files of the work that have git's markers of a conflict.
    pub async fn with_markers(&self) -> Result<Vec<String>, GitError> {
        let changed = self.status().await?;
        let root = self.path().clone();
        let marked = move |path: &String| {
            let bytes = files::read_plain(root.join(path).as_path(), LARGEST_FILE).unwrap_or_default();
            bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(super::merge_base_in::MARKER))
        };
        let look = move || changed.into_iter().map(|file| file.path).filter(marked).collect();
        tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
    }

    /// Whether a commit was refused for such markers, and none was made since.
    pub fn had_markers(&self) -> bool {
        self.git_dir().join(MARKERS).as_path().exists()
    }

    /// Remembers that for the runs that follow: the git directory in which the operation is half done goes with its run.
    pub fn remember_markers(&self, are_there: bool) -> Result<(), FileError> {
        let file = self.git_dir().join(MARKERS);
        match are_there {
            true => files::write_private(file.as_path(), b""),
            false => files::remove_file(file.as_path()).map(drop),
        }
    }
}
