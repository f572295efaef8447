//! The seal: every file of a finished run's directory with its hash, as the journal's last event, so that a changed file
//! is found and named.

use std::path::Path;

use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::record::Artifact;
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::FileJournal;

/// The journal itself is held together by its chain.
pub const JOURNAL: &str = "events.jsonl";

/// Seals a run whose files are all written. Blocks.
pub fn seal(journal: &FileJournal) -> Result<(), JournalError> {
    let files = files(&journal.dir().path)?;
    journal.append(Event::FilesSealed { files })
}

/// Every file of a run directory but its journal, by path. Blocks.
pub fn files(dir: &Path) -> Result<Vec<Artifact>, JournalError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let failed = |path: &Path, error: std::io::Error| JournalError {
            path: path.display().to_string(),
            message: error.to_string(),
        };
        for entry in std::fs::read_dir(&folder).map_err(|error| failed(&folder, error))? {
            let path = entry.map_err(|error| failed(&folder, error))?.path();
            let kind = path.symlink_metadata().map_err(|error| failed(&path, error))?.file_type();
            if kind.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
            if name == JOURNAL {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| failed(&path, error))?;
            found.push(Artifact { path: name, sha256: sha256_hex(&bytes), bytes: bytes.len() as u64 });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
