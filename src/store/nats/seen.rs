//! What people ask of a cluster: its servers, its nodes, who holds what, and what this user may do.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::answer_wire::Timed;
use super::connection::{AFTER, REQUEST, Sent};
use super::node::{meta_cell, node_cell};
use super::shared::NatsStore;
use crate::domain::causes::with_causes;
use crate::domain::cluster::cells::{self, ISSUE_SCHEMA, IssueCell, NodeCell, REPO_SCHEMA, RepoCell};
use crate::domain::cluster::names::{StreamKind, last_tokens};
use crate::domain::cluster::rights::Role;
use crate::domain::name::RepoName;
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// How often the way to the server and back is measured.
const ROUNDS: u32 = 5;

/// The server that this connection is with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSeen {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How long a question to the streams' leader and its answer take, on the average of a few.
    pub round_trip: Duration,
}

/// What the account may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountSeen {
    /// Streams that it has.
    pub streams: u64,
    /// Streams that it may have; `None` = any number.
    pub most_streams: Option<u64>,
    /// Bytes on disk, copies counted.
    pub storage: u64,
    /// Bytes that it may have on disk.
    pub most_storage: Option<u64>,
    /// Whether a stream has to say how large it may become.
    pub sizes_required: bool,
}

/// The cell of a node, with the time of its last change by the servers' clock.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSeen {
    /// Its name.
    pub node: String,
    /// What its cell says.
    pub cell: NodeCell,
    /// When that was written.
    pub written: DateTime<Utc>,
}

fn failed(action: &'static str, place: &str, words: impl Into<String>) -> StoreError {
    StoreError::Failed { action, place: place.to_owned(), words: words.into() }
}

impl NatsStore {
    /// The server of this connection. Blocks.
    ///
    /// # Errors
    /// It does not answer.
    pub fn server(&self) -> Result<ServerSeen, StoreError> {
        let link = self.shared.connection.link();
        let info = link.client.server_info();
        let began = Stopwatch::start();
        for _ in 0..ROUNDS {
            self.account()?;
        }
        let round_trip = began.elapsed() / ROUNDS;
        Ok(ServerSeen { name: info.server_name, version: info.version, round_trip })
    }

    /// Whether the key is another user's than `cluster.node`, so that no answer is heard. Known once something was asked.
    pub fn is_deaf(&self) -> bool {
        self.shared.connection.link().is_deaf()
    }

