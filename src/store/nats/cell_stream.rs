//! Cells as the last messages of subjects; a revision is a message's sequence. Several are changed by one atomic batch.
//!
//! A value goes with the id of its commit in a header, by which a commit whose answer got lost is found again. A message's size is
//! a multiple of [`STEP`], so that a stream without room still takes a change of what it has.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use uuid::Uuid;

use super::connection::{AFTER, Link, PATIENCE, PAUSE, Sent};
use super::consumer::Consumer;
use crate::domain::cluster::outcome::{self, WriteOutcome};
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// Most bytes of a value.
const MOST_BYTES: usize = 64 * 1024;
/// What a message's size is a multiple of.
const STEP: usize = 1024;
/// Which commit wrote a value.
const COMMIT: &str = "Agentd-Commit";
/// How long the value is without what fills it up; -1 = the cell is empty.
const LENGTH: &str = "Agentd-Length";
/// How long a watch waits before it asks for another consumer.
const PAUSE_OF_A_WATCH: Duration = Duration::from_millis(500);

/// The stream of cells, by subjects.
#[derive(Debug, Clone)]
pub(super) struct CellStream {
    link: Link,
    stream: String,
    /// Most bytes of a value.
    most: usize,
    /// How long it is asked again where there is no answer.
    patience: Duration,
}

/// What a subject says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The last message's sequence; 0 = there was never one.
    pub sequence: u64,
    /// Its value.
    pub value: Option<String>,
    /// The commit that wrote it.
    commit: String,
    /// When, by the servers' clock. For display only.
    pub written: DateTime<Utc>,
}

/// One change of a subject.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub subject: String,
    pub after: u64,
    pub value: Option<String>,
}

/// What became of several of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// All is there; the last one's sequence.
    At(u64),
    /// A subject was changed by another.
    Overtaken,
}

impl CellStream {
    pub(super) fn new(link: Link, stream: String) -> Self {
        Self { link, stream, most: MOST_BYTES, patience: PATIENCE }
    }

