//! Stores files of a worktree in the repository without git, where git would store them as they are.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use git2::{AttrCheckFlags, AttrValue, Index, ObjectType, Oid, Repository, Tree};

use super::blob::LARGEST_FILE;
use super::differences::{as_path, mode_of};
use super::not_taken::may_be_named;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Attributes by which git stores something else than what is in the file.
const CONVERTING: [&str; 3] = ["filter", "ident", "working-tree-encoding"];
/// Settings by which files, times or names mean something else to git, and what they are without being set. With another
/// value it is git that looks.
const EXPECTED: [(&str, bool); 5] = [
    ("core.filemode", true),
    ("core.symlinks", true),
    ("core.trustctime", true),
    ("core.ignorecase", false),
    ("core.precomposeunicode", false),
];
const FOLDER: i32 = 0o040_000;
const SUBMODULE: i32 = 0o160_000;

/// What becomes of a path: an object with its mode, or nothing.
pub(super) type Edit = (Vec<u8>, Option<(Oid, u32)>);

/// A worktree's repository, opened for storing. Whatever fails here is a `None`: git then does it, and says what is wrong.
pub(super) struct PlainStore {
    root: AbsPath,
    excluded: AbsPath,
    repository: Repository,
    excluding: Repository,
    /// The patterns that `excluding` has.
    patterns: String,
}

/// The repository of a worktree, kept open from one use to the next.
#[derive(Default)]
pub(super) struct KeptOpen(Mutex<Option<PlainStore>>);

impl fmt::Debug for KeptOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptOpen")
    }
}

impl KeptOpen {
    /// Uses it as [`PlainStore::open`] would open it now. Who comes meanwhile opens one for itself.
    pub(super) fn with<T>(
        &self,
        (git_dir, root, excluded): (&AbsPath, &AbsPath, &AbsPath),
        work: impl FnOnce(&PlainStore) -> Option<T>,
    ) -> Option<T> {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().take();
        let store = match known.and_then(PlainStore::brought_up_to_now) {
            Some(store) => store,
            None => PlainStore::open(git_dir, root, excluded)?,
        };
        let done = work(&store);
        *kept() = Some(store);
        done
    }
}

impl PlainStore {
    /// Opens it. `excluded`: the patterns of files that agentd excludes.
    fn open(git_dir: &AbsPath, root: &AbsPath, excluded: &AbsPath) -> Option<Self> {
        let open = || {
            let repository = Repository::open(git_dir.as_path()).ok()?;
            // Attributes are read from files only. Without this the whole index would be read as well.
            repository.set_index(&mut Index::new().ok()?).ok()?;
            Some(repository)
        };
        let (repository, excluding, patterns) = (open()?, open()?, String::new());
        Self { root: root.clone(), excluded: excluded.clone(), repository, excluding, patterns }
            .brought_up_to_now()
    }

    /// The library sees by itself what has changed of settings, refs, objects and lists of patterns. Here is looked at what it was
    /// opened with.
    fn brought_up_to_now(mut self) -> Option<Self> {
        let place = AbsPath::new(self.repository.workdir()?).ok()?.canonical().ok()?;
        if place != self.root.canonical().ok()? {
            return None;
        }
        let config = self.repository.config().ok()?.snapshot().ok()?;
        for (key, expected) in EXPECTED {
            match config.get_bool(key) {
                Ok(value) if value == expected => {}
                Err(error) if error.code() == git2::ErrorCode::NotFound => {}
                _ => return None,
            }
        }
        if config.get_str("core.checkstat").is_ok_and(|how| how != "default") {
            return None;
        }
        let patterns = std::fs::read_to_string(self.excluded.as_path()).ok()?;
        if patterns != self.patterns {
            self.excluding.clear_ignore_rules().ok()?;
            self.excluding.add_ignore_rule(&patterns).ok()?;
            self.patterns = patterns;
        }
        Some(self)
    }

    /// The repository.
    pub(super) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Whether a path that no index has is in no snapshot: because git ignores it, or because agentd excludes it, whatever
    /// exceptions the repository makes. `None`: only git can tell. So it is where a list of patterns has an exception, of
    /// which the library does not see all.
    pub(super) fn ignores(&self, path: &[u8]) -> Option<bool> {
        let said = |repository: &Repository| repository.is_path_ignored(as_path(path)).ok();
        let sure = match (said(&self.repository)?, said(&self.excluding)?) {
            (false, false) => return Some(false),
            (false, true) => !has_exception(&self.excluded),
            (true, true) => !has_exception(&self.excluded) && !self.may_be_excepted(path),
            (true, false) => false,
        };
        sure.then_some(true)
    }

