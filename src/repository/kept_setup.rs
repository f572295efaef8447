//! What setting a worktree up makes, kept for the next one (`worktree.keep_ignored`).
//!
//! It is copied at once after the setup, in a worktree whose files are those of the origin branch: nothing that an agent, or a
//! program that it starts, writes is ever in it. Another worktree gets a copy of its own.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use aho_corasick::AhoCorasick;

use super::context::RepositoryContext;
use crate::domain::canonical::{canonical_sha256, sha256_hex};
use crate::domain::name::CommitId;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::sys::files::{self, FileError, Removed};
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;

/// Says how much is kept, in the folder of it.
const COUNT: &str = "count";
/// Where a worktree's copy is made, in its administrative directory.
const COMING: &str = "agentd-setup";
/// Largest file that decides what the setup makes.
const LARGEST_INPUT: u64 = 64 * 1024 * 1024;

/// Where it is kept what the setup of a worktree makes.
pub(super) struct KeptSetup {
    /// All of the repository.
    all: PathBuf,
    /// One for each combination of commands and input files.
    name: String,
    folders: Vec<PathBuf>,
}

/// Why something is not kept.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(transparent)]
    Failed(#[from] FileError),
    #[error("{0} is no folder of the worktree")]
    NoFolder(PathBuf),
    #[error("{0} is a link to something outside of it")]
    Link(PathBuf),
    #[error("{0} names the worktree that it was made in")]
    Place(PathBuf),
    #[error("{0} is neither a file nor a folder nor a link")]
    Odd(PathBuf),
}

impl KeptSetup {
    /// Where it is for a worktree. `None`: nothing is to be kept, or not all of what decides it can be read.
    pub(super) async fn of(context: &RepositoryContext, worktree: &Worktree) -> Option<Self> {
        let settings = &context.config.worktree;
        if settings.keep_ignored.is_empty() {
            return None;
        }
        let mut inputs = Vec::with_capacity(settings.setup_inputs.len());
        for path in &settings.setup_inputs {
            let file = worktree.path().join(path);
            let content = match files::read_plain(file.as_path(), LARGEST_INPUT) {
                Some(content) => Some(content),
                None if file.as_path().symlink_metadata().is_ok() => return None,
                None => committed(worktree, path).await.ok()?,
            };
            inputs.push(content.map(|content| sha256_hex(&content)));
        }
        let (setup, copy, kept) = (&settings.setup, &settings.copy, &settings.keep_ignored);
        let name = canonical_sha256(&(setup, copy, kept, &settings.setup_inputs, inputs)).ok()?;
        let all = context.state.repo(&context.repo).join("setup");
        Some(Self { all, name, folders: settings.keep_ignored.clone() })
    }

    /// Copies what is kept into a worktree. False: there is nothing, or it does not fit there.
    pub(super) async fn bring(&self, worktree: &Worktree) -> Result<bool, GitError> {
        let kept = self.all.join(&self.name);
        let Ok(count) = fs::read_to_string(kept.join(COUNT)) else { return Ok(false) };
        for folder in &self.folders {
            // With the slash, patterns for folders count although it is not there.
            let ignored = worktree.ignores(&format!("{}/", folder.display())).await?;
            let place = worktree.path().join(folder);
            if !ignored
                || !stands_in_folders(worktree.path(), folder)
                || place.as_path().symlink_metadata().is_ok()
            {
                return Ok(false);
            }
        }
        let (root, coming) = (worktree.path().clone(), worktree.git_dir().join(COMING));
        let folders = self.folders.clone();
        blocking(move || {
            // Half of what a killed process brought.
            files::remove_dir(coming.as_path())?;
            let copied = (0..folders.len())
                .try_for_each(|number| copy(&named(&kept, number), &named(coming.as_path(), number), None));
            let whole = copied.is_ok() && told(files::measure(coming.as_path())) == count;
            if whole {
                for (number, folder) in folders.iter().enumerate() {
                    files::rename(&named(coming.as_path(), number), root.join(folder).as_path())?;
                }
            }
            files::remove_dir(coming.as_path())?;
            Ok(whole)
        })
        .await
    }

