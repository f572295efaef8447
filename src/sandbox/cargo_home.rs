//! The Cargo home of a run. Earlier downloads can be read; new downloads stay in the run.
//!
//! An agent never writes to the user's own Cargo home. Otherwise the user's next build would compile a changed crate.

use std::path::Path;

use crate::sys::files::{self, FileError};

/// Files that are not copied: locks, the usage log, credentials.
const LEFT_OUT: [&str; 6] = [
    "credentials.toml",
    "credentials",
    ".package-cache",
    ".package-cache-mutate",
    ".global-cache",
    "settings.toml.bak",
];
/// Folders that get new entries, by their depth below the home. Deeper files are read at their original place.
const GROWING: [(&str, usize); 5] =
    [("registry/index", 2), ("registry/cache", 2), ("registry/src", 2), ("git/db", 1), ("git/checkouts", 2)];

/// Makes the home, of links to the user's.
pub fn make(own: &Path, private: &Path) -> Result<(), FileError> {
    files::create_private_dir(private)?;
    for entry in entries(own) {
        let named = |names: &[&str]| names.iter().any(|name| entry == **name);
        if !named(&LEFT_OUT) && !named(&["registry", "git"]) {
            files::link(&own.join(&entry), &private.join(&entry))?;
        }
    }
    for (folder, depth) in GROWING {
        grow(&own.join(folder), &private.join(folder), depth)?;
    }
    Ok(())
}

/// A folder of the same folders, down to a depth where everything is a link.
fn grow(own: &Path, private: &Path, depth: usize) -> Result<(), FileError> {
    files::create_private_dir(private)?;
    for entry in entries(own) {
        let (from, to) = (own.join(&entry), private.join(&entry));
        if depth > 1 && from.is_dir() {
            grow(&from, &to, depth - 1)?;
        } else if !entry.to_string_lossy().starts_with(".cargo-index-lock") {
            files::link(&from, &to)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> impl Iterator<Item = std::ffi::OsString> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn what_was_downloaded_is_there_and_what_comes_stays_apart() {
        let place = tempfile::tempdir().unwrap();
        let (own, private) = (place.path().join("own"), place.path().join("private"));
        let write = |path: &str| {
            files::create_dir(own.join(path).parent().unwrap()).unwrap();
            files::write_public(&own.join(path), b"x").unwrap();
        };
        for path in
            ["config.toml", "credentials.toml", "registry/cache/id/a-1.crate", "registry/src/id/a-1/lib.rs"]
        {
            write(path);
        }
        make(&own, &private).unwrap();
        assert!(
            private.join("registry/src/id/a-1/lib.rs").is_file() && private.join("config.toml").is_file()
        );
        assert!(!private.join("credentials.toml").exists());
        files::write_public(&private.join("registry/cache/id/b-1.crate"), b"new").unwrap();
        assert!(!own.join("registry/cache/id/b-1.crate").exists());
        files::remove_dir(&private).unwrap();
        assert!(own.join("registry/src/id/a-1/lib.rs").is_file());
    }
}
