//! The write-ahead journal of one run as a file, with its ledger and its artifacts beside it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::broadcast;

use super::journal_format::{GENESIS, JournalLine, LineError};
use super::run_dir::RunDir;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::record::Artifact;
use crate::domain::redaction::Redactor;
use crate::engine::journal::{Journal, JournalError};
use crate::sys::clock::Clock;
use crate::sys::files::{self, FileError};

/// How many lines a slow listener may lag behind before it misses some (the file has them all).
const LISTENER_BACKLOG: usize = 1024;

/// The journal of a live run: single writer, any number of listeners.
pub struct FileJournal {
    dir: RunDir,
    clock: Clock,
    redactor: Arc<Redactor>,
    tail: Mutex<Tail>,
    listeners: broadcast::Sender<Arc<JournalLine>>,
}

/// What the next line depends on; written under the lock only.
struct Tail {
    events: Arc<File>,
    accounting: Arc<File>,
    seq: u64,
    hash: String,
    facts: RunFacts,
}

impl FileJournal {
    /// Opens the journal of a run directory, making both if absent. A torn last line (the process died while writing
    /// it) is cut off: its effect never became visible. A broken chain is an error.
    pub fn open(dir: RunDir, clock: Clock, redactor: Arc<Redactor>) -> Result<Self, JournalError> {
        let failed = |path: PathBuf| move |error: std::io::Error| journal_error(&path, &error.to_string());
        let refused = |error: FileError| journal_error(error.path(), &error.to_string());
        files::create_private_dir(&dir.path).map_err(refused)?;
        let (lines, sound_bytes) = if dir.events().exists() {
            let text = std::fs::read(dir.events()).map_err(failed(dir.events()))?;
            let read = read_lines(&text).map_err(|error| journal_error(&dir.events(), &error.to_string()))?;
            (read.lines, Some(read.sound_bytes))
        } else {
            (Vec::new(), None)
        };
        let events = files::open_append(&dir.events()).map_err(refused)?;
        if let Some(sound_bytes) = sound_bytes {
            events.set_len(sound_bytes).map_err(failed(dir.events()))?;
        }
        let accounting = files::open_append(&dir.accounting()).map_err(refused)?;
        let (seq, hash) = lines.last().map_or((0, GENESIS.to_owned()), |line| (line.seq, line.hash.clone()));
        let facts = facts_of(&lines);
        let (events, accounting) = (Arc::new(events), Arc::new(accounting));
        let tail = Mutex::new(Tail { events, accounting, seq, hash, facts });
        let (listeners, _) = broadcast::channel(LISTENER_BACKLOG);
        Ok(Self { dir, clock, redactor, tail, listeners })
    }

    /// The run directory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Every line appended from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<JournalLine>> {
        self.listeners.subscribe()
    }

    /// Sequence and hash of the last line.
    pub fn head(&self) -> (u64, String) {
        let tail = self.tail();
        (tail.seq, tail.hash.clone())
    }

    /// What the events say so far: the same as folding the file anew.
    pub fn facts(&self) -> RunFacts {
        self.tail().facts.clone()
    }

    /// Writes the ledger anew from the events: the process may have died between the two.
    pub fn restore_ledger(&self) -> Result<(), JournalError> {
        let mut ledger = Vec::new();
        for line in read(&self.dir)?.lines {
            if matches!(line.kind.as_str(), "llm_attempted" | "tool_finished")
                && let Some(entry) = line.data.get("entry")
            {
                ledger.extend_from_slice(entry.to_string().as_bytes());
                ledger.push(b'\n');
            }
        }
        let path = self.dir.accounting();
        files::write_private(&path, &ledger).map_err(|error| journal_error(&path, &error.to_string()))
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // A panic while holding the lock leaves at most a line unwritten; sequence and hash change only after the write.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, event: &Event) -> Result<(), JournalError> {
        let failed = |message: String| journal_error(&self.dir.events(), &message);
        let value = serde_json::to_value(event).map_err(|error| failed(error.to_string()))?;
        let value = self.redactor.redact_json(&value).map_err(|error| failed(error.to_string()))?;
        let ledger = match event {
            Event::LlmAttempted { .. } | Event::ToolFinished { .. } => value.pointer("/data/entry").cloned(),
            _ => None,
        };
        let mut tail = self.tail();
        let line =
            JournalLine::seal(tail.seq + 1, self.clock.now_ms(), self.dir.run_id, value, tail.hash.clone())
                .map_err(failed)?;
        append_line(&tail.events, &line).map_err(|error| failed(error.to_string()))?;
        if let Some(entry) = ledger {
            append_line(&tail.accounting, &entry)
                .map_err(|error| journal_error(&self.dir.accounting(), &error.to_string()))?;
        }
        tail.seq = line.seq;
        tail.hash.clone_from(&line.hash);
        if let Some(event) = line.event() {
            tail.facts.take(line.ts, event);
        }
        drop(tail);
        // Nobody listening is fine.
        let _nobody = self.listeners.send(Arc::new(line));
        Ok(())
    }
}

