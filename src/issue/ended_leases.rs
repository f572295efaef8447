//! Remembers which leases are of runs that came to an end of their own, so that a start reads only what is new since the last.
//!
//! It is a memory and nothing else. What it says of a lease counts only while lease and result are the very files that were read
//! then; whatever is missing, changed or unreadable is read as if there was no memory.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use super::ended_leases_format::{ENDED_RUNS_SCHEMA, EndedRuns};
use crate::domain::canonical::sha256_hex;
use crate::domain::run::RunId;
use crate::sys::files::{self, Stamp};

/// Its file, beside the leases.
const FILE: &str = "ended-runs";
/// A file that was changed so lately may be changed once more without another time, in milliseconds.
const RESTS: i64 = 2_000;
/// Most threads that look at files.
const MOST_THREADS: usize = 4;
/// So many leases are not worth another thread.
const FEW: usize = 256;

/// The memory of one folder of leases.
#[derive(Debug)]
pub(super) struct EndedLeases {
    path: PathBuf,
    known: BTreeMap<String, (RunId, String)>,
    now: BTreeMap<String, (RunId, String)>,
    now_ms: i64,
}

/// A lease's file before it is read.
pub(super) struct Unread {
    name: String,
    stamp: Option<Stamp>,
}

impl EndedLeases {
    /// What is remembered; nothing where that cannot be read. `now_ms`: milliseconds since 1970. Blocks.
    pub(super) fn read(folder: &Path, now_ms: i64) -> Self {
        let path = folder.join(FILE);
        let read = std::fs::read(&path).ok();
        let read = read.and_then(|text| serde_json::from_slice::<EndedRuns>(&text).ok());
        let known = read.filter(|read| read.schema_version == ENDED_RUNS_SCHEMA).map(|read| read.ended);
        Self { path, known: known.unwrap_or_default(), now: BTreeMap::new(), now_ms }
    }

    /// The last run of each lease, where it is known to be over; else the lease has to be read. `result`: the file of a run. Several
    /// threads look, because there may be ten thousands.
    pub(super) fn look(
        &mut self,
        leases: &[&Path],
        result: &(impl Fn(RunId) -> PathBuf + Sync),
    ) -> Vec<Result<RunId, Unread>> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        let part = leases.len().div_ceil(threads).max(FEW);
        let known = &self.known;
        let parts: Vec<Vec<Looked>> = std::thread::scope(|scope| {
            let look = |part: &[&Path]| part.iter().map(|lease| look_at(known, lease, result)).collect();
            let parts: Vec<_> = leases.chunks(part).map(|part| scope.spawn(move || look(part))).collect();
            // Of what a thread that panicked looked at, nothing is known.
            let unread = |part: &[&Path]| part.iter().map(|lease| Err(Unread::of(lease))).collect();
            let ended = parts.into_iter().zip(leases.chunks(part));
            ended.map(|(thread, part)| thread.join().unwrap_or_else(|_| unread(part))).collect()
        });
        let all = parts.into_iter().flatten().map(|looked| {
            looked.map(|(name, run, mark)| {
                self.now.insert(name, (run, mark));
                run
            })
        });
        all.collect()
    }

    /// Remembers that the last run of a lease is over. `result`: its result's stamp before it was read.
    pub(super) fn is_over(&mut self, lease: Unread, run: RunId, result: Option<Stamp>) {
        let rests = |stamp: &Stamp| stamp.changed_ms().is_some_and(|at| at + RESTS < self.now_ms);
        if let (Some(stamp), Some(result)) = (lease.stamp.filter(rests), result.filter(rests)) {
            self.now.insert(lease.name, (run, mark_of(&stamp, &result)));
        }
    }

    /// Writes it for the next look, where it is another one than before. Blocks.
    pub(super) fn keep(self) {
        if self.now == self.known {
            return;
        }
        let ended = EndedRuns { schema_version: ENDED_RUNS_SCHEMA.to_owned(), ended: self.now };
        let text = serde_json::to_vec(&ended).unwrap_or_default();
        if let Err(error) = files::write_private(&self.path, &text) {
            tracing::debug!(%error, "which runs are over is not remembered for the next start");
        }
    }
}

impl Unread {
    fn of(lease: &Path) -> Self {
        let name = lease.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { name, stamp: files::stamp(lease) }
    }
}

/// A lease whose last run is over: its file, the run, and their mark.
type Looked = Result<(String, RunId, String), Unread>;

fn look_at(
    known: &BTreeMap<String, (RunId, String)>,
    lease: &Path,
    result: &impl Fn(RunId) -> PathBuf,
) -> Looked {
    let unread = Unread::of(lease);
    if let (Some((run, mark)), Some(stamp)) = (known.get(&unread.name), &unread.stamp)
        && files::stamp(&result(*run)).is_some_and(|result| *mark == mark_of(stamp, &result))
    {
        return Ok((unread.name, *run, mark.clone()));
    }
    Err(unread)
}

fn mark_of(lease: &Stamp, result: &Stamp) -> String {
    sha256_hex(format!("{} {}", lease.text(), result.text()).as_bytes())[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const RESULT: &str = "result-00000000-0000-0000-0000-000000000007.json";

    /// Looks once at the lease of a run that is over. Gives whether it was read.
    fn look(folder: &Path, now_ms: i64) -> bool {
        let mut leases = EndedLeases::read(folder, now_ms);
        let (lease, result) = (folder.join("issue-7.json"), folder.join(RESULT));
        let run = RunId(Uuid::from_u128(7));
        let known = leases.look(&[&lease], &|run| folder.join(format!("result-{run}.json"))).remove(0);
        let read = known.is_err();
        match known {
            Ok(known) => assert_eq!(known, run),
            Err(unread) => leases.is_over(unread, run, files::stamp(&result)),
        }
        leases.keep();
        read
    }

    #[test]
    fn a_lease_is_read_again_where_anything_is_not_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        let write =
            |name: &str, text: &str| files::write_private(&folder.join(name), text.as_bytes()).unwrap();
        let now = files::stamp(folder).unwrap().changed_ms().unwrap();
        let later = now + 60_000;
        write("issue-7.json", "a lease");
        write(RESULT, "its end");
        assert!(
            look(folder, now) && look(folder, later),
            "what was just written may change without another time"
        );
        assert!(!look(folder, later) && !look(folder, later));
        // The same bytes in another file, and other bytes.
        for (name, text) in [("issue-7.json", "a lease"), (RESULT, "its end"), ("issue-7.json", "b lease")] {
            write(name, text);
            assert!(look(folder, later), "{name}: {text}");
            assert!(!look(folder, later));
        }
        files::remove_file(&folder.join(RESULT)).unwrap();
        assert!(look(folder, later) && look(folder, later), "a result that is gone says nothing");
        write(RESULT, "its end");
        assert!(look(folder, later) && !look(folder, later));
        let remembered = std::fs::read_to_string(folder.join(FILE)).unwrap();
        for bad in ["", "{", &remembered.replace(".v1", ".v2"), &remembered.replace("\",\"", "\",\"0")] {
            write(FILE, bad);
            assert!(look(folder, later), "{bad}");
            assert!(!look(folder, later));
        }
        files::remove_file(&folder.join(FILE)).unwrap();
        assert!(look(folder, later) && !look(folder, later));
    }
}
