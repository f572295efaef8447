//! What the daemon keeps in the store: read at start, written whole when something changed.

use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use serde::Serialize;

use super::state_format::{CommentsRead, DaemonState, RepositoryState, SCHEMA};
use super::status_format::{self, Status};
use crate::store::port::{Cell, HeldLease, LeaseKey, LeaseNotTaken, StoreError};
use crate::store::run_dir::StateDir;
use crate::sys::files::{self, FileError};
use crate::sys::holder_format::Holder;
use crate::sys::host::Host;

/// How long the daemon's lease counts for those who cannot see whether it lives.
const LASTS: Duration = Duration::from_secs(600);

/// Where a lost state is made up for: so much before the last poll, as GitHub's lists show late what was written, and its clock is another.
const EARLIER: TimeDelta = TimeDelta::minutes(2);

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
    /// It cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What cannot be understood cannot be kept aside.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one uses the state directory.
    #[error(
        "another agentd daemon uses this state directory ({0}); stop it, or give this one its own --state-dir"
    )]
    Busy(String),
    /// The lease cannot be taken.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// What the daemon keeps of itself, and the lease of the one daemon that may.
#[derive(Debug, Clone)]
pub struct DaemonFiles {
    state: StateDir,
}

impl DaemonFiles {
    /// Those of a state directory; nothing is made.
    pub fn of(state: &StateDir) -> Self {
        Self { state: state.clone() }
    }

    /// Takes the lease. Blocks.
    pub fn take(&self) -> Result<Box<dyn HeldLease>, DaemonError> {
        self.state.store().take(&LeaseKey::Daemon, "daemon", LASTS).map_err(|error| match error {
            LeaseNotTaken::Busy(holder) => DaemonError::Busy(
                holder.map_or_else(|| "unknown process".to_owned(), |holder| holder.to_string()),
            ),
            LeaseNotTaken::Full { .. } => DaemonError::Busy(error.to_string()),
            LeaseNotTaken::Store(error) => error.into(),
        })
    }

    /// Who has it.
    pub fn holder(&self) -> Option<Holder> {
        self.state.store().look(&LeaseKey::Daemon)?.holder
    }

    /// The daemon of this host that has it.
    pub fn holder_here(&self) -> Option<Holder> {
        self.holder().filter(|holder| holder.host == Host::current().name)
    }

    /// Whether a daemon has it, as far as this host can tell.
    pub fn daemon_lives(&self) -> bool {
        self.holder_here().is_some()
    }

    /// What the living daemon said last; `None` = there is none, or it has not said anything yet: what is there is another one's.
    pub fn load_status_of_living(&self) -> Result<Option<Status>, StateError> {
        let Some(holder) = self.holder_here() else { return Ok(None) };
        Ok(self.load_status()?.filter(|status| status.pid == holder.pid))
    }

    /// Reads the state for its daemon; a missing one is empty. One that cannot be understood is set aside, with a warning:
    /// what it remembers can be found out again. Since when people were not heard is known from what the daemon said last.
    pub fn load(&self) -> Result<DaemonState, StateError> {
        match self.read()? {
            Ok(state) if !state.repositories.is_empty() => Ok(state),
            Ok(state) => {
                let heard = self.heard_until();
                if !heard.repositories.is_empty() {
                    tracing::warn!(
                        "what the daemon remembered is gone; people are heard from its last poll on"
                    );
                    return Ok(heard);
                }
                Ok(state)
            }
            Err((text, error)) => {
                let aside = self.keep_aside(&text)?;
                self.state.store().put(&Cell::Daemon, None)?;
                tracing::warn!(%error, kept = %aside.display(), "the daemon's state could not be understood; starting without it, and people are heard from its last poll on");
                Ok(self.heard_until())
            }
        }
    }

    /// A state that knows nothing but how far people were heard, by the polls that the last status names.
    fn heard_until(&self) -> DaemonState {
        let status = self.load_status().ok().flatten();
        let polled = status.into_iter().flat_map(|status| status.repositories);
        let heard = polled.filter_map(|of| {
            let since = of.polled_at? - EARLIER;
            let read = CommentsRead { since, last_id: 0, etag: None };
            let state = RepositoryState {
                comments: Some(read.clone()),
                review_comments: Some(read),
                listens_since: Some(since),
                ..RepositoryState::default()
            };
            Some((of.repo, state))
        });
        DaemonState { repositories: heard.collect(), ..DaemonState::default() }
    }

    /// Reads the state and changes nothing. What cannot be understood is as good as nothing, with a warning.
    pub fn look(&self) -> Result<DaemonState, StateError> {
        Ok(self.read()?.unwrap_or_else(|(_, error)| {
            let place = self.state.store().place(&Cell::Daemon);
            tracing::warn!(%error, place = %place.display(), "what the daemon remembers cannot be understood; the next daemon begins without it");
            DaemonState::default()
        }))
    }

    /// The state, or a text that cannot be understood.
    fn read(&self) -> Result<Result<DaemonState, (String, serde_json::Error)>, StateError> {
        let (_, value) = self.state.store().get(&Cell::Daemon)?;
        let Some(text) = value else { return Ok(Ok(DaemonState::default())) };
        let version = serde_json::from_str::<serde_json::Value>(&text).ok();
        let version = version.as_ref().and_then(|file| file["schema_version"].as_str()).unwrap_or_default();
        if version.starts_with("agentd.daemon_state.") && version != SCHEMA {
            let path = self.state.store().place(&Cell::Daemon);
            return Err(StateError::Newer { path, found: version.to_owned() });
        }
        Ok(serde_json::from_str(&text).map_err(|error| (text, error)))
    }

    /// Keeps a text that cannot be understood in this machine's state directory, under the first name that is free.
    fn keep_aside(&self, text: &str) -> Result<PathBuf, FileError> {
        let folder = self.state.path().join("daemon");
        files::create_private_dir(&folder)?;
        let mut path = folder.join("state.json.unreadable");
        let mut count = 1;
        while !files::write_private_new(&path, text.as_bytes())? {
            count += 1;
            path.set_file_name(format!("state.json.unreadable-{count}"));
        }
        Ok(path)
    }

    /// Writes the state.
    pub fn save(&self, state: &DaemonState) -> Result<(), StateError> {
        self.write(&Cell::Daemon, state)
    }

    /// Reads what the daemon last said of itself; `None` = there never was one.
    pub fn load_status(&self) -> Result<Option<Status>, StateError> {
        let (_, value) = self.state.store().get(&Cell::Status)?;
        let Some(text) = value else { return Ok(None) };
        let unreadable = |words: String| StoreError::Failed {
            action: "read",
            place: self.state.store().place(&Cell::Status).display().to_string(),
            words: format!("{words}; a daemon that works writes it anew"),
        };
        let status: Status = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        match status.schema_version == status_format::SCHEMA {
            true => Ok(Some(status)),
            false => Err(unreadable(format!("its version is {}", status.schema_version)).into()),
        }
    }

    /// Writes what the daemon says of itself.
    pub fn save_status(&self, status: &Status) -> Result<(), StateError> {
        self.write(&Cell::Status, status)
    }

    fn write(&self, cell: &Cell, value: &impl Serialize) -> Result<(), StateError> {
        let store = self.state.store();
        let text = serde_json::to_string(value).map_err(|error| StoreError::Failed {
            action: "write",
            place: store.place(cell).display().to_string(),
            words: error.to_string(),
        })?;
        Ok(store.put(cell, Some(&text))?)
    }
}