    /// The same for values of another size.
    pub(super) fn of_up_to(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The same with another patience.
    pub(super) fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(super) fn failed(action: &'static str, subject: &str, words: String) -> StoreError {
        StoreError::Failed { action, place: subject.to_owned(), words }
    }

    pub(super) async fn get(&self, subject: &str) -> Result<Found, StoreError> {
        let begin = Stopwatch::start();
        loop {
            match self.link.last(&self.stream, subject).await {
                Ok(None) => return Ok(Found::default()),
                Ok(Some(message)) => {
                    let header = |name| message.headers.get(name).map(|value| value.as_str().to_owned());
                    let length: Option<i64> = header(LENGTH).and_then(|text| text.parse().ok());
                    // A message without the header is another program's; its whole payload is taken.
                    let length = length.unwrap_or(message.payload.len() as i64);
                    let value = usize::try_from(length).ok().map(|length| {
                        let bytes = message.payload.get(..length).unwrap_or(&message.payload);
                        String::from_utf8_lossy(bytes).into_owned()
                    });
                    let commit = header(COMMIT).unwrap_or_default();
                    let written =
                        DateTime::from_timestamp(message.time.unix_timestamp(), 0).unwrap_or_default();
                    return Ok(Found { sequence: message.sequence, value, commit, written });
                }
                Err(words) if begin.elapsed() > self.patience || words.starts_with("not permitted") => {
                    return Err(Self::failed("read", subject, words));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The subjects that match and have, or had, a value.
    pub(super) async fn subjects(&self, filter: &str) -> Result<Vec<String>, StoreError> {
        self.link.subjects(&self.stream, filter).await
    }

    /// Writes all of it, or nothing if a subject's last sequence is another than it is to follow.
    pub(super) async fn commit(&self, writes: &[Write]) -> Result<Written, StoreError> {
        let place = || writes.iter().map(|write| write.subject.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(long) =
            writes.iter().find(|write| write.value.as_ref().is_some_and(|text| text.len() > self.most))
        {
            let words = format!("its value has more than {} bytes", self.most);
            return Err(Self::failed("change", &long.subject, words));
        }
        let commit = Uuid::new_v4().simple().to_string();
        let begin = Stopwatch::start();
        let mut pause = PAUSE;
        loop {
            let (why, last) = match self.send(writes, &commit).await {
                Sent::At(sequence) => return Ok(Written::At(sequence)),
                Sent::Elsewhere => ("a cell was changed meanwhile".to_owned(), false),
                Sent::Refused(words) => (words, true),
                Sent::Unknown(words) => (words, false),
            };
            if why.starts_with("not permitted") {
                return Err(Self::failed("change", &place(), why));
            }
            match self.outcome(writes, &commit).await? {
                WriteOutcome::There(sequence) => return Ok(Written::At(sequence)),
                WriteOutcome::Overtaken => return Ok(Written::Overtaken),
                WriteOutcome::Open => {}
            }
            if last || begin.elapsed() > self.patience {
                return Err(Self::failed("change", &place(), why));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Makes a subject say this, whatever it said.
    pub(super) async fn put(&self, subject: &str, value: Option<&str>) -> Result<(), StoreError> {
        loop {
            let after = self.get(subject).await?.sequence;
            let write = Write { subject: subject.to_owned(), after, value: value.map(str::to_owned) };
            if let Written::At(_) = self.commit(&[write]).await? {
                return Ok(());
            }
        }
    }

    /// What became of a commit without an answer.
    async fn outcome(&self, writes: &[Write], commit: &str) -> Result<WriteOutcome, StoreError> {
        let mut cells = Vec::new();
        for write in writes {
            let now = self.get(&write.subject).await?;
            cells.push((now.sequence, write.after, now.commit == commit));
        }
        Ok(outcome::of_commit(cells.into_iter()))
    }

    async fn send(&self, writes: &[Write], commit: &str) -> Sent {
        let Some((last, before)) = writes.split_last() else {
            return Sent::Refused("nothing to change".into());
        };
        if before.is_empty() {
            let (headers, payload) = message(last, commit, None);
            return self.link.send(&last.subject, headers, payload).await;
        }
        let batch = Uuid::new_v4().simple().to_string();
        for (index, write) in before.iter().enumerate() {
            let (headers, payload) = message(write, commit, Some((&batch, index + 1, false)));
            let sent = self.link.client.publish_with_headers(write.subject.clone(), headers, payload).await;
            if let Err(error) = sent {
                return Sent::Unknown(error.to_string());
            }
        }
        let (headers, payload) = message(last, commit, Some((&batch, writes.len(), true)));
        self.link.send(&last.subject, headers, payload).await
    }

    /// Each value from now on, with its sequence; of several in a moment, the last. Where the stream is made anew, it goes on with what
    /// that one has.
    pub(super) fn watch(self, subject: String) -> BoxStream<'static, (u64, Option<String>)> {
        struct Watch {
            cells: CellStream,
            subject: String,
            seen: Option<u64>,
            messages: Option<Consumer>,
        }
        let watch = Watch { cells: self, subject, seen: None, messages: None };
        stream::unfold(watch, |mut watch| async move {
            loop {
                match &mut watch.messages {
                    // What changed between two consumers, or before the first, is read.
                    None => {
                        watch.messages = watch.cells.consumer(&watch.subject, DeliverPolicy::New).await.ok();
                    }
                    Some(messages) => {
                        if messages.next().await.is_none() {
                            watch.messages = None;
                            tokio::time::sleep(PAUSE_OF_A_WATCH).await;
                            continue;
                        }
                    }
                }
                match watch.cells.get(&watch.subject).await {
                    // Another stream counts from the beginning.
                    Ok(now) if watch.seen != Some(now.sequence) => {
                        watch.seen = Some(now.sequence);
                        return Some(((now.sequence, now.value), watch));
                    }
                    Ok(_) => {}
                    Err(_) => watch.messages = None,
                }
                if watch.messages.is_none() {
                    tokio::time::sleep(PAUSE_OF_A_WATCH).await;
                }
            }
        })
        .boxed()
    }

    /// The subjects that match and have, or had, a value, and then each that is changed. One may come again without a change.
    pub(super) fn changes(self, filter: String) -> BoxStream<'static, String> {
        let begun = (self, filter, None::<Consumer>);
        stream::unfold(begun, |(cells, filter, mut messages)| async move {
            loop {
                if messages.is_none() {
                    messages = cells.consumer(&filter, DeliverPolicy::LastPerSubject).await.ok();
                }
                if let Some(found) = &mut messages {
                    if let Some(message) = found.next().await {
                        let subject = message.subject.to_string();
                        return Some((subject, (cells, filter, messages)));
                    }
                    messages = None;
                }
                tokio::time::sleep(PAUSE_OF_A_WATCH).await;
            }
        })
        .boxed()
    }

    async fn consumer(&self, subject: &str, from: DeliverPolicy) -> Result<Consumer, String> {
        let config = push::OrderedConfig {
            filter_subject: subject.to_owned(),
            deliver_policy: from,
            headers_only: true,
            ..Default::default()
        };
        self.link.consumer(&self.stream, config).await
    }
}

/// Header and payload of a value; `batch` = its id, this message's number in it, and whether it is the last.
fn message(write: &Write, commit: &str, batch: Option<(&str, usize, bool)>) -> (HeaderMap, Bytes) {
    let value = write.value.as_deref().unwrap_or_default();
    let length = if write.value.is_some() { value.len() as i64 } else { -1 };
    let mut lines =
        vec![(COMMIT, commit.to_owned()), (LENGTH, format!("{length:06}")), (AFTER, write.after.to_string())];
    if let Some((id, number, last)) = batch {
        lines.push(("Nats-Batch-Id", id.to_owned()));
        lines.push(("Nats-Batch-Sequence", number.to_string()));
        if last {
            lines.push(("Nats-Batch-Commit", "1".to_owned()));
        }
    }
    let mut headers = HeaderMap::new();
    let mut size = write.subject.len() + "NATS/1.0\r\n\r\n".len();
    for (name, text) in &lines {
        size += name.len() + text.len() + ": \r\n".len();
        headers.insert(*name, text.as_str());
    }
    let mut payload = value.as_bytes().to_vec();
    payload.resize((size + value.len()).next_multiple_of(STEP) - size, b' ');
    (headers, payload.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_cell_has_a_size_of_whole_steps_whatever_its_value() {
        for length in [0, 1, 700, 1024, 5000] {
            for batch in [None, Some(("0123", 16, true))] {
                let write = Write {
                    subject: "agentd.main.cell.spend.x".into(),
                    after: 1234,
                    value: Some("x".repeat(length)),
                };
                let (headers, payload) = message(&write, "c", batch);
                let lines: usize = headers
                    .iter()
                    .map(|(name, values)| name.to_string().len() + values[0].as_str().len() + 4)
                    .sum();
                let size = write.subject.len() + 12 + lines + payload.len();
                assert_eq!(size % STEP, 0, "{length} {batch:?}");
            }
        }
    }
}
