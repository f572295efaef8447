//! Exclusive locks across processes: a file that the kernel unlocks when its holder dies.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::clock::Stopwatch;
use super::files::{self, FileError};
use super::holder_format::{Holder, LEASE_SCHEMA, LeaseRecord, Liveness};
use super::host::Host;

/// How long to wait for a lease whose file names no living holder. Either its holder has just taken it and not written
/// yet, or it was killed while it started a program, which still has the lock until it runs.
const UNNAMED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A held lease. Dropping it releases it. The kernel releases the lease of a killed holder.
///
/// The file is never removed. Otherwise two processes could lock two files of one name.
#[derive(Debug)]
pub struct Lock {
    file: LockedFile,
    path: PathBuf,
    content: LeaseRecord,
    previous: Option<Holder>,
}

/// Why a lease was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Someone has it.
    #[error("held by {}", .0.as_ref().map_or_else(|| "a process that has not said who it is".into(), |holder| holder.to_string()))]
    Busy(Option<Box<Holder>>),
    /// The file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Lock {
    /// Takes the lease in the file `path` for `holder`, or says who has it. The file and its directory are made if they
    /// are missing. A dead holder is taken over and named by [`Lock::previous`]. Blocks for at most two seconds.
    pub fn try_acquire(
        path: &Path,
        holder: Holder,
        host: &Host,
        now: DateTime<Utc>,
    ) -> Result<Self, LockError> {
        let failed = |source| FileError::new("lock", path, source);
        let watch = Stopwatch::start();
        let mut file = loop {
            if let Some(file) = lock_file(path, None)? {
                break file;
            }
            let named = peek(path).and_then(|content| content.holder);
            let alive = named.as_ref().is_some_and(|holder| holder.liveness(host, now) != Liveness::Dead);
            if alive || watch.elapsed() > UNNAMED {
                return Err(LockError::Busy(named.map(Box::new)));
            }
            std::thread::sleep(PAUSE);
        };
        let before = read_record(&mut file.0).map_err(failed)?;
        let previous = before.as_ref().and_then(|content| content.holder.clone());
        // On this machine the kernel decides: a lock that was free has no living holder. Only a holder on another
        // machine that shares the file may be alive without this kernel's knowledge.
        if let Some(other) = &previous
            && other.liveness(host, now) == Liveness::Elsewhere
            && (other.boot_id != host.boot_id || host.boot_id.is_empty())
        {
            return Err(LockError::Busy(previous.map(Box::new)));
        }
        let record = before.and_then(|content| content.record);
        let content = LeaseRecord {
            schema_version: LEASE_SCHEMA.to_owned(),
            holder: Some(holder),
            record,
            left: false,
        };
        let mut lock = Self { file, path: path.to_owned(), content, previous };
        lock.write()?;
        Ok(lock)
    }

    /// The dead holder that was taken over.
    pub fn previous(&self) -> Option<&Holder> {
        self.previous.as_ref()
    }

    /// This holder.
    pub fn holder(&self) -> Option<&Holder> {
        self.content.holder.as_ref()
    }

    /// What earlier holders recorded about the thing.
    pub fn record(&self) -> Option<&Value> {
        self.content.record.as_ref()
    }

    /// Records something that outlives this holder.
    pub fn set_record(&mut self, record: Value) -> Result<(), FileError> {
        self.content.record = Some(record);
        self.write()
    }

    /// Moves the expiry, for those who cannot ask this kernel.
    pub fn renew(&mut self, expires_at: DateTime<Utc>) -> Result<(), FileError> {
        if let Some(holder) = &mut self.content.holder {
            holder.expires_at = expires_at;
        }
        self.write()
    }

    /// Gives the lease back; what was recorded stays.
    pub fn release(mut self) -> Result<(), FileError> {
        self.content.holder = None;
        self.write()
    }

    /// Writes the line over the old one and then truncates. A reader in between, or after a crash in between, sees a
    /// whole first line.
    fn write(&mut self) -> Result<(), FileError> {
        let mut line = serde_json::to_vec(&self.content).unwrap_or_default();
        line.push(b'\n');
        let length = line.len() as u64;
        let write = |file: &mut File| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&line)?;
            file.set_len(length)?;
            file.sync_data()
        };
        write(&mut self.file.0).map_err(|source| FileError::new("write", &self.path, source))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.content.holder.take().is_some()
            && let Err(error) = self.write()
        {
            tracing::warn!(%error, "a lease was let go without saying so in its file");
        }
    }
}

