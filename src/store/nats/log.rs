//! A log as the messages of one subject; a place is the sequence of its last one.
//!
//! A message has whole lines. It names the last sequence of its subject, so that two writers cannot both go on from there, and an
//! id made from its place and its bytes, by which an answer that got lost is found again.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;

use super::connection::{AFTER, Link, PATIENCE, PAUSE, Sent};
use super::shared::Shared;
use crate::domain::canonical::sha256_hex;
use crate::domain::cluster::outcome::{self, WriteOutcome};
use crate::store::port::{Appended, Log, Place, StoreError};
use crate::sys::clock::Stopwatch;

/// Most bytes of a message with several lines.
const MOST_BYTES: usize = 256 * 1024;
/// The header that names the id of a message.
const ID: &str = "Nats-Msg-Id";

/// What stands behind a place of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Behind {
    /// Nothing.
    Nothing,
    /// So many bytes of what was to come there, up to this place.
    Own(usize, Place),
    /// Something else.
    Another,
}

pub(in crate::store) struct NatsLog {
    shared: Arc<Shared>,
    stream: String,
    subject: String,
}

impl NatsLog {
    pub(super) fn new(shared: Arc<Shared>, stream: String, subject: String) -> Self {
        Self { shared, stream, subject }
    }

    /// What stands behind a place, where `lines` were to come.
    pub(in crate::store) fn behind(&self, place: Place, lines: &[u8]) -> Result<Behind, StoreError> {
        let (shared, stream, subject) = (Arc::clone(&self.shared), self.stream.clone(), self.subject.clone());
        let lines = Bytes::copy_from_slice(lines);
        let read = self.shared.connection.call(async move {
            let link = shared.connection.link();
            let (mut found, mut own) = (Behind::Nothing, 0);
            let mut last = place;
            while let Some(message) = link.next(&stream, &subject, last + 1).await? {
                if message.payload.is_empty() || !lines[own..].starts_with(&message.payload) {
                    return Ok(Behind::Another);
                }
                (own, last) = (own + message.payload.len(), message.sequence);
                found = Behind::Own(own, last);
            }
            Ok::<_, String>(found)
        })?;
        read.map_err(|words| self.failed("read", words))
    }

    fn failed(&self, action: &'static str, words: String) -> StoreError {
        StoreError::Failed { action, place: self.subject.clone(), words }
    }
}

/// Lines in messages: each has whole lines, and more than one only up to [`MOST_BYTES`].
fn messages(lines: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let (mut from, mut end) = (0, 0);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if end > from && end + line.len() - from > MOST_BYTES {
            found.push(&lines[from..end]);
            from = end;
        }
        end += line.len();
    }
    if end > from {
        found.push(&lines[from..end]);
    }
    found
}

/// What the server says where a stream does not exist. It is not made again: people have to see it.
const NO_STREAM: &str = "error code 10059";

/// One message, until it is known what became of it.
enum Added {
    At(Place),
    Overtaken,
    Unknown(String),
}

