//! Paths that a model names. They are inside the worktree, also through links, or an error (S-055).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::paths::AbsPath;

/// Links followed before a path is taken for a loop.
const MAX_LINKS: usize = 40;
/// The prefix of temporary files in a worktree. The worktree's exclude file keeps them out of git.
pub const TEMPORARY_PREFIX: &str = ".agentd-tmp-";

/// The directory that paths of a model are inside of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeRoot {
    path: AbsPath,
    submodules: Arc<[PathBuf]>,
}

/// A path inside a worktree. Its components were not links when it was resolved; opening checks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreePath {
    root: WorktreeRoot,
    relative: PathBuf,
    link: Option<PathBuf>,
}

/// Why a path was refused.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Not inside the worktree, or git's own.
    #[error("\"{named}\" is not a path inside the worktree: {why}")]
    Outside {
        /// As the model wrote it.
        named: String,
        /// Fixed text.
        why: &'static str,
    },
    /// A link stands where a file is to be written.
    #[error(
        "\"{named}\" is a symbolic link to \"{target}\" and is not written through; name the file it points to"
    )]
    Link {
        /// The link.
        named: String,
        /// Where it points, inside the worktree.
        target: String,
    },
    /// It is in another repository than the worktree's.
    #[error(
        "\"{named}\" is in \"{folder}\", a git repository of its own (a submodule, or one that was made here), and no commit of \
         this work would have it; write outside of it"
    )]
    OtherRepository {
        /// The path.
        named: String,
        /// Where that repository is.
        folder: String,
    },
    /// Something else than a file stands there.
    #[error("\"{0}\" is not a regular file")]
    NotAFile(String),
    /// The operating system refused.
    #[error("{named}: {source}")]
    Io {
        /// Relative path.
        named: String,
        /// What it said.
        source: io::Error,
    },
}

impl PathError {
    /// The stable code of a path that leaves the worktree (P-018); `None` for everything else.
    pub fn code(&self) -> Option<&'static str> {
        matches!(self, Self::Outside { .. }).then_some("path_outside_worktree")
    }
}

impl WorktreeRoot {
    /// The worktree in `path`, links in its own path resolved.
    pub fn open(path: &AbsPath) -> io::Result<Self> {
        Ok(Self { path: path.canonical()?, submodules: Arc::default() })
    }

    /// With the paths of its submodules. Nothing shows that an empty folder is one.
    #[must_use]
    pub fn with_submodules(self, paths: impl IntoIterator<Item = String>) -> Self {
        Self { submodules: paths.into_iter().map(PathBuf::from).collect(), ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Takes a path as a model names it: relative, with `/`, without `..`, outside `.git`. Links are followed as long
    /// as they stay inside. What does not exist yet is fine.
    pub fn resolve(&self, named: &str) -> Result<WorktreePath, PathError> {
        let outside = |why| PathError::Outside { named: named.to_owned(), why };
        let mut open = parts(named).map_err(outside)?;
        let follow = |parts: Vec<OsString>| follow(&self.path, parts).map_err(outside);
        let relative = follow(open.clone())?;
        // The path as named. Its last component is not followed, so that a link can be seen as a link.
        let link = match open.pop() {
            Some(last) => {
                let itself = follow(open)?.join(last);
                (itself != relative).then_some(itself)
            }
            None => None,
        };
        Ok(WorktreePath { root: self.clone(), relative, link })
    }
}

/// Why a path is none inside a worktree, whatever is there; `None` = it may be one.
pub fn outside(named: &str) -> Option<PathError> {
    parts(named).err().map(|why| PathError::Outside { named: named.to_owned(), why })
}

/// The components of a path as a model names it.
fn parts(named: &str) -> Result<Vec<OsString>, &'static str> {
    check_text(named)?;
    let mut parts: Vec<OsString> = Vec::new();
    for component in Path::new(named).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_owned()),
            Component::ParentDir => return Err("\"..\" is not allowed"),
            Component::RootDir | Component::Prefix(_) => {
                return Err("it is absolute; paths start at the worktree's root");
            }
        }
    }
    Ok(parts)
}

/// What no component of a path may have, on any file system.
fn check_text(named: &str) -> Result<(), &'static str> {
    if named.is_empty() {
        return Err("it is empty; use \".\" for the root");
    }
    if named.contains('\\') {
        return Err("it has a backslash; separate with \"/\"");
    }
    if named.chars().any(char::is_control) {
        return Err("it has control characters");
    }
    if named.split('/').any(is_git_name) {
        return Err("git's own files are not open to tools");
    }
    Ok(())
}

