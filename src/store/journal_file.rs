//! The write-ahead journal of one run as a file, with its ledger and its artifacts beside it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::broadcast;

use super::journal::{Journal, JournalError};
use super::journal_format::{self, GENESIS, HeardLine, JournalLine, LineError};
use super::port::{Appended, Blobs, Log, Place};
use super::run_dir::RunDir;
use crate::domain::artifact::Artifact;
use crate::domain::canonical::both_texts;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::name::RepoName;
use crate::domain::redaction::Redactor;
use crate::domain::run::RunId;
use crate::sys::clock::Clock;
use crate::sys::files::{self, FileError};

/// How many lines a slow listener may lag behind before it misses some (the file has them all).
const LISTENER_BACKLOG: usize = 1024;

/// Lines that may stand behind a seal.
const BEHIND_SEAL: usize = 4;
/// So much of a journal's end is looked at for its seal, in bytes; where that is part of a longer line, more, and at last so much.
const SHORT_END: u64 = 16 * 1024;
const LONG_END: u64 = 1024 * 1024;

/// Artifacts up to this size are written at once. A longer one would block the thread of the runtime.
const SMALL_WRITE: usize = 64 * 1024;

/// Bytes of a journal that are read at once.
const READ_AT_ONCE: usize = 64 * 1024;

/// The journal of a live run: single writer, any number of listeners.
pub struct FileJournal {
    dir: RunDir,
    /// The run's id, as each line has it.
    run_id: String,
    clock: Clock,
    redactor: Arc<Redactor>,
    log: Arc<dyn Log>,
    blobs: Arc<dyn Blobs>,
    tail: Mutex<Tail>,
    listeners: broadcast::Sender<Arc<HeardLine>>,
}

/// What the next line depends on; written under the lock only.
struct Tail {
    /// Where the log ends.
    place: Place,
    /// The ledger, which can be made anew from the log, and how long it is.
    accounting: Arc<File>,
    accounted: u64,
    seq: u64,
    hash: String,
    /// What the lines said when someone last asked, and up to which place those are: a long run's events are not held in
    /// memory while nobody asks. Behind that place, so many bytes more: they waited when they were folded in.
    facts: Arc<RunFacts>,
    folded: (Place, usize),
    /// Lines that go to the log with the next one that has to, and their lines of the ledger.
    waiting: Vec<u8>,
    waiting_entries: Vec<u8>,
    /// What listeners hear once it is in the log.
    unheard: Vec<Arc<HeardLine>>,
    /// Half a line could not be taken back, or another process has written: the chain cannot go on.
    broken: bool,
}

impl Tail {
    fn fold(&mut self, log: &dyn Log) -> Result<(), String> {
        let (mut lines, end) = log.read(self.folded.0).map_err(|error| error.to_string())?;
        lines.extend_from_slice(&self.waiting);
        let facts = Arc::make_mut(&mut self.facts);
        for line in lines.get(self.folded.1..).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            let read: JournalLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
            if let Some(event) = read.event() {
                facts.take(read.ts, event);
            }
        }
        self.folded = (end, self.waiting.len());
        Ok(())
    }
}

/// Lines do not wait any longer above so many bytes.
const MOST_WAITING: usize = 256 * 1024;

impl FileJournal {
    /// Opens the journal of a run directory and makes both if they are missing. A torn last line is cut off, because
    /// its effect never became visible. A broken chain is an error.
    pub fn open(dir: RunDir, clock: Clock, redactor: Arc<Redactor>) -> Result<Self, JournalError> {
        let log = dir.store().log(&dir)?;
        let (text, end) = log.read(0)?;
        let lines = parse(&text).map_err(|error| journal_error(&dir.events(), &error.to_string()))?.lines;
        // Nothing is added; what was torn is cut.
        let place = match log.append(end, &[]) {
            Appended::At(place) => place,
            Appended::Overtaken => return Err(overtaken(&dir)),
            Appended::Unknown(error) => return Err(error.into()),
        };
        let accounting = files::open_append(&dir.accounting()).map_err(refused)?;
        let accounted = accounting.metadata().map(|file| file.len());
        let accounted = accounted.map_err(|error| journal_error(&dir.accounting(), &error.to_string()))?;
        let (seq, hash) = lines.last().map_or((0, GENESIS.to_owned()), |line| (line.seq, line.hash.clone()));
        let tail = Mutex::new(Tail {
            place,
            accounting: Arc::new(accounting),
            accounted,
            seq,
            hash,
            facts: Arc::new(facts_of(&lines)),
            folded: (place, 0),
            waiting: Vec::new(),
            waiting_entries: Vec::new(),
            unheard: Vec::new(),
            broken: false,
        });
        let (listeners, _) = broadcast::channel(LISTENER_BACKLOG);
        let (run_id, blobs) = (dir.run_id.to_string(), dir.store().blobs(&dir));
        Ok(Self { dir, run_id, clock, redactor, log, blobs, tail, listeners })
    }