async fn add(shared: &Shared, stream: &str, subject: &str, after: Place, payload: Bytes) -> Added {
    let link = shared.connection.link();
    let id = sha256_hex(&[format!("{subject}\n{after}\n").as_bytes(), &payload].concat());
    let begin = Stopwatch::start();
    let mut pause = PAUSE;
    loop {
        let mut headers = HeaderMap::new();
        headers.insert(ID, id.as_str());
        headers.insert(AFTER, after.to_string().as_str());
        let why = match link.send(subject, headers, payload.clone()).await {
            Sent::At(place) => {
                shared.flushes.took(begin.elapsed());
                return Added::At(place);
            }
            Sent::Elsewhere => "the subject ended elsewhere for a moment".to_owned(),
            Sent::Refused(words) if words.starts_with("not permitted") => return Added::Unknown(words),
            // It stays refused, but what was sent before may have been kept all the same.
            Sent::Refused(words) => {
                return match outcome_of(&link, stream, subject, after, &id).await {
                    Ok(WriteOutcome::There(place)) => Added::At(place),
                    Ok(WriteOutcome::Overtaken) => Added::Overtaken,
                    Ok(WriteOutcome::Open) | Err(_) => Added::Unknown(words),
                };
            }
            Sent::Unknown(words) => words,
        };
        match outcome_of(&link, stream, subject, after, &id).await {
            Ok(WriteOutcome::There(place)) => {
                shared.flushes.took(begin.elapsed());
                return Added::At(place);
            }
            Ok(WriteOutcome::Overtaken) => return Added::Overtaken,
            Err(words) if words.contains(NO_STREAM) => return Added::Unknown(words),
            Ok(WriteOutcome::Open) | Err(_) => {}
        }
        if begin.elapsed() > PATIENCE {
            return Added::Unknown(why);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// What stands behind a place: this message, another one, or nothing.
async fn outcome_of(
    link: &Link,
    stream: &str,
    subject: &str,
    after: Place,
    id: &str,
) -> Result<WriteOutcome, String> {
    let next = link.next(stream, subject, after + 1).await?;
    let next = next.map(|found| {
        let own = found.headers.get(ID).is_some_and(|own| own.as_str() == id);
        (found.sequence, own)
    });
    let last = match next {
        Some((place, _)) => place,
        None => link.last(stream, subject).await?.map_or(0, |last| last.sequence),
    };
    Ok(outcome::of_append(after, next, last))
}

impl Log for NatsLog {
    fn append(&self, after: Place, lines: &[u8]) -> Appended {
        let parts: Vec<Bytes> = messages(lines).into_iter().map(Bytes::copy_from_slice).collect();
        let (shared, stream, subject) = (Arc::clone(&self.shared), self.stream.clone(), self.subject.clone());
        let added = self.shared.connection.call(async move {
            if parts.is_empty() {
                // Nothing is added; whether the log ends there is asked all the same.
                let last = shared.connection.link().last(&stream, &subject).await;
                return match last.map(|last| last.map_or(0, |last| last.sequence)) {
                    Ok(end) if end == after => Added::At(after),
                    Ok(_) => Added::Overtaken,
                    Err(words) => Added::Unknown(words),
                };
            }
            let mut place = after;
            for part in parts {
                match add(&shared, &stream, &subject, place, part).await {
                    Added::At(at) => place = at,
                    other => return other,
                }
            }
            Added::At(place)
        });
        match added {
            Ok(Added::At(place)) => Appended::At(place),
            Ok(Added::Overtaken) => Appended::Overtaken,
            Ok(Added::Unknown(words)) => Appended::Unknown(self.failed("write", words)),
            Err(error) => Appended::Unknown(error),
        }
    }

    fn read(&self, from: Place) -> Result<(Vec<u8>, Place), StoreError> {
        let (shared, stream, subject) = (Arc::clone(&self.shared), self.stream.clone(), self.subject.clone());
        let read = self.shared.connection.call(async move {
            let link = shared.connection.link();
            let (mut lines, mut place) = (Vec::new(), from);
            while let Some(message) = link.next(&stream, &subject, place + 1).await? {
                lines.extend_from_slice(&message.payload);
                place = message.sequence;
            }
            Ok::<_, String>((lines, place))
        })?;
        let (mut lines, place) = read.map_err(|words| self.failed("read", words))?;
        // A writer leaves whole lines; what another program put there is not given for one.
        lines.truncate(lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        Ok((lines, place))
    }

    /// What was acknowledged is on the disks of most servers already, where they sync always.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_whole_lines_and_a_long_line_goes_alone() {
        let line = |bytes: usize| [vec![b'x'; bytes - 1], vec![b'\n']].concat();
        let sizes = |lines: &[usize]| -> Vec<usize> {
            let all: Vec<u8> = lines.iter().flat_map(|bytes| line(*bytes)).collect();
            messages(&all).iter().map(|part| part.len()).collect()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[10, 20]), [30]);
        assert_eq!(sizes(&[MOST_BYTES - 10, 10, 1]), [MOST_BYTES, 1]);
        assert_eq!(sizes(&[5, MOST_BYTES * 3, 5]), [5, MOST_BYTES * 3, 5]);
    }
}
