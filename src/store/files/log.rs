//! A log as a file of lines; a place is a number of bytes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::store::port::{Appended, Log, Place, StoreError};
use crate::sys::files::{self, FileError};

/// The lease on the issue keeps other writers away; who writes all the same is seen at the next append.
pub(super) struct FileLog {
    path: PathBuf,
    file: File,
    /// The file's position is used by one at a time.
    turn: Mutex<()>,
}

impl FileLog {
    /// Opens a log, made with mode 0600 where it is missing.
    pub(super) fn open(path: PathBuf) -> Result<Self, FileError> {
        let file = files::open_append(&path)?;
        Ok(Self { path, file, turn: Mutex::new(()) })
    }

    /// Whether the file ends at `after`, once half a line behind it is cut off.
    fn ends_at(&self, after: Place) -> io::Result<bool> {
        let end = (&self.file).seek(SeekFrom::End(0))?;
        if end <= after {
            return Ok(end == after);
        }
        if self.read_from(after)?.contains(&b'\n') {
            return Ok(false);
        }
        self.file.set_len(after).map(|()| true)
    }

    fn read_from(&self, from: Place) -> io::Result<Vec<u8>> {
        let mut file = &self.file;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> StoreError {
        move |error| FileError::new(action, &self.path, error).into()
    }
}

impl Log for FileLog {
    fn append(&self, after: Place, lines: &[u8]) -> Appended {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.ends_at(after) {
            Ok(true) => {}
            Ok(false) => return Appended::Overtaken,
            Err(error) => return Appended::Unknown(self.failed("write")(error)),
        }
        // One write call, so that a killed process leaves at most one torn line at the end.
        match (&self.file).write_all(lines) {
            Ok(()) => Appended::At(after + lines.len() as u64),
            Err(error) => {
                // All of it or nothing; where that fails as well, the reader finds lines that are not all of them.
                let _taken_back = self.file.set_len(after);
                Appended::Unknown(self.failed("write")(error))
            }
        }
    }

    fn read(&self, from: Place) -> Result<(Vec<u8>, Place), StoreError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = self.read_from(from).map_err(self.failed("read"))?;
        lines.truncate(lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        let end = from + lines.len() as u64;
        Ok((lines, end))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(self.failed("sync"))
    }
}
