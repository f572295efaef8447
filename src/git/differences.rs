//! What differs between an index and the files around it, told by the times of the files, as git tells it, without git.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use git2::{Index, IndexEntryExtendedFlag, Oid};

use super::blob::LARGEST_FILE;
use super::not_taken::may_be_named;
use super::plain_head::commit_in;
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

/// An index as files are compared with it: by folders, with names in the order of their bytes. It is read once, and holds as long as
/// the index is the same file.
#[derive(Debug)]
pub(super) struct ReadIndex {
    folders: Vec<Folder>,
    entries: Vec<Entry>,
    /// The names of all entries, one behind the other.
    names: Vec<u8>,
    sparse: bool,
    /// Files that were written in the moment in which the index was, by their entries: read since, and found as they are there. Who
    /// writes one of them after this time gives it this time or a later one.
    read_since: Mutex<BTreeMap<usize, (i64, i64)>>,
}

/// A folder with files of the index.
#[derive(Debug, Default)]
struct Folder {
    /// Ends with `/`, unless it is the root.
    path: Vec<u8>,
    /// Where its own name begins in that.
    name_at: usize,
    /// Entries in it.
    files: Range<usize>,
    /// The folders in it.
    folders: Vec<usize>,
}

impl Folder {
    fn name(&self) -> &[u8] {
        self.path.get(self.name_at..self.path.len().saturating_sub(1)).unwrap_or_default()
    }
}

/// What of an entry is compared.
#[derive(Debug)]
struct Entry {
    folder: usize,
    name: Range<usize>,
    id: Oid,
    mode: u32,
    written: (i64, i64),
    changed: (i64, i64),
    inode: u32,
    owner: (u32, u32),
    size: u32,
    /// The index leaves it out of the worktree.
    left_out: bool,
    /// git takes a file of that name, and of that kind.
    may_be_named: bool,
}

impl ReadIndex {
    /// Reads it. `None`: something is in it of which only git can tell what becomes of it.
    pub(super) fn read(index: &AbsPath) -> Option<Self> {
        let index = Index::open(index.as_path()).ok()?;
        let mut read = Self {
            folders: vec![Folder::default()],
            entries: Vec::with_capacity(index.len()),
            names: Vec::new(),
            sparse: false,
            read_since: Mutex::default(),
        };
        // The folders of the last entry, the root first; and of each folder its entries, which stand apart in the index where folders
        // are between them.
        let mut open = vec![0];
        let mut of_folder: Vec<Vec<Entry>> = vec![Vec::new()];
        for entry in index.iter() {
            let flagged = |flag: IndexEntryExtendedFlag| entry.flags_extended & flag.bits() != 0;
            if entry.flags & ODD != 0 || flagged(IndexEntryExtendedFlag::INTENT_TO_ADD) {
                return None;
            }
            let cut = entry.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let folder = read.opened(&mut open, entry.path.get(..cut)?);
            of_folder.resize_with(read.folders.len(), Vec::new);
            let begin = read.names.len();
            read.names.extend_from_slice(entry.path.get(cut..)?);
            let left_out = flagged(IndexEntryExtendedFlag::SKIP_WORKTREE);
            read.sparse |= left_out;
            of_folder.get_mut(folder)?.push(Entry {
                folder,
                name: begin..read.names.len(),
                id: entry.id,
                mode: entry.mode,
                written: (entry.mtime.seconds().into(), entry.mtime.nanoseconds().into()),
                changed: (entry.ctime.seconds().into(), entry.ctime.nanoseconds().into()),
                inode: entry.ino,
                owner: (entry.uid, entry.gid),
                size: entry.file_size,
                left_out,
                may_be_named: may_be_named(&String::from_utf8_lossy(&entry.path), entry.mode == LINK),
            });
        }
        for (folder, entries) in read.folders.iter_mut().zip(of_folder) {
            let begin = read.entries.len();
            read.entries.extend(entries);
            folder.files = begin..read.entries.len();
        }
        // An index has `a-b/` before `a/`.
        for at in 0..read.folders.len() {
            let mut below = std::mem::take(&mut read.folders[at].folders);
            below.sort_by(|one, other| read.folders[*one].name().cmp(read.folders[*other].name()));
            read.folders[at].folders = below;
        }
        Some(read)
    }

