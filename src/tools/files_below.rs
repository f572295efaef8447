//! The files of a worktree that are not ignored, in a fixed order.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::ToolWorld;
use crate::domain::denied_files::DeniedFiles;
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

/// Whether a folder's `.gitignore` is a file of a size that people write, or is not there.
fn has_plain_rules(folder: &Path) -> bool {
    match folder.join(".gitignore").symlink_metadata() {
        Ok(meta) => meta.is_file() && meta.len() <= LARGEST_RULES,
        Err(_) => true,
    }
}

/// Visits files in and below `start` until `visit` gives false. Denied files are left out; how many is given. `.gitignore` files of the worktree count, those of
/// directories above it do not: the worktree may stand inside the main checkout, which ignores it.
pub(super) fn visit(
    world: &ToolWorld,
    start: &WorktreePath,
    denied: &DeniedFiles,
    mut visit: impl FnMut(Found) -> bool,
) -> u64 {
    let mut left_out = 0;
    let root = world.root.path().as_path().to_owned();
    let start: PathBuf = start.absolute().as_path().to_owned();
    let mut walk = WalkBuilder::new(&root);
    walk.parents(false).hidden(false).ignore(false).git_global(false).git_exclude(false).require_git(false);
    walk.git_ignore(has_plain_rules(&root));
    walk.follow_links(false).sort_by_file_name(std::ffi::OsStr::cmp);
    walk.filter_entry(move |entry| {
        let name = entry.file_name().to_string_lossy();
        // It is read before its folder is: an endless one would never be, and a pipe holds the reader.
        if entry.file_type().is_some_and(|kind| kind.is_dir()) && !has_plain_rules(entry.path()) {
            return false;
        }
        let on_the_way = start.starts_with(entry.path()) || entry.path().starts_with(&start);
        on_the_way && !name.eq_ignore_ascii_case(".git") && !name.starts_with(TEMPORARY_PREFIX)
    });
    for entry in walk.build().flatten() {
        let Some(kind) = entry.file_type() else { continue };
        let Ok(relative) = entry.path().strip_prefix(&root) else { continue };
        if kind.is_dir() || relative.as_os_str().is_empty() {
            continue;
        }
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let path = parts.join("/");
        if denied.contains(&path) {
            left_out += 1;
        } else if !visit(Found { path, link: kind.is_symlink() }) {
            break;
        }
    }
    left_out
}
