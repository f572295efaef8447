//! The runs of a cluster, as any host reads them: rows from the store, and a run's directory brought on demand, checked before
//! anything of it is shown. Nothing is ended and nothing of others is changed. Without the store, what was last known is given, and since
//! when.

pub mod mirror_format;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};

use self::mirror_format::{KNOWN_SCHEMA, KnownRow, KnownSince, KnownStatus};
use super::moving::{self, NotBrought};
use crate::domain::cluster::cells::NodeState;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::seal::SealKeys;
use crate::store::journal_file;
use crate::store::nats::{Access, NatsStore};
use crate::store::port::{Cell, Cells as _, StoreError};
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_key;
use crate::sys::clock::Clock;
use crate::sys::files;

/// What this host shows of a cluster.
#[derive(Debug)]
pub struct Mirror {
    store: Result<NatsStore, StoreError>,
    folder: PathBuf,
    /// The runs of this host's own node.
    own: StateDir,
    /// Those that were brought.
    copies: StateDir,
    clock: Clock,
}

/// Items of a cluster, and how old they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown<T> {
    /// What there is.
    pub items: Vec<T>,
    /// The time to which ages count: now, by the store's clock, or this host's where there is no store.
    pub now: DateTime<Utc>,
    /// Without the store: since when nothing newer is known, and why.
    pub stale: Option<(DateTime<Utc>, String)>,
}

/// What is wrong with a store that gives nothing, as the end of a sentence.
pub fn what_is_wrong(why: &str) -> &'static str {
    match why.contains("stream not found") {
        true => "lacks a stream (agentd cluster doctor says which)",
        false => "cannot be reached",
    }
}

/// Why a run, or anything, is not shown.
#[derive(Debug, thiserror::Error)]
pub enum NotShown {
    /// The store is out of reach, and nothing is known here.
    #[error("the cluster's store {what}, and nothing of the cluster is known here yet: {0}", what = what_is_wrong(.0))]
    NothingKnown(String),
    /// The store answers, and this user may not read there.
    #[error("{0}")]
    NotPermitted(String),
    /// The store is out of reach, and this run was never brought here.
    #[error("run {run} is on {node}, and the cluster's store {what}: {why}", what = what_is_wrong(.why))]
    OutOfReach {
        /// The run.
        run: RunId,
        /// Its node.
        node: String,
        /// Why.
        why: String,
    },
    /// Its journal is past its time.
    #[error("run {run} ran on {node}; it is expired here")]
    Expired {
        /// The run.
        run: RunId,
        /// Its node.
        node: String,
    },
    /// It is not as its node wrote it.
    #[error("run {run} is not shown, because it is not as it was written: {why}")]
    Broken {
        /// The run.
        run: RunId,
        /// What is wrong.
        why: String,
    },
}

impl Mirror {
    /// Connects, if the store can be reached. Blocks.
    pub fn open(access: &Access, state: PathBuf) -> Self {
        Self::with(NatsStore::connect(access), access.names.cluster(), state)
    }

    /// On a connection that there is already.
    pub fn on(store: NatsStore, state: PathBuf) -> Self {
        let cluster = store.names().cluster().to_owned();
        Self::with(Ok(store), &cluster, state)
    }

    fn with(store: Result<NatsStore, StoreError>, cluster: &str, state: PathBuf) -> Self {
        let folder = state.join("cluster").join(cluster);
        Self {
            store,
            own: StateDir::for_reading(state),
            copies: StateDir::for_reading(folder.clone()),
            folder,
            clock: Clock::system(),
        }
    }

    /// The store, where it can be reached.
    pub fn store(&self) -> Result<&NatsStore, &StoreError> {
        self.store.as_ref()
    }