/// All spellings of `.git` on any file system: other case, trailing dots and spaces, streams, 8.3 names, ignorable
/// characters.
fn is_git_name(part: &str) -> bool {
    let ignorable = |c: &char| matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let plain: String = part.chars().filter(|c| !ignorable(c)).collect::<String>().to_lowercase();
    let stem = plain.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    stem == ".git" || (stem.starts_with("git~") && stem[4..].chars().all(|c| c.is_ascii_digit()))
}

/// Resolves links in `parts` below `root`. Once a component is missing, the rest is taken by name.
fn follow(root: &AbsPath, parts: Vec<OsString>) -> Result<PathBuf, &'static str> {
    const OUT: &str = "a symbolic link leads out of it";
    let mut done = PathBuf::new();
    let mut open: Vec<OsString> = parts.into_iter().rev().collect();
    let mut links = 0;
    while let Some(part) = open.pop() {
        if part == ".." {
            if !done.pop() {
                return Err(OUT);
            }
            continue;
        }
        if part.to_str().is_some_and(is_git_name) {
            return Err("a symbolic link leads into git's own files");
        }
        let place = root.as_path().join(&done).join(&part);
        let is_link = place.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if !is_link {
            done.push(part);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err("its symbolic links go in circles");
        }
        let target = std::fs::read_link(&place).map_err(|_| OUT)?;
        let target = match target.strip_prefix(root.as_path()) {
            Ok(inside) => {
                done = PathBuf::new();
                inside.to_owned()
            }
            Err(_) if target.is_absolute() => return Err(OUT),
            Err(_) => target,
        };
        for component in target.components().rev() {
            match component {
                Component::Normal(part) => open.push(part.to_owned()),
                Component::ParentDir => open.push("..".into()),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(OUT),
            }
        }
    }
    Ok(done)
}

impl WorktreePath {
    /// Relative to the worktree, with `/`; `.` for its root. What models and records see.
    pub fn relative(&self) -> String {
        text(&self.relative)
    }

    /// Where it is.
    pub fn absolute(&self) -> AbsPath {
        self.root.path.join(&self.relative)
    }

    /// Opens a regular file for reading, without following a link that appeared since. Blocks.
    pub fn open(&self) -> Result<File, PathError> {
        let file = inside::open(self).map_err(|source| self.failed(source))?;
        if file.metadata().is_ok_and(|meta| meta.is_file()) {
            Ok(file)
        } else {
            Err(PathError::NotAFile(self.relative()))
        }
    }

    /// Lower-case hexadecimal SHA-256 of what a regular file holds. Blocks.
    pub fn sha256(&self) -> Result<String, PathError> {
        let mut hash = Sha256::new();
        io::copy(&mut self.open()?, &mut hash).map_err(|source| self.failed(source))?;
        Ok(hex::encode(hash.finalize()))
    }

    /// The outermost folder above it that is a repository of its own, such as a submodule.
    fn repository(&self) -> Option<String> {
        let above = self.relative.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let is_one = |folder: &&Path| {
            let place = self.root.path.as_path().join(folder);
            let is_empty = || place.read_dir().is_ok_and(|mut entries| entries.next().is_none());
            place.join(".git").symlink_metadata().is_ok()
                || self.root.submodules.iter().any(|path| path == folder) && is_empty()
        };
        above.filter(is_one).last().map(text)
    }

