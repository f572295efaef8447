//! The rows of runs: each the last message of its subject, written by the node that the run is on, read by everybody.

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use chrono::{DateTime, Utc};
use futures::StreamExt as _;

use super::connection::{AFTER, Link, PATIENCE, PAUSE, REQUEST, Sent};
use super::shared::NatsStore;
use super::streams::FoundStream;
use crate::domain::cluster::cells;
use crate::domain::cluster::names::{StreamKind, last_tokens};
use crate::domain::cluster::run_row::{RUN_ROW_SCHEMA, RunRow};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// A row, and when it was written by the servers' clock.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSeen {
    /// What it says.
    pub row: RunRow,
    /// When it was written.
    pub written: DateTime<Utc>,
}

/// What a node said of itself, and when by the servers' clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSeen {
    /// The node's name.
    pub node: String,
    /// Its status document.
    pub text: String,
    /// When it was written.
    pub written: DateTime<Utc>,
}

/// The last message of a subject: subject, payload, when it was written, and its place in the stream.
type LastMessage = (String, Vec<u8>, DateTime<Utc>, u64);

/// How often all of a stream are read for what was written meanwhile.
const ROUNDS: usize = 5;

impl Link {
    /// The last message of each subject of a stream, in their order.
    async fn last_of_all(&self, stream: &str, filter: &str) -> Result<Vec<LastMessage>, String> {
        let mut last = BTreeMap::new();
        let mut end = 0;
        for _ in 0..ROUNDS {
            let found = self.last_of_each(stream, filter, end).await?;
            let Some(&(.., place)) = found.last() else { break };
            end = place;
            last.extend(found.into_iter().map(|message| (message.0.clone(), message)));
        }
        let mut last: Vec<LastMessage> = last.into_values().collect();
        last.sort_by_key(|&(.., place)| place);
        Ok(last)
    }

    /// The last message of each subject of a stream, behind a place of it (0 = all), in their order. One that is replaced while they
    /// are read is passed over: its successor stands behind all of these.
    async fn last_of_each(
        &self,
        stream: &str,
        filter: &str,
        behind: u64,
    ) -> Result<Vec<LastMessage>, String> {
        let config = push::OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subject: filter.to_owned(),
            // Each subject has one message, so that those behind a place are the last of theirs.
            deliver_policy: match behind {
                0 => DeliverPolicy::LastPerSubject,
                place => DeliverPolicy::ByStartSequence { start_sequence: place + 1 },
            },
            ..Default::default()
        };
        let api = format!("$JS.API.CONSUMER.CREATE.{stream}");
        let made = self.context.create_consumer_on_stream(config, stream.to_owned());
        let made = self.permitted(&api, made).await?.map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        if made.cached_info().num_pending == 0 {
            return Ok(found);
        }
        let mut messages = made.messages().await.map_err(|error| error.to_string())?;
        loop {
            let next = tokio::time::timeout(REQUEST, messages.next()).await;
            let message = next.map_err(|_| "the messages do not come".to_owned())?;
            let message = message.ok_or("the messages end too early")?.map_err(|error| error.to_string())?;
            let info = message.info().map_err(|error| error.to_string())?;
            let written =
                DateTime::from_timestamp(info.published.unix_timestamp(), info.published.nanosecond());
            let (last, place) = (info.pending == 0, info.stream_sequence);
            let payload = message.payload.to_vec();
            found.push((message.subject.to_string(), payload, written.unwrap_or_default(), place));
            if last {
                return Ok(found);
            }
        }
    }
}

impl NatsStore {
    fn last_messages(
        &self,
        kind: StreamKind,
        filter: String,
        behind: u64,
    ) -> Result<Vec<LastMessage>, StoreError> {
        let (link, stream) = (self.shared.connection.link(), self.names().stream(kind));
        let place = stream.clone();
        let found = self.shared.connection.call(async move {
            match behind {
                0 => link.last_of_all(&stream, &filter).await,
                place => link.last_of_each(&stream, &filter, place).await,
            }
        })?;
        found.map_err(|words| StoreError::Failed { action: "read", place, words })
    }

    /// The row of every run that there is one of, the newest first. Blocks.
    ///
    /// # Errors
    /// No answer, or a row that cannot be read.
    pub fn rows(&self) -> Result<Vec<RowSeen>, StoreError> {
        let (mut seen, _) = self.rows_behind(0)?;
        seen.sort_by_key(|seen| std::cmp::Reverse(seen.row.run_id));
        Ok(seen)
    }

