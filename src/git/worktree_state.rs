//! The state of the place for a worktree, read from files only, before anything is changed.

use std::fs;
use std::io;
use std::path::Path;

use super::checkout::Checkout;
use super::error::GitError;
use crate::domain::name::{BranchName, CommitId};
use crate::sys::paths::AbsPath;

/// The folder of the members of a pool, below the folder of the worktrees.
pub(super) const POOL_FOLDER: &str = ".pool";
/// Begins the names of its members.
pub(super) const MEMBER: &str = "pool-";
/// Stands in the administrative directory of a worktree that agentd made. It goes with it.
pub(super) const MADE: &str = "agentd-made";
/// This file is in the administrative directory while files are checked out. If it is found later, the checkout is
/// repeated. Once that is done, it is what says that agentd made the worktree.
pub(super) const PREPARING: &str = "agentd-preparing";

/// Git's administrative entry of a linked worktree, `<common>/worktrees/<id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's directory.
    pub dir: AbsPath,
    /// The worktree it is for, where it says so.
    pub path: Option<AbsPath>,
    /// What HEAD says.
    pub head: Head,
    /// Why it is locked, where it is.
    pub locked: Option<String>,
}

/// What a HEAD file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head {
    /// On a branch, by full ref name.
    Branch(String),
    /// On a commit.
    Detached(String),
    /// Unreadable, or not written yet.
    Broken,
}

impl Entry {
    /// Whether agentd made its worktree.
    pub(super) fn is_made(&self) -> bool {
        self.dir.join(MADE).as_path().exists()
    }

    /// Whether agentd has begun to make its worktree, and the files are not all there.
    pub(super) fn is_preparing(&self) -> bool {
        self.dir.join(PREPARING).as_path().exists()
    }

    /// Left by a `git worktree add` that was killed.
    pub(super) fn half_made(&self) -> bool {
        self.locked.as_deref() == Some("initializing")
    }

    /// Whether the folder at `path` is its worktree, as the folder says itself, wherever it was then.
    pub(super) fn is_of(&self, path: &AbsPath) -> bool {
        let link = fs::read_to_string(path.join(".git").as_path()).unwrap_or_default();
        let Some(named) = link.strip_prefix("gitdir:").map(|named| Path::new(named.trim())) else {
            return false;
        };
        let of = |path: &Path| path.parent().and_then(Path::file_name).map(ToOwned::to_owned);
        !named.exists()
            && named.file_name() == self.dir.as_path().file_name()
            && of(named) == of(self.dir.as_path())
    }

    /// Whether its worktree exists, or a person has locked it because it will come back.
    pub(super) fn is_alive(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.as_path().exists())
            || (self.locked.is_some() && !self.half_made())
    }

    /// The last commit that it stood on, as its log says.
    pub(super) fn last_commit(&self) -> Option<CommitId> {
        let log = fs::read_to_string(self.dir.join("logs").join("HEAD").as_path()).ok()?;
        CommitId::parse(log.lines().last()?.split(' ').nth(1)?).ok()
    }

    /// Whether it stands on this branch.
    pub(super) fn is_on(&self, branch: &BranchName) -> bool {
        self.head == Head::Branch(branch.full())
    }

    /// An unfinished operation of git in the worktree, by the name of its state file.
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        [("rebase-merge", "rebase"), ("rebase-apply", "rebase"), ("BISECT_LOG", "bisect")]
            .into_iter()
            .find(|(file, _)| self.dir.join(file).as_path().exists())
            .map(|(_, name)| name)
    }

    /// The same of what ends with a commit on the branch. agentd makes merges, too, and commits them with the work that
    /// follows.
    pub(super) fn unfinished_commit(&self) -> Option<&'static str> {
        [("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")]
            .into_iter()
            .find(|(file, _)| self.dir.join(file).as_path().exists())
            .map(|(_, name)| name)
    }
}

/// What is found at the worktree's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or an empty directory.
    Free,
    /// A file, a link, or another special thing.
    NotADirectory,
    /// A directory that has nothing to do with git.
    Foreign,
    /// A repository of its own.
    Repository,
    /// A worktree of another repository.
    OtherRepository(String),
    /// A directory whose `.git` points into this repository, to an entry that exists or that existed.
    Ours(AbsPath),
}

