//! What stands as `.git` in the folders of submodules. Whoever runs git in a worktree, and an editor or a prompt does, has git enter
//! them, and do there what the configuration says that it finds: that is git's own, or none.

use std::path::{Component, Path, PathBuf};

use git2::Repository;

use super::error::GitError;
use super::uncarried::repository_of;
use super::worktree::Worktree;
use crate::sys::files::{self, FileError};

/// What programs made is moved to this folder of the worktree's administrative directory, so that nothing of it is lost and git does
/// not enter it; and has this name in the submodule's folder, where that is on another file system.
const ASIDE: &str = "git-of-a-program";
/// The mode of a submodule in an index.
const LINK: u32 = 0o160_000;
/// Longest file that says where a repository is.
const LONGEST: u64 = 1 << 16;

impl Worktree {
    /// Puts aside each `.git` in a submodule's folder that is not git's own link, and writes that link again where git has the
    /// repository. Gives the folders in which something was put aside.
    pub async fn own_submodule_links(&self) -> Result<Vec<PathBuf>, GitError> {
        let found = self.submodules().await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let (root, modules) = (self.path().as_path().to_owned(), self.git_dir().join("modules"));
        let place = self.git_dir().join(ASIDE).as_path().to_owned();
        let work = move || {
            let modules = modules.as_path().canonicalize().ok();
            let mut open: Vec<PathBuf> = found.into_iter().map(|(path, _)| PathBuf::from(path)).collect();
            let mut aside = Vec::new();
            while let Some(path) = open.pop() {
                let Some(folder) = folder_of(&root, &path) else { continue };
                let repository = modules.as_deref().and_then(|modules| repository_of(modules, &folder));
                if put_right((&folder, &place), modules.as_deref(), repository.as_ref())? {
                    aside.push(path.clone());
                }
                open.extend(repository.iter().flat_map(links).map(|below| path.join(below)));
            }
            aside.sort();
            Ok::<_, FileError>(aside)
        };
        let done =
            tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))?;
        Ok(done?)
    }
}

/// The real folder of a path in the worktree; `None`: there is none, or it is reached by a link, which git does not follow.
fn folder_of(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut place = root.canonicalize().ok()?;
    for part in path.components() {
        let Component::Normal(name) = part else { return None };
        place.push(name);
        if !place.symlink_metadata().ok()?.is_dir() {
            return None;
        }
    }
    Some(place)
}

/// Submodules of a repository.
pub(super) fn links(repository: &Repository) -> Vec<PathBuf> {
    let index = repository.index().ok();
    let entries = index.iter().flat_map(git2::Index::iter).filter(|entry| entry.mode == LINK);
    entries.filter_map(|entry| String::from_utf8(entry.path).ok()).map(PathBuf::from).collect()
}

/// True: something was put aside.
fn put_right(
    (folder, place): (&Path, &Path),
    modules: Option<&Path>,
    repository: Option<&Repository>,
) -> Result<bool, FileError> {
    let link = folder.join(".git");
    let is_there = link.symlink_metadata().is_ok();
    if is_there && modules.is_some_and(|modules| leads_into(&link, folder, modules)) {
        return Ok(false);
    }
    if is_there {
        files::create_private_dir(place)?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files::rename(&link, &free(place, &name)).or_else(|_| files::rename(&link, &free(folder, ASIDE)))?;
    }
    if let Some(repository) = repository {
        files::write_public(&link, format!("gitdir: {}\n", repository.path().display()).as_bytes())?;
    }
    Ok(is_there)
}

/// A path in a folder that nothing has.
fn free(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.join(name);
    for number in 2.. {
        if path.symlink_metadata().is_err() {
            break;
        }
        path = folder.join(format!("{name}-{number}"));
    }
    path
}

/// Whether a `.git` is a file that leads to a repository of git's own for this worktree's submodules.
fn leads_into(link: &Path, folder: &Path, modules: &Path) -> bool {
    let text = files::read_plain(link, LONGEST).and_then(|bytes| String::from_utf8(bytes).ok());
    let place = text.as_deref().and_then(|text| text.strip_prefix("gitdir: ")).map(str::trim_end);
    let place = place.and_then(|place| folder.join(place).canonicalize().ok());
    place.is_some_and(|place| place.starts_with(modules))
}
