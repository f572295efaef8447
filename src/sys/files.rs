//! The only file that writes files: atomic, private, durable. It reports what it removed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file operation that failed, with the path it was about.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Names what was tried and where.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }

    /// What was tried.
    pub fn action(&self) -> &'static str {
        self.action
    }

    /// The file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the operating system said, in its words.
    pub fn words(&self) -> String {
        self.source.to_string()
    }

    /// What the operating system said.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// Shows that a file has not changed. A writer can set the file's time, but not the time of that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<std::time::SystemTime>,
    length: u64,
    /// Device, inode, and the time of the last change of any kind, where the system has them.
    identity: (u64, u64, i64, i64),
}

impl Stamp {
    /// Whether it is of the same file, with the same content, under whatever name.
    pub fn is_of(&self, other: &Self) -> bool {
        let file = |stamp: &Self| (stamp.modified, stamp.length, stamp.identity.0, stamp.identity.1);
        file(self) == file(other)
    }

    /// All of it, for comparing it later.
    pub fn text(&self) -> String {
        let (device, inode, seconds, nanoseconds) = self.identity;
        let modified = self.modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |at| at.as_nanos());
        format!("{modified} {} {device} {inode} {seconds} {nanoseconds}", self.length)
    }

    /// When it was last changed in any way, where the system has that; milliseconds since 1970.
    pub fn changed_ms(&self) -> Option<i64> {
        let (_, _, seconds, nanoseconds) = self.identity;
        (seconds > 0).then_some(seconds * 1_000 + nanoseconds / 1_000_000)
    }
}

/// The stamp of a file as it is now, links not followed; `None` where there is none.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let meta = path.symlink_metadata().ok()?;
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt as _;
        (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
    };
    #[cfg(not(unix))]
    let identity = (0, 0, 0, 0);
    Some(Stamp { modified: meta.modified().ok(), length: meta.len(), identity })
}

/// The time that a file gets which is written in a folder now, by the clock of its file system; `None` where none can be.
pub fn time_in(folder: &Path) -> Option<std::time::SystemTime> {
    let file = tempfile::Builder::new().prefix(".agentd-").tempfile_in(folder).ok()?;
    file.as_file().metadata().ok()?.modified().ok()
}

/// Why no file can be made in a folder: it is tried, and nothing of the try stays. Of a folder that is not there yet it is tried where it
/// would be made. `None`: one can.
pub fn unwritable(folder: &Path) -> Option<FileError> {
    let there = folder.ancestors().find(|above| above.exists()).unwrap_or(folder);
    let tried = tempfile::tempfile_in(there).and_then(|mut file| file.write_all(b"."));
    tried.err().map(|source| FileError::new("write into", there, source))
}

/// Makes a directory and its parents. New ones get mode 0700.
pub fn create_private_dir(path: &Path) -> Result<(), FileError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path).map_err(|source| FileError::new("create directory", path, source))
}

/// Makes a directory and its parents with the user's usual mode, for what belongs to the user and not to agentd.
pub fn create_dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|source| FileError::new("create directory", path, source))
}

/// Writes a file of agentd's own so that a reader sees the old content or the new one, also after a crash. Mode 0600.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    write_atomic(path, content, None)
}

/// As [`write_private`], with the mode the user's tools would give (0644): for files that belong to the user.
pub fn write_public(path: &Path, content: &[u8]) -> Result<(), FileError> {
    write_atomic(path, content, Some(0o644))
}

/// Where a path really leads, if its links take it out of the folder `root`, or into the `.git` there. `None`: it stays
/// inside, or there is nothing.
pub fn leads_out(root: &Path, path: &Path) -> Option<PathBuf> {
    let (root, real) = (root.canonicalize().ok()?, path.canonicalize().ok()?);
    (!real.starts_with(&root) || real.starts_with(root.join(".git"))).then_some(real)
}

