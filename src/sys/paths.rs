//! Absolute paths: what agentd passes around instead of relying on a current directory.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// An absolute path without `.` and `..` components. Links are not resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbsPath(PathBuf);

/// A path that is not absolute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not an absolute path", .0.display())]
pub struct NotAbsolute(PathBuf);

impl AbsPath {
    /// Takes an absolute path; `.` and `..` are worked out by name.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, NotAbsolute> {
        let path = path.as_ref();
        if path.is_absolute() { Ok(Self(normalised(path))) } else { Err(NotAbsolute(path.to_owned())) }
    }

    /// Where `path` leads when it starts at `self`. An absolute path stays as it is.
    pub fn join(&self, path: impl AsRef<Path>) -> Self {
        Self(normalised(&self.0.join(path)))
    }

    /// The same place with all links resolved; it must exist.
    pub fn canonical(&self) -> std::io::Result<Self> {
        self.0.canonicalize().map(Self)
    }

    /// The directory it is in; `None` for a root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().map(|parent| Self(parent.to_owned()))
    }

    /// As the standard library's type.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// For messages.
    pub fn display(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

fn normalised(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

impl AsRef<Path> for AbsPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for AbsPath {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl fmt::Display for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_refused_and_dots_worked_out() {
        assert!(AbsPath::new("a/b").is_err());
        let root = AbsPath::new("/a/./b/../c").unwrap();
        assert_eq!(root.as_path(), Path::new("/a/c"));
        assert_eq!(root.join("../d").as_path(), Path::new("/a/d"));
        assert_eq!(root.join("/x").as_path(), Path::new("/x"));
        assert_eq!(AbsPath::new("/../..").unwrap().as_path(), Path::new("/"));
    }
}
