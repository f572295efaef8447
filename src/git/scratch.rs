//! A scratch repository that borrows the objects of another one, to see what would happen without changing anything.

use super::checkout::Checkout;
use super::error::GitError;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

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
        Self::open(self.program().clone(), dir, false).await
    }
}
