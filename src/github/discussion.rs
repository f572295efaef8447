//! What stands around the remarks of an issue or a pull request: review threads and linked issues.

use crate::domain::remark::{Remark, RemarkId};

/// The longest text of one remark that is taken, in bytes.
const LONGEST_TEXT: usize = 256 * 1024;

/// A thread of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewThread {
    /// GraphQL's id.
    pub id: String,
    /// Whether people are done with it.
    pub resolved: bool,
    /// Whether the code has moved on.
    pub outdated: bool,
    /// The file.
    pub path: String,
    /// The line as it is now; `None` = it is gone, or the thread is about the whole file.
    pub line: Option<u64>,
    /// The line that it was written on.
    pub original_line: Option<u64>,
    /// Whether it is about the whole file.
    pub on_file: bool,
    /// Whether these credentials may answer.
    pub may_reply: bool,
    /// Whether they may resolve it.
    pub may_resolve: bool,
    /// The part of the diff down to its line.
    pub hunk: String,
    /// Its comments, oldest first: the first one and the newest.
    pub comments: Vec<Remark>,
    /// Comments between them that were not read.
    pub unread: usize,
}

impl ReviewThread {
    /// Whether a comment stands in it, among those that were read.
    pub fn has(&self, comment: RemarkId) -> bool {
        self.comments.iter().any(|one| one.id == comment)
    }
}

/// An issue that another one is linked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedIssue {
    /// `owner/name`.
    pub repo: String,
    /// Its number.
    pub number: u64,
    /// Its title.
    pub title: String,
    /// Whether it is open.
    pub open: bool,
}

/// What an issue is linked with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IssueLinks {
    /// The issue that it is a part of.
    pub parent: Option<LinkedIssue>,
    /// Its parts, and how many more there are.
    pub sub_issues: (Vec<LinkedIssue>, usize),
    /// What blocks it, and how many more there are.
    pub blocked_by: (Vec<LinkedIssue>, usize),
}

/// A text, whatever the server sends, in bounds.
pub(super) fn bounded_text(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
    }
    text
}
