//! Blobs of a repository, none of which is opened before its size is known.

use git2::{Oid, Repository};

use super::error::GitError;

/// Largest file that is read, compared or taken into a commit, in bytes: nobody knows how large one is that others wrote.
pub const LARGEST_FILE: u64 = 64 << 20;

/// The bytes of a blob, its length asked first; `None` where it is none, or is not there.
pub(super) fn bounded_blob(
    repository: &Repository,
    id: Oid,
    path: &str,
) -> Result<Option<Vec<u8>>, GitError> {
    let Ok((length, git2::ObjectType::Blob)) = repository.odb()?.read_header(id) else { return Ok(None) };
    if length as u64 > LARGEST_FILE {
        let (path, bytes) = (path.to_owned(), length as u64);
        return Err(GitError::TooLarge { path, bytes, limit: LARGEST_FILE });
    }
    Ok(repository.find_blob(id).ok().map(|blob| blob.content().to_vec()))
}
