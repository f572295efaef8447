//! Compares two trees after counting their differences, because a few objects can have more paths than there is memory
//! for.

use std::collections::BTreeMap;

use git2::{Diff, DiffOptions, Oid, Repository, Tree};

use super::error::GitError;

/// Bytes of paths that differ, and what each costs beside.
const MOST: usize = 64 << 20;
const EACH: usize = 64;
/// The modes that git writes. The library ends its thread at any other mode.
const FOLDER: i32 = 0o040_000;
const OTHERS: [i32; 5] = [0o100_644, 0o100_664, 0o100_755, 0o120_000, 0o160_000];

/// What differs between two trees.
pub(super) fn tree_diff<'r>(
    repository: &'r Repository,
    old: Option<&Tree<'r>>,
    new: Option<&Tree<'r>>,
    options: &mut DiffOptions,
) -> Result<Diff<'r>, GitError> {
    let mut left = MOST;
    // Trees by id, and the length of the path at which they stand.
    let mut open = vec![(old.map(Tree::id), new.map(Tree::id), 0_usize)];
    while let Some((old, new, length)) = open.pop() {
        let mut names: BTreeMap<Vec<u8>, [Option<(Oid, i32)>; 2]> = BTreeMap::new();
        for (side, id) in [old, new].into_iter().enumerate() {
            let Some(id) = id else { continue };
            for entry in &repository.find_tree(id)? {
                let found = (entry.id(), entry.filemode_raw());
                let name = entry.name_bytes();
                // Two entries of one name would count as one here but not in the comparison.
                if names.entry(name.to_vec()).or_default()[side].replace(found).is_some() {
                    return Err(GitError::TwoEntries { name: String::from_utf8_lossy(name).into_owned() });
                }
            }
        }
        for (name, sides) in names.into_iter().filter(|(_, [old, new])| old != new) {
            let length = length + 1 + name.len();
            left = left.checked_sub(length + EACH).ok_or(GitError::TooManyPaths)?;
            if let Some((_, mode)) =
                sides.iter().flatten().find(|(_, mode)| *mode != FOLDER && !OTHERS.contains(mode))
            {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(GitError::OddEntry { name, mode: *mode });
            }
            let [old, new] = sides.map(|side| side.filter(|(_, mode)| *mode == FOLDER).map(|(id, _)| id));
            if old.is_some() || new.is_some() {
                open.push((old, new, length));
            }
        }
    }
    Ok(repository.diff_tree_to_tree(old, new, Some(options))?)
}