    /// The run directory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Every line appended from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<HeardLine>> {
        self.listeners.subscribe()
    }

    /// Ends once it is known that another node has the run; never where nobody else can.
    pub fn overtaken(&self) -> BoxFuture<'static, ()> {
        self.log.overtaken()
    }

    /// Sequence and hash of the last line.
    pub fn head(&self) -> (u64, String) {
        let tail = self.tail();
        (tail.seq, tail.hash.clone())
    }

    /// The facts of the events so far. The lines since the last call are added, also those that are not written yet. If
    /// they cannot be read, nothing more is appended, because half the facts would lead to a wrong end.
    pub fn facts(&self) -> Arc<RunFacts> {
        let mut tail = self.tail();
        if let Err(message) = tail.fold(&*self.log) {
            tracing::error!("what {} says cannot be read back: {message}", self.dir.events().display());
            tail.broken = true;
        }
        Arc::clone(&tail.facts)
    }

    /// Writes the ledger anew from the events: the process may have died between the two.
    pub fn restore_ledger(&self) -> Result<(), JournalError> {
        let ledger = ledger_of(&read(&self.dir)?.lines);
        let path = self.dir.accounting();
        files::write_private(&path, &ledger).map_err(refused)
    }

    /// Waits until the ledger is on disk, which a flush does not: before it is sealed. Blocks.
    pub fn sync_ledger(&self) -> Result<(), JournalError> {
        let accounting = Arc::clone(&self.tail().accounting);
        accounting.sync_data().map_err(|error| journal_error(&self.dir.accounting(), &error.to_string()))
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // A panic while holding the lock leaves at most a line unwritten; sequence and hash change only after the write.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event to the chain. `now`: it is written to the file, with all lines that wait.
    fn write(&self, event: Event, now: bool) -> Result<(), JournalError> {
        let failed = |message: String| journal_error(&self.dir.events(), &message);
        let mut tail = self.tail();
        let tail = &mut *tail;
        self.check_whole(tail)?;
        let written = redacted(event, &self.redactor).map_err(|error| failed(error.to_string()))?;
        let (seq, ts) = (tail.seq + 1, self.clock.now_ms());
        let (begin, begin_entries) = (tail.waiting.len(), tail.waiting_entries.len());
        let text = written.text.as_bytes();
        let canonical = written.canonical.as_ref().map_or(text, String::as_bytes);
        let place = (seq, ts, self.run_id.as_str());
        let hash =
            journal_format::seal(place, text, canonical, &tail.hash, &mut tail.waiting).map_err(failed)?;
        if let Some(entry) = journal_format::ledger_entry(text) {
            tail.waiting_entries.extend_from_slice(entry);
            tail.waiting_entries.push(b'\n');
        }
        let heard = (self.listeners.receiver_count() > 0).then(|| HeardLine {
            seq,
            ts,
            run_id: self.dir.run_id,
            kind: journal_format::kind(text).unwrap_or_default().to_owned(),
            event: written.event,
            text: String::from_utf8_lossy(&tail.waiting[begin..]).into_owned(),
        });
        if (now || tail.waiting.len() > MOST_WAITING)
            && let Err(error) = self.write_waiting(tail)
        {
            // What waited before has its place in the chain, and waits on.
            tail.waiting.truncate(begin);
            tail.waiting_entries.truncate(begin_entries);
            return Err(error);
        }
        (tail.seq, tail.hash) = (seq, hash);
        tail.unheard.extend(heard.map(Arc::new));
        if tail.waiting.is_empty() {
            for line in tail.unheard.drain(..) {
                // Nobody listening any more is fine.
                let _nobody = self.listeners.send(line);
            }
        }
        Ok(())
    }

    fn check_whole(&self, tail: &Tail) -> Result<(), JournalError> {
        match tail.broken {
            true => Err(journal_error(&self.dir.events(), "an earlier line could not be written")),
            false => Ok(()),
        }
    }

    /// Everything that waits goes to the log and to the ledger, or nothing.
    fn write_waiting(&self, tail: &mut Tail) -> Result<(), JournalError> {
        self.check_whole(tail)?;
        if tail.waiting.is_empty() {
            return Ok(());
        }
        let accounting = Arc::clone(&tail.accounting);
        let written = (&*accounting)
            .write_all(&tail.waiting_entries)
            .map_err(|error| journal_error(&self.dir.accounting(), &error.to_string()))
            .and_then(|()| self.add_waiting(tail));
        if written.is_err() {
            tail.broken |= accounting.set_len(tail.accounted).is_err();
            return written;
        }
        tail.accounted += tail.waiting_entries.len() as u64;
        tail.waiting.clear();
        tail.waiting_entries.clear();
        Ok(())
    }

    fn add_waiting(&self, tail: &mut Tail) -> Result<(), JournalError> {
        tail.place = match self.log.append(tail.place, &tail.waiting) {
            Appended::At(place) => place,
            Appended::Overtaken => {
                tail.broken = true;
                return Err(overtaken(&self.dir));
            }
            Appended::Unknown(error) => match self.log.read(tail.place) {
                Ok((lines, end)) if lines == tail.waiting => end,
                Ok((lines, _)) if lines.is_empty() => return Err(error.into()),
                Ok(_) | Err(_) => {
                    tail.broken = true;
                    return Err(error.into());
                }
            },
        };
        Ok(())
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        let mut tail = self.tail();
        // Callers that need the result have appended or flushed. Nobody else needs to know.
        let _too_late = self.write_waiting(&mut tail);
    }
}