    /// Keeps what was just made in a worktree, if its files are those of the commit `base`; what was kept before goes.
    pub(super) async fn keep(&self, worktree: &Worktree, base: &CommitId) -> Result<(), GitError> {
        if worktree.head().await?.as_ref() != Some(base) {
            return Ok(());
        }
        if !worktree.is_clean().await? {
            let why = "it changed files of the repository, or left new ones that are not ignored";
            tracing::warn!(why, "what setting the worktree up made is not kept for the next one");
            return Ok(());
        }
        let (all, name, folders) = (self.all.clone(), self.name.clone(), self.folders.clone());
        let root = worktree.path().clone();
        blocking(move || {
            files::create_private_dir(&all)?;
            let Some(_alone) = Turn::wait(&all.join("lock"), Duration::ZERO)? else { return Ok(()) };
            // Of others, and of killed processes. Whoever copies from one sees at its end that not all was there.
            for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    files::remove_dir(&entry.path())?;
                }
            }
            let new = all.join("new");
            let copied = folders.iter().enumerate().try_for_each(|(number, folder)| {
                let from = root.join(folder);
                if !stands_in_folders(&root, folder) || !is_folder(from.as_path()) {
                    return Err(NotKept::NoFolder(folder.clone()));
                }
                copy(from.as_path(), &named(&new, number), Some(&root))
            });
            if let Err(why) = copied {
                tracing::warn!(%why, "what setting the worktree up made is not kept for the next one");
                files::remove_dir(&new)?;
                return Ok(());
            }
            let count = told(files::measure(&new));
            files::write_private(&new.join(COUNT), count.as_bytes())?;
            files::rename(&new, &all.join(name))
        })
        .await
    }
}

/// A file that is not in the worktree, as the worktree's commit has it: a sparse checkout leaves files out.
async fn committed(worktree: &Worktree, path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    let Some(head) = worktree.head().await? else { return Ok(None) };
    let tree = worktree.checkout().tree_of_commit(&head).await?;
    let found = worktree.checkout().tree_blob(&tree, &path.to_string_lossy()).await?;
    Ok(found.map(|(_, content)| content))
}

fn named(folder: &Path, number: usize) -> PathBuf {
    folder.join(number.to_string())
}

fn told(measured: Removed) -> String {
    format!("{} files, {} bytes\n", measured.files, measured.bytes)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, GitError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))?;
    Ok(done?)
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// Whether everything above a path in the worktree is a folder, and not a link that leads elsewhere.
fn stands_in_folders(root: &AbsPath, path: &Path) -> bool {
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.iter().all(|folder| is_folder(root.join(folder).as_path()))
}

/// Copies a folder with everything in it; links as links. With `place`, refuses what would lead back to that worktree.
fn copy(from: &Path, to: &Path, place: Option<&AbsPath>) -> Result<(), NotKept> {
    let named = place.map(|place| AhoCorasick::new([place.to_string()]));
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        files::create_dir(&to.join(&below))?;
        let unread = |error| FileError::new("read", &from.join(&below), error);
        for entry in fs::read_dir(from.join(&below)).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let (path, here) = (below.join(entry.file_name()), entry.path());
            let kind = entry.file_type().map_err(unread)?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&here).map_err(unread)?;
                if place.is_some() && !stays_inside(&below, &target) {
                    return Err(NotKept::Link(here));
                }
                files::link(&target, &to.join(&path))?;
            } else if kind.is_file() {
                if let Some(Ok(named)) = &named
                    && named.is_match(&fs::read(&here).map_err(unread)?)
                {
                    return Err(NotKept::Place(here));
                }
                files::copy_new(&here, &to.join(&path))?;
            } else {
                return Err(NotKept::Odd(here));
            }
        }
    }
    Ok(())
}

/// Whether a link in the folder `below` leads to something in what is copied.
fn stays_inside(below: &Path, target: &Path) -> bool {
    let mut depth = below.components().count();
    target.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        _ => false,
    })
}
