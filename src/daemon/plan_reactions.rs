//! The reactions to plans that wait for approval, as they were read last.

use std::collections::BTreeMap;

use crate::github::Reaction;

/// The reactions to one plan's comment.
#[derive(Debug, Default)]
pub(super) struct Reactions {
    /// The comment's id.
    pub comment: u64,
    /// Tag of the list.
    pub etag: Option<String>,
    /// The list.
    pub known: Vec<Reaction>,
}

/// By issue.
pub(super) type KnownReactions = BTreeMap<u64, Reactions>;
