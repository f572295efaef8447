//! Commits of agentd's own as a file that another clone of the repository takes them from.

use std::path::Path;

use super::checkout::Checkout;
use super::error::GitError;
use super::remote::Remote;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

impl Checkout {
    fn bundle_file(&self) -> AbsPath {
        self.common_dir().join(format!("agentd-bundle-{}", uuid::Uuid::new_v4().simple()))
    }

    /// The commits of a ref that `without` does not have, as the bytes of a bundle; `None` where they are more than `most`.
    pub async fn bundle(
        &self,
        reference: &str,
        without: &CommitId,
        most: u64,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let file = self.bundle_file();
        let args = ["bundle", "create", "--quiet", file.as_path().to_str().unwrap_or_default(), reference];
        let made = self.call(args.into_iter().chain([format!("^{without}").as_str()])).await?.done().await;
        let (path, place) = (file.as_path().to_owned(), file.clone());
        let read = super::quick_snapshot::blocking(move || {
            let read = match path.metadata() {
                Ok(found) if found.len() > most => Ok(None),
                Ok(_) => std::fs::read(&path).map(Some),
                Err(error) => Err(error),
            };
            files::remove_file(&path)?;
            read.map_err(|error| Self::file_error("read", &place, error))
        });
        let read = read.await?;
        made?;
        read
    }

    /// Takes the commits of a bundle, whose prerequisite has to be here, and keeps `commit` of it on a ref of agentd's own.
    pub async fn take_bundle(
        &self,
        file: &Path,
        (prerequisite, remote): (&CommitId, Option<&Remote>),
        (reference, commit): (&str, &CommitId),
    ) -> Result<(), GitError> {
        let file = file.to_str().unwrap_or_default();
        // A bundle says of files only how they differ from those that it builds on.
        if let Some(remote) = remote {
            self.bring_contents(remote, prerequisite).await?;
        }
        self.call(["bundle", "unbundle", file]).await?.done().await?;
        self.keep_at(reference, commit).await
    }

    /// The same from bytes.
    pub async fn take_bundle_of(
        &self,
        bytes: Vec<u8>,
        builds_on: (&CommitId, Option<&Remote>),
        kept: (&str, &CommitId),
    ) -> Result<(), GitError> {
        let file = self.bundle_file();
        let write = file.as_path().to_owned();
        super::quick_snapshot::blocking(move || files::write_private(&write, &bytes)).await??;
        let taken = self.take_bundle(file.as_path(), builds_on, kept).await;
        super::quick_snapshot::blocking(move || files::remove_file(file.as_path())).await??;
        taken
    }

    /// The commit that another one stands on first; `None` = none.
    pub async fn parent_of(&self, commit: &CommitId) -> Result<Option<CommitId>, GitError> {
        let commit = commit.clone();
        self.library(move |repository| {
            let commit = repository.find_commit(super::checkout::oid(&commit)?)?;
            commit.parent_id(0).ok().map(super::checkout::commit_id).transpose()
        })
        .await
    }
}
