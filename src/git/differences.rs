//! What differs between an index and the files around it, told by the times of the files, as git tells it, without git.

use std::fs::Metadata;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use git2::{Index, IndexEntry, IndexEntryExtendedFlag, Oid};

use super::blob::LARGEST_FILE;
use super::not_taken::may_be_named;
use super::submodules::commit_in;
use crate::sys::paths::AbsPath;

/// Differences that are followed at most. With more it is git that should look, which also learns the new times.
const MOST: usize = 2_000;
/// The system answers few threads faster than one, and many no faster than few.
const MOST_THREADS: usize = 4;
const SUBMODULE: u32 = 0o160_000;
const LINK: u32 = 0o120_000;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
/// A flag and a stage of an entry: `assume-unchanged`, and one side of a conflict.
const ODD: u16 = 0x8000 | 0x3000;

/// What differs. Paths are relative to the worktree, with `/`, as the bytes that they are.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Files of the index that may have another content or mode, with those that the index has.
    pub changed: Vec<(Vec<u8>, (Oid, u32))>,
    /// Files of the index that are not there.
    pub gone: Vec<Vec<u8>>,
    /// What the index does not have. A folder ends with `/` and has no file of the index below it.
    pub untracked: Vec<Vec<u8>>,
    /// Whether the index leaves files out of the worktree.
    pub sparse: bool,
}

/// What differs between the index and the files below `root`. A file that was not written before `since` was may differ; that
/// is the index, or something written later, when the files were still as the index has them. `None`: something is there of which
/// only git can tell what becomes of it.
pub(super) fn differences(root: &AbsPath, index: &AbsPath, since: &AbsPath) -> Option<Differences> {
    let written = time_of(&since.as_path().symlink_metadata().ok()?)?;
    let entries: Vec<IndexEntry> = Index::open(index.as_path()).ok()?.iter().collect();
    let flagged = |entry: &IndexEntry, flag: IndexEntryExtendedFlag| entry.flags_extended & flag.bits() != 0;
    if entries.iter().any(|e| e.flags & ODD != 0 || flagged(e, IndexEntryExtendedFlag::INTENT_TO_ADD)) {
        return None;
    }
    let left_out = |entry: &IndexEntry| flagged(entry, IndexEntryExtendedFlag::SKIP_WORKTREE);
    let look = Look {
        root,
        written,
        seen: entries.iter().map(|_| AtomicBool::new(false)).collect(),
        entries: &entries,
        queue: Mutex::new(Queue {
            open: vec![Folder { path: Vec::new(), range: 0..entries.len() }],
            ..Queue::default()
        }),
        more: Condvar::new(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let mut found = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| look.run())).collect();
        let mut found = look.run()?;
        for other in others {
            let other = other.join().ok()??;
            found.changed.extend(other.changed);
            found.untracked.extend(other.untracked);
        }
        Some(found)
    })?;
    for (entry, seen) in entries.iter().zip(&look.seen) {
        match (seen.load(Ordering::Relaxed), left_out(entry)) {
            (true, false) | (false, true) => {}
            // A file that should not be there, or a submodule that is not.
            (true, true) => return None,
            (false, false) if entry.mode == SUBMODULE => return None,
            (false, false) => found.gone.push(entry.path.clone()),
        }
    }
    found.sparse = entries.iter().any(left_out);
    let all = found.changed.len() + found.gone.len() + found.untracked.len();
    (all <= MOST).then_some(found)
}

/// A folder with files of the index, which stand at `range`.
struct Folder {
    path: Vec<u8>,
    range: Range<usize>,
}

#[derive(Default)]
struct Queue {
    open: Vec<Folder>,
    busy: usize,
    odd: bool,
}