    /// Whether a list of the repository that counts for a path has an exception.
    fn may_be_excepted(&self, path: &[u8]) -> bool {
        let folders = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        let folders = std::iter::once(&path[..0]).chain(folders);
        let mut lists = folders.map(|folder| self.root.join(as_path(folder)).join(".gitignore"));
        lists.any(|list| has_exception(&list))
            || AbsPath::new(self.repository.commondir().join("info/exclude"))
                .is_ok_and(|list| has_exception(&list))
    }

    /// Stores the file or link at a path. Gives its object and its mode; `None` also where it is in no snapshot.
    pub(super) fn store(&self, path: &[u8]) -> Option<(Oid, u32)> {
        let place = self.root.join(as_path(path));
        let meta = place.as_path().symlink_metadata().ok()?;
        if !may_be_named(std::str::from_utf8(path).ok()?, meta.is_symlink()) {
            return None;
        }
        let content = match meta.is_symlink() {
            true => std::fs::read_link(place.as_path()).ok()?.into_os_string().into_encoded_bytes(),
            false => files::read_plain(place.as_path(), LARGEST_FILE)?,
        };
        // Without this byte no setting of line ends changes what is stored.
        if !meta.is_symlink() && (content.contains(&b'\r') || self.is_converted(as_path(path))?) {
            return None;
        }
        let id = Oid::hash_object(ObjectType::Blob, &content).ok()?;
        let known = self.repository.odb().ok()?.exists(id);
        let id = if known { id } else { self.repository.blob(&content).ok()? };
        Some((id, mode_of(&meta)))
    }

    fn is_converted(&self, path: &Path) -> Option<bool> {
        let mut converted = false;
        for name in CONVERTING {
            let value = self.repository.get_attr_bytes(path, name, AttrCheckFlags::default()).ok()?;
            converted |= !matches!(AttrValue::from_bytes(value), AttrValue::Unspecified | AttrValue::False);
        }
        Some(converted)
    }

    /// The tree with other objects at some paths.
    pub(super) fn edited(&self, tree: Oid, mut edits: Vec<Edit>) -> Option<Oid> {
        if edits.is_empty() {
            return Some(tree);
        }
        edits.sort();
        let tree = self.repository.find_tree(tree).ok()?;
        match self.edited_below(Some(&tree), &edits, 0)? {
            Some(id) => Some(id),
            None => self.repository.treebuilder(None).ok()?.write().ok(),
        }
    }

    /// `skipped`: the length of the path of the folder. An empty folder is none.
    fn edited_below(&self, tree: Option<&Tree<'_>>, edits: &[Edit], skipped: usize) -> Option<Option<Oid>> {
        let mut builder = self.repository.treebuilder(tree).ok()?;
        let mut at = 0;
        while let Some((path, edit)) = edits.get(at) {
            let rest = path.get(skipped..)?;
            let name = rest.split(|byte| *byte == b'/').next()?;
            let there = builder.get(as_path(name)).ok()?.map(|entry| (entry.id(), entry.filemode()));
            let becomes = if name.len() == rest.len() {
                if there.is_some_and(|(_, mode)| mode == FOLDER || mode == SUBMODULE) {
                    return None;
                }
                at += 1;
                edit.map(|(id, mode)| (id, i32::try_from(mode).unwrap_or_default()))
            } else {
                let skipped = skipped + name.len() + 1;
                let below = path.get(..skipped)?;
                let count = edits.get(at..)?.partition_point(|(path, _)| path.starts_with(below));
                let folder = match there {
                    Some((id, FOLDER)) => Some(self.repository.find_tree(id).ok()?),
                    Some(_) => return None,
                    None => None,
                };
                let edits = edits.get(at..at + count)?;
                at += count;
                self.edited_below(folder.as_ref(), edits, skipped)?.map(|id| (id, FOLDER))
            };
            match (becomes, there) {
                (Some((id, mode)), _) => drop(builder.insert(as_path(name), id, mode).ok()?),
                (None, Some(_)) => builder.remove(as_path(name)).ok()?,
                (None, None) => {}
            }
        }
        if builder.is_empty() { Some(None) } else { builder.write().ok().map(Some) }
    }
}

/// Whether a pattern in a list takes something out of what the others ignore.
fn has_exception(list: &AbsPath) -> bool {
    let text = std::fs::read(list.as_path()).unwrap_or_default();
    text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"!"))
}