/// Replaces the content of an existing file of the user. It follows a link and keeps the mode.
pub fn rewrite(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let failed = |source| FileError::new("write", path, source);
    let real = path.canonicalize().map_err(failed)?;
    let mode = mode_of(&real).map_err(failed)?;
    write_atomic(&real, content, mode)
}

/// As [`write_public`], but never over an existing file. `Ok(false)`: it exists. Nothing stays of one that cannot be written whole: it would
/// be taken for the user's own from then on.
pub fn write_new(path: &Path, content: &[u8]) -> Result<bool, FileError> {
    let failed = |source| FileError::new("write", path, source);
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => match file.write_all(content).and_then(|()| sync_file(&file)) {
            Ok(()) => Ok(true),
            Err(error) => {
                // The error that is told is the first one.
                let _ = fs::remove_file(path);
                Err(failed(error))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// As [`write_new`], with mode 0600, and on disk whole or not at all: for keys.
pub fn write_private_new(path: &Path, content: &[u8]) -> Result<bool, FileError> {
    let failed = |source| FileError::new("write", path, source);
    let folder = path.parent().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut temporary = temporary_in(folder).map_err(failed)?;
    temporary.as_file_mut().write_all(content).map_err(failed)?;
    sync_file(temporary.as_file()).map_err(failed)?;
    match temporary.persist_noclobber(path) {
        Ok(_) => sync_dir(folder).map(|()| true).map_err(failed),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error.error)),
    }
}

/// Writes a file of agentd's own, mode 0600, over an existing one, and makes its folder. It is for files that nobody
/// reads before they are named. It is on disk only after [`sync`].
pub fn write_private_unsynced(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    private_mode(&mut options);
    let opened = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                create_private_dir(folder)?;
            }
            options.open(path)
        }
        opened => opened,
    };
    opened
        .and_then(|mut file| file.write_all(content))
        .map_err(|source| FileError::new("write", path, source))
}

/// Waits until files, their names and their folders' names are on disk. `known`: folders whose own names are there already; those that
/// are now are added.
pub fn sync(written: &[PathBuf], known: &mut BTreeSet<PathBuf>) -> Result<(), FileError> {
    let mut folders = BTreeSet::new();
    for path in written {
        let synced = File::open(path).and_then(|file| sync_file(&file));
        synced.map_err(|source| FileError::new("sync", path, source))?;
        folders.extend(path.parent());
    }
    let new: Vec<&Path> = folders.iter().copied().filter(|folder| !known.contains(*folder)).collect();
    folders.extend(new.iter().filter_map(|folder| folder.parent()));
    for folder in &folders {
        sync_dir(folder).map_err(|source| FileError::new("sync", folder, source))?;
    }
    known.extend(new.into_iter().map(Path::to_owned));
    Ok(())
}

/// A file without a name of its own in its errors: that is a new one each time, and the same trouble is to have the same words.
fn temporary_in(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let made = tempfile::Builder::new().prefix(".agentd-").tempfile_in(folder);
    made.map_err(|error| error.kind().into())
}

fn write_atomic(path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), FileError> {
    let failed = |source| FileError::new("write", path, source);
    let folder = path.parent().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    // The temporary file is made with mode 0600 and removed when anything fails before the rename.
    let mut temporary = temporary_in(folder).map_err(failed)?;
    temporary.as_file_mut().write_all(content).map_err(failed)?;
    set_mode(temporary.as_file(), mode).map_err(failed)?;
    sync_file(temporary.as_file()).map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    sync_dir(folder).map_err(failed)
}

#[cfg(unix)]
fn set_mode(file: &File, mode: Option<u32>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    mode.map_or(Ok(()), |mode| file.set_permissions(fs::Permissions::from_mode(mode)))
}

#[cfg(not(unix))]
fn set_mode(_file: &File, _mode: Option<u32>) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn mode_of(path: &Path) -> io::Result<Option<u32>> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(Some(fs::metadata(path)?.permissions().mode() & 0o7777))
}

#[cfg(not(unix))]
fn mode_of(_path: &Path) -> io::Result<Option<u32>> {
    Ok(None)
}

