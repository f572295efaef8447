//! Blobs of a repository, none of which is opened before its size is known.

use git2::{Oid, Repository};

use super::error::GitError;

/// The largest file that is read, compared or committed, in bytes. Files that others wrote can have any size.
pub const LARGEST_FILE: u64 = 64 << 20;

/// The bytes of a blob. Its length is checked first. `None` if it is not a blob or does not exist.
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
