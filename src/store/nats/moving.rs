//! What moves into a cluster and out of it beside the port's parts: chains of seals, the records of leases, and who lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::cell_stream::{Write, Written};
use super::log::NatsLog;
use super::node::{is_gone, text_of};
use super::shared::NatsStore;
use crate::domain::cluster::cells::{self, Hold, ISSUE_SCHEMA, IssueCell, NodeCell, SessionId};
use crate::domain::cluster::names::{StreamKind, last_tokens};
use crate::domain::cluster::session::has_ended;
use crate::domain::name::RepoName;
use crate::store::port::{Log, StoreError};
use crate::sys::clock::Stopwatch;

/// How often the cells of nodes are looked at while it is found out whether they live.
const LOOK: std::time::Duration = std::time::Duration::from_millis(200);

/// What became of a lease's record.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    /// It is there now.
    Written,
    /// It was there already.
    Same,
    /// Another one is there, and stays.
    Other(Value),
    /// A session has the issue.
    Held(SessionId),
}

impl NatsStore {
    /// The chain of seals whose first line has this hash. Nothing is made.
    pub fn seal_chain(&self, first: &str) -> Arc<dyn Log> {
        self.log_at(self.names().seals(first))
    }

    /// Every chain of seals. Blocks.
    ///
    /// # Errors
    /// No answer.
    pub fn seal_chains(&self) -> Result<Vec<Arc<dyn Log>>, StoreError> {
        let (link, stream) = (self.shared.connection.link(), self.names().stream(StreamKind::Log));
        let filter = self.names().all_seals();
        let subjects =
            self.shared.connection.call(async move { link.subjects(&stream, &filter).await })??;
        Ok(subjects.into_iter().map(|subject| self.log_at(subject)).collect())
    }

    fn log_at(&self, subject: String) -> Arc<dyn Log> {
        Arc::new(NatsLog::new(self.shared.clone(), self.names().stream(StreamKind::Log), subject))
    }

    /// Keeps what holders of an issue recorded, where nobody has it: a record that is there already stays, unless `replaces`
    /// says of it that it is older. Blocks.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn put_record(
        &self,
        repo: &RepoName,
        key: &str,
        record: &Value,
        replaces: impl Fn(&Value) -> bool,
    ) -> Result<Recorded, StoreError> {
        let subject = self.names().cell_of("issue", repo, &[key]);
        loop {
            let (cells, place) = (self.shared.node.cells.clone(), subject.clone());
            let found = self.shared.connection.call(async move { cells.get(&place).await })??;
            let read = found.value.as_deref().map(|text| cells::read::<IssueCell>(text, ISSUE_SCHEMA));
            let cell = read.transpose().map_err(|error| StoreError::Failed {
                action: "read",
                place: subject.clone(),
                words: error.to_string(),
            })?;
            let cell = cell.unwrap_or_default();
            match (&cell.hold, &cell.record) {
                (_, Some(there)) if there == record => return Ok(Recorded::Same),
                (Hold::Leased { by, .. }, _) => return Ok(Recorded::Held(by.clone())),
                (_, Some(there)) if !replaces(there) => return Ok(Recorded::Other(there.clone())),
                _ => {}
            }
            let next = IssueCell { record: Some(record.clone()), ..cell };
            let value = Some(text_of(&next, &subject)?);
            let write = Write { subject: subject.clone(), after: found.sequence, value };
            let cells = self.shared.node.cells.clone();
            let written = self.shared.connection.call(async move { cells.commit(&[write]).await })??;
            if matches!(written, Written::At(_)) {
                return Ok(Recorded::Written);
            }
        }
    }

    /// The issues whose holder lives: repository, key, session. A node that is not seen to renew its cell is watched for a
    /// whole lease. Blocks that long at most.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn living(&self) -> Result<Vec<(RepoName, String, SessionId)>, StoreError> {
        let held = self.issues()?.into_iter().filter_map(|(repo, key, cell)| match cell.hold {
            Hold::Leased { by, .. } => Some((repo, key, by)),
            Hold::Free | Hold::Offered { .. } => None,
        });
        let mut unsure: Vec<_> = held.collect();
        let mut living = Vec::new();
        let nodes = || -> Result<BTreeMap<String, NodeCell>, StoreError> {
            Ok(self.nodes()?.into_iter().map(|seen| (seen.node, seen.cell)).collect())
        };
        let (watch, first) = (Stopwatch::start(), nodes()?);
        let mut now = first.clone();
        loop {
            unsure.retain(|(repo, key, by)| {
                let cell = now.get(&by.node);
                let ended = cell
                    .is_none_or(|cell| has_ended(by, Some(cell)) || is_gone(cell, &self.shared.node.host));
                let renewed = cell.is_some() && cell != first.get(&by.node);
                if !ended && renewed {
                    living.push((repo.clone(), key.clone(), by.clone()));
                }
                !ended && !renewed
            });
            if unsure.is_empty() || watch.elapsed() >= self.shared.node.lease {
                return Ok(living);
            }
            std::thread::sleep(LOOK);
            now = nodes()?;
        }
    }

    /// What the daemon of each node keeps over a restart: node and text. Blocks.
    ///
    /// # Errors
    /// No answer.
    pub fn daemon_states(&self) -> Result<Vec<(String, String)>, StoreError> {
        let texts = self.texts("daemon", 1)?;
        let named = texts.into_iter().filter_map(|(subject, text)| {
            let [node] = last_tokens(&subject)?;
            Some((node, text))
        });
        Ok(named.collect())
    }
}