/// Makes a rename or a new name in `folder` durable.
pub(super) fn sync_dir(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { sync_file(&File::open(folder)?) } else { Ok(()) }
}

/// Waits until a file is on the disk, with all that is known of it.
fn sync_file(file: &File) -> io::Result<()> {
    waited();
    file.sync_all()
}

/// Waits until the content of a file is on the disk.
pub fn sync_content(file: &File) -> io::Result<()> {
    waited();
    file.sync_data()
}

#[cfg(not(test))]
fn waited() {}

#[cfg(test)]
std::thread_local! {
    static WAITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn waited() {
    WAITS.set(WAITS.get() + 1);
}

/// How often this thread has waited for the disk.
#[cfg(test)]
pub(crate) fn waits() -> usize {
    WAITS.get()
}

/// Opens a file of agentd's own for appending and reading. It is made with mode 0600 if it is missing.
pub fn open_append(path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    private_mode(&mut options);
    options.open(path).map_err(|source| FileError::new("open", path, source))
}

/// Makes a file of agentd's own (mode 0600) for streaming. Refuses an existing one.
pub fn create_private_file(path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private_mode(&mut options);
    options.open(path).map_err(|source| FileError::new("create", path, source))
}

/// Opens a lock file for reading and writing. It is made with mode 0600 if it is missing, and never truncated.
pub(super) fn open_shared(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    private_mode(&mut options);
    options.open(path)
}

#[cfg(unix)]
fn private_mode(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn private_mode(_options: &mut OpenOptions) {}

/// Adds a line to a text file of the user, unless the line exists. True: it was added. The mode is kept.
pub fn ensure_line(path: &Path, line: &str) -> Result<bool, FileError> {
    let failed = |source| FileError::new("write", path, source);
    let present = match fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed(error)),
    };
    if present.split(|byte| *byte == b'\n').any(|known| known.trim_ascii() == line.as_bytes()) {
        return Ok(false);
    }
    let mut addition = Vec::new();
    if !present.is_empty() && !present.ends_with(b"\n") {
        addition.push(b'\n');
    }
    addition.extend_from_slice(line.as_bytes());
    addition.push(b'\n');
    // A single append keeps lines whole when others append at the same time.
    let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
    file.write_all(&addition).map_err(failed)?;
    Ok(true)
}

/// Renames a file or directory out of the way, to the first free of `<name>.<suffix>`, `<name>.<suffix>-2`, …, and
/// gives the new path. Nothing is deleted.
pub fn set_aside(path: &Path, suffix: &str) -> Result<PathBuf, FileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for count in 1..1000 {
        let candidate = match count {
            1 => path.with_file_name(format!("{name}.{suffix}")),
            _ => path.with_file_name(format!("{name}.{suffix}-{count}")),
        };
        if candidate.symlink_metadata().is_ok() {
            continue;
        }
        return rename(path, &candidate).map(|()| candidate);
    }
    Err(FileError::new("set aside", path, io::ErrorKind::AlreadyExists.into()))
}

/// Copies a file with its modification time, over an existing one, with mode 0600.
pub fn copy_with_time(from: &Path, to: &Path) -> Result<(), FileError> {
    let failed = |source| FileError::new("copy", from, source);
    let mut source = File::open(from).map_err(failed)?;
    let time = source.metadata().and_then(|meta| meta.modified()).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    private_mode(&mut options);
    let mut target = options.open(to).map_err(|error| FileError::new("write", to, error))?;
    io::copy(&mut source, &mut target).map_err(failed)?;
    target.set_modified(time).map_err(|error| FileError::new("write", to, error))
}

