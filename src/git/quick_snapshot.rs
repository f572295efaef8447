//! Snapshots and checkpoints without a git program, where git would make the same.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use git2::{ObjectType, Oid, Repository, Signature, Tree};

use super::differences::{Differences, ReadIndex, as_path, differences};
use super::error::GitError;
use super::exclude::in_real_folders;
use super::last_snapshot::{INDEX, Snapshot};
use super::plain_store::{Edit, KeptOpen, PlainStore};
use super::program::Identity;

use super::worktree::Worktree;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// New files that are followed at most. With more it is git that should look.
const MOST_NEW: usize = 2_000;
/// Folders above a file at most. With more it is git that should look: the library looks at each of them once for each.
const DEEPEST: usize = 64;
/// Paths that git is asked about at most.
const MOST_UNDECIDED: usize = 200;
/// Files that say how others are treated.
const RULES: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];

/// Where a checkpoint is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ref, which is never pushed.
    pub reference: String,
    /// Its commit.
    pub commit: CommitId,
}

/// New files, and paths of which only git can tell whether it passes over them.
#[derive(Default)]
struct New {
    files: Vec<Vec<u8>>,
    undecided: Vec<Vec<u8>>,
}

/// What a worktree's files are compared with, and by which rules.
#[derive(Clone)]
struct Place {
    root: AbsPath,
    git_dir: AbsPath,
    excluded: AbsPath,
    kept_open: Arc<KeptOpen>,
}

impl Place {
    fn with_store<T>(&self, work: impl FnOnce(&PlainStore) -> Option<T>) -> Option<T> {
        self.kept_open.with((&self.git_dir, &self.root, &self.excluded), work)
    }

    /// The files among what is untracked. `told`: what git says of the undecided ones.
    fn new_files(&self, untracked: &[Vec<u8>], told: &HashMap<Vec<u8>, bool>) -> Option<New> {
        if untracked.is_empty() {
            return Some(New::default());
        }
        self.with_store(|store| self.new_files_of(store, untracked, told))
    }

    fn new_files_of(
        &self,
        store: &PlainStore,
        untracked: &[Vec<u8>],
        told: &HashMap<Vec<u8>, bool>,
    ) -> Option<New> {
        let mut new = New::default();
        let mut open = untracked.to_vec();
        while let Some(path) = open.pop() {
            if path.iter().filter(|byte| **byte == b'/').count() > DEEPEST {
                return None;
            }
            match told.get(&path).copied().or_else(|| store.ignores(&path)) {
                None => new.undecided.push(path),
                Some(true) => {}
                Some(false) if !path.ends_with(b"/") => new.files.push(path),
                Some(false) => {
                    for entry in std::fs::read_dir(self.root.join(as_path(&path)).as_path()).ok()? {
                        let entry = entry.ok()?;
                        let (name, kind) = (entry.file_name(), entry.file_type().ok()?);
                        let rules = kind.is_symlink() && RULES.iter().any(|rules| name == **rules);
                        if rules || name.eq_ignore_ascii_case(".git") {
                            return None;
                        }
                        let end: &[u8] = if kind.is_dir() { b"/" } else { b"" };
                        if kind.is_dir() || kind.is_file() || kind.is_symlink() {
                            open.push([path.as_slice(), name.as_encoded_bytes(), end].concat());
                        }
                    }
                }
            }
            if new.files.len() + new.undecided.len() + open.len() > MOST_NEW {
                return None;
            }
        }
        Some(new)
    }

    /// The tree of an index, changed by what differs from it.
    fn tree(
        &self,
        (index, of_index): (&ReadIndex, &str),
        differs: Differences,
        new: Vec<Vec<u8>>,
    ) -> Option<String> {
        if differs.changed.is_empty() && differs.gone.is_empty() && new.is_empty() {
            return Some(of_index.to_owned());
        }
        self.with_store(|store| {
            let mut edits: Vec<Edit> = differs.gone.into_iter().map(|path| (path, None)).collect();
            let begun = files::time_in(self.git_dir.as_path());
            let mut same = Vec::new();
            for (path, known) in differs.changed {
                let stored = store.store(&path)?;
                match stored == known {
                    true => same.push(path),
                    false => edits.push((path, Some(stored))),
                }
            }
            if let Some(begun) = begun {
                index.were_read(&same, begun);
            }
            for path in new {
                let stored = store.store(&path)?;
                edits.push((path, Some(stored)));
            }
            Some(store.edited(Oid::from_str(of_index).ok()?, edits)?.to_string())
        })
    }