    /// The rows that were written behind a place of their stream (0 = all of them), in that order, and the place behind which the
    /// next ones stand. Blocks.
    ///
    /// # Errors
    /// As for [`Self::rows`].
    pub fn rows_behind(&self, place: u64) -> Result<(Vec<RowSeen>, u64), StoreError> {
        let all = self.names().subjects(StreamKind::Runs).concat();
        // A stream that was made anew counts from the beginning.
        let ends_before = |stream: FoundStream| stream.state.last_sequence < place;
        let is_another = place > 0 && self.stream(StreamKind::Runs)?.is_some_and(ends_before);
        let place = if is_another { 0 } else { place };
        let (mut seen, mut end) = (Vec::new(), place);
        for (subject, payload, written, at) in self.last_messages(StreamKind::Runs, all, place)? {
            seen.push(RowSeen { row: row_of(subject, &payload)?, written });
            end = end.max(at);
        }
        Ok((seen, end))
    }

    /// The rows of a repository that tell of no seal.
    pub(super) fn unsealed_rows(&self, repo: &RepoName) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.last_messages(StreamKind::Runs, self.names().rows_of(repo), 0)?.into_iter();
        let rows = rows.map(|(subject, payload, ..)| row_of(subject, &payload));
        rows.filter(|row| row.as_ref().map_or(true, |row| !row.sealed)).collect()
    }

    /// Writes the row of a run, unless the one that is there has more of its journal. Blocks.
    ///
    /// # Errors
    /// No answer, or the store refuses.
    pub fn put_row(&self, repo: &RepoName, row: &RunRow) -> Result<(), StoreError> {
        let subject = self.names().row(repo, &RunId(row.run_id).to_string());
        let failed = |words: String| StoreError::Failed { action: "write", place: subject.clone(), words };
        let text = serde_json::to_vec(row).map_err(|error| failed(error.to_string()))?;
        let (link, stream) = (self.shared.connection.link(), self.names().stream(StreamKind::Runs));
        let (seq, place) = (row.seq, subject.clone());
        let put = async move {
            let begin = Stopwatch::start();
            loop {
                let last = link.last(&stream, &place).await;
                let after = match last {
                    Ok(None) => Ok(0),
                    Ok(Some(last)) => {
                        let there =
                            cells::read::<RunRow>(&String::from_utf8_lossy(&last.payload), RUN_ROW_SCHEMA);
                        if there.is_ok_and(|there| there.seq >= seq) {
                            return Ok(());
                        }
                        Ok(last.sequence)
                    }
                    Err(words) => Err(words),
                };
                let why = match after {
                    Ok(after) => {
                        let mut headers = HeaderMap::new();
                        headers.insert(AFTER, after.to_string().as_str());
                        match link.send(&place, headers, text.clone().into()).await {
                            Sent::At(_) => return Ok(()),
                            Sent::Refused(words) => return Err(words),
                            Sent::Elsewhere => "another row came".to_owned(),
                            Sent::Unknown(words) => words,
                        }
                    }
                    Err(words) => words,
                };
                if begin.elapsed() > PATIENCE || why.starts_with("not permitted") {
                    return Err(why);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        self.shared.connection.call(put)?.map_err(failed)
    }

    /// What each node last said of itself. Blocks.
    ///
    /// # Errors
    /// No answer.
    pub fn statuses(&self) -> Result<Vec<StatusSeen>, StoreError> {
        let mut seen = Vec::new();
        let all = self.names().subjects(StreamKind::Status).concat();
        for (subject, payload, written, _) in self.last_messages(StreamKind::Status, all, 0)? {
            let Some([node]) = last_tokens(&subject) else { continue };
            let text = String::from_utf8_lossy(&payload).trim_end().to_owned();
            if !text.is_empty() {
                seen.push(StatusSeen { node, text, written });
            }
        }
        seen.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(seen)
    }
}

fn row_of(subject: String, payload: &[u8]) -> Result<RunRow, StoreError> {
    let row = cells::read(&String::from_utf8_lossy(payload), RUN_ROW_SCHEMA);
    row.map_err(|error| StoreError::Failed { action: "read", place: subject, words: error.to_string() })
}