/// An event as it is written.
struct Written {
    /// `None` where it cannot be told any more without its secrets.
    event: Option<Event>,
    text: String,
    /// Its canonical text, where that is another one.
    canonical: Option<String>,
}

/// Makes the text of an event without secrets. Nearly every event is clean, which a single look at its text shows; in
/// the others each text, name and number is redacted.
fn redacted(event: Event, redactor: &Redactor) -> Result<Written, Box<dyn std::error::Error>> {
    let (text, canonical) = both_texts(&event)?;
    if redactor.is_clean_json(text.as_bytes()) {
        return Ok(Written { event: Some(event), text, canonical });
    }
    // A seal has nobody's words.
    let is_seal = matches!(event, Event::FilesSealed { .. });
    let whole = serde_json::to_value(event)?;
    let redacted = redactor.redact_record(&whole)?;
    if let (false, Ok(event)) = (is_seal, serde_json::from_value(redacted.clone())) {
        let (text, canonical) = both_texts(&redacted)?;
        return Ok(Written { event: Some(event), text, canonical });
    }
    // A pattern of the configuration fits what agentd has to read again. Secrets are in no line all the same.
    let redacted = redactor.redact_secrets(&whole)?;
    let (text, canonical) = both_texts(&redacted)?;
    Ok(Written { event: serde_json::from_value(redacted).ok(), text, canonical })
}

impl Journal for FileJournal {
    fn append(&self, event: Event) -> Result<(), JournalError> {
        self.write(event, true)
    }

    fn append_with_next(&self, event: Event) -> Result<(), JournalError> {
        self.write(event, false)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        let written = self.write_waiting(&mut self.tail());
        let (log, blobs) = (Arc::clone(&self.log), Arc::clone(&self.blobs));
        async move {
            written?;
            // What an event points to is on disk before the event is. The ledger can be made anew from the events.
            let synced = tokio::task::spawn_blocking(move || {
                blobs.sync().map_err(|error| error.to_string())?;
                log.sync().map_err(|error| JournalError::from(error).message)
            });
            let done = synced.await.unwrap_or_else(|panic| Err(panic.to_string()));
            done.map_err(|message| journal_error(&self.dir.events(), &message))
        }
        .boxed()
    }

    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>> {
        async move {
            if bytes.len() <= SMALL_WRITE {
                return Ok(self.blobs.put(path, &bytes)?);
            }
            let (blobs, own) = (Arc::clone(&self.blobs), path.to_owned());
            match tokio::task::spawn_blocking(move || blobs.put(&own, &bytes)).await {
                Ok(kept) => Ok(kept?),
                Err(panic) => Err(journal_error(&self.dir.path.join(path), &panic.to_string())),
            }
        }
        .boxed()
    }

