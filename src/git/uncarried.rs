//! Work in a worktree that its commit would not have: edits inside of submodules, and files under Git LFS when its
//! program is missing. And what commits need that a bundle of them does not have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{Oid, Repository, Status, StatusOptions};

use super::blob::bounded_blob;
use super::error::GitError;
use super::outgoing::{Inspect, OutgoingKind};
use super::output;
use super::submodule_links::links;
use super::worktree::Worktree;
use crate::domain::exclude::is_built_in_folder;
use crate::domain::name::CommitId;
use crate::sys::files;

/// How a file begins that stands for one under Git LFS.
pub(super) const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// Largest such file, in bytes.
pub(super) const LARGEST_POINTER: u64 = 1024;
/// Deepest folder among the submodules' own repositories.
const DEEPEST: usize = 8;
/// Paths that are named.
const NAMED: usize = 3;

impl Worktree {
    /// Submodules with changed or new files, and how many. Their repositories are read at the place where git keeps
    /// them, which no agent writes to. The `.git` in the folder is not followed.
    pub async fn edited_submodules(&self) -> Result<Vec<(String, usize)>, GitError> {
        let all = self.submodules().await?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let (root, modules) = (self.path().clone(), self.git_dir().join("modules"));
        let look = move || {
            let edits = |path: &str| {
                let folder = root.join(path).as_path().canonicalize().ok()?;
                edited(&repository_of(modules.as_path(), &folder)?)
            };
            let edited = all.into_iter().map(|(path, _)| (edits(&path).unwrap_or_default(), path));
            edited.filter(|(files, _)| *files > 0).map(|(files, path)| (path, files)).collect()
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
    }

    /// The submodules of the index, each with its commit.
    pub async fn submodules(&self) -> Result<Vec<(String, String)>, GitError> {
        let staged = self.call(["ls-files", "--stage", "-z"]).await?.text().await?;
        Ok(output::submodule_entries(&staged))
    }

    /// The folders of the submodules, and of theirs, if nothing would be lost with them; else one with which something would.
    pub(super) async fn untouched_submodules(&self) -> Result<Result<Vec<PathBuf>, PathBuf>, GitError> {
        let all = self.submodules().await?;
        let (root, modules) = (self.path().as_path().to_owned(), self.git_dir().join("modules"));
        let look = move || {
            let mut untouched = Vec::new();
            for (path, commit) in all {
                add_untouched(modules.as_path(), &root.join(path), &commit, &mut untouched)?;
            }
            Ok::<_, PathBuf>(untouched)
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
    }

    /// What the commits of `head` need that no bundle of them carries, and that is known to be on no remote: files under Git LFS, and
    /// commits of submodules. In words; `None` = nothing. `known`: commits that the remote has.
    pub async fn not_in_a_bundle(
        &self,
        head: &CommitId,
        known: &[CommitId],
    ) -> Result<Option<String>, GitError> {
        let unseen: Inspect = Arc::new(|_| Vec::new());
        let brought = self.outgoing((head, None), known, (0, unseen)).await?.changes;
        let of = |kind: OutgoingKind| brought.iter().filter(move |change| change.kind == kind);
        let small = of(OutgoingKind::File).filter(|change| change.bytes <= LARGEST_POINTER);
        let small: BTreeSet<(String, String)> =
            small.map(|change| (change.path.clone(), change.blob.clone())).collect();
        let links: BTreeSet<(String, String)> =
            of(OutgoingKind::Submodule).map(|change| (change.path.clone(), change.blob.clone())).collect();
        let files = self
            .checkout()
            .library(move |repository| {
                let mut found = BTreeSet::new();
                for (path, blob) in small {
                    let text = bounded_blob(repository, Oid::from_str(&blob)?, &path)?;
                    if text.is_some_and(|text| text.starts_with(POINTER)) {
                        found.insert(path);
                    }
                }
                Ok(found)
            })
            .await?;
        let submodules = self.submodules_only_here(links).await?;
        let mut words = Vec::new();
        if !files.is_empty() {
            words.push(format!("its new files under Git LFS are not pushed ({})", named(&files)));
        }
        if !submodules.is_empty() {
            words.push(format!(
                "the commits of its submodules are on no remote, as far as is known here ({})",
                named(&submodules)
            ));
        }
        Ok((!words.is_empty()).then(|| words.join(", and ")))
    }

    /// The submodules, of these paths and commits, that a tree has so, and whose commits are on no remote as far as is known here.
    pub async fn unpushed_submodules(
        &self,
        tree: &str,
        links: BTreeSet<(String, String)>,
    ) -> Result<BTreeSet<String>, GitError> {
        if links.is_empty() {
            return Ok(BTreeSet::new());
        }
        let tree = tree.to_owned();
        let links = self
            .checkout()
            .library(move |repository| {
                let tree = repository.find_object(Oid::from_str(&tree)?, None)?.peel_to_tree()?;
                let is_so = |(path, commit): &(String, String)| {
                    tree.get_path(Path::new(path)).is_ok_and(|entry| entry.id().to_string() == *commit)
                };
                Ok(links.into_iter().filter(is_so).collect())
            })
            .await?;
        self.submodules_only_here(links).await
    }

    async fn submodules_only_here(
        &self,
        links: BTreeSet<(String, String)>,
    ) -> Result<BTreeSet<String>, GitError> {
        let (root, modules) = (self.path().clone(), self.git_dir().join("modules"));
        let look = move || {
            let alone = links.into_iter().filter(|(path, commit)| {
                let folder = root.join(path).as_path().to_owned();
                is_only_here(modules.as_path(), &folder, commit).unwrap_or(true)
            });
            alone.map(|(path, _)| path).collect()
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
    }

    /// The paths under Git LFS whose files are whole, because no program took over their content.
    pub async fn whole_under_lfs(&self, paths: &[&str]) -> Result<BTreeSet<String>, GitError> {
        if self.lfs() || paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let stdin: String = paths.iter().map(|path| format!("{path}\0")).collect();
        let asked = self.call(["check-attr", "-z", "--stdin", "filter"]).await?.stdin(stdin).text().await?;
        let under: Vec<String> = output::under_lfs(&asked).into_iter().map(str::to_owned).collect();
        let root = self.path().clone();
        let look = move || {
            let stands_for = |path: &String| {
                let file = files::read_plain(root.join(path).as_path(), LARGEST_POINTER);
                file.is_some_and(|file| file.starts_with(POINTER))
            };
            under.into_iter().filter(|path| !stands_for(path)).collect()
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
    }
}

/// The first ones by name.
fn named(paths: &BTreeSet<String>) -> String {
    let mut shown: Vec<&str> = paths.iter().take(NAMED).map(String::as_str).collect();
    if paths.len() > NAMED {
        shown.push("…");
    }
    shown.join(", ")
}

/// Whether a submodule's commit is in its repository here, and in no branch of that one's remotes as they were last seen, and in no tag.
fn is_only_here(modules: &Path, folder: &Path, commit: &str) -> Result<bool, git2::Error> {
    let Ok(place) = folder.canonicalize() else { return Ok(false) };
    let Some(own) = repository_of(modules, &place) else {
        // A repository that somebody made in the folder has no remote that agentd would fetch it from.
        return Ok(folder.join(".git").symlink_metadata().is_ok());
    };
    let commit = Oid::from_str(commit)?;
    if own.find_commit(commit).is_err() {
        return Ok(false);
    }
    for names in ["refs/remotes/*", "refs/tags/*"] {
        for reference in own.references_glob(names)? {
            let Ok(tip) = reference?.peel_to_commit() else { continue };
            if tip.id() == commit || own.graph_descendant_of(tip.id(), commit)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Repositories of submodules, and of theirs.
fn repositories_below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if path.join("HEAD").is_file() && path.join("objects").is_dir() {
            if depth > 0 {
                repositories_below(&path.join("modules"), depth - 1, found);
            }
            found.push(path);
        } else if depth > 0 {
            repositories_below(&path, depth - 1, found);
        }
    }
}

/// The repository whose files stand in that folder.
pub(super) fn repository_of(modules: &Path, folder: &Path) -> Option<Repository> {
    let mut found = Vec::new();
    repositories_below(modules, DEEPEST, &mut found);
    found.into_iter().filter_map(|own| Repository::open(own).ok()).find(|own| {
        let workdir = own.workdir().and_then(|place| place.canonicalize().ok());
        workdir.as_deref() == Some(folder)
    })
}

/// How many files differ from the repository. What tools leave behind does not count.
fn edited(repository: &Repository) -> Option<usize> {
    let mut options = StatusOptions::new();
    options.include_untracked(true).recurse_untracked_dirs(true).exclude_submodules(true);
    let statuses = repository.statuses(Some(&mut options)).ok()?;
    let counts = |path: &str, status: Status| {
        let left_behind = status == Status::WT_NEW && path.split('/').any(is_built_in_folder);
        status != Status::CURRENT && !status.is_ignored() && !left_behind
    };
    Some(statuses.iter().filter(|one| one.path().is_ok_and(|path| counts(path, one.status()))).count())
}

/// Adds the folder of a submodule with which nothing would be lost, and those of its own: each is empty, or it is at the recorded commit
/// without edits and every branch is on its remote. The error is one that is not so.
fn add_untouched(
    modules: &Path,
    folder: &Path,
    commit: &str,
    untouched: &mut Vec<PathBuf>,
) -> Result<(), PathBuf> {
    let is_empty = std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    let touched = || folder.to_owned();
    let own = folder.canonicalize().ok().and_then(|place| repository_of(modules, &place));
    let own = own.ok_or_else(touched)?;
    if edited(&own) != Some(0) || !holds_nothing_new(&own, commit).unwrap_or(false) {
        return Err(touched());
    }
    untouched.push(folder.to_owned());
    let tree = own.head().and_then(|head| head.peel_to_tree()).map_err(|_| touched())?;
    for path in links(&own) {
        let recorded = tree.get_path(&path).map_err(|_| folder.join(&path))?.id().to_string();
        add_untouched(modules, &folder.join(&path), &recorded, untouched)?;
    }
    Ok(())
}

/// Whether HEAD is at this commit, nothing is stashed, and every branch is contained in a branch of the remote or in
/// this commit.
fn holds_nothing_new(repository: &Repository, commit: &str) -> Result<bool, git2::Error> {
    let recorded = Oid::from_str(commit)?;
    if repository.head()?.peel_to_commit()?.id() != recorded
        || repository.find_reference("refs/stash").is_ok()
    {
        return Ok(false);
    }
    let mut known = vec![recorded];
    for reference in repository.references_glob("refs/remotes/*")? {
        known.extend(reference?.peel_to_commit().map(|tip| tip.id()));
    }
    for reference in repository.references_glob("refs/heads/*")? {
        let tip = reference?.peel_to_commit()?.id();
        let mut contained = known.contains(&tip);
        for other in &known {
            contained = contained || repository.graph_descendant_of(*other, tip)?;
        }
        if !contained {
            return Ok(false);
        }
    }
    Ok(true)
}
