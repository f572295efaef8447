//! The daemon's files: read at start, written whole when something changed.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::state_format::{DaemonState, SCHEMA};
use super::status_format::{self, Status};
use crate::sys::files::{self, FileError};

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Written by a later agentd.
    #[error("{path} was written by a newer agentd ({found}); use that one, or move the file away", path = path.display())]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// It cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It cannot be written, or set aside.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The daemon's folder and files in the state directory.
#[derive(Debug, Clone)]
pub struct DaemonFiles {
    folder: PathBuf,
}

impl DaemonFiles {
    /// The files below a state directory; nothing is made.
    pub fn of(state_dir: &Path) -> Self {
        Self { folder: state_dir.join("daemon") }
    }

    /// The lock of the one daemon that may use the state directory.
    pub fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    fn status(&self) -> PathBuf {
        self.folder.join("status.json")
    }

    /// Makes the folder.
    pub fn create(&self) -> Result<(), StateError> {
        Ok(files::create_private_dir(&self.folder)?)
    }

    /// Reads the state; a missing file counts as an empty one. A file that cannot be read is set aside with a warning,
    /// because its content can be found out again.
    pub fn load(&self) -> Result<DaemonState, StateError> {
        let path = self.state();
        let Some(text) = read(&path)? else { return Ok(DaemonState::default()) };
        let version = serde_json::from_str::<serde_json::Value>(&text).ok();
        let version = version.as_ref().and_then(|file| file["schema_version"].as_str()).unwrap_or_default();
        if version.starts_with("agentd.daemon_state.") && version != SCHEMA {
            return Err(StateError::Newer { path, found: version.to_owned() });
        }
        match serde_json::from_str(&text) {
            Ok(state) => Ok(state),
            Err(error) => {
                let aside = files::set_aside(&path, "unreadable")?;
                tracing::warn!(%error, kept = %aside.display(), "the daemon's state could not be understood; starting without it");
                Ok(DaemonState::default())
            }
        }
    }

    /// Writes the state.
    pub fn save(&self, state: &DaemonState) -> Result<(), StateError> {
        self.write(&self.state(), state)
    }

    /// Reads the daemon's last status; `None` = there is none, or it has another version.
    pub fn load_status(&self) -> Result<Option<Status>, StateError> {
        let Some(text) = read(&self.status())? else { return Ok(None) };
        let status: Option<Status> = serde_json::from_str(&text).ok();
        Ok(status.filter(|status| status.schema_version == status_format::SCHEMA))
    }

    /// Writes what the daemon says of itself.
    pub fn save_status(&self, status: &Status) -> Result<(), StateError> {
        self.write(&self.status(), status)
    }

    fn write(&self, path: &Path, value: &impl Serialize) -> Result<(), StateError> {
        let text = serde_json::to_vec(value)
            .map_err(|error| StateError::Read { path: path.to_owned(), source: error.into() })?;
        Ok(files::write_private(path, &text)?)
    }
}

fn read(path: &Path) -> Result<Option<String>, StateError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Read { path: path.to_owned(), source }),
    }
}
