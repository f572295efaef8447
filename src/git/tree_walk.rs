//! The entries of a tree and of all below it, whatever bytes their names are.

use std::ops::ControlFlow;

use git2::{ObjectType, Repository, Tree, TreeEntry};

use super::error::GitError;

/// Shows each entry with the path of its folder, which ends with `/` unless it is empty: folders before what is in them. `Break` = nothing
/// more is wanted.
pub(super) fn walk(
    repository: &Repository,
    root: Tree<'_>,
    mut visit: impl FnMut(&[u8], &TreeEntry<'_>) -> ControlFlow<()>,
) -> Result<(), GitError> {
    let mut open = vec![(Vec::new(), root.id())];
    while let Some((folder, id)) = open.pop() {
        let tree = repository.find_tree(id)?;
        let mut below = Vec::new();
        for entry in &tree {
            if visit(&folder, &entry).is_break() {
                return Ok(());
            }
            if entry.kind() == Some(ObjectType::Tree) {
                below.push(([&folder, entry.name_bytes(), b"/"].concat(), entry.id()));
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(())
}
