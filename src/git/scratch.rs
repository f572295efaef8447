//! A scratch repository that borrows the objects of another one, to see what would happen without changing anything.

use git2::{ConfigLevel, ErrorCode};

use super::checkout::Checkout;
use super::error::GitError;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Setting of a scratch repository: the address of the remote of the repository that it borrows from.
const SCRATCH_BASE: &str = "agentd.scratchBase";

impl Checkout {
    /// Makes an empty main checkout in the existing folder `dir`, with these refs (full names) and no remote. It can
    /// read the objects of this repository. Nothing that happens there changes this repository.
    pub async fn scratch(&self, dir: &AbsPath, refs: &[(String, CommitId)]) -> Result<Self, GitError> {
        self.program().call(dir, ["init", "--quiet", "--initial-branch=agentd-scratch", "."]).done().await?;
        let borrowed = format!("{}\n", self.common_dir().join("objects"));
        files::write_private(dir.join(".git/objects/info/alternates").as_path(), borrowed.as_bytes())?;
        for (name, commit) in refs {
            self.program().call(dir, ["update-ref", name.as_str(), commit.as_str()]).done().await?;
        }
        let scratch = Self::open(self.program().clone(), dir, false).await?;
        if let Some(base) = self.relative_base().await? {
            let keep = move |repository: &git2::Repository| {
                Ok(repository.config()?.open_level(ConfigLevel::Local)?.set_str(SCRATCH_BASE, &base)?)
            };
            scratch.library(keep).await?;
        }
        Ok(scratch)
    }

    /// In a scratch repository, which has no remote: the address for which relative addresses of submodules are relative.
    pub(super) async fn scratch_base(&self) -> Result<Option<String>, GitError> {
        self.library(|repository| match repository.config()?.snapshot()?.get_string(SCRATCH_BASE) {
            Ok(base) => Ok(Some(base)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }
}