    /// The checkpoint of files that agentd's own tools wrote since the last one.
    fn checkpoint_of(
        &self,
        store: &PlainStore,
        (last, written, merging): (Checkpoint, &BTreeSet<String>, Option<CommitId>),
        (reference, message): (String, &str),
    ) -> Option<Result<Checkpoint, GitError>> {
        let repository = store.repository();
        let sparse = repository.config().ok()?.get_bool("core.sparsecheckout");
        let kept = repository.find_commit(Oid::from_str(last.commit.as_str()).ok()?).ok()?;
        let parents: Vec<Oid> = kept.parent_ids().collect();
        if sparse.unwrap_or(false) || parents != stands_on(repository, merging)? {
            return None;
        }
        let mut trees = vec![kept.tree().ok()?];
        for parent in kept.parents() {
            trees.push(parent.tree().ok()?);
        }
        let mut edits = Vec::new();
        for path in written {
            edits.extend(self.written(store, &trees, path)?);
        }
        let tree = store.edited(kept.tree_id(), edits)?;
        if tree == kept.tree_id() {
            return Some(Ok(last));
        }
        let commit = committed(repository, tree, &parents, (&reference, message));
        Some(commit.map(|commit| Checkpoint { reference, commit }))
    }

    /// What becomes of a file that agentd wrote; `Some(None)`: it is in no snapshot.
    fn written(&self, store: &PlainStore, trees: &[Tree<'_>], path: &str) -> Option<Option<Edit>> {
        let name = path.rsplit('/').next()?;
        if RULES.contains(&name) || path.matches('/').count() > DEEPEST || !in_real_folders(&self.root, path)
        {
            return None;
        }
        for (at, _) in path.match_indices('/').chain([(0, "")]) {
            let folder = self.root.join(&path[..at]);
            let kind = |name: &str| folder.join(name).as_path().symlink_metadata().ok();
            let linked = RULES.iter().any(|rules| kind(rules).is_some_and(|meta| meta.is_symlink()));
            if linked || (at > 0 && kind(".git").is_some()) {
                return None;
            }
        }
        let known = trees.iter().find_map(|tree| tree.get_path(path.as_ref()).ok());
        if let Some(known) = &known
            && known.kind() != Some(ObjectType::Blob)
        {
            return None;
        }
        if known.is_none() && store.ignores(path.as_bytes())? {
            return Some(None);
        }
        let stored = store.store(path.as_bytes())?;
        Some(Some((path.as_bytes().to_vec(), Some(stored))))
    }
}

impl Worktree {
    async fn place(&self) -> Result<Place, GitError> {
        Ok(Place {
            root: self.path().clone(),
            git_dir: self.git_dir().clone(),
            excluded: self.exclude_file().await?,
            kept_open: Arc::clone(self.kept_open()),
        })
    }

    /// The snapshot that git would make beside these commits. `None`: only git can tell what it is.
    pub(super) async fn quick_snapshot(&self, beside: &[CommitId]) -> Result<Option<Snapshot>, GitError> {
        let index = self.git_dir().join(INDEX);
        let stamp = files::stamp(index.as_path());
        let Some((base, known)) = self.last_snapshot().base(beside, stamp) else { return Ok(None) };
        let place = self.place().await?;
        let (look, absent) = (place.clone(), base.absent);
        let differs = blocking(move || {
            let back = |path: &String| look.root.join(path).as_path().symlink_metadata().is_ok();
            if absent.iter().any(back) {
                return None;
            }
            let read = match known {
                Some(known) => known,
                None => Arc::new(ReadIndex::read(&index)?),
            };
            Some((differences(&look.root, &read, &index)?, read))
        });
        let Some((differs, read)) = differs.await? else { return Ok(None) };
        self.last_snapshot().keep_read(stamp, Arc::clone(&read));
        let mut told = HashMap::new();
        let new = loop {
            let (look, untracked, known) = (place.clone(), differs.untracked.clone(), told.clone());
            let Some(new) = blocking(move || look.new_files(&untracked, &known)).await? else {
                return Ok(None);
            };
            if new.undecided.is_empty() {
                break new.files;
            }
            let Some(ignored) = self.passed_over(&new.undecided).await? else { return Ok(None) };
            told.extend(new.undecided.into_iter().map(|path| {
                let passed_over = ignored.contains(&path);
                (path, passed_over)
            }));
        };
        if differs.sparse && !new.is_empty() {
            return Ok(None);
        }
        let tree = blocking(move || place.tree((&read, &base.tree), differs, new)).await?;
        Ok(tree.map(|tree| Snapshot { tree, not_taken: Vec::new() }))
    }

