//! The files of a worktree that are not ignored, in a fixed order.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::ToolWorld;
use crate::domain::denied_files::DeniedFiles;
use crate::sys::folder::{EntryKind, Folder, FolderEntry};
use crate::sys::worktree_path::{TEMPORARY_PREFIX, WorktreePath};

/// A file or link, relative to the worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// With `/`.
    pub path: String,
    /// A symbolic link; it is not followed.
    pub link: bool,
}

/// Largest `.gitignore` that is read.
const LARGEST_RULES: u64 = 1 << 20;
/// Folders above a file at most: each of them is open meanwhile.
const DEEPEST: usize = 256;

/// A folder on the way to what is visited.
struct Level {
    folder: Folder,
    /// From the worktree's folder.
    path: PathBuf,
    rules: Gitignore,
    left: std::vec::IntoIter<FolderEntry>,
}

impl Level {
    /// `None`: it cannot be read, or its `.gitignore` is not a file of a size that people write.
    fn open(folder: Folder, path: PathBuf) -> Option<Self> {
        let rules = rules_of(&folder)?;
        let left = folder.entries().ok()?.into_iter();
        Some(Self { folder, path, rules, left })
    }

    /// The worktree's folder itself is looked at whatever its `.gitignore` is.
    fn first(folder: Folder) -> Option<Self> {
        let rules = rules_of(&folder).unwrap_or_else(Gitignore::empty);
        let left = folder.entries().ok()?.into_iter();
        Some(Self { folder, path: PathBuf::new(), rules, left })
    }
}

/// What the folder's `.gitignore` says. An endless one would never be read, a pipe would hold the reader, and git follows no link there.
fn rules_of(folder: &Folder) -> Option<Gitignore> {
    let name = ".gitignore".as_ref();
    if folder.kind(name).is_none() {
        return Some(Gitignore::empty());
    }
    let file = folder.file(name).ok()?;
    file.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= LARGEST_RULES)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_RULES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut rules = GitignoreBuilder::new("");
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern counts as none, as for git.
        let _ = rules.add_line(None, line);
    }
    rules.build().ok()
}

/// Whether the nearest rule above says that this is ignored.
fn is_ignored(levels: &[Level], path: &Path, is_folder: bool) -> bool {
    for level in levels.iter().rev() {
        let Ok(below) = path.strip_prefix(&level.path) else { continue };
        let said = level.rules.matched(below, is_folder);
        if !said.is_none() {
            return said.is_ignore();
        }
    }
    false
}

/// Visits files in and below `start` until `visit` gives false. Denied files are left out; how many is given. `.gitignore` files of the worktree count, those of
/// directories above it do not: the worktree may stand inside the main checkout, which ignores it. Links are never followed, whenever
/// they were put there.
pub(super) fn visit(
    world: &ToolWorld,
    start: &WorktreePath,
    denied: &DeniedFiles,
    mut visit: impl FnMut(Found) -> bool,
) -> u64 {
    let mut left_out = 0;
    let named = start.relative();
    let start: Vec<OsString> =
        Path::new(&named).iter().filter(|part| *part != ".").map(OsString::from).collect();
    let mut levels: Vec<Level> =
        Folder::open(world.root.path()).ok().and_then(Level::first).into_iter().collect();
    while let Some(level) = levels.last_mut() {
        let Some(FolderEntry { name, kind }) = level.left.next() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(&name);
        let shown = name.to_string_lossy();
        let on_the_way = start.get(levels.len() - 1).is_none_or(|part| *part == name);
        if !on_the_way || shown.eq_ignore_ascii_case(".git") || shown.starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        if is_ignored(&levels, &path, kind == EntryKind::Folder) {
            continue;
        }
        match kind {
            EntryKind::Folder => {
                let below = levels.last().filter(|_| levels.len() < DEEPEST);
                let below = below.and_then(|level| level.folder.folder(&name).ok());
                levels.extend(below.and_then(|folder| Level::open(folder, path)));
            }
            // There is nothing below a file.
            EntryKind::File | EntryKind::Link | EntryKind::Other if levels.len() < start.len() => {}
            EntryKind::File | EntryKind::Link | EntryKind::Other => {
                let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
                let path = parts.join("/");
                if denied.contains(&path) {
                    left_out += 1;
                } else if !visit(Found { path, link: kind == EntryKind::Link }) {
                    break;
                }
            }
        }
    }
    left_out
}