/// What a lease file says. Nothing is taken or changed. It names a holder only if that one has the lease, as far as can
/// be told from here. `None` if there is no file or it cannot be read.
pub fn look(path: &Path, host: &Host, now: DateTime<Utc>) -> Option<LeaseRecord> {
    let content = peek(path)?;
    let has_it = |named: &Holder| match named.liveness(host, now) {
        Liveness::Dead => false,
        Liveness::Elsewhere if named.boot_id != host.boot_id || host.boot_id.is_empty() => true,
        // On this machine the kernel decides. The file may name a holder that could not write its release.
        Liveness::Alive | Liveness::Elsewhere => {
            let shared = File::open(path).map(|file| file.try_lock_shared());
            matches!(shared, Ok(Err(TryLockError::WouldBlock)))
        }
    };
    Some(LeaseRecord { holder: content.holder.filter(has_it), ..content })
}

fn peek(path: &Path) -> Option<LeaseRecord> {
    read_record(&mut File::open(path).ok()?).ok().flatten()
}

/// A lock without a record. It is held for moments, and others wait for it (one administrative git step for each
/// repository).
#[derive(Debug)]
pub struct Turn {
    _file: LockedFile,
}

impl Turn {
    /// Waits for the lock on `path` for at most `patience`; `None` when it was not free in time. Blocks.
    pub fn wait(path: &Path, patience: Duration) -> Result<Option<Self>, FileError> {
        Ok(lock_file(path, Some(patience))?.map(|file| Self { _file: file }))
    }
}

/// A file with the kernel's lock on it. The lock is released explicitly. Closing the file is not enough, because a
/// forked child that has not begun its program has the file open too.
#[derive(Debug)]
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "a lock could not be undone; it is when the file is closed");
        }
    }
}