    /// Those of these paths that git passes over, or that agentd excludes; `None`: git does not say.
    async fn passed_over(&self, paths: &[Vec<u8>]) -> Result<Option<BTreeSet<Vec<u8>>>, GitError> {
        if paths.len() > MOST_UNDECIDED {
            return Ok(None);
        }
        let ask = ["check-ignore", "--no-index", "-z", "--stdin"];
        let ignored = self.call(ask).await?.stdin(paths.join(&b'\0')).exit().await?;
        let from = format!("--exclude-from={}", self.exclude_file().await?);
        let ask =
            ["ls-files", "--others", "--ignored", "--directory", "-z", from.as_str(), "--"].map(Path::new);
        let ask = ask.into_iter().chain(paths.iter().map(|path| as_path(path)));
        let excluded = self.call(ask).await?.env("GIT_LITERAL_PATHSPECS", "1").exit().await?;
        if !matches!(ignored.code, Some(0 | 1)) || !excluded.success() {
            return Ok(None);
        }
        let said = [ignored.stdout.head, excluded.stdout.head].concat();
        Ok(Some(said.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()))
    }

    /// Commits the present state on a ref that is never pushed, where agentd's own tools have written these files since
    /// the last checkpoint, and nothing else has run. Nothing else is looked at. `None`: it cannot be told so.
    pub async fn checkpoint_of(
        &self,
        last: &Checkpoint,
        written: BTreeSet<String>,
        reference: &str,
        message: &str,
    ) -> Result<Option<Checkpoint>, GitError> {
        let (place, last, merging) = (self.place().await?, last.clone(), self.merge_head());
        let (reference, message) = (reference.to_owned(), message.to_owned());
        let made = blocking(move || {
            let from = (last, &written, merging);
            place.with_store(|store| place.checkpoint_of(store, from, (reference, &message)))
        });
        made.await?.transpose()
    }

    /// Commits a tree on a ref that is never pushed. `parents` are what it stands on. `last`: what is named again if it has the same
    /// tree and stands on the same.
    pub(super) async fn keep_tree(
        &self,
        tree: &str,
        parents: Vec<CommitId>,
        last: Option<&Checkpoint>,
        (reference, message): (&str, &str),
    ) -> Result<Checkpoint, GitError> {
        let (tree, reference, message) = (Oid::from_str(tree)?, reference.to_owned(), message.to_owned());
        let (place, last) = (self.place().await?, last.cloned());
        let parents = parents.iter().map(super::checkout::oid).collect::<Result<Vec<_>, _>>()?;
        let keep = move |repository: &Repository| {
            if let Some(last) = last
                && let Ok(kept) = repository.find_commit(super::checkout::oid(&last.commit)?)
                && kept.tree_id() == tree
                && kept.parent_ids().eq(parents.iter().copied())
            {
                return Ok(last);
            }
            let commit = committed(repository, tree, &parents, (&reference, &message))?;
            Ok(Checkpoint { reference, commit })
        };
        let kept = keep.clone();
        let made = blocking(move || place.with_store(|store| Some(kept(store.repository())))).await?;
        match made {
            Some(made) => made,
            None => self.checkout().library(keep).await,
        }
    }

    /// The commits that a snapshot stands on.
    pub(super) async fn beside(&self) -> Result<Vec<CommitId>, GitError> {
        let merging = self.merge_head();
        // What opens the repository writes the list of excluded files, which is not this one's to begin.
        let stands = match self.excluded_by().initialized() {
            true => {
                let (place, merging) = (self.place().await?, merging.clone());
                blocking(move || place.with_store(|store| stands_on(store.repository(), merging))).await?
            }
            false => None,
        };
        match stands {
            Some(stands) => stands.into_iter().map(super::checkout::commit_id).collect(),
            // Without a commit, or where only git can tell.
            None => Ok(self.head().await?.into_iter().chain(merging).collect()),
        }
    }
}

/// What a worktree's repository stands on: HEAD, and what is being merged.
fn stands_on(repository: &Repository, merging: Option<CommitId>) -> Option<Vec<Oid>> {
    let head = repository.head().ok()?.peel_to_commit().ok()?.id();
    let merging = merging.map(|commit| Oid::from_str(commit.as_str()).ok());
    std::iter::once(Some(head)).chain(merging).collect()
}

fn committed(
    repository: &Repository,
    tree: Oid,
    parents: &[Oid],
    (reference, message): (&str, &str),
) -> Result<CommitId, GitError> {
    let who = Identity::agentd();
    let who = Signature::now(&who.name, &who.email)?;
    let parents = parents.iter().map(|id| repository.find_commit(*id)).collect::<Result<Vec<_>, _>>()?;
    let parents: Vec<_> = parents.iter().collect();
    let commit = repository.commit(None, &who, &who, message, &repository.find_tree(tree)?, &parents)?;
    repository.reference(reference, commit, true, "agentd")?;
    super::checkout::commit_id(commit)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, GitError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))
}