impl Journal for FileJournal {
    fn append(&self, event: Event) -> Result<(), JournalError> {
        self.write(&event)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        let (events, accounting) = {
            let tail = self.tail();
            (Arc::clone(&tail.events), Arc::clone(&tail.accounting))
        };
        async move {
            let synced =
                tokio::task::spawn_blocking(move || events.sync_data().and_then(|()| accounting.sync_data()))
                    .await;
            match synced {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(journal_error(&self.dir.events(), &error.to_string())),
                Err(panic) => Err(journal_error(&self.dir.events(), &panic.to_string())),
            }
        }
        .boxed()
    }

    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>> {
        let target = self.dir.path.join(path);
        let shown = target.clone();
        let artifact =
            Artifact { path: path.to_owned(), sha256: sha256_hex(&bytes), bytes: bytes.len() as u64 };
        async move {
            let written = tokio::task::spawn_blocking(move || {
                if let Some(folder) = target.parent() {
                    files::create_private_dir(folder)?;
                }
                files::write_private(&target, &bytes)
            })
            .await;
            match written {
                Ok(Ok(())) => Ok(artifact),
                Ok(Err(error)) => Err(journal_error(&shown, &error.to_string())),
                Err(panic) => Err(journal_error(&shown, &panic.to_string())),
            }
        }
        .boxed()
    }

    fn kept<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, JournalError>> {
        let target = self.dir.path.join(path);
        async move {
            let shown = target.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read(&target)).await;
            match read {
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(error)) => Err(journal_error(&shown, &error.to_string())),
                Err(panic) => Err(journal_error(&shown, &panic.to_string())),
            }
        }
        .boxed()
    }
}

/// A journal as read back.
#[derive(Debug)]
pub struct ReadJournal {
    /// The lines, chain checked.
    pub lines: Vec<JournalLine>,
    /// Bytes up to the end of the last whole line.
    pub sound_bytes: u64,
}

/// The facts of a run, folded from its lines.
pub fn facts_of(lines: &[JournalLine]) -> RunFacts {
    RunFacts::fold(lines.iter().filter_map(|line| Some((line.ts, line.event()?))))
}

/// Reads a journal file and checks its chain; a torn last line is left out.
pub fn read(dir: &RunDir) -> Result<ReadJournal, JournalError> {
    let path = dir.events();
    let bytes = std::fs::read(&path).map_err(|error| journal_error(&path, &error.to_string()))?;
    read_lines(&bytes).map_err(|error| journal_error(&path, &error.to_string()))
}

fn read_lines(bytes: &[u8]) -> Result<ReadJournal, LineError> {
    let sound = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&bytes[..sound]).map_err(|error| {
        let before = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        LineError::Malformed { line: before as u64 + 1, message: error.to_string() }
    })?;
    let mut lines: Vec<JournalLine> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index as u64 + 1;
        let prev = lines.last().map_or(GENESIS, |line| line.hash.as_str());
        lines.push(JournalLine::read(line, number, number, prev)?);
    }
    Ok(ReadJournal { lines, sound_bytes: sound as u64 })
}

/// One write call for the whole line, so that a killed process leaves at most one torn line at the end.
fn append_line(mut file: &File, line: &impl serde::Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

fn journal_error(path: &std::path::Path, message: &str) -> JournalError {
    JournalError { path: path.display().to_string(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::name::RepoName;
    use crate::domain::run::{RunId, Warning};
    use crate::store::run_dir::StateDir;

    fn journal(state: &std::path::Path, secrets: Vec<crate::domain::redaction::KnownSecret>) -> FileJournal {
        let dir = StateDir::new(state.to_owned()).run(&RepoName::parse("o/n").unwrap(), RunId(Uuid::nil()));
        let redactor = Redactor::new([7; 32], secrets, &[]).unwrap();
        FileJournal::open(dir, Clock::system(), Arc::new(redactor)).unwrap()
    }

    fn note(text: &str) -> Event {
        Event::Warned(Warning { code: "note".into(), at: 1, text: text.into() })
    }

    #[test]
    fn a_torn_last_line_is_cut_and_the_chain_goes_on() {
        let state = tempfile::tempdir().unwrap();
        let first = journal(state.path(), Vec::new());
        first.append(note("one")).unwrap();
        first.append(note("two")).unwrap();
        let dir = first.dir().clone();
        drop(first);
        let whole = std::fs::read(dir.events()).unwrap();
        use std::io::Write as _;
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.events())
            .unwrap()
            .write_all(b"{\"seq\":3,\"ts")
            .unwrap();
        let again = journal(state.path(), Vec::new());
        assert_eq!(std::fs::read(dir.events()).unwrap(), whole);
        again.append(note("three")).unwrap();
        let lines = read(&dir).unwrap().lines;
        assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(lines[2].event(), Some(note("three")));
    }

    #[test]
    fn a_flipped_byte_anywhere_breaks_the_chain() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path(), Vec::new());
        journal.append(note("one")).unwrap();
        journal.append(note("two")).unwrap();
        let bytes = std::fs::read(journal.dir().events()).unwrap();
        for at in 0..bytes.len() - 1 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let read = read_lines(&flipped);
            // A newline made of another byte may hide the last line as torn; what is left is shorter then, never wrong.
            assert!(read.is_err() || read.unwrap().lines.len() < 2, "byte {at}");
        }
    }

    #[test]
    fn p_031_a_secret_never_reaches_the_journal() {
        let state = tempfile::tempdir().unwrap();
        let secret =
            crate::domain::redaction::KnownSecret { kind: "token".into(), value: "hunter2hunter2".into() };
        let journal = journal(state.path(), vec![secret]);
        journal.append(note("the token is hunter2hunter2, keep it")).unwrap();
        let text = std::fs::read_to_string(journal.dir().events()).unwrap();
        assert!(!text.contains("hunter2") && text.contains("[redacted:token:"), "{text}");
    }
}