    /// The folder with this path, made with those above it where they are missing. `open`: those of the entry before.
    fn opened(&mut self, open: &mut Vec<usize>, path: &[u8]) -> usize {
        let path_of = |folders: &[Folder], at: Option<&usize>| at.map_or(0, |at| folders[*at].path.len());
        while open.len() > 1 && !path.starts_with(&self.folders[open[open.len() - 1]].path) {
            open.pop();
        }
        loop {
            let above = open.last().copied().unwrap_or_default();
            let begin = path_of(&self.folders, open.last());
            let Some(length) = path[begin..].iter().position(|byte| *byte == b'/') else { return above };
            let made = self.folders.len();
            let path = path[..=begin + length].to_vec();
            self.folders.push(Folder { path, name_at: begin, ..Folder::default() });
            self.folders[above].folders.push(made);
            open.push(made);
        }
    }

    /// Remembers that these files were read after `time`, and have the content that the index has for them.
    pub(super) fn were_read(&self, paths: &[Vec<u8>], time: SystemTime) {
        let Ok(time) = time.duration_since(UNIX_EPOCH) else { return };
        let time = (time.as_secs().cast_signed(), i64::from(time.subsec_nanos()));
        let mut known = self.read_since.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(paths.iter().filter_map(|path| Some((self.entry(path)?, time))));
    }

    /// The entry of a path.
    fn entry(&self, path: &[u8]) -> Option<usize> {
        let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut folder = self.folders.first()?;
        for name in path.get(..cut)?.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            folder = self.folders.get(self.folder(folder, name)?)?;
        }
        self.file(folder, path.get(cut..)?)
    }

    fn name(&self, at: usize) -> &[u8] {
        &self.names[self.entries[at].name.clone()]
    }

    fn path(&self, at: usize) -> Vec<u8> {
        [&self.folders[self.entries[at].folder].path, self.name(at)].concat()
    }

    /// The entry of this name in a folder.
    fn file(&self, folder: &Folder, name: &[u8]) -> Option<usize> {
        let (mut from, mut to) = (folder.files.start, folder.files.end);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// The folder of this name in a folder.
    fn folder(&self, folder: &Folder, name: &[u8]) -> Option<usize> {
        let found = folder.folders.binary_search_by(|at| self.folders[*at].name().cmp(name));
        found.ok().map(|at| folder.folders[at])
    }
}