    /// Puts a file with this content in place in one step. A reader sees the old or the new content. The mode of an
    /// existing file is kept; a hard link to it keeps the old content. Missing directories are made. True: a new file.
    /// Blocks.
    pub fn replace(&self, content: &[u8]) -> Result<bool, PathError> {
        if let Some(link) = &self.link {
            return Err(PathError::Link { named: text(link), target: self.relative() });
        }
        if let Some(folder) = self.repository() {
            return Err(PathError::OtherRepository { named: self.relative(), folder });
        }
        match inside::replace(self, content) {
            Ok(new) => Ok(new),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(PathError::NotAFile(self.relative()))
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    /// The refusal of a path that leads somewhere else than before.
    pub fn changed(&self) -> PathError {
        PathError::Outside { named: self.relative(), why: "a symbolic link appeared in it" }
    }

    fn failed(&self, source: io::Error) -> PathError {
        #[cfg(unix)]
        if source.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) {
            return self.changed();
        }
        PathError::Io { named: self.relative(), source }
    }
}

fn text(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

#[cfg(unix)]
mod inside {
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io::{self, Write as _};
    use std::os::fd::OwnedFd;

    use nix::errno::Errno;
    use nix::fcntl::{AtFlags, OFlag, openat, renameat};
    use nix::sys::stat::{Mode, SFlag, fchmod, fstatat, mkdirat};
    use nix::unistd::{UnlinkatFlags, unlinkat};

    use super::{TEMPORARY_PREFIX, WorktreePath};

    /// Opens the directory that holds the path's last component, one component at a time and never through a link.
    fn folder(path: &WorktreePath, make: bool) -> io::Result<(OwnedFd, &OsStr)> {
        let step = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let root = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut folder = nix::fcntl::open(path.root.path.as_path(), root, Mode::empty())?;
        let mut parts = path.relative.iter();
        let Some(name) = parts.next_back() else { return Err(io::ErrorKind::IsADirectory.into()) };
        for part in parts {
            if make {
                match mkdirat(&folder, part, Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = match openat(&folder, part, step, Mode::empty()) {
                // A link where a directory is asked for gives ENOTDIR on some systems and ELOOP on others.
                Err(Errno::ENOTDIR) if is_link(&folder, part) => return Err(Errno::ELOOP.into()),
                other => other?,
            };
        }
        Ok((folder, name))
    }

    fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
        fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
    }

    pub(super) fn open(path: &WorktreePath) -> io::Result<File> {
        let (folder, name) = folder(path, false)?;
        // A pipe without a writer must not hold the reader.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&folder, name, flags, Mode::empty())?))
    }

    pub(super) fn replace(path: &WorktreePath, content: &[u8]) -> io::Result<bool> {
        let (folder, name) = folder(path, true)?;
        let mode = match fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits() => {
                return Err(Errno::ELOOP.into());
            }
            Ok(stat) if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(stat) => Some(Mode::from_bits_truncate(stat.st_mode & 0o777)),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let temporary = format!("{TEMPORARY_PREFIX}{}", uuid::Uuid::new_v4().simple());
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(&folder, temporary.as_str(), flags, Mode::from_bits_truncate(0o666))?;
        let mut file = File::from(opened);
        let written = file
            .write_all(content)
            .and_then(|()| mode.map_or(Ok(()), |mode| fchmod(&file, mode).map_err(io::Error::from)))
            .and_then(|()| renameat(&folder, temporary.as_str(), &folder, name).map_err(io::Error::from));
        if written.is_err() {
            let _ = unlinkat(&folder, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written.map(|()| mode.is_none())
    }
}

#[cfg(not(unix))]
mod inside {
    use std::fs::File;
    use std::io;

    use super::{TEMPORARY_PREFIX, WorktreePath};

    pub(super) fn open(path: &WorktreePath) -> io::Result<File> {
        File::open(path.absolute().as_path())
    }

    pub(super) fn replace(path: &WorktreePath, content: &[u8]) -> io::Result<bool> {
        let place = path.absolute();
        let folder = place.parent().ok_or(io::ErrorKind::IsADirectory)?;
        std::fs::create_dir_all(folder.as_path())?;
        if place.as_path().is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let new = !place.as_path().exists();
        let mut file = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder.as_path())?;
        io::Write::write_all(&mut file, content)?;
        file.persist(place.as_path()).map_err(|error| error.error)?;
        Ok(new)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::sys::files;

    struct Place {
        _home: tempfile::TempDir,
        home: AbsPath,
        root: WorktreeRoot,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let home = AbsPath::new(dir.path()).unwrap().canonical().unwrap();
        let root = home.join("tree");
        files::create_dir(root.join("src/deep").as_path()).unwrap();
        files::create_dir(root.join(".git").as_path()).unwrap();
        files::write_public(home.join("secret").as_path(), b"secret").unwrap();
        files::write_public(root.join("src/a.rs").as_path(), b"fn a() {}\n").unwrap();
        Place { _home: dir, root: WorktreeRoot::open(&root).unwrap(), home }
    }

    fn read(path: &AbsPath) -> String {
        std::fs::read_to_string(path.as_path()).unwrap()
    }

    #[test]
    fn s_055_paths_that_leave_the_worktree_are_refused() {
        let place = place();
        let root = place.root.path();
        symlink(place.home.as_path(), root.join("out").as_path()).unwrap();
        symlink("../secret", root.join("up").as_path()).unwrap();
        symlink("src/../../secret", root.join("winding").as_path()).unwrap();
        symlink("loop-b", root.join("loop-a").as_path()).unwrap();
        symlink("loop-a", root.join("loop-b").as_path()).unwrap();
        symlink(".git", root.join("meta").as_path()).unwrap();
        let absolute = root.join("src/a.rs").to_string();
        for named in [
            "../secret",
            "src/../../secret",
            "src/../src/a.rs",
            "/etc/passwd",
            absolute.as_str(),
            "out/secret",
            "out",
            "up",
            "winding",
            "out/new/file",
            "loop-a",
            "meta/config",
            "",
            "a\0b",
            "a\\..\\b",
            "a\nb",
            ".git",
            ".git/config",
            ".GIT/config",
            "src/.Git/hooks/x",
            ".git./x",
            ".git /x",
            "git~1/x",
            ".git::$INDEX/x",
            ".g\u{200c}it/config",
        ] {
            let error = place.root.resolve(named).expect_err(named);
            assert_eq!(error.code(), Some("path_outside_worktree"), "{named:?}: {error}");
        }
    }

    #[test]
    fn links_inside_are_followed_and_what_is_missing_is_fine() {
        let place = place();
        let root = place.root.path();
        symlink("src", root.join("lib").as_path()).unwrap();
        symlink(root.join("src/deep").as_path(), root.join("abs").as_path()).unwrap();
        for (named, real) in [
            ("src/a.rs", "src/a.rs"),
            ("./src//a.rs", "src/a.rs"),
            ("lib/a.rs", "src/a.rs"),
            (".", "."),
            ("abs/new/file.txt", "src/deep/new/file.txt"),
            (".gitignore", ".gitignore"),
            ("a..b", "a..b"),
            ("with space/ü.txt", "with space/ü.txt"),
        ] {
            assert_eq!(place.root.resolve(named).unwrap().relative(), real, "{named}");
        }
    }

    #[test]
    fn replacing_keeps_the_mode_and_cuts_hard_links() {
        let place = place();
        let root = place.root.path();
        let script = root.join("src/run.sh");
        std::fs::hard_link(place.home.join("secret").as_path(), script.as_path()).unwrap();
        std::fs::set_permissions(script.as_path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!place.root.resolve("src/run.sh").unwrap().replace(b"new").unwrap());
        assert_eq!((read(&script).as_str(), read(&place.home.join("secret")).as_str()), ("new", "secret"));
        assert_eq!(script.as_path().metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert!(place.root.resolve("new/deep/file").unwrap().replace(b"x").unwrap());
        assert!(matches!(place.root.resolve("src").unwrap().replace(b"x"), Err(PathError::NotAFile(_))));
        assert!(
            !std::fs::read_dir(root.join("src").as_path())
                .unwrap()
                .any(|e| { e.unwrap().file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) })
        );
    }

    #[test]
    fn a_link_is_not_written_through() {
        let place = place();
        let root = place.root.path();
        symlink("a.rs", root.join("src/link.rs").as_path()).unwrap();
        let error = place.root.resolve("src/link.rs").unwrap().replace(b"x").unwrap_err();
        assert!(matches!(&error, PathError::Link { target, .. } if target == "src/a.rs"), "{error}");
        assert_eq!(read(&root.join("src/a.rs")), "fn a() {}\n");
    }

    #[test]
    fn a_link_that_appears_after_the_check_is_not_followed() {
        let place = place();
        let root = place.root.path();
        let checked = place.root.resolve("src/deep/f").unwrap();
        std::fs::remove_dir(root.join("src/deep").as_path()).unwrap();
        symlink(place.home.as_path(), root.join("src/deep").as_path()).unwrap();
        assert!(checked.replace(b"x").is_err());
        assert_eq!(
            place.root.resolve("src/a.rs").unwrap().open().map(|_| ()).map_err(|e| e.to_string()),
            Ok(())
        );
        let file = WorktreePath { root: place.root.clone(), relative: "src/deep/secret".into(), link: None };
        assert_eq!(file.open().unwrap_err().code(), Some("path_outside_worktree"));
        assert!(!place.home.join("f").as_path().exists());
    }

    #[test]
    fn a_pipe_is_not_waited_on() {
        let place = place();
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(place.root.path().join("pipe").as_path(), mode).unwrap();
        assert!(matches!(place.root.resolve("pipe").unwrap().open(), Err(PathError::NotAFile(_))));
    }
}
