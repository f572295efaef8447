//! What people write: comments, reviews and threads, with their history and reactions.

use chrono::{DateTime, Utc};

/// A text that somebody wrote: a comment of an issue, the body of a review, a comment of a thread.
#[derive(Debug, Clone, Default)]
pub struct Comment {
    /// Database id.
    pub id: u64,
    /// Who wrote it.
    pub author: String,
    /// Markdown.
    pub body: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it was last edited.
    pub updated_at: DateTime<Utc>,
    /// Revisions in order, the first one first; empty while it was never edited.
    pub edits: Vec<Edit>,
    /// Why it was minimised (`outdated`, `spam`, …); `None` = it is shown.
    pub minimized: Option<String>,
    /// Reactions in order.
    pub reactions: Vec<Reaction>,
}

/// A revision of a text.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Database id.
    pub id: u64,
    /// Who wrote it.
    pub editor: String,
    /// The body from then on; `None` = it was deleted from the history.
    pub body: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}

/// What somebody thinks of a text, in one sign.
#[derive(Debug, Clone)]
pub struct Reaction {
    /// Database id.
    pub id: u64,
    /// Whose.
    pub login: String,
    /// One of [`REACTIONS`].
    pub content: String,
    /// When.
    pub at: DateTime<Utc>,
}

/// The signs that GitHub has.
pub const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];

/// A review of a pull request.
#[derive(Debug, Clone, Default)]
pub struct Review {
    /// Its body; often empty.
    pub comment: Comment,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED`.
    pub state: String,
    /// The commit it looked at.
    pub commit: String,
}

/// A thread: comments on a line or a file of a pull request.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Database id.
    pub id: u64,
    /// The file.
    pub path: String,
    /// The line it was written on, from 1; `None` = on the whole file.
    pub line: Option<u64>,
    /// Its first line, where it has several.
    pub start_line: Option<u64>,
    /// Whether the line is of the base (GitHub's `LEFT`).
    pub left: bool,
    /// The commit it was written on.
    pub commit: String,
    /// The part of the diff down to its line.
    pub hunk: String,
    /// Who resolved it.
    pub resolved_by: Option<String>,
    /// Comments in order; never empty.
    pub comments: Vec<ThreadComment>,
}

/// A comment of a thread.
#[derive(Debug, Clone, Default)]
pub struct ThreadComment {
    /// The text.
    pub comment: Comment,
    /// The review it is of.
    pub review: u64,
    /// The comment that it answers: the thread's first one.
    pub in_reply_to: Option<u64>,
}

/// A comment of a thread that is to be written with a review, or alone.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    /// The file.
    pub path: String,
    /// The line; `None` = on the whole file.
    pub line: Option<u64>,
    /// The first line of several.
    pub start_line: Option<u64>,
    /// Whether the line is of the base.
    pub left: bool,
    /// Markdown.
    pub body: String,
}

/// Where a text stands in its repository: the number, then places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPlace {
    /// The body of an issue or a pull request.
    Body(u64),
    /// A comment of an issue or a pull request.
    Comment(u64, usize),
    /// A review's body.
    Review(u64, usize),
    /// A comment of a thread.
    Thread(u64, usize, usize),
}

impl TextPlace {
    /// The or pull request's number.
    pub fn number(self) -> u64 {
        match self {
            Self::Body(number)
            | Self::Comment(number, _)
            | Self::Review(number, _)
            | Self::Thread(number, ..) => number,
        }
    }
}
