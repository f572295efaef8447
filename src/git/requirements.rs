//! What a checkout needs besides the files of commits: submodules, Git LFS, the operator's filters.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use git2::{ObjectType, Oid};

use super::blob::bounded_blob;
use super::checkout::{Checkout, oid};
use super::error::GitError;
use super::remote::Remote;
use super::tree_walk::walk;
use super::uncarried::{LARGEST_POINTER, POINTER};
use super::worktree::{Worktree, lfs_driver};
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// The pointers among listed files that stand there as the index has them, taken away so that git checks them out anew. Blocks.
fn take_pointers(root: &AbsPath, listing: &str) -> Result<BTreeMap<String, Vec<u8>>, GitError> {
    let mut taken = BTreeMap::new();
    for entry in listing.split('\0').filter(|entry| !entry.is_empty()) {
        let Some((id, path)) =
            entry.split_once('\t').and_then(|(stage, path)| Some((stage.split(' ').nth(1)?, path)))
        else {
            continue;
        };
        let place = root.join(path);
        let small = place
            .as_path()
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST_POINTER);
        if !small {
            continue;
        }
        let pointer = std::fs::read(place.as_path()).unwrap_or_default();
        let is_its_own =
            Oid::hash_object(ObjectType::Blob, &pointer).is_ok_and(|found| found.to_string() == id);
        if pointer.starts_with(POINTER) && is_its_own {
            files::remove_file(place.as_path())?;
            taken.insert(path.to_owned(), pointer);
        }
    }
    Ok(taken)
}

/// What to do about it (`worktree.submodules`, `worktree.lfs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Population {
    /// Fill submodules, where the commit has some.
    pub submodules: bool,
    /// Fill in files under Git LFS, where the program is installed.
    pub lfs: bool,
    /// Folders of a sparse checkout (`worktree.sparse`); empty = all, or what the main checkout has.
    pub sparse: Vec<String>,
}

impl Default for Population {
    fn default() -> Self {
        Self { submodules: true, lfs: true, sparse: Vec::new() }
    }
}

impl Checkout {
    /// Whether files of the checkout are under Git LFS, by the attributes of the files in the index.
    pub(super) async fn uses_lfs(&self, worktree: &Worktree) -> Result<bool, GitError> {
        let listing = worktree.call(["ls-files", "-z", "--", ":(attr:filter=lfs)"]).await?.bytes().await?;
        Ok(!listing.is_empty())
    }