    /// What the account may keep. Blocks.
    ///
    /// # Errors
    /// No answer: without JetStream in this account, nobody gives one.
    pub fn account(&self) -> Result<AccountSeen, StoreError> {
        let link = self.shared.connection.link();
        let asked = self.shared.connection.call(async move {
            let answer = link.permitted("$JS.API.INFO", link.context.query_account()).await?;
            answer.map_err(|error| with_causes(&error))
        })?;
        let account = asked.map_err(|words| failed("ask for", "the account", words))?;
        let limit = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok());
        Ok(AccountSeen {
            streams: account.streams as u64,
            most_streams: limit(account.limits.max_streams),
            storage: account.storage,
            most_storage: limit(account.limits.max_storage),
            sizes_required: account.limits.max_bytes_required,
        })
    }

    /// What time it is by the servers' clock, as far as there is a stream to ask; and the longest that the answer was under
    /// way. Blocks.
    ///
    /// # Errors
    /// No answer.
    pub fn servers_time(&self) -> Result<Option<(DateTime<Utc>, Duration)>, StoreError> {
        let link = self.shared.connection.link();
        let subject = format!("$JS.API.STREAM.INFO.{}", self.names().stream(StreamKind::Cells));
        let began = Stopwatch::start();
        let place = subject.clone();
        let asked = self.shared.connection.call(async move {
            let answer = link.permitted(&subject, link.client.request(subject.clone(), Bytes::new())).await?;
            answer.map_err(|error| with_causes(&error))
        })?;
        let message = asked.map_err(|words| failed("ask", &place, words))?;
        let timed: Timed = serde_json::from_slice(&message.payload)
            .map_err(|error| failed("read the answer of", &place, error.to_string()))?;
        Ok(timed.ts.map(|time| (time, began.elapsed())))
    }

    /// The form of what nodes share that is in force. Blocks.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn form(&self) -> Result<u32, StoreError> {
        let node = self.shared.node.clone();
        let asked = async move { meta_cell(&node.cells, &node.names).await };
        Ok(self.shared.connection.call(asked)??.1.schema)
    }

    /// Every node that there ever was. Blocks.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        let node = self.shared.node.clone();
        self.shared.connection.call(async move {
            let mut seen = Vec::new();
            for subject in node.cells.subjects(&format!("{}.*", node.names.cell("node", &[]))).await? {
                let found = node.cells.get(&subject).await?;
                let (_, cell) = node_cell(&node.cells, &subject).await?;
                if let (Some(cell), Some([name])) = (cell, last_tokens(&subject)) {
                    seen.push(NodeSeen { node: name, cell, written: found.written });
                }
            }
            Ok(seen)
        })?
    }

    /// Every issue that somebody has, or had: repository, key, cell. Blocks.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn issues(&self) -> Result<Vec<(RepoName, String, IssueCell)>, StoreError> {
        let texts = self.texts("issue", 3)?;
        let mut seen = Vec::new();
        for (subject, text) in texts {
            let cell = cells::read(&text, ISSUE_SCHEMA);
            let cell = cell.map_err(|error| failed("read", &subject, error.to_string()))?;
            if let Some([owner, name, key]) = last_tokens(&subject)
                && let Ok(repo) = RepoName::parse(&format!("{owner}/{name}"))
            {
                seen.push((repo, key, cell));
            }
        }
        Ok(seen)
    }

    /// Who polls which repository. Blocks.
    ///
    /// # Errors
    /// No answer, or a cell that cannot be read.
    pub fn pollers(&self) -> Result<Vec<(RepoName, RepoCell)>, StoreError> {
        let mut seen = Vec::new();
        for (subject, text) in self.texts("repo", 2)? {
            let cell = cells::read(&text, REPO_SCHEMA);
            let cell = cell.map_err(|error| failed("read", &subject, error.to_string()))?;
            if let Some([owner, name]) = last_tokens(&subject)
                && let Ok(repo) = RepoName::parse(&format!("{owner}/{name}"))
            {
                seen.push((repo, cell));
            }
        }
        Ok(seen)
    }

    /// The cells of a kind that have a value, with so many tokens behind it.
    pub(super) fn texts(&self, kind: &str, tokens: usize) -> Result<Vec<(String, String)>, StoreError> {
        let filter = format!("{}{}", self.names().cell(kind, &[]), ".*".repeat(tokens));
        let node = self.shared.node.clone();
        self.shared.connection.call(async move {
            let mut texts = Vec::new();
            for subject in node.cells.subjects(&filter).await? {
                let found = node.cells.get(&subject).await?;
                texts.extend(found.value.map(|value| (subject, value)));
            }
            Ok(texts)
        })?
    }

    /// Whether this user may send to one of the subjects that a role has a right to. Nothing is kept and nothing changes. Blocks.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn may(&self, subject: &str) -> Result<bool, StoreError> {
        // One subject stands for all that a wildcard takes.
        let one: Vec<&str> = subject
            .split('.')
            .map(|token| if matches!(token, "*" | ">") { "doctor" } else { token })
            .collect();
        match subject {
            _ if subject.starts_with("$JS.API.") => self.may_ask(subject),
            _ if subject == self.names().wake() => self.may_wake(),
            _ => self.may_send(&one.join(".")),
        }
    }

    /// Whether this user may ask the server something. The question is empty, so that there is nothing to do.
    fn may_ask(&self, subject: &str) -> Result<bool, StoreError> {
        let (link, own) = (self.shared.connection.link(), subject.to_owned());
        let asked = self.shared.connection.call(async move {
            link.permitted(&own, link.client.request(own.clone(), Bytes::new())).await
        })?;
        match asked {
            Ok(Ok(_)) => Ok(true),
            Err(_) => Ok(false),
            Ok(Err(error)) => Err(failed("ask", subject, with_causes(&error))),
        }
    }

    /// The role that this user's key is meant for. `None` = it may nothing of what one may. Blocks.
    pub fn role(&self) -> Option<Role> {
        // What cannot be told was not refused.
        Role::of(self.names(), &self.shared.node.name, |subject| !matches!(self.may(subject), Ok(false)))
    }

    /// Whether this user may send to a subject of the cluster. Nothing is kept: the message names a last sequence that no
    /// subject has. Blocks.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn may_send(&self, subject: &str) -> Result<bool, StoreError> {
        let (link, own) = (self.shared.connection.link(), subject.to_owned());
        let sent = self.shared.connection.call(async move {
            let mut headers = HeaderMap::new();
            headers.insert(AFTER, u64::MAX.to_string().as_str());
            link.send(&own, headers, Bytes::new()).await
        })?;
        match sent {
            Sent::Elsewhere => Ok(true),
            Sent::Refused(words) if words.starts_with("not permitted") => Ok(false),
            Sent::Refused(words) | Sent::Unknown(words) => Err(failed("try", subject, words)),
            Sent::At(_) => Err(failed("try", subject, "what was meant to be refused was kept")),
        }
    }

    /// Whether this user may read the messages of a stream. Blocks.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn may_read(&self, kind: StreamKind) -> Result<bool, StoreError> {
        let (link, stream) = (self.shared.connection.link(), self.names().stream(kind));
        let subject = self.names().subjects(kind)[0].clone();
        let place = stream.clone();
        let read = self
            .shared
            .connection
            .call(async move { tokio::time::timeout(REQUEST * 2, link.last(&stream, &subject)).await })?;
        match read {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(words)) if words.starts_with("not permitted") => Ok(false),
            Ok(Err(words)) => Err(failed("read", &place, words)),
            Err(_) => Err(failed("read", &place, "no answer")),
        }
    }
}