/// Copies a file with its mode, unless something exists there. False: something exists and stays as it is.
pub fn copy_new(from: &Path, to: &Path) -> Result<bool, FileError> {
    let failed = |source| FileError::new("copy", from, source);
    if to.symlink_metadata().is_ok() {
        return Ok(false);
    }
    if let Some(folder) = to.parent() {
        create_dir(folder)?;
    }
    let mut source = File::open(from).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private_mode(&mut options);
    let mut target = options.open(to).map_err(|error| FileError::new("write", to, error))?;
    io::copy(&mut source, &mut target).map_err(failed)?;
    let mode = source.metadata().map_err(failed)?.permissions();
    target.set_permissions(mode).map_err(|error| FileError::new("write", to, error))?;
    Ok(true)
}

/// Makes a link to a file or folder. On systems where links need special rights, it makes nothing.
pub fn link(to: &Path, place: &Path) -> Result<(), FileError> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(to, place).map_err(|source| FileError::new("link", place, source));
    #[cfg(not(unix))]
    {
        let _ = (to, place);
        Ok(())
    }
}

/// Renames within a file system.
pub fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that renames")]
    fs::rename(from, to).map_err(|source| FileError::new("rename", from, source))
}

/// The content of a file that an agent may have written. A link, a pipe or a larger file is not read.
pub fn read_plain(path: &Path, most: u64) -> Option<Vec<u8>> {
    let meta = path.symlink_metadata().ok()?;
    (meta.is_file() && meta.len() <= most).then(|| fs::read(path).ok()).flatten()
}

/// Removes a file if it is there. True: it was.
pub fn remove_file(path: &Path) -> Result<bool, FileError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(FileError::new("remove", path, error)),
    }
}

/// What [`remove_dir`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Files and links.
    pub files: u64,
    /// Bytes they held.
    pub bytes: u64,
}

/// Removes a directory with everything in it, and says how much that was. Links are removed and not followed. Directories in which
/// nobody may write, such as those of Go's module cache, are no hindrance where they are this user's.
pub fn remove_dir(path: &Path) -> Result<Removed, FileError> {
    let mut removed = measure(path);
    #[expect(clippy::disallowed_methods, reason = "this is the place that removes")]
    let remove = || fs::remove_dir_all(path);
    let done = remove().or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            open_to_owner(path);
            // What could not be read before is counted now.
            let rest = measure(path);
            if (rest.files, rest.bytes) > (removed.files, removed.bytes) {
                removed = rest;
            }
            remove()
        }
        _ => Err(error),
    });
    match done {
        Ok(()) => Ok(removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removed::default()),
        Err(error) => Err(FileError::new("remove directory", path, error)),
    }
}

/// Gives this user what it needs to read all that is below a directory, and to remove it, as far as that is this user's. Links are not
/// followed. Blocks.
#[cfg(unix)]
pub fn open_to_owner(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = vec![path.to_owned()];
    while let Some(path) = found.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        let wanted = match meta.file_type() {
            kind if kind.is_dir() => 0o700,
            kind if kind.is_file() => 0o400,
            _ => continue,
        };
        let mode = meta.permissions().mode();
        if mode & wanted != wanted {
            // Where that is refused, whoever needs it says so.
            drop(fs::set_permissions(&path, fs::Permissions::from_mode(mode | wanted)));
        }
        if meta.is_dir() {
            found.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}

/// There are no such rights here.
#[cfg(not(unix))]
pub fn open_to_owner(_path: &Path) {}

/// Files and bytes below a directory, links not followed; unreadable parts count nothing.
pub fn measure(path: &Path) -> Removed {
    let mut sum = Removed::default();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => {
                    sum.files += 1;
                    sum.bytes += meta.len();
                }
                Err(_) => {}
            }
        }
    }
    sum
}

/// Whether something could not be written because a disk, or what its user may have of it, is full.
pub fn is_for_want_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// How many bytes this user may still write on the file system of `path`. `None` if that is not known.
#[cfg(unix)]
pub fn disk_free(path: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    // The field types differ between systems.
    #[allow(clippy::unnecessary_cast, clippy::allow_attributes, reason = "needed on some systems only")]
    Some((stat.blocks_available() as u64).saturating_mul(stat.fragment_size() as u64))
}