    /// Reads something of the store and keeps it; without the store, what was kept.
    fn shown<T: Serialize + DeserializeOwned>(
        &self,
        file: &str,
        read: impl FnOnce(&NatsStore) -> Result<Vec<T>, StoreError>,
    ) -> Result<Shown<T>, NotShown> {
        let path = self.folder.join(file);
        let fresh = self.store.as_ref().map_err(Clone::clone).and_then(|store| {
            let items = read(store)?;
            let now = store.servers_time()?.map_or_else(|| self.clock.now(), |(now, _)| now);
            Ok((items, now))
        });
        match fresh {
            Ok((items, now)) => {
                let known = KnownSince { schema_version: KNOWN_SCHEMA.to_owned(), as_of: now, items };
                let kept = files::create_private_dir(&self.folder).and_then(|()| {
                    files::write_private(&path, &serde_json::to_vec(&known).unwrap_or_default())
                });
                if let Err(error) = kept {
                    tracing::warn!("what is known of the cluster is not kept: {error}");
                }
                Ok(Shown { items: known.items, now, stale: None })
            }
            // What was known once is not shown for what is there now.
            Err(error) if error.is_for_want_of_a_right() => Err(NotShown::NotPermitted(error.to_string())),
            Err(error) => {
                let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
                let known = known.filter(|known: &KnownSince<T>| known.schema_version == KNOWN_SCHEMA);
                let known = known.ok_or_else(|| NotShown::NothingKnown(error.to_string()))?;
                let stale = Some((known.as_of, error.to_string()));
                Ok(Shown { items: known.items, now: self.clock.now(), stale })
            }
        }
    }

    /// The runs, newest first. Without the store: those that were last known, and this host's own.
    ///
    /// # Errors
    /// Nothing is known.
    pub fn runs(&self) -> Result<Shown<KnownRow>, NotShown> {
        let read = |store: &NatsStore| {
            let rows = store.rows()?.into_iter();
            Ok(rows.map(|seen| KnownRow { as_of: seen.written, row: seen.row }).collect())
        };
        let mut shown = match self.shown("runs.json", read) {
            Ok(shown) if shown.stale.is_none() => return Ok(shown),
            Ok(shown) => shown,
            Err(NotShown::NothingKnown(why)) => return self.own_runs(why),
            Err(error) => return Err(error),
        };
        for own in self.own_rows() {
            if !shown.items.iter().any(|known| known.row.run_id == own.row.run_id) {
                shown.items.push(own);
            }
        }
        match (shown.items.is_empty(), &shown.stale) {
            (true, Some((_, why))) => return Err(NotShown::NothingKnown(why.clone())),
            _ => shown.items.sort_by_key(|known| std::cmp::Reverse(known.row.run_id)),
        }
        Ok(shown)
    }

    /// This host's own runs alone, where it never looked at those of others: known since the last of them wrote something.
    fn own_runs(&self, why: String) -> Result<Shown<KnownRow>, NotShown> {
        let mut items = self.own_rows();
        items.sort_by_key(|known| std::cmp::Reverse(known.row.run_id));
        match items.iter().map(|known| known.as_of).max() {
            Some(since) => {
                let why = format!("{why}; of other nodes nothing is known here");
                Ok(Shown { items, now: self.clock.now(), stale: Some((since, why)) })
            }
            None => Err(NotShown::NothingKnown(why)),
        }
    }

    /// The rows of this host's own runs, each as old as the last line that it wrote.
    fn own_rows(&self) -> Vec<KnownRow> {
        let mut rows = Vec::new();
        for dir in self.own.runs(None).unwrap_or_default() {
            let Ok(read) = journal_file::read(&dir) else { continue };
            let written = read.lines.last().and_then(|line| DateTime::from_timestamp_millis(line.ts));
            if let Some(as_of) = written {
                rows.push(KnownRow { as_of, row: journal_file::row_of(&dir.repo, dir.run_id, &read.lines) });
            }
        }
        rows
    }

    /// What the nodes last said of themselves.
    ///
    /// # Errors
    /// Nothing is known.
    pub fn statuses(&self) -> Result<Shown<KnownStatus>, NotShown> {
        self.shown("status.json", |store| {
            let nodes = store.nodes()?;
            let lives = |name: &str| {
                nodes.iter().any(|seen| {
                    seen.node == name && matches!(seen.cell.state, NodeState::Live | NodeState::Draining)
                })
            };
            let said = store.statuses()?.into_iter().map(|seen| KnownStatus {
                lives: lives(&seen.node),
                status: serde_json::from_str(&seen.text).unwrap_or_default(),
                node: seen.node,
                as_of: seen.written,
            });
            Ok(said.collect())
        })
    }

