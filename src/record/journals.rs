//! Two copies of a journal, and which is the longer one of the same.

use crate::store::journal_format::JournalLine;
use crate::store::port::{Appended, Log, Place, StoreError};

/// Two journals that are not one: how each ends.
#[derive(Debug)]
pub(super) struct Two {
    pub first: String,
    pub second: String,
}

/// What of `own` is behind `there`, if one of them begins with the other.
pub(super) fn joined<'a>(own: &'a [u8], there: &[u8]) -> Result<&'a [u8], Two> {
    match (own.strip_prefix(there), there.starts_with(own)) {
        (Some(rest), _) => Ok(rest),
        (None, true) => Ok(&[]),
        (None, false) => Err(Two { first: head(own), second: head(there) }),
    }
}

/// Where a journal ends, for people.
fn head(bytes: &[u8]) -> String {
    let last = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    match serde_json::from_slice::<JournalLine>(last) {
        Ok(line) => format!("line {} with the hash {}", line.seq, line.hash),
        Err(_) => "a line that is none of a journal".to_owned(),
    }
}

/// Appends lines until it is known that they are there.
pub(super) fn append(log: &dyn Log, end: Place, lines: &[u8]) -> Result<(), StoreError> {
    match log.append(end, lines) {
        Appended::At(_) => Ok(()),
        Appended::Unknown(error) => Err(error),
        Appended::Overtaken => Err(StoreError::Failed {
            action: "write",
            place: "a journal".to_owned(),
            words: "somebody else writes it at the same time".to_owned(),
        }),
    }
}