pub(super) fn found_at(checkout: &Checkout, path: &AbsPath) -> io::Result<Found> {
    let meta = match path.as_path().symlink_metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Free),
        Err(error) => return Err(error),
    };
    if !meta.is_dir() {
        return Ok(Found::NotADirectory);
    }
    let link = path.join(".git");
    match link.as_path().symlink_metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Ok(Found::Repository),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let empty = fs::read_dir(path.as_path())?.next().is_none();
            return Ok(if empty { Found::Free } else { Found::Foreign });
        }
        Err(error) => return Err(error),
    }
    let text = fs::read_to_string(link.as_path()).unwrap_or_default();
    if text.is_empty() && is_empty_file(&link) {
        // A git was killed after it made its `.git` file and before it wrote it. The file is empty.
        let alone = fs::read_dir(path.as_path())?.nth(1).is_none();
        return Ok(if alone { Found::Free } else { Found::Foreign });
    }
    let Some(target) = text.trim_end().strip_prefix("gitdir: ") else { return Ok(Found::Repository) };
    let target = path.join(target);
    let target = target.canonical().unwrap_or(target);
    let entries = checkout.common_dir().join("worktrees");
    let entries = entries.canonical().unwrap_or(entries);
    if target.parent().is_some_and(|parent| parent == entries) {
        return Ok(Found::Ours(target));
    }
    match moved_along(checkout, path, &target) {
        Some(entry) => Ok(Found::Ours(entry)),
        None => Ok(Found::OtherRepository(target.to_string())),
    }
}

/// The repository's entry of a worktree that was moved together with it: link and entry both name the old place, which is gone.
fn moved_along(checkout: &Checkout, path: &AbsPath, target: &AbsPath) -> Option<AbsPath> {
    if target.as_path().exists() {
        return None;
    }
    let entry = checkout.common_dir().join("worktrees").join(target.as_path().file_name()?);
    let old_root = target.parent()?.parent()?.parent()?;
    let inside = path.as_path().strip_prefix(checkout.root().as_path()).ok()?;
    let named = read(entry.clone()).path?;
    (entry.as_path().is_dir() && named == old_root.join(inside)).then_some(entry)
}

/// Whether it is a file without a byte.
pub(super) fn is_empty_file(file: &AbsPath) -> bool {
    file.as_path().symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// All entries of the repository.
pub(super) fn entries(checkout: &Checkout) -> Result<Vec<Entry>, GitError> {
    let folder = checkout.common_dir().join("worktrees");
    let mut found = Vec::new();
    let listing = match fs::read_dir(folder.as_path()) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(Checkout::file_error("read", &folder, error)),
    };
    for entry in listing.flatten() {
        let dir = folder.join(entry.file_name());
        if dir.as_path().is_dir() {
            found.push(read(dir));
        }
    }
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(found)
}

fn read(dir: AbsPath) -> Entry {
    let text =
        |name: &str| fs::read_to_string(dir.join(name).as_path()).ok().map(|text| text.trim_end().to_owned());
    // `gitdir` holds the path of the worktree's `.git`, absolute or relative to the entry.
    let path = text("gitdir").filter(|text| !text.is_empty()).and_then(|link| dir.join(link).parent());
    let path = path.map(|path| resolved(&path));
    let head = match text("HEAD") {
        Some(text) => match text.strip_prefix("ref: ") {
            Some(full) => Head::Branch(full.to_owned()),
            // What git writes first when it makes a worktree. It is replaced later.
            None if text.bytes().all(|b| b == b'0') => Head::Broken,
            None if text.len() >= 40 && text.bytes().all(|b| b.is_ascii_hexdigit()) => Head::Detached(text),
            None => Head::Broken,
        },
        None => Head::Broken,
    };
    Entry { path, head, locked: text("locked"), dir }
}

/// Whether a worktree is a member of the pool below `root`. One of another name is a person's.
pub(super) fn is_member(root: &AbsPath, place: &AbsPath) -> bool {
    let name = place.as_path().file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(MEMBER)
        && place.parent().is_some_and(|parent| parent == resolved(root).join(POOL_FOLDER))
}

/// With links resolved, as far as it exists.
pub(super) fn resolved(path: &AbsPath) -> AbsPath {
    if let Ok(real) = path.canonical() {
        return real;
    }
    match (path.parent(), path.as_path().file_name()) {
        (Some(parent), Some(name)) => resolved(&parent).join(Path::new(name)),
        _ => path.clone(),
    }
}
