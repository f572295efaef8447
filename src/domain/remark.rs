//! What people write on GitHub about an issue or its pull request, and how much their words count.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::words::words;

words! {
    /// How much a text's author counts. Lower ones stand first, so the lower of two is their minimum, except that
    /// nothing is compared with `own`: what agentd wrote is not told at all.
    #[derive(PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Standing {
        /// agentd wrote it: its account, and one of its markers at the beginning.
        Own = "own",
        /// A machine account.
        Bot = "bot",
        /// Anybody else.
        Outsider = "outsider",
        /// Opened the issue.
        Author = "author",
        /// Has the permission that the configuration asks for, or is named there.
        Trusted = "trusted",
    }
}

words! {
    /// Where a remark stands.
    #[derive(PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum RemarkKind {
        /// A comment of the issue.
        IssueComment = "issue_comment",
        /// A comment of the pull request.
        PullRequestComment = "pull_request_comment",
        /// The body of a review.
        Review = "review",
        /// A comment in a thread of a review.
        ReviewComment = "review_comment",
        /// What the local user said on this machine.
        Said = "said",
    }
}

impl RemarkKind {
    /// The word of its ids. GitHub numbers comments of issues and of pull requests together.
    fn prefix(self) -> &'static str {
        match self {
            Self::IssueComment | Self::PullRequestComment => "comment",
            Self::Review => "review",
            Self::ReviewComment => "review-comment",
            Self::Said => "said",
        }
    }
}

/// A remark's name: `comment-123`, `review-12`, `review-comment-55`. GitHub numbers each of the three kinds by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RemarkId {
    /// A comment of an issue or of a pull request.
    Comment(u64),
    /// A review.
    Review(u64),
    /// A comment of a review's thread.
    ReviewComment(u64),
    /// What the local user said, by the beginning of its request's id; earlier ones by their time in microseconds.
    Said(u64),
}

impl RemarkId {
    /// The name of GitHub's number `id` among remarks of this kind.
    pub fn new(kind: RemarkKind, id: u64) -> Self {
        match kind {
            RemarkKind::IssueComment | RemarkKind::PullRequestComment => Self::Comment(id),
            RemarkKind::Review => Self::Review(id),
            RemarkKind::ReviewComment => Self::ReviewComment(id),
            RemarkKind::Said => Self::Said(id),
        }
    }

    /// GitHub's number.
    pub fn number(self) -> u64 {
        match self {
            Self::Comment(id) | Self::Review(id) | Self::ReviewComment(id) | Self::Said(id) => id,
        }
    }

    /// As people are told of it: where it stands on GitHub by its number, else in words.
    pub fn shown(self) -> String {
        match self {
            Self::Said(_) => "what was said on agentd's machine".to_owned(),
            id => id.to_string(),
        }
    }

    /// Reads what `Display` writes; `None` = it is no remark's name.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, id) = name.rsplit_once('-')?;
        let id = id.parse().ok()?;
        match kind {
            "comment" => Some(Self::Comment(id)),
            "review" => Some(Self::Review(id)),
            "review-comment" => Some(Self::ReviewComment(id)),
            "said" => Some(Self::Said(id)),
            _ => None,
        }
    }
}

impl fmt::Display for RemarkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Comment(_) => RemarkKind::IssueComment,
            Self::Review(_) => RemarkKind::Review,
            Self::ReviewComment(_) => RemarkKind::ReviewComment,
            Self::Said(_) => RemarkKind::Said,
        };
        write!(f, "{}-{}", kind.prefix(), self.number())
    }
}

impl Serialize for RemarkId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RemarkId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::parse(&name).ok_or_else(|| serde::de::Error::custom(format!("`{name}` names no remark")))
    }
}

impl schemars::JsonSchema for RemarkId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RemarkId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(comment|review|review-comment|said)-[0-9]+$",
            "description": "A comment, review or comment of a review, by GitHub's number."
        })
    }
}

/// A text that somebody put on GitHub, as it was read. It is untrusted: it enters prompts only cleaned and fenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Remark {
    /// Where it stands.
    pub kind: RemarkKind,
    /// Its name.
    pub id: RemarkId,
    /// GraphQL's id, where it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Number of its issue or pull request.
    pub number: u64,
    /// Web address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Who wrote it; absent = the account is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Whether a machine account wrote it.
    #[serde(default)]
    pub bot: bool,
    /// When it was written, by GitHub's clock.
    pub created: DateTime<Utc>,
    /// When its text was last edited, by GitHub's clock; absent = never, or GitHub does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<DateTime<Utc>>,
    /// Who edited it last; absent = nobody, or the account is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub editor: Option<String>,
    /// Whether the last editor is a machine account.
    #[serde(default)]
    pub edited_by_bot: bool,
    /// Markdown.
    pub text: String,
    /// Whether people hid it.
    #[serde(default)]
    pub minimized: bool,
    /// Of a comment in a thread: the thread's id (GraphQL's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Of a comment in a thread: the first comment of the thread, where this one answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<u64>,
    /// Of a comment in a thread: the review that it was sent with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u64>,
    /// Of a review: its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ReviewState>,
}

words! {
    /// What a review says of the whole change.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ReviewState {
        /// It is good.
        Approved = "approved",
        /// It has to be changed.
        ChangesRequested = "changes_requested",
        /// Neither.
        Commented = "commented",
        /// It was taken back.
        Dismissed = "dismissed",
        /// Not sent yet.
        Pending = "pending",
    }
}

words! {
    /// What came of a remark that asks for something.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ThreadOutcome {
        /// A commit changes what it is about.
        Changed = "changed",
        /// It is answered, and nothing was changed for it.
        Answered = "answered",
        /// It was not done, for a reason.
        Declined = "declined",
        /// agentd asks back.
        Asks = "asks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_has_one_name_and_is_found_by_it() {
        for (kind, name) in [
            (RemarkKind::IssueComment, "comment-123"),
            (RemarkKind::PullRequestComment, "comment-123"),
            (RemarkKind::Review, "review-123"),
            (RemarkKind::ReviewComment, "review-comment-123"),
        ] {
            let id = RemarkId::new(kind, 123);
            assert_eq!((id.to_string().as_str(), RemarkId::parse(name)), (name, Some(id)));
            assert_eq!(serde_json::to_value(id).unwrap(), name);
            assert_eq!(id.shown(), name);
        }
        // Its number is agentd's own.
        assert_eq!(RemarkId::Said(897).shown(), "what was said on agentd's machine");
        for wrong in ["comment", "comment-", "comment-x", "thread-1", "-1", "review comment-1"] {
            assert_eq!(RemarkId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_lower_of_two_standings_is_the_minimum() {
        assert_eq!(Standing::Trusted.min(Standing::Outsider), Standing::Outsider);
        assert_eq!(Standing::Author.min(Standing::Trusted), Standing::Author);
        assert_eq!(Standing::Bot.min(Standing::Trusted), Standing::Bot);
    }
}