struct Look<'a> {
    root: &'a AbsPath,
    written: (i64, i64),
    entries: &'a [IndexEntry],
    seen: Vec<AtomicBool>,
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Look<'_> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into folders until none is left. Several threads do this at once.
    fn run(&self) -> Option<Differences> {
        let mut found = Differences::default();
        while let Some(folder) = self.next() {
            let below = self.look_into(&folder, &mut found);
            let mut queue = self.queue();
            queue.busy -= 1;
            queue.odd |= below.is_none();
            queue.open.extend(below.into_iter().flatten());
            self.more.notify_all();
        }
        (!self.queue().odd).then_some(found)
    }

    fn next(&self) -> Option<Folder> {
        let mut queue = self.queue();
        loop {
            if queue.odd {
                return None;
            }
            if let Some(folder) = queue.open.pop() {
                queue.busy += 1;
                return Some(folder);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Compares what is in a folder. Gives the folders in it that have files of the index.
    fn look_into(&self, folder: &Folder, found: &mut Differences) -> Option<Vec<Folder>> {
        let mut below = Vec::new();
        let here = self.root.join(as_path(&folder.path));
        for entry in std::fs::read_dir(here.as_path()).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.eq_ignore_ascii_case(b".git") {
                // The link to the repository. Elsewhere it is a repository in the worktree.
                if folder.path.is_empty() && name == b".git" {
                    continue;
                }
                return None;
            }
            let path = [folder.path.as_slice(), name].concat();
            let kind = entry.file_type().ok()?;
            let at = self.at(&folder.range, &path);
            if kind.is_dir() {
                if let Some(at) = at {
                    if self.entries[at].mode != SUBMODULE || self.moved(at) {
                        return None;
                    }
                    self.seen[at].store(true, Ordering::Relaxed);
                    continue;
                }
                let path = [path.as_slice(), b"/"].concat();
                let range = self.below(&folder.range, &path);
                match range.is_empty() {
                    true => found.untracked.push(path),
                    false => below.push(Folder { path, range }),
                }
                continue;
            }
            // A file in the place of a folder, and rules that git does not read.
            let is_rules = kind.is_symlink() && matches!(name, b".gitignore" | b".gitattributes");
            if is_rules || !self.below(&folder.range, &[path.as_slice(), b"/"].concat()).is_empty() {
                return None;
            }
            match at {
                Some(at) => {
                    let meta = entry.metadata().ok()?;
                    self.seen[at].store(true, Ordering::Relaxed);
                    if meta.len() > LARGEST_FILE
                        || !may_be_named(&String::from_utf8_lossy(&path), kind.is_symlink())
                    {
                        return None;
                    }
                    if !self.is_same(&self.entries[at], &meta)? {
                        found.changed.push((path, (self.entries[at].id, self.entries[at].mode)));
                    }
                }
                None if kind.is_file() || kind.is_symlink() => found.untracked.push(path),
                None => {}
            }
            if found.changed.len() + found.untracked.len() > MOST {
                return None;
            }
        }
        Some(below)
    }

    /// Where the index has a path.
    fn at(&self, range: &Range<usize>, path: &[u8]) -> Option<usize> {
        let within = &self.entries[range.clone()];
        within.binary_search_by(|entry| entry.path.as_slice().cmp(path)).ok().map(|at| range.start + at)
    }

    /// Where the index has what is below a path that ends with `/`.
    fn below(&self, range: &Range<usize>, path: &[u8]) -> Range<usize> {
        let within = &self.entries[range.clone()];
        let from = within.partition_point(|entry| entry.path.as_slice() < path);
        let count = within[from..].partition_point(|entry| entry.path.starts_with(path));
        range.start + from..range.start + from + count
    }

    /// Whether a submodule stands on another commit than the index has for it.
    fn moved(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        let head = commit_in(&self.root.join(as_path(&entry.path)));
        head.is_some_and(|head| head.as_str() != entry.id.to_string())
    }

    /// Whether a file is as it was when the index was written. One that was written in the same moment may not be.
    fn is_same(&self, entry: &IndexEntry, meta: &Metadata) -> Option<bool> {
        let time = time_of(meta)?;
        let known = (i64::from(entry.mtime.seconds()), i64::from(entry.mtime.nanoseconds()));
        Some(mode_of(meta) == entry.mode && time == known && time < self.written && stands_for(entry, meta))
    }
}

/// The mode that git has for a file or link.
pub(super) fn mode_of(meta: &Metadata) -> u32 {
    #[cfg(unix)]
    let runs = std::os::unix::fs::MetadataExt::mode(meta) & 0o100 != 0;
    #[cfg(not(unix))]
    let runs = false;
    match (meta.is_symlink(), runs) {
        (true, _) => LINK,
        (false, true) => PROGRAM,
        (false, false) => FILE,
    }
}

/// When a file was written last; `None` where the system does not say what git's index has.
fn time_of(meta: &Metadata) -> Option<(i64, i64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Some((meta.mtime(), meta.mtime_nsec()))
    }
    #[cfg(not(unix))]
    {
        let _ = meta;
        None
    }
}

/// Whether an entry is of this very file. An index has the lower halves of the numbers.
fn stands_for(entry: &IndexEntry, meta: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let changed = (i64::from(entry.ctime.seconds()), i64::from(entry.ctime.nanoseconds()));
        entry.file_size == meta.len() as u32
            && entry.ino == meta.ino() as u32
            && (entry.uid, entry.gid) == (meta.uid(), meta.gid())
            && changed == (meta.ctime(), meta.ctime_nsec())
    }
    #[cfg(not(unix))]
    {
        let _ = (entry, meta);
        false
    }
}

/// A path of an index as one of this system.
#[cfg(unix)]
pub(super) fn as_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// A path of an index as one of this system.
#[cfg(not(unix))]
pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(std::str::from_utf8(path).unwrap_or_default())
}