/// What differs between an index and the files below `root`. A file that was not written before `since` was may differ; that
/// is the index, or something written later, when the files were still as the index has them. `None`: something is there of which
/// only git can tell what becomes of it.
pub(super) fn differences(root: &AbsPath, index: &ReadIndex, since: &AbsPath) -> Option<Differences> {
    let written = time_of(&since.as_path().symlink_metadata().ok()?)?;
    let look = Look {
        root,
        written,
        index,
        seen: index.entries.iter().map(|_| AtomicBool::new(false)).collect(),
        queue: Mutex::new(Queue { open: vec![0], ..Queue::default() }),
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
    for (at, (entry, seen)) in index.entries.iter().zip(&look.seen).enumerate() {
        match (seen.load(Ordering::Relaxed), entry.left_out) {
            (true, false) | (false, true) => {}
            // A file that should not be there, or a submodule that is not.
            (true, true) => return None,
            (false, false) if entry.mode == SUBMODULE => return None,
            (false, false) => found.gone.push(index.path(at)),
        }
    }
    found.sparse = index.sparse;
    let all = found.changed.len() + found.gone.len() + found.untracked.len();
    (all <= MOST).then_some(found)
}

#[derive(Default)]
struct Queue {
    /// Folders of the index.
    open: Vec<usize>,
    busy: usize,
    odd: bool,
}

struct Look<'a> {
    root: &'a AbsPath,
    written: (i64, i64),
    index: &'a ReadIndex,
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
            let below = self.look_into(&self.index.folders[folder], &mut found);
            let mut queue = self.queue();
            queue.busy -= 1;
            queue.odd |= below.is_none();
            queue.open.extend(below.into_iter().flatten());
            self.more.notify_all();
        }
        (!self.queue().odd).then_some(found)
    }

    fn next(&self) -> Option<usize> {
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
    fn look_into(&self, folder: &Folder, found: &mut Differences) -> Option<Vec<usize>> {
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
            let kind = entry.file_type().ok()?;
            let at = self.index.file(folder, name);
            if kind.is_dir() {
                if let Some(at) = at {
                    if self.index.entries[at].mode != SUBMODULE || self.moved(at) {
                        return None;
                    }
                    self.seen[at].store(true, Ordering::Relaxed);
                    continue;
                }
                match self.index.folder(folder, name) {
                    Some(at) => below.push(at),
                    None => found.untracked.push([folder.path.as_slice(), name, b"/"].concat()),
                }
                continue;
            }
            // A file in the place of a folder, and rules that git does not read.
            let is_rules = kind.is_symlink() && matches!(name, b".gitignore" | b".gitattributes");
            if is_rules || self.index.folder(folder, name).is_some() {
                return None;
            }
            match at {
                Some(at) => {
                    let meta = entry.metadata().ok()?;
                    self.seen[at].store(true, Ordering::Relaxed);
                    if meta.len() > LARGEST_FILE || !self.may_be_named(at, kind.is_symlink()) {
                        return None;
                    }
                    if !self.is_same(at, &meta)? {
                        let known = &self.index.entries[at];
                        found.changed.push((self.index.path(at), (known.id, known.mode)));
                    }
                }
                None if kind.is_file() || kind.is_symlink() => {
                    found.untracked.push([folder.path.as_slice(), name].concat());
                }
                None => {}
            }
            if found.changed.len() + found.untracked.len() > MOST {
                return None;
            }
        }
        Some(below)
    }

    /// Whether git takes a file of this name, or a link.
    fn may_be_named(&self, at: usize, link: bool) -> bool {
        let known = &self.index.entries[at];
        match link == (known.mode == LINK) {
            true => known.may_be_named,
            false => may_be_named(&String::from_utf8_lossy(&self.index.path(at)), link),
        }
    }

    /// Whether a submodule stands on another commit than the index has for it.
    fn moved(&self, at: usize) -> bool {
        let head = commit_in(&self.root.join(as_path(&self.index.path(at))));
        head.is_some_and(|head| head.as_str() != self.index.entries[at].id.to_string())
    }

    /// Whether a file is as it was when the index was written. One that was written in the same moment may not be, until it was read.
    fn is_same(&self, at: usize, meta: &Metadata) -> Option<bool> {
        let time = time_of(meta)?;
        let entry = &self.index.entries[at];
        if mode_of(meta) != entry.mode || time != entry.written || !stands_for(entry, meta) {
            return Some(false);
        }
        let was_read = || {
            let read_since = self.index.read_since.lock().unwrap_or_else(PoisonError::into_inner);
            read_since.get(&at).is_some_and(|since| time.max(entry.changed) < *since)
        };
        Some(time < self.written || was_read())
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
fn stands_for(entry: &Entry, meta: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        entry.size == meta.len() as u32
            && entry.inode == meta.ino() as u32
            && entry.owner == (meta.uid(), meta.gid())
            && entry.changed == (meta.ctime(), meta.ctime_nsec())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::files;

    fn put(root: &AbsPath, path: &str, text: &str) {
        let file = root.join(path);
        files::create_dir(file.as_path().parent().unwrap()).unwrap();
        files::write_public(file.as_path(), text.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_of_the_index_s_own_moment_is_read_once_and_again_when_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = AbsPath::new(folder.path()).unwrap();
        let repository = git2::Repository::init(root.as_path()).unwrap();
        let paths = ["a b/q", "a-b/c/x", "a.b/r", "a/c-d/y", "a/c/x", "a/z", "b"];
        paths.iter().for_each(|path| put(&root, path, "one\n"));
        let mut index = repository.index().unwrap();
        paths.iter().for_each(|path| index.add_path(Path::new(path)).unwrap());
        index.write().unwrap();
        let read = ReadIndex::read(&root.join(".git/index")).unwrap();
        // As if all of them were written in the same moment as the index.
        let since = root.join(".git/since");
        put(&root, ".git/since", "");
        let file = std::fs::File::options().write(true).open(since.as_path()).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        let changed = || {
            let found = differences(&root, &read, &since).unwrap();
            assert!(found.gone.is_empty() && found.untracked.is_empty(), "{found:?}");
            let mut paths: Vec<_> = found.changed.into_iter().map(|(path, _)| path).collect();
            paths.sort();
            paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(changed(), paths);
        let all: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let changed_at = |path: &str| {
            use std::os::unix::fs::MetadataExt as _;
            let meta = root.join(path).as_path().metadata().unwrap();
            UNIX_EPOCH + std::time::Duration::new(meta.ctime() as u64, meta.ctime_nsec() as u32)
        };
        // The others may be of an earlier step of the clock.
        read.were_read(&all[6..], changed_at("b"));
        assert!(changed().contains(&"b".to_owned()), "it could be written in that moment once more");
        // The clock of files goes in steps.
        let later = loop {
            let now = files::time_in(root.join(".git").as_path()).unwrap();
            if now > changed_at("b") {
                break now;
            }
        };
        read.were_read(&all[..5], later);
        assert_eq!(changed(), paths[5..]);
        put(&root, "a/c/x", "two\n");
        use std::io::Write as _;
        let in_place = std::fs::File::options().write(true).open(root.join("a-b/c/x").as_path());
        in_place.unwrap().write_all(b"two\n").unwrap();
        assert_eq!(changed(), ["a-b/c/x", "a/c/x", "a/z", "b"]);
    }
}
