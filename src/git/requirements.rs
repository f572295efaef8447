//! What a checkout needs besides the files of commits: submodules, Git LFS, the operator's filters.

use git2::{TreeWalkMode, TreeWalkResult};

use super::blob::bounded_blob;
use super::checkout::{Checkout, oid};
use super::error::GitError;
use super::remote::Remote;
use super::worktree::{Worktree, lfs_driver};
use crate::domain::name::CommitId;

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
            let walked = tree.walk(TreeWalkMode::PreOrder, |_, entry| {
                let named = entry.name().is_ok_and(|name| name == ".gitattributes");
                let file = named.then(|| bounded_blob(repository, entry.id(), ".gitattributes"));
                let file = file.and_then(Result::ok).flatten();
                found |= file.is_some_and(|file| String::from_utf8_lossy(&file).contains("filter=lfs"));
                if found { TreeWalkResult::Abort } else { TreeWalkResult::Ok }
            });
            match walked {
                Err(error) if !found => Err(error.into()),
                _ => Ok(found),
            }
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
        Ok(self.call(["lfs", "version"]).await?.exit().await?.success())
    }
}

impl Worktree {
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
        if self.checkout().uses_lfs(self).await? {
            let smudged = wants.lfs && self.checkout().has_lfs().await?;
            if !smudged {
                let why = if wants.lfs { "git-lfs is not installed" } else { "worktree.lfs" };
                warnings.push(format!("files under Git LFS stay pointers ({why})"));
            }
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
