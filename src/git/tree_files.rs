//! Files of a commit that are found by their name, wherever they stand.

use git2::{Oid, Repository, Tree};

use super::blob::bounded_blob;
use super::checkout::{Checkout, oid};
use super::error::GitError;
use crate::domain::name::CommitId;

/// Folders below folders that are looked into.
const DEEPEST: usize = 64;
/// Files that are given at most.
const MOST: usize = 500;
/// The longest text of one file, in bytes.
const LONGEST: usize = 256 * 1024;
/// Links after links that are followed.
const MOST_LINKS: usize = 8;
const LINK: i32 = 0o120_000;
const FOLDER: i32 = 0o040_000;
const SUBMODULE: i32 = 0o160_000;

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path.
    pub path: String,
    /// What is there.
    pub found: TreeEntry,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEntry {
    /// A text; `at` is the path at which it stands, behind all links.
    Text {
        /// The path.
        at: String,
        /// The text, cut to a bound.
        text: String,
    },
    /// A link that leads out of the tree, or nowhere.
    LeadsOut {
        /// What the link says.
        target: String,
    },
}

impl Checkout {
    /// The files of a commit that `wanted` names by their path, in the order of paths. Links within the tree are followed,
    /// others are not.
    pub async fn tree_files(
        &self,
        commit: &CommitId,
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Vec<TreeFile>, GitError> {
        let commit = commit.clone();
        self.library(move |repository| {
            let missing = |_| GitError::Missing { what: format!("commit {commit}") };
            let tree = repository.find_commit(oid(&commit)?).map_err(missing)?.tree()?;
            let mut paths = Vec::new();
            collect(repository, &tree, "", 0, &wanted, &mut paths)?;
            paths.sort();
            paths.into_iter().filter_map(|path| file(repository, &tree, path).transpose()).collect()
        })
        .await
    }
}

fn collect(
    repository: &Repository,
    tree: &Tree<'_>,
    folder: &str,
    depth: usize,
    wanted: &dyn Fn(&str) -> bool,
    paths: &mut Vec<String>,
) -> Result<(), GitError> {
    for entry in tree {
        let Ok(name) = entry.name() else { continue };
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        match entry.filemode_raw() {
            FOLDER if depth < DEEPEST && paths.len() < MOST => {
                collect(repository, &repository.find_tree(entry.id())?, &path, depth + 1, wanted, paths)?;
            }
            FOLDER | SUBMODULE => {}
            _ if paths.len() < MOST && wanted(&path) => paths.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// The file at a path; `None` = it is no text.
fn file(repository: &Repository, root: &Tree<'_>, path: String) -> Result<Option<TreeFile>, GitError> {
    let mut at = path.clone();
    for _ in 0..MOST_LINKS {
        let Some((id, mode)) = entry(root, &at)? else {
            let found = TreeEntry::LeadsOut { target: at };
            return Ok(Some(TreeFile { path, found }));
        };
        if mode == FOLDER || mode == SUBMODULE {
            return Ok(None);
        }
        let bytes = match bounded_blob(repository, id, &at) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(GitError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if mode != LINK {
            if bytes.contains(&0) {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned();
            return Ok(Some(TreeFile { path, found: TreeEntry::Text { at, text } }));
        }
        let target = String::from_utf8_lossy(&bytes).into_owned();
        match followed(&at, &target) {
            Some(next) => at = next,
            None => return Ok(Some(TreeFile { path, found: TreeEntry::LeadsOut { target } })),
        }
    }
    Ok(Some(TreeFile { path, found: TreeEntry::LeadsOut { target: at } }))
}

fn entry(root: &Tree<'_>, path: &str) -> Result<Option<(Oid, i32)>, GitError> {
    match root.get_path(std::path::Path::new(path)) {
        Ok(entry) => Ok(Some((entry.id(), entry.filemode_raw()))),
        Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where a link at `path` leads; `None` = out of the tree.
fn followed(path: &str, target: &str) -> Option<String> {
    if target.starts_with('/') || target.is_empty() {
        return None;
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_within_the_tree_are_followed_and_others_are_not() {
        assert_eq!(followed("CLAUDE.md", "AGENTS.md").as_deref(), Some("AGENTS.md"));
        assert_eq!(followed("a/b/CLAUDE.md", "../../AGENTS.md").as_deref(), Some("AGENTS.md"));
        assert_eq!(followed("a/CLAUDE.md", "./x/../b.md").as_deref(), Some("a/b.md"));
        for out in ["/etc/passwd", "../x", "a/../../x", "", ".."] {
            assert_eq!(followed("CLAUDE.md", out), None, "{out}");
        }
    }
}