/// Locks the file that has this name now. The file that was opened may have been replaced.
fn lock_file(path: &Path, patience: Option<Duration>) -> Result<Option<LockedFile>, FileError> {
    let failed = |source| FileError::new("lock", path, source);
    let watch = Stopwatch::start();
    loop {
        let file = match files::open_shared(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent() {
                    files::create_dir(folder)?;
                }
                files::open_shared(path)
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) if is_named(&file, path) => return Ok(Some(LockedFile(file))),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if patience.is_none_or(|patience| watch.elapsed() >= patience) => {
                return Ok(None);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), path.metadata()) {
        (Ok(opened), Ok(named)) => opened.dev() == named.dev() && opened.ino() == named.ino(),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_named(_file: &File, path: &Path) -> bool {
    path.exists()
}

fn read_record(file: &mut File) -> io::Result<Option<LeaseRecord>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(1024 * 1024).read_to_end(&mut text)?;
    // A file that cannot be read was torn by a crash. It holds nothing that is needed, because the mapping can be
    // computed again.
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;
    use serde_json::json;

    use super::*;

    fn now() -> DateTime<Utc> {
        Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap()
    }

    fn holder(instance: &str) -> Holder {
        Holder::here(&Host::current(), instance, now(), now() + chrono::TimeDelta::minutes(5))
    }

    fn acquire(path: &Path, instance: &str) -> Result<Lock, LockError> {
        Lock::try_acquire(path, holder(instance), &Host::current(), now())
    }

    #[test]
    fn a_lock_is_free_once_it_is_given_back_whoever_still_has_the_file_open() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("turn");
        let turn = Turn::wait(&path, Duration::ZERO).unwrap().unwrap();
        // As a child has it that was forked and has not begun its program yet.
        let _inherited = turn._file.0.try_clone().unwrap();
        assert!(Turn::wait(&path, Duration::ZERO).unwrap().is_none());
        drop(turn);
        assert!(Turn::wait(&path, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn g07_a_second_start_is_told_who_holds_the_lease() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("agentd/issue-7.json");
        let first = acquire(&path, "agent-issue-7-A").unwrap();
        let LockError::Busy(Some(held_by)) = acquire(&path, "agent-issue-7-B").unwrap_err() else {
            panic!("not busy")
        };
        assert_eq!(held_by.instance, "agent-issue-7-A");
        first.release().unwrap();
        let third = acquire(&path, "agent-issue-7-C").unwrap();
        assert_eq!(third.previous(), None, "a released lease has no holder to take over");
    }

    #[test]
    fn the_record_outlives_its_holders_and_a_shorter_line_leaves_no_rest() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("issue-7.json");
        let mut lock = acquire(&path, "agent-issue-7-with-a-long-name").unwrap();
        lock.set_record(json!({"origin": "develop"})).unwrap();
        drop(lock);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let lock = acquire(&path, "b").unwrap();
        assert_eq!(lock.record(), Some(&json!({"origin": "develop"})));
    }

    #[test]
    fn g08_a_dead_holder_is_taken_over_and_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("issue-7.json");
        let mut dead = holder("agent-issue-7-dead");
        dead.started += 1;
        let content = LeaseRecord {
            schema_version: LEASE_SCHEMA.into(),
            holder: Some(dead),
            record: None,
            left: false,
        };
        files::write_private(&path, &serde_json::to_vec(&content).unwrap()).unwrap();
        // A program that the dead one was starting has the lock for a moment still.
        let heir = lock_file(&path, None).unwrap().unwrap();
        let letting_go = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            drop(heir);
        });
        let lock = acquire(&path, "agent-issue-7-next").unwrap();
        assert_eq!(lock.previous().map(|h| h.instance.as_str()), Some("agent-issue-7-dead"));
        letting_go.join().unwrap();
    }

    #[test]
    fn g08_a_holder_on_another_host_counts_until_its_lease_expires() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("issue-7.json");
        let mut far = holder("agent-issue-7-far");
        far.host = "elsewhere".into();
        far.boot_id = "another".into();
        let content = LeaseRecord {
            schema_version: LEASE_SCHEMA.into(),
            holder: Some(far.clone()),
            record: None,
            left: false,
        };
        files::write_private(&path, &serde_json::to_vec(&content).unwrap()).unwrap();
        assert!(matches!(acquire(&path, "b"), Err(LockError::Busy(Some(_)))));
        let later = far.expires_at + chrono::TimeDelta::seconds(1);
        let lock = Lock::try_acquire(&path, holder("b"), &Host::current(), later).unwrap();
        assert_eq!(lock.previous().map(|h| h.host.as_str()), Some("elsewhere"));
    }

    #[test]
    fn a_torn_or_empty_lease_file_is_nobodys() {
        let home = tempfile::tempdir().unwrap();
        for text in ["", "{\"schema", "null", "\0\0\0"] {
            let path = home.path().join("issue-7.json");
            files::write_private(&path, text.as_bytes()).unwrap();
            let lock = acquire(&path, "a").unwrap();
            assert_eq!((lock.previous(), lock.record()), (None, None), "{text:?}");
        }
    }

    #[test]
    fn turns_are_exclusive_and_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("turn");
        let busy = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let turn = Turn::wait(&path, Duration::from_secs(20)).unwrap().unwrap();
                    assert!(!busy.swap(true, std::sync::atomic::Ordering::SeqCst));
                    std::thread::yield_now();
                    busy.store(false, std::sync::atomic::Ordering::SeqCst);
                    drop(turn);
                });
            }
        });
        let _held = Turn::wait(&path, Duration::ZERO).unwrap().unwrap();
        assert!(Turn::wait(&path, Duration::from_millis(20)).unwrap().is_none());
    }
}