    /// The directory of a run: this host's own where it has all that the row tells of, else a copy, brought now. Blocks.
    ///
    /// # Errors
    /// It is past its time, out of reach, or not as it was written.
    pub fn directory(&self, row: &RunRow) -> Result<RunDir, NotShown> {
        let run = RunId(row.run_id);
        let Ok(repo) = RepoName::parse(&row.repo) else {
            return Err(NotShown::Broken { run, why: format!("{} is no repository", row.repo) });
        };
        let has_all = |dir: &RunDir| {
            let place = usize::try_from(row.seq.max(1) - 1).unwrap_or(usize::MAX);
            let read = journal_file::read(dir).ok();
            read.is_some_and(|read| read.lines.get(place).is_some_and(|line| line.hash == row.hash))
        };
        let own = self.own.run(&repo, run);
        if has_all(&own) {
            return Ok(own);
        }
        let copy = self.copies.run(&repo, run);
        let node =
            || if row.node.is_empty() { "a host without a cluster".to_owned() } else { row.node.clone() };
        let store = match &self.store {
            Ok(store) => store,
            Err(_) if copy.events().exists() => return Ok(copy),
            Err(error) => {
                return Err(NotShown::OutOfReach { run, node: node(), why: error.to_string() });
            }
        };
        let from = StateDir::on_nats(self.own.path().to_owned(), store.clone());
        let brought = self.keys(store).map_err(NotBrought::from).and_then(|()| {
            let brought = moving::bring(&from, &repo, run, &self.copies)?;
            // A row is never ahead of its journal: what the row has seen was cut off there.
            match has_all(&brought.dir) || row.seq == 0 {
                true => Ok(brought.dir),
                false => Err(NotBrought::Broken(format!(
                    "its row knows line {} with the hash {}, and its journal does not have it",
                    row.seq, row.hash
                ))),
            }
        });
        match brought {
            Ok(dir) => Ok(dir),
            Err(NotBrought::NotThere) if copy.events().exists() => Ok(copy),
            Err(NotBrought::NotThere) => Err(NotShown::Expired { run, node: node() }),
            // What was brought of a run that still works is shown; of one that has ended, a part would look broken.
            Err(NotBrought::Store(_)) if copy.events().exists() && (!row.ended() || has_all(&copy)) => {
                Ok(copy)
            }
            Err(NotBrought::Store(error)) => {
                Err(NotShown::OutOfReach { run, node: node(), why: error.to_string() })
            }
            Err(error @ (NotBrought::Broken(_) | NotBrought::TwoChains { .. })) => {
                Err(NotShown::Broken { run, why: error.to_string() })
            }
        }
    }

    /// Brings what was written of a run since. One of this host's own is written here anyway. Blocks.
    ///
    /// # Errors
    /// It is not as it was written. What is out of reach stays as it is.
    pub fn follow(&self, dir: &RunDir) -> Result<(), NotShown> {
        let Some(from) = self.shared().filter(|_| dir.path.starts_with(self.copies.path())) else {
            return Ok(());
        };
        match moving::bring(&from, &dir.repo, dir.run_id, &self.copies) {
            Err(error @ (NotBrought::Broken(_) | NotBrought::TwoChains { .. })) => {
                Err(NotShown::Broken { run: dir.run_id, why: error.to_string() })
            }
            Ok(_) | Err(NotBrought::NotThere | NotBrought::Store(_)) => Ok(()),
        }
    }

    /// The state that all nodes share, where the store can be reached.
    pub fn shared(&self) -> Option<StateDir> {
        let store = self.store.as_ref().ok()?;
        Some(StateDir::on_nats(self.own.path().to_owned(), store.clone()))
    }

    /// The keys whose seals count in the store; `None` = they cannot be read now.
    pub fn counted_keys(&self) -> Option<SealKeys> {
        seal_key::that_count(self.store.as_ref().ok()?).ok()
    }

    /// The keys whose seals count, beside the copies that they sealed.
    fn keys(&self, store: &NatsStore) -> Result<(), StoreError> {
        let text = store.get(&Cell::SealKeys)?.1;
        let known = self.copies.store().get(&Cell::SealKeys)?.1;
        match text == known {
            true => Ok(()),
            false => {
                files::create_private_dir(&self.folder)?;
                self.copies.store().put(&Cell::SealKeys, text.as_deref())
            }
        }
    }
}
