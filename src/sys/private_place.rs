//! Whether a directory belongs to this user only: nobody else may write into it, read it, or replace it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::domain::shell_words;

/// What agentd makes in its state directory: each one that was used has one of them.
#[cfg(unix)]
const OWN: [&str; 9] =
    ["cells.lock", "cells.redo", "cluster", "daemon", "repos", "seal.key", "seals.jsonl", "spend", "users"];

/// What is wrong with a directory that should belong to this user only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is a symbolic link.
    Link,
    /// It is something else than a directory.
    NoDirectory,
    /// Somebody else owns it.
    Owner(u32),
    /// Others may write into it.
    Writable(u32),
    /// Others may look into it.
    Readable(u32),
    /// Others may look into it, and what is in it is not agentd's: to close it would take it from them.
    Foreign(u32),
    /// Anybody may replace it, because a directory above is writable for all and not sticky.
    Above(PathBuf),
    /// It cannot be looked at.
    Unknown(String),
}

impl Fault {
    /// Whether removing the rights of others repairs it without a loss.
    pub fn is_mended_by_mode(&self) -> bool {
        matches!(self, Self::Readable(_))
    }

    /// What to do about it, for the directory `dir`.
    pub fn remedy(&self, dir: &Path) -> String {
        let dir = dir.display().to_string();
        match self {
            Self::Link => {
                format!(
                    "name the directory itself, by --state-dir or AGENTD_STATE_DIR: {dir} only leads to it"
                )
            }
            Self::NoDirectory | Self::Foreign(_) | Self::Unknown(_) => {
                "name another directory, by --state-dir or AGENTD_STATE_DIR".to_owned()
            }
            Self::Owner(_) => {
                let taken = ["chown -R \"$(id -u)\"", &shell_words::quoted(&dir)].join(" ");
                format!("take it over: `{taken}`; or name another, by --state-dir")
            }
            Self::Writable(_) | Self::Readable(_) => {
                let closed = shell_words::line(&["chmod", "700", &dir]);
                format!("look whether everything in it is yours, then: `{closed}`")
            }
            Self::Above(above) => {
                let closed = shell_words::line(&["chmod", "o-w", &above.display().to_string()]);
                format!("`{closed}` (or chmod +t), or name another, by --state-dir")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => f.write_str("is a symbolic link: whoever owns the link decides where it leads"),
            Self::NoDirectory => f.write_str("is no directory"),
            Self::Owner(uid) => write!(f, "belongs to another user (uid {uid})"),
            Self::Writable(mode) => write!(f, "can be written by others (mode {mode:04o})"),
            Self::Readable(mode) => write!(f, "can be read by others (mode {mode:04o})"),
            Self::Foreign(mode) => {
                write!(
                    f,
                    "holds files, none of them agentd's, which others can read (mode {mode:04o}): agentd would take it from them"
                )
            }
            Self::Above(above) => {
                write!(f, "is not safe: everybody may write to {}, which is not sticky", above.display())
            }
            Self::Unknown(why) => write!(f, "cannot be looked at: {why}"),
        }
    }
}

/// The first thing that is wrong with a directory, the worst first. One that is not there yet is fine where it will be.
#[cfg(unix)]
pub fn fault(dir: &Path) -> Option<Fault> {
    use std::os::unix::fs::MetadataExt as _;
    match dir.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => return Some(Fault::Link),
        Ok(meta) if !meta.is_dir() => return Some(Fault::NoDirectory),
        Ok(meta) => {
            let (mode, own) = (meta.mode() & 0o7777, nix::unistd::geteuid().as_raw());
            if meta.uid() != own {
                return Some(Fault::Owner(meta.uid()));
            }
            if mode & 0o022 != 0 {
                return Some(Fault::Writable(mode));
            }
            if let Some(fault) = above(dir) {
                return Some(fault);
            }
            let open = if is_foreign(dir) { Fault::Foreign(mode) } else { Fault::Readable(mode) };
            return (mode & 0o077 != 0).then_some(open);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Some(Fault::Unknown(error.to_string())),
    }
    above(dir)
}

/// Rights of others are not known here.
#[cfg(not(unix))]
pub fn fault(dir: &Path) -> Option<Fault> {
    match dir.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => Some(Fault::Link),
        Ok(meta) if !meta.is_dir() => Some(Fault::NoDirectory),
        _ => None,
    }
}

/// Whether a directory has files, and none that agentd makes in its state directory.
#[cfg(unix)]
fn is_foreign(dir: &Path) -> bool {
    let mut names =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).peekable();
    names.peek().is_some() && names.all(|name| OWN.iter().all(|own| name != *own))
}

#[cfg(unix)]
fn above(dir: &Path) -> Option<Fault> {
    use std::os::unix::fs::MetadataExt as _;
    let open =
        |dir: &&Path| dir.metadata().is_ok_and(|meta| meta.mode() & 0o002 != 0 && meta.mode() & 0o1000 == 0);
    dir.ancestors().skip(1).find(open).map(|above| Fault::Above(above.to_owned()))
}

/// Makes sure that a directory belongs to this user only. If others may only read, their rights are removed, and this
/// is reported. Everything else is an error: nothing can be kept there, or the content may have been changed.
pub fn ensure(dir: &Path) -> Result<(), Fault> {
    match fault(dir) {
        None => Ok(()),
        Some(fault) if fault.is_mended_by_mode() => {
            close(dir).map_err(|error| Fault::Unknown(error.to_string()))?;
            tracing::warn!("{} {fault}; now it is yours alone (mode 0700)", dir.display());
            Ok(())
        }
        Some(fault) => Err(fault),
    }
}

/// Takes the rights of others away.
#[cfg(unix)]
fn close(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
}

/// Rights of others are not known here.
#[cfg(not(unix))]
fn close(_dir: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn made(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, state)
    }

    #[test]
    fn what_others_may_do_with_a_directory_is_known() {
        for (mode, expected) in [
            (0o700, None),
            (0o755, Some(Fault::Readable(0o755))),
            (0o750, Some(Fault::Readable(0o750))),
            (0o711, Some(Fault::Readable(0o711))),
            (0o775, Some(Fault::Writable(0o775))),
            (0o777, Some(Fault::Writable(0o777))),
            (0o1777, Some(Fault::Writable(0o1777))),
            (0o702, Some(Fault::Writable(0o702))),
        ] {
            let (_dir, state) = made(mode);
            assert_eq!(fault(&state), expected, "{mode:o}");
        }
    }

    #[test]
    fn a_folder_of_other_files_is_not_closed_to_those_who_read_it() {
        let (_dir, state) = made(0o755);
        crate::sys::files::write_private(&state.join("theirs"), b"").unwrap();
        assert_eq!(ensure(&state), Err(Fault::Foreign(0o755)));
        assert_eq!(state.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        std::fs::create_dir(state.join("repos")).unwrap();
        assert_eq!(ensure(&state), Ok(()), "one that agentd used is its own");
        assert_eq!(state.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_a_file_and_an_open_folder_above_are_found_and_what_is_not_there_is_fine() {
        let (dir, state) = made(0o700);
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        symlink(&state, &link).unwrap();
        crate::sys::files::write_private(&file, b"").unwrap();
        assert_eq!(fault(&link), Some(Fault::Link));
        assert_eq!(fault(&file), Some(Fault::NoDirectory));
        assert_eq!(fault(&dir.path().join("none/yet")), None);
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
        let below = state.join("below");
        assert_eq!(fault(&below), Some(Fault::Above(state.clone())));
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(fault(&below), None, "nobody removes what is another's there");
    }
}