/// How many bytes this user may still write on the file system of `path`. `None` if that is not known.
#[cfg(not(unix))]
pub fn disk_free(_path: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[cfg(unix)]
    #[test]
    fn what_agentd_writes_for_itself_is_private() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        create_private_dir(&folder).unwrap();
        write_private(&folder.join("x"), b"1").unwrap();
        write_private(&folder.join("x"), b"22").unwrap();
        drop(open_append(&folder.join("log")).unwrap());
        assert_eq!(
            (mode(&folder), mode(&folder.join("x")), mode(&folder.join("log"))),
            (0o700, 0o600, 0o600)
        );
        assert_eq!(fs::read(folder.join("x")).unwrap(), b"22");
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
    }

    #[test]
    fn set_aside_keeps_everything_and_never_overwrites() {
        let home = tempfile::tempdir().unwrap();
        for round in ["one", "two", "three"] {
            let path = home.path().join("issue-7");
            create_dir(&path).unwrap();
            write_public(&path.join("f"), round.as_bytes()).unwrap();
            let aside = set_aside(&path, "aside").unwrap();
            assert_eq!(fs::read_to_string(aside.join("f")).unwrap(), round);
        }
        assert!(home.path().join("issue-7.aside-3/f").exists());
    }

    #[test]
    fn removing_says_what_was_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("d/e");
        create_dir(&path).unwrap();
        write_public(&path.join("f"), b"12345").unwrap();
        write_new(&path.join("g"), b"1").unwrap();
        assert!(!write_new(&path.join("g"), b"2").unwrap());
        assert_eq!(remove_dir(&home.path().join("d")).unwrap(), Removed { files: 2, bytes: 6 });
        assert_eq!(remove_dir(&home.path().join("d")).unwrap(), Removed::default());
    }

    #[test]
    fn a_line_is_added_once_and_after_an_unfinished_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("exclude");
        File::create(&path).unwrap().write_all(b"*.o").unwrap();
        assert!(ensure_line(&path, "/.worktrees/").unwrap());
        assert!(!ensure_line(&path, "/.worktrees/").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "*.o\n/.worktrees/\n");
    }

    #[cfg(unix)]
    #[test]
    fn the_free_space_of_a_disk_is_told() {
        assert!(disk_free(Path::new("/")).is_some());
        assert!(disk_free(Path::new("/no/such/place")).is_none());
    }

    /// Root is refused nothing, so that this runs once more as somebody else.
    #[cfg(unix)]
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the test is started again, as another user, and writes as anybody would"
    )]
    fn folders_in_which_nobody_may_write_are_removed() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        use std::os::unix::process::CommandExt as _;
        const PLACE: &str = "AGENTD_TEST_REMOVED_BY_NOBODY";
        let locked = |place: &Path| {
            let deep = place.join("go/pkg/mod/x@v1");
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("x.go"), "package x").unwrap();
            fs::set_permissions(&deep, fs::Permissions::from_mode(0o555)).unwrap();
            fs::set_permissions(place.join("go/pkg"), fs::Permissions::from_mode(0o000)).unwrap();
            let removed = remove_dir(&place.join("go")).unwrap();
            assert_eq!((removed.files, removed.bytes, place.join("go").exists()), (1, 9, false));
        };
        if let Some(place) = std::env::var_os(PLACE) {
            return locked(Path::new(&place));
        }
        let place = tempfile::tempdir().unwrap();
        locked(place.path());
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        // A copy of this program, where anybody may run it.
        let program = place.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        chown(&own, Some(65534), Some(65534)).unwrap();
        let mut again = std::process::Command::new(&program);
        again.args(["--exact", "sys::files::tests::folders_in_which_nobody_may_write_are_removed"]);
        let ran = again.env(PLACE, &own).uid(65534).gid(65534).current_dir("/").output();
        match ran {
            Ok(ran) => {
                let said = String::from_utf8_lossy(&ran.stdout).into_owned();
                assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            }
            Err(error) => eprintln!("skipped for another user: {error}"),
        }
    }
}
