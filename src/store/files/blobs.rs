//! Blobs as files of the run directory. They are written as they come, and made durable together.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::store::port::{Blobs, StoreError};
use crate::sys::files::{self, FileError};

pub(super) struct FileBlobs {
    folder: PathBuf,
    unsynced: Mutex<Vec<PathBuf>>,
    /// Held while files are made durable. A second caller waits for the first.
    syncing: Mutex<()>,
}

impl FileBlobs {
    pub(super) fn below(folder: PathBuf) -> Self {
        Self { folder, unsynced: Mutex::default(), syncing: Mutex::default() }
    }
}

impl Blobs for FileBlobs {
    fn put(&self, path: &str, bytes: &[u8]) -> Result<Artifact, StoreError> {
        let target = self.folder.join(path);
        files::write_private_unsynced(&target, bytes)?;
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).push(target);
        Ok(Artifact { path: path.to_owned(), sha256: sha256_hex(bytes), bytes: bytes.len() as u64 })
    }

    fn get(&self, blob: &Artifact) -> Result<Vec<u8>, StoreError> {
        let path = self.folder.join(&blob.path);
        let bytes = std::fs::read(&path).map_err(|error| FileError::new("read", &path, error))?;
        // A process that died while it wrote leaves a part of them.
        match sha256_hex(&bytes) == blob.sha256 {
            true => Ok(bytes),
            false => {
                let other = std::io::Error::other("its content is not what was kept");
                Err(FileError::new("read", &path, other).into())
            }
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(files::sync(&written)?)
    }
}
