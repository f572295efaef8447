//! Blobs as files of the run directory. They are written as they come, and made durable together.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::store::port::{Blobs, StoreError};
use crate::sys::files::{self, FileError};

pub(super) struct FileBlobs {
    folder: PathBuf,
    unsynced: Mutex<Vec<PathBuf>>,
    /// Held while files are made durable. A second caller waits for the first. It has the folders whose names are durable: a run
    /// removes none of its folders.
    syncing: Mutex<BTreeSet<PathBuf>>,
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
        let mut known = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(files::sync(&written, &mut known)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_waits_for_its_file_and_its_name_and_only_the_first_one_for_its_folder_s_name() {
        let run = tempfile::tempdir().unwrap();
        let blobs = FileBlobs::below(run.path().to_owned());
        let waited = |names: &[&str]| {
            let before = files::waits();
            names.iter().for_each(|name| drop(blobs.put(name, b"bytes").unwrap()));
            blobs.sync().unwrap();
            files::waits() - before
        };
        assert_eq!(waited(&["conversation/1.json"]), 3, "the file, its folder, the run's");
        assert_eq!(waited(&["conversation/2.json"]), 2);
        assert_eq!(waited(&["conversation/3.json", "tool-output/1", "tool-output/2"]), 6);
        assert_eq!(waited(&[]), 0);
    }
}
