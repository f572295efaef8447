//! An open folder. What is in it is reached by its name and never through a link, so that nobody can lead whoever looks out of it
//! meanwhile.

use std::ffi::OsString;

/// What an entry of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name.
    pub name: OsString,
    /// What it was when the folder was read.
    pub kind: EntryKind,
}

pub use self::by_name::Folder;

#[cfg(unix)]
mod by_name {
    use std::ffi::{OsStr, OsString};
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt as _;

    use nix::dir::{Dir, Type};
    use nix::fcntl::{AtFlags, OFlag, openat};
    use nix::sys::stat::{Mode, SFlag, fstatat};

    use super::{EntryKind, FolderEntry};
    use crate::sys::paths::AbsPath;

    /// A folder that is open.
    #[derive(Debug)]
    pub struct Folder(OwnedFd);

    impl Folder {
        /// Opens the folder at a path of the caller's own.
        pub fn open(path: &AbsPath) -> io::Result<Self> {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            Ok(Self(nix::fcntl::open(path.as_path(), flags, Mode::empty())?))
        }

        /// Opens a folder in it. A link is an error.
        pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
        }

        /// Opens a file in it for reading. A link is an error; a pipe without a writer holds nobody.
        pub fn file(&self, name: &OsStr) -> io::Result<File> {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
        }

        /// What is in it, in the order of the names' bytes.
        pub fn entries(&self) -> io::Result<Vec<FolderEntry>> {
            // Another place to read at: this one may be asked again.
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let mut dir = Dir::from_fd(openat(&self.0, ".", flags, Mode::empty())?)?;
            let mut entries = Vec::new();
            for entry in dir.iter() {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let kind = match entry.file_type() {
                    Some(Type::Directory) => EntryKind::Folder,
                    Some(Type::File) => EntryKind::File,
                    Some(Type::Symlink) => EntryKind::Link,
                    Some(Type::Fifo | Type::CharacterDevice | Type::BlockDevice | Type::Socket) => {
                        EntryKind::Other
                    }
                    None => match self.kind(name) {
                        Some(kind) => kind,
                        None => continue,
                    },
                };
                entries.push(FolderEntry { name: OsString::from(name), kind });
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(entries)
        }

        /// What stands there under this name; `None` = nothing.
        pub fn kind(&self, name: &OsStr) -> Option<EntryKind> {
            let mode = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?.st_mode;
            let kind = mode & SFlag::S_IFMT.bits();
            Some(match kind {
                _ if kind == SFlag::S_IFDIR.bits() => EntryKind::Folder,
                _ if kind == SFlag::S_IFREG.bits() => EntryKind::File,
                _ if kind == SFlag::S_IFLNK.bits() => EntryKind::Link,
                _ => EntryKind::Other,
            })
        }
    }
}

#[cfg(not(unix))]
mod by_name {
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io;

    use super::{EntryKind, FolderEntry};
    use crate::sys::paths::AbsPath;

    /// A folder by its path: here nothing keeps links out.
    #[derive(Debug)]
    pub struct Folder(AbsPath);

    impl Folder {
        /// See the one of other systems.
        pub fn open(path: &AbsPath) -> io::Result<Self> {
            Ok(Self(path.clone()))
        }

        /// See the one of other systems.
        pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
            match self.kind(name) {
                Some(EntryKind::Folder) => Ok(Self(self.0.join(name))),
                _ => Err(io::ErrorKind::NotADirectory.into()),
            }
        }

        /// See the one of other systems.
        pub fn file(&self, name: &OsStr) -> io::Result<File> {
            File::open(self.0.join(name).as_path())
        }

        /// See the one of other systems.
        pub fn entries(&self) -> io::Result<Vec<FolderEntry>> {
            let names =
                std::fs::read_dir(self.0.as_path())?.map(|entry| entry.map(|entry| entry.file_name()));
            let mut entries = Vec::new();
            for name in names {
                let name = name?;
                entries.extend(self.kind(&name).map(|kind| FolderEntry { name, kind }));
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(entries)
        }

        /// See the one of other systems.
        pub fn kind(&self, name: &OsStr) -> Option<EntryKind> {
            let kind = self.0.join(name).as_path().symlink_metadata().ok()?.file_type();
            Some(match () {
                () if kind.is_dir() => EntryKind::Folder,
                () if kind.is_file() => EntryKind::File,
                () if kind.is_symlink() => EntryKind::Link,
                () => EntryKind::Other,
            })
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sys::paths::AbsPath;

    #[test]
    fn what_is_in_a_folder_is_what_it_has_itself_and_not_what_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let place = AbsPath::new(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("tree/b")).unwrap();
        for (file, text) in [("tree/a", "mine"), ("secret", "not mine")] {
            crate::sys::files::write_public(&dir.path().join(file), text.as_bytes()).unwrap();
        }
        symlink("..", dir.path().join("tree/out")).unwrap();
        symlink("../secret", dir.path().join("tree/secret")).unwrap();
        let tree = Folder::open(&place.join("tree")).unwrap();
        let kinds: Vec<_> = tree.entries().unwrap().into_iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [EntryKind::File, EntryKind::Folder, EntryKind::Link, EntryKind::Link]);
        let mut text = String::new();
        tree.file("a".as_ref()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "mine");
        assert!(tree.file("secret".as_ref()).is_err() && tree.folder("out".as_ref()).is_err());
        // It is what it was when it was opened, whatever takes its name.
        crate::sys::files::rename(&dir.path().join("tree"), &dir.path().join("moved")).unwrap();
        symlink(".", dir.path().join("tree")).unwrap();
        assert_eq!(tree.entries().unwrap().len(), 4);
    }
}
