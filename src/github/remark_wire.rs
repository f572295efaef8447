//! Comments, reviews, threads and links, as GraphQL gives them.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::discussion::{IssueLinks, LinkedIssue, ReviewThread, bounded_text};
use super::text_history::Edit;
use super::text_history_wire::ActorWire;
use crate::domain::remark::{Remark, RemarkId, RemarkKind, ReviewState};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConnectionWire<T> {
    pub total_count: u64,
    pub nodes: Vec<Option<T>>,
    pub page_info: PageInfoWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageInfoWire {
    pub has_previous_page: bool,
    pub start_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommentWire {
    id: String,
    database_id: Option<u64>,
    url: Option<String>,
    body: String,
    created_at: DateTime<Utc>,
    last_edited_at: Option<DateTime<Utc>>,
    #[serde(default)]
    is_minimized: bool,
    author: Option<ActorWire>,
    editor: Option<ActorWire>,
    #[serde(default)]
    diff_hunk: String,
    #[serde(default)]
    reply_to: Option<NumberedWire>,
    #[serde(default)]
    pull_request_review: Option<NumberedWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NumberedWire {
    database_id: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReviewWire {
    state: String,
    submitted_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    comment: CommentWire,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadWire {
    id: String,
    is_resolved: bool,
    is_outdated: bool,
    path: String,
    line: Option<u64>,
    original_line: Option<u64>,
    subject_type: String,
    viewer_can_reply: bool,
    viewer_can_resolve: bool,
    opening: CommentsWire,
    latest: CommentsWire,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommentsWire {
    total_count: usize,
    nodes: Vec<Option<CommentWire>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EditWire {
    id: String,
    edited_at: DateTime<Utc>,
    editor: Option<ActorWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinksWire {
    parent: Option<LinkedWire>,
    sub_issues: Option<LinkedListWire>,
    blocked_by: Option<LinkedListWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinkedListWire {
    total_count: usize,
    nodes: Vec<Option<LinkedWire>>,
}

#[derive(Debug, Deserialize)]
struct LinkedWire {
    number: u64,
    title: String,
    state: String,
    repository: RepositoryWire,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryWire {
    name_with_owner: String,
}

impl CommentWire {
    pub fn remark(self, kind: RemarkKind, number: u64) -> Remark {
        let bot = |actor: &Option<ActorWire>| actor.as_ref().is_some_and(|actor| actor.kind == "Bot");
        let (by_bot, edited_by_bot) = (bot(&self.author), bot(&self.editor));
        Remark {
            kind,
            id: RemarkId::new(kind, self.database_id.unwrap_or_default()),
            node_id: Some(self.id),
            number,
            url: self.url,
            login: self.author.map(ActorWire::login),
            bot: by_bot,
            created: self.created_at,
            edited: self.last_edited_at,
            editor: self.editor.map(ActorWire::login),
            edited_by_bot,
            text: bounded_text(self.body),
            minimized: self.is_minimized,
            thread: None,
            in_reply_to: self.reply_to.and_then(|to| to.database_id),
            review: self.pull_request_review.and_then(|review| review.database_id),
            state: None,
        }
    }
}

impl ReviewWire {
    /// `None` = it was not sent yet.
    pub fn remark(self, number: u64) -> Option<Remark> {
        let state = ReviewState::parse(&self.state.to_ascii_lowercase())?;
        let sent = self.submitted_at?;
        let remark = self.comment.remark(RemarkKind::Review, number);
        (state != ReviewState::Pending).then_some(Remark { state: Some(state), created: sent, ..remark })
    }
}

impl ThreadWire {
    pub fn thread(self, number: u64) -> ReviewThread {
        let total = self.latest.total_count;
        let mut hunk = String::new();
        let mut comments: Vec<Remark> = Vec::new();
        for mut wire in self.opening.nodes.into_iter().chain(self.latest.nodes).flatten() {
            let found = std::mem::take(&mut wire.diff_hunk);
            if comments.is_empty() {
                hunk = bounded_text(found);
            }
            let mut remark = wire.remark(RemarkKind::ReviewComment, number);
            remark.thread = Some(self.id.clone());
            if comments.iter().all(|known| known.id != remark.id) {
                comments.push(remark);
            }
        }
        ReviewThread {
            unread: total.saturating_sub(comments.len()),
            id: self.id,
            resolved: self.is_resolved,
            outdated: self.is_outdated,
            path: self.path,
            line: self.line,
            original_line: self.original_line,
            on_file: self.subject_type == "FILE",
            may_reply: self.viewer_can_reply,
            may_resolve: self.viewer_can_resolve,
            hunk,
            comments,
        }
    }
}

impl EditWire {
    pub fn edit(self) -> Edit {
        Edit { id: self.id, at: self.edited_at, by: self.editor.map(ActorWire::login) }
    }
}

impl LinkedWire {
    fn issue(self) -> LinkedIssue {
        LinkedIssue {
            repo: self.repository.name_with_owner,
            number: self.number,
            title: self.title,
            open: self.state == "OPEN",
        }
    }
}

impl LinksWire {
    pub fn links(self) -> IssueLinks {
        let list = |wire: Option<LinkedListWire>| {
            let Some(wire) = wire else { return (Vec::new(), 0) };
            let found: Vec<LinkedIssue> = wire.nodes.into_iter().flatten().map(LinkedWire::issue).collect();
            let more = wire.total_count.saturating_sub(found.len());
            (found, more)
        };
        IssueLinks {
            parent: self.parent.map(LinkedWire::issue),
            sub_issues: list(self.sub_issues),
            blocked_by: list(self.blocked_by),
        }
    }
}