    /// Whether a commit puts files under Git LFS, by its `.gitattributes` files.
    async fn commit_uses_lfs(&self, commit: &CommitId) -> Result<bool, GitError> {
        let commit = commit.clone();
        self.library(move |repository| {
            let tree = repository.find_commit(oid(&commit)?)?.tree()?;
            let mut found = false;
            walk(repository, tree, |_, entry| {
                let named = entry.name().is_ok_and(|name| name == ".gitattributes");
                let file = named.then(|| bounded_blob(repository, entry.id(), ".gitattributes"));
                let file = file.and_then(Result::ok).flatten();
                found |= file.is_some_and(|file| String::from_utf8_lossy(&file).contains("filter=lfs"));
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(found)
        })
        .await
    }

    /// Uploads what a commit keeps under Git LFS, because the hook for that does not run (D91). Without the LFS program
    /// no such content was made here, so there is nothing to upload.
    pub(super) async fn push_lfs(&self, remote: &Remote, commit: &CommitId) -> Result<(), GitError> {
        if !self.commit_uses_lfs(commit).await? || !self.has_lfs().await? {
            return Ok(());
        }
        let args = ["lfs", "push", &remote.target(), commit.as_str()].map(str::to_owned).to_vec();
        self.remote_call(remote, args).await?.config(lfs_driver()).done().await
    }

    /// Whether the program is there.
    pub(super) async fn has_lfs(&self) -> Result<bool, GitError> {
        if self.program().finds("git-lfs") {
            return Ok(true);
        }
        // git also looks among its own programs.
        Ok(self.call(["lfs", "version"]).await?.exit().await?.success())
    }
}

/// Marks a worktree, in its git directory, whose files under Git LFS were left as pointers.
const POINTERS: &str = "agentd-lfs-pointers";

impl Worktree {
    /// Notes whether files under Git LFS are left as pointers here. True = they are.
    pub(super) async fn note_pointers(&self) -> Result<bool, GitError> {
        let stay = !self.lfs() && self.checkout().uses_lfs(self).await?;
        if stay {
            files::write_private(self.git_dir().join(POINTERS).as_path(), b"")?;
        }
        Ok(stay)
    }

    /// Fills in files under Git LFS that were left as pointers, once its program is there. Gives a warning where they stay so.
    pub(super) async fn fill_pointers(&self, wants: &Population) -> Result<Option<String>, GitError> {
        let marker = self.git_dir().join(POINTERS);
        if !marker.as_path().exists() {
            return Ok(None);
        }
        let stay = |why: &str| Ok(Some(format!("files under Git LFS stay pointers ({why})")));
        if !self.lfs() {
            return if wants.lfs { stay("git-lfs is not installed") } else { Ok(None) };
        }
        let listing =
            self.call(["ls-files", "--stage", "-z", "--", ":(attr:filter=lfs)"]).await?.text().await?;
        let root = self.path().clone();
        let taken = move || take_pointers(&root, &listing);
        let taken =
            tokio::task::spawn_blocking(taken).await.map_err(|error| GitError::Lost(error.to_string()))??;
        if !taken.is_empty() {
            let paths: String = taken.keys().map(|path| format!("{path}\0")).collect();
            let fill = ["checkout-index", "--force", "--index", "-z", "--stdin"];
            let filled = self.call(fill).await?.stdin(paths).may_take_long().done().await;
            if let Err(error) = filled {
                self.stand_again(taken)?;
                return stay(&error.to_string());
            }
            self.something_ran();
        }
        files::remove_file(marker.as_path())?;
        Ok(None)
    }

    /// Pointers that nothing was filled in for stand there as before.
    fn stand_again(&self, taken: BTreeMap<String, Vec<u8>>) -> Result<(), GitError> {
        for (path, pointer) in taken {
            let place = self.path().join(&path);
            if place.as_path().symlink_metadata().is_err() {
                files::write_public(place.as_path(), &pointer)?;
            }
        }
        Ok(())
    }

    /// Fills submodules, and gives a warning for each that stays incomplete.
    pub(super) async fn populate(
        &self,
        wants: &Population,
        remote: Option<&Remote>,
    ) -> Result<Vec<String>, GitError> {
        let mut warnings = Vec::new();
        if self.path().join(".gitmodules").as_path().is_file() {
            if wants.submodules {
                self.fill_submodules(remote).await?;
            } else {
                warnings.push("submodules are left empty (worktree.submodules)".to_owned());
            }
        }
        if self.note_pointers().await? && !wants.lfs {
            warnings.push("files under Git LFS stay pointers (worktree.lfs)".to_owned());
        }
        for filter in &self.checkout().hardening(self.git_dir()).await?.disarmed_filters {
            if filter != "lfs" {
                warnings.push(format!(
                    "the filter \"{filter}\" of the repository's own configuration does not run; \
                     if you trust it, set it in your global git configuration"
                ));
            }
        }
        Ok(warnings)
    }

    /// Leaves out files outside of the folders. It needs the lock, because it writes the shared configuration.
    pub(super) async fn narrow(&self, folders: &[String]) -> Result<(), GitError> {
        if folders.is_empty() {
            return Ok(());
        }
        let _turn = self.checkout().turn().await?;
        let mut args = vec!["sparse-checkout", "set", "--cone", "--no-sparse-index"];
        args.extend(folders.iter().map(String::as_str));
        self.call(args).await?.done().await
    }
}
