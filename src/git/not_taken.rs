//! Why a file is in no snapshot.

use std::fmt;

use super::blob::LARGEST_FILE;

/// Why a file is in no snapshot and in no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// It has this many bytes, more than [`LARGEST_FILE`].
    Large(u64),
    /// On some system its name is that of git's own folder.
    Name,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Large(bytes) => write!(f, "{bytes} bytes, more than the {LARGEST_FILE} of any file"),
            Self::Name => {
                f.write_str("git refuses its name, which is that of git's own folder on some system")
            }
        }
    }
}
