//! The index of seals, `seals.jsonl` in the state directory: one line for each run that was sealed, chained by hash.
//! One that came from a cluster has several such chains, a host's behind another's.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::journal_format::GENESIS;
use crate::domain::canonical::sha256_hex;
use crate::domain::seal::SignedSeal;
use crate::sys::files::{self, FileError};
use crate::sys::lock::Turn;

/// Its name.
pub const INDEX: &str = "seals.jsonl";
/// How long another run that is being sealed is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any line.
const LONGEST_LINE: u64 = 16 * 1024;

/// The index of a state directory.
#[derive(Debug, Clone)]
pub struct SealIndex {
    path: PathBuf,
}

/// What is in the index.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    /// Its lines, in order.
    pub seals: Vec<SignedSeal>,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl SealIndex {
    /// The index in a state directory.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(INDEX) }
    }

    /// Adds a seal. `sign` makes it from the hash of the line before, and `keep` writes it to the journal, before the index has it.
    /// `is_kept`: whether a journal has a seal. One process at a time.
    pub fn add<E>(
        &self,
        is_kept: impl Fn(&SignedSeal) -> bool,
        sign: impl FnOnce(String) -> Option<SignedSeal>,
        keep: impl FnOnce(Option<&SignedSeal>) -> Result<(), E>,
        failed: impl Fn(String) -> E,
    ) -> Result<(), E> {
        let told = |error: FileError| failed(error.to_string());
        let _turn = self.turn().map_err(&failed)?;
        self.complete_in_turn(is_kept).map_err(told)?;
        let (mut file, previous) = self.end().map_err(told)?;
        let Some(seal) = sign(previous) else { return keep(None) };
        let mut line = serde_json::to_vec(&seal).map_err(|error| failed(error.to_string()))?;
        files::write_private(&self.next(), &line).map_err(told)?;
        keep(Some(&seal))?;
        line.push(b'\n');
        self.write_line(&mut file, &line).map_err(told)?;
        files::remove_file(&self.next()).map_err(told).map(drop)
    }

    /// Adds the line that a process did not come to: it died behind the seal in its journal. Nothing else is added, so that an index
    /// that somebody cut off stays one. `is_kept`: whether a journal has a seal.
    pub fn complete(&self, is_kept: impl Fn(&SignedSeal) -> bool) -> Result<(), String> {
        if !self.next().exists() {
            return Ok(());
        }
        // A process that is at it has the turn.
        let _turn = self.turn()?;
        self.complete_in_turn(is_kept).map_err(|error| error.to_string())
    }

    fn complete_in_turn(&self, is_kept: impl Fn(&SignedSeal) -> bool) -> Result<(), FileError> {
        let Some(mut line) = files::read_plain(&self.next(), LONGEST_LINE) else { return Ok(()) };
        if let Ok(seal) = serde_json::from_slice::<SignedSeal>(&line)
            && is_kept(&seal)
        {
            let (mut file, previous) = self.end()?;
            // Else the index has it already, or is not the one that it was made for.
            if seal.statement.previous == previous {
                line.push(b'\n');
                self.write_line(&mut file, &line)?;
            }
        }
        files::remove_file(&self.next()).map(drop)
    }

    /// The line that comes next is in this file while it is written to the journal and to the index.
    fn next(&self) -> PathBuf {
        self.path.with_extension("next")
    }

    fn turn(&self) -> Result<Turn, String> {
        let turn =
            Turn::wait(&self.path.with_extension("lock"), PATIENCE).map_err(|error| error.to_string())?;
        turn.ok_or_else(|| "another run is being sealed; try again".to_owned())
    }

    /// The index, open behind its last whole line, and that line's hash.
    fn end(&self) -> Result<(File, String), FileError> {
        let mut file = files::open_append(&self.path)?;
        let failed = |error| FileError::new("read", &self.path, error);
        let size = file.metadata().map_err(failed)?.len();
        let begin = size.saturating_sub(LONGEST_LINE);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(begin)).and_then(|_| file.read_to_end(&mut tail)).map_err(failed)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < tail.len() {
            // The process that wrote this died while it did.
            file.set_len(begin + whole as u64).map_err(failed)?;
        }
        let last = tail[..whole].trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let previous = if last.is_empty() { GENESIS.to_owned() } else { sha256_hex(last) };
        Ok((file, previous))
    }

    fn write_line(&self, file: &mut File, line: &[u8]) -> Result<(), FileError> {
        let written = file.write_all(line).and_then(|()| file.sync_data());
        written.map_err(|error| FileError::new("write", &self.path, error))
    }

    /// Its lines as they are, without half a line at the end; nothing where it is not there.
    pub fn lines(&self) -> Result<Vec<u8>, FileError> {
        let mut bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(FileError::new("read", &self.path, error)),
        };
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        Ok(bytes)
    }

    /// Writes it anew, for a state directory that nobody works with.
    pub fn write(&self, lines: &[u8]) -> Result<(), FileError> {
        files::write_private(&self.path, lines)
    }

    /// Everything in it; nothing where it is not there.
    pub fn read(&self) -> Entries {
        let mut entries = Entries::default();
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return entries,
            Err(error) => {
                entries.problems.push(format!("cannot be read: {error}"));
                return entries;
            }
        };
        let mut previous = GENESIS.to_owned();
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            let Some(line) = line.strip_suffix(b"\n") else {
                entries.problems.push(format!("line {number} is torn"));
                break;
            };
            match serde_json::from_slice::<SignedSeal>(line) {
                Ok(seal) => {
                    // The index of a cluster that was exported has that of each host, one behind the other.
                    if seal.statement.previous != previous && seal.statement.previous != GENESIS {
                        let problem = format!("line {number} does not follow the line before it");
                        entries.problems.push(problem);
                    }
                    entries.seals.push(seal);
                }
                Err(error) => entries.problems.push(format!("line {number} is no seal: {error}")),
            }
            previous = sha256_hex(line);
        }
        entries
    }
}
