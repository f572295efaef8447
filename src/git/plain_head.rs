//! At which commit a repository stands, read without running git in its folder.

use std::fs;

use crate::domain::name::CommitId;
use crate::sys::paths::AbsPath;

/// Longest file of a repository that says where it stands.
const LONGEST_HEAD: u64 = 4096;
/// Longest list of a repository's refs.
const LONGEST_REFS: u64 = 4 << 20;

/// The commit of a repository's HEAD, from plain files only. Its configuration is not read, no link is followed, and
/// git is not run.
pub(super) fn plain_head(git_dir: &AbsPath) -> Option<CommitId> {
    let read = |path: &str, longest: u64| {
        let path = git_dir.join(path);
        let plain =
            path.as_path().symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() < longest);
        let text = if plain { fs::read_to_string(path.as_path()).ok() } else { None };
        text.map(|text| text.trim().to_owned())
    };
    let head = read("HEAD", LONGEST_HEAD)?;
    let Some(name) = head.strip_prefix("ref: ") else { return CommitId::parse(&head).ok() };
    let known = name.starts_with("refs/heads/")
        && !name.split('/').any(|part| matches!(part, ".." | "." | ""))
        && !name.contains('\0');
    if !known {
        return None;
    }
    let found = read(name, LONGEST_HEAD).or_else(|| {
        let packed = read("packed-refs", LONGEST_REFS)?;
        packed.lines().find_map(|entry| entry.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned))
    });
    CommitId::parse(&found?).ok()
}

/// The commit of the repository in a submodule's folder.
pub fn commit_in(folder: &AbsPath) -> Option<CommitId> {
    let link = folder.join(".git");
    let meta = link.as_path().symlink_metadata().ok()?;
    if meta.is_dir() {
        return plain_head(&link);
    }
    if !meta.is_file() || meta.len() >= LONGEST_HEAD {
        return None;
    }
    let text = fs::read_to_string(link.as_path()).ok()?;
    plain_head(&folder.join(text.trim_end().strip_prefix("gitdir: ")?))
}
