//! What brings the lines of one journal into the cluster's store: first the files that they name, then the lines, then the row.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::canonical::sha256_hex;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::journal_format::{JournalLine, named_in};
use crate::store::nats::{Behind, NatsLog, NatsStore};
use crate::store::port::{Appended, Blobs, Log as _, Place, Store as _, StoreError};
use crate::store::run_dir::RunDir;
use crate::sys::clock::Stopwatch;

/// Most bytes that are published at once, if they are several lines.
const MOST_BYTES: usize = 256 * 1024;

pub(super) struct Sender {
    nats: NatsStore,
    log: NatsLog,
    blobs: Arc<dyn Blobs>,
    repo: RepoName,
    run: RunId,
    folder: PathBuf,
    place: Place,
    row: RunRow,
    /// Since when the row is behind the lines.
    row_behind: Option<Stopwatch>,
    /// Whether this sender has written a row.
    has_row: bool,
    /// Files that are known to be there, by their hash.
    kept: BTreeSet<String>,
}

/// Why lines are not there.
pub(super) enum NotSent {
    /// Another has written behind the place that they were to follow.
    Overtaken,
    /// The store, or the disk, failed.
    Failed(StoreError),
}

impl From<StoreError> for NotSent {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Sender {
    /// Goes on behind `there`, which is what the store has of the run, up to `place`.
    pub(super) fn new(nats: &NatsStore, run: &RunDir, there: &[u8], place: Place) -> Self {
        let mut sender = Self {
            nats: nats.clone(),
            log: nats.journal(run),
            blobs: nats.blobs(run),
            repo: run.repo.clone(),
            run: run.run_id,
            folder: run.path.clone(),
            place,
            row: RunRow::new(&run.repo, run.run_id),
            row_behind: None,
            has_row: false,
            kept: BTreeSet::new(),
        };
        sender.fold(there);
        sender
    }

    /// Publishes lines from the beginning of `lines` on, as many as go at once; gives how many bytes are there now.
    pub(super) fn send(&mut self, lines: &[u8]) -> Result<usize, NotSent> {
        let chunk = at_once(lines);
        for line in read(chunk) {
            let mut named = Vec::new();
            named_in(&line.data, &mut |file| named.push(file));
            // What a line names is there before the line is.
            for file in named.iter().filter(|file| !self.kept.contains(&file.sha256)).collect::<Vec<_>>() {
                let path = self.folder.join(&file.path);
                match std::fs::read(&path) {
                    Ok(bytes) if sha256_hex(&bytes) == file.sha256 => {
                        self.blobs.put(&file.path, &bytes)?;
                    }
                    // It was written anew since, and a later line names what it is now.
                    Ok(_) => continue,
                    // A run that goes on with another's visits names that one's files.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        tracing::warn!("{} cannot be published: {error}", path.display());
                        continue;
                    }
                }
                self.kept.insert(file.sha256.clone());
            }
        }
        let sent = match self.log.append(self.place, chunk) {
            Appended::At(place) => {
                self.place = place;
                chunk.len()
            }
            Appended::Overtaken => self.found(lines)?.ok_or(NotSent::Overtaken)?,
            Appended::Unknown(error) => self.found(lines)?.ok_or(NotSent::Failed(error))?,
        };
        self.fold(&lines[..sent]);
        Ok(sent)
    }

    /// What stands behind the place: these lines, as far as they came in before.
    fn found(&mut self, lines: &[u8]) -> Result<Option<usize>, NotSent> {
        match self.log.behind(self.place, lines)? {
            Behind::Nothing => Ok(None),
            Behind::Own(bytes, place) => {
                self.place = place;
                Ok(Some(bytes))
            }
            Behind::Another => Err(NotSent::Overtaken),
        }
    }

    /// Where the store may have been set back to an older copy: goes on behind what it has now, if that is the beginning of the journal,
    /// and gives how many bytes that is. `None`: it is something else.
    pub(super) fn set_back(&mut self, journal: &[u8]) -> Result<Option<usize>, StoreError> {
        let (there, place) = match self.log.behind(0, journal)? {
            Behind::Nothing => (0, 0),
            Behind::Own(bytes, place) => (bytes, place),
            Behind::Another => return Ok(None),
        };
        self.place = place;
        // Files may be lost as well.
        self.kept.clear();
        self.row = RunRow::new(&self.repo, self.run);
        self.fold(&journal[..there]);
        Ok(Some(there))
    }

    fn fold(&mut self, lines: &[u8]) {
        for line in read(lines) {
            self.row.take((line.seq, &line.hash, line.ts), line.event().as_ref());
            self.row_behind.get_or_insert_with(Stopwatch::start);
        }
    }

    /// Since when the row is behind.
    pub(super) fn row_behind(&self) -> Option<Stopwatch> {
        self.row_behind
    }

    /// Whether the run has come to its end: then nobody waits longer for its row than for its lines.
    pub(super) fn has_ended(&self) -> bool {
        self.row.ended()
    }

    /// Whether this sender has written a row.
    pub(super) fn has_row(&self) -> bool {
        self.has_row
    }

    /// Writes the row.
    pub(super) fn write_row(&mut self) -> Result<(), StoreError> {
        if self.row_behind.is_some() {
            self.nats.put_row(&self.repo, &self.row)?;
            self.row_behind = None;
            self.has_row = true;
        }
        Ok(())
    }
}

/// The first lines, as many as go at once, and one in any case.
fn at_once(lines: &[u8]) -> &[u8] {
    let mut end = 0;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if end > 0 && end + line.len() > MOST_BYTES {
            break;
        }
        end += line.len();
    }
    &lines[..end]
}

fn read(lines: &[u8]) -> impl Iterator<Item = JournalLine> {
    lines.split_inclusive(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}