    fn kept<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<Vec<u8>, JournalError>> {
        async move {
            let (blobs, own) = (Arc::clone(&self.blobs), artifact.clone());
            match tokio::task::spawn_blocking(move || blobs.get(&own)).await {
                Ok(bytes) => Ok(bytes?),
                Err(panic) => Err(journal_error(&self.dir.path.join(&artifact.path), &panic.to_string())),
            }
        }
        .boxed()
    }
}

fn overtaken(dir: &RunDir) -> JournalError {
    journal_error(&dir.events(), "another process has written to it")
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

/// The row of a run, folded from its lines.
pub fn row_of(repo: &RepoName, run_id: RunId, lines: &[JournalLine]) -> RunRow {
    let mut row = RunRow::new(repo, run_id);
    for line in lines {
        row.take((line.seq, &line.hash, line.ts), line.event().as_ref());
    }
    row
}

/// The ledger that the lines of a journal make.
pub fn ledger_of(lines: &[JournalLine]) -> Vec<u8> {
    let mut ledger = Vec::new();
    for line in lines.iter().filter(|line| matches!(line.kind.as_str(), "llm_attempted" | "tool_finished")) {
        if let Some(entry) = line.data.get("entry") {
            ledger.extend_from_slice(entry.to_string().as_bytes());
            ledger.push(b'\n');
        }
    }
    ledger
}

/// Reads a journal file and checks its chain; a torn last line is left out.
pub fn read(dir: &RunDir) -> Result<ReadJournal, JournalError> {
    let mut lines = Vec::new();
    let sound_bytes = each(dir, |line| lines.push(line))?;
    Ok(ReadJournal { lines, sound_bytes })
}

/// The facts of a run, folded from its journal as it is read. A long one is never whole in memory.
pub fn facts(dir: &RunDir) -> Result<RunFacts, JournalError> {
    let mut facts = RunFacts::default();
    each(dir, |line| take(&mut facts, &line))?;
    Ok(facts)
}

/// Takes the event of a line in, if this version knows it.
pub fn take(facts: &mut RunFacts, line: &JournalLine) {
    if let Some(event) = line.event() {
        facts.take(line.ts, event);
    }
}

/// Gives the lines of a journal file, one after the other, each checked with the chain before it; a torn last line is left out. Gives the
/// bytes up to the end of the last whole line.
pub fn each(dir: &RunDir, mut take: impl FnMut(JournalLine)) -> Result<u64, JournalError> {
    let path = dir.events();
    let failed = |error: &dyn std::fmt::Display| journal_error(&path, &error.to_string());
    let file = File::open(&path).map_err(|error| failed(&error))?;
    let mut file = BufReader::with_capacity(READ_AT_ONCE, file);
    let (mut bytes, mut sound, mut number, mut prev) = (Vec::new(), 0, 0, GENESIS.to_owned());
    loop {
        bytes.clear();
        let read = file.read_until(b'\n', &mut bytes).map_err(|error| failed(&error))?;
        let Some(text) = bytes.strip_suffix(b"\n") else { return Ok(sound) };
        number += 1;
        let text = std::str::from_utf8(text)
            .map_err(|error| failed(&LineError::Malformed { line: number, message: error.to_string() }))?;
        let line = JournalLine::read(text, number, number, &prev).map_err(|error| failed(&error))?;
        prev.clone_from(&line.hash);
        sound += read as u64;
        take(line);
    }
}

/// Reads the text of a journal and checks its chain; a torn last line is left out.
///
/// # Errors
/// A line is none of a journal, or the chain breaks at it.
pub fn parse(bytes: &[u8]) -> Result<ReadJournal, LineError> {
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

/// The files of a run as its seal names them, where the journal ends with that: the lines before are not read. `None` = the run has not
/// ended, or its journal has to be read to know.
pub fn sealed_files(dir: &RunDir) -> Option<Vec<Artifact>> {
    let mut file = File::open(dir.events()).ok()?;
    let length = file.metadata().ok()?.len();
    let mut size = SHORT_END;
    loop {
        let from = length.saturating_sub(size);
        let mut end = Vec::new();
        file.seek(SeekFrom::Start(from)).ok()?;
        file.read_to_end(&mut end).ok()?;
        end.truncate(end.iter().rposition(|byte| *byte == b'\n')?);
        let mut lines: Vec<&[u8]> = end.rsplit(|byte| *byte == b'\n').take(BEHIND_SEAL + 1).collect();
        let is_enough = from == 0 || lines.len() > BEHIND_SEAL || size >= LONG_END;
        if from > 0 && lines.len() <= BEHIND_SEAL {
            // Only a part of it is there.
            lines.pop();
        }
        let files = lines.into_iter().find_map(files_of_seal);
        if files.is_some() || is_enough {
            return files;
        }
        size *= 8;
    }
}

fn files_of_seal(line: &[u8]) -> Option<Vec<Artifact>> {
    let text = std::str::from_utf8(line).ok()?;
    let line: JournalLine = serde_json::from_str(text).ok()?;
    match JournalLine::read(text, line.seq, line.seq, &line.prev).ok()?.event()? {
        Event::FilesSealed { files, .. } => Some(files),
        _ => None,
    }
}

/// Whether a journal has lost its beginning, as one does in a cluster that is past its time: its first line is none of a beginning.
pub fn is_a_tail(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice::<JournalLine>(first).is_ok_and(|line| line.seq > 1)
}

fn refused(error: FileError) -> JournalError {
    journal_error(error.path(), &error.words())
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

    #[tokio::test]
    async fn what_waits_is_in_the_file_before_the_next_event_and_with_a_flush() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path(), Vec::new());
        let mut heard = journal.listen();
        let kinds = || {
            let lines = read(journal.dir()).unwrap().lines;
            lines.iter().filter_map(JournalLine::event).collect::<Vec<_>>()
        };
        journal.append_with_next(note("one")).unwrap();
        assert_eq!(journal.head().0, 1, "it has its place");
        assert!(kinds().is_empty() && heard.try_recv().is_err(), "and nobody saw it yet");
        journal.append(note("two")).unwrap();
        assert_eq!(kinds(), [note("one"), note("two")]);
        assert_eq!((heard.recv().await.unwrap().seq, heard.recv().await.unwrap().seq), (1, 2));
        journal.append_with_next(note("three")).unwrap();
        journal.flush().await.unwrap();
        assert_eq!(kinds().len(), 3);
        journal.append_with_next(note("four")).unwrap();
        let dir = journal.dir().clone();
        drop(journal);
        assert_eq!(read(&dir).unwrap().lines.len(), 4);
    }

    #[test]
    fn facts_are_those_of_the_file_whenever_they_are_asked_for() {
        let state = tempfile::tempdir().unwrap();
        let journal = journal(state.path(), Vec::new());
        let said = || {
            let texts = journal.facts();
            texts.warnings.iter().map(|warning| warning.text.clone()).collect::<Vec<_>>().join(" ")
        };
        let mut so_far = String::new();
        // Waiting events count, before and after they are written. An event counts once.
        for (text, now) in [("a", false), ("b", false), ("c", true), ("d", true), ("e", false)] {
            let held = journal.facts();
            match now {
                true => journal.append(note(text)).unwrap(),
                false => journal.append_with_next(note(text)).unwrap(),
            }
            assert_eq!(held.warnings.len(), so_far.len().div_ceil(2), "what was given out stays as it was");
            so_far = [so_far.as_str(), text].join(if so_far.is_empty() { "" } else { " " });
            assert_eq!(said(), so_far);
        }
        // The file's name may go away under a run that works.
        state.close().unwrap();
        journal.append(note("f")).unwrap();
        assert_eq!(said(), format!("{so_far} f"));
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
            let read = parse(&flipped);
            // If another byte is in place of a newline, the last line may look torn. The rest is then shorter but never
            // wrong.
            assert!(read.is_err() || read.unwrap().lines.len() < 2, "byte {at}");
        }
    }

    #[test]
    fn p_031_a_secret_never_reaches_the_journal_nor_who_listens() {
        let state = tempfile::tempdir().unwrap();
        let secret =
            crate::domain::redaction::KnownSecret { kind: "token".into(), value: "hunter2hunter2".into() };
        let journal = journal(state.path(), vec![secret]);
        let mut listener = journal.listen();
        journal.append(note("the token is hunter2hunter2, keep it")).unwrap();
        let text = std::fs::read_to_string(journal.dir().events()).unwrap();
        assert!(!text.contains("hunter2") && text.contains("[redacted:token:"), "{text}");
        let heard = listener.try_recv().unwrap();
        assert_eq!(heard.text, text);
        assert_eq!(heard.event, read(journal.dir()).unwrap().lines[0].event());
        assert_eq!((heard.kind.as_str(), heard.event.is_some()), ("warned", true));
    }
}
