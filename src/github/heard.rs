//! What was written in a repository since a time: comments, comments of reviews, and the reviews of one pull request.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::json;

use super::account::{Actor, Association};
use super::client::Client;
use super::comments::{Comment, on_pull};
use super::error::Error;
use super::graphql::Query;
use super::heard_wire::{NodeWire, ReviewCommentWire, ReviewWire};
use super::issues::Fetched;
use super::request::{Ask, Reply};
use super::rest_wire::CommentWire;
use crate::domain::name::RepoName;
use crate::domain::remark::{Remark, RemarkId, RemarkKind, ReviewState};

/// Remarks that one query asks about.
const AT_ONCE: usize = 100;

/// A list of everything that people write in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Comments of issues and pull requests.
    Comments,
    /// Comments on lines of pull requests.
    ReviewComments,
}

/// A remark as a list has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The remark. A list says when it was edited, and not by whom.
    pub remark: Remark,
    /// Database id of its author; 0 = not said.
    pub author_id: u64,
    /// How the author stands to the repository: whom to look up first.
    pub association: Association,
    /// Whether it is of a pull request; `None` = its address does not say.
    pub on_pull: Option<bool>,
    /// When it was last changed.
    pub updated: DateTime<Utc>,
}

/// A page of such a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The oldest change first.
    pub remarks: Vec<Listed>,
    /// Address of the page after it.
    pub next: Option<String>,
    /// Tag of the page.
    pub etag: Option<String>,
}

/// Which page is wanted.
#[derive(Debug, Clone, Copy)]
pub enum From<'a> {
    /// The first one of what changed at or after this time, unless it is as it was at the tag.
    Since(DateTime<Utc>, Option<&'a str>),
    /// The one at this address.
    Next(&'a str),
}

/// A remark as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Markdown.
    pub text: String,
    /// When it was last edited.
    pub edited: Option<DateTime<Utc>>,
    /// Who did that; `None` = nobody, or the account is gone.
    pub editor: Option<String>,
    /// Whether that is a machine account.
    pub edited_by_bot: bool,
    /// Whether people hid it.
    pub minimized: bool,
    /// Of a review: its state.
    pub state: Option<ReviewState>,
}

impl Present {
    /// A remark with the text and the editor that it has now.
    pub fn of(&self, remark: &Remark) -> Remark {
        Remark {
            text: self.text.clone(),
            edited: self.edited,
            editor: self.editor.clone(),
            edited_by_bot: self.edited_by_bot,
            state: self.state.or(remark.state),
            ..remark.clone()
        }
    }
}

impl Written {
    fn path(self) -> &'static str {
        match self {
            Self::Comments => "issues/comments",
            Self::ReviewComments => "pulls/comments",
        }
    }

    fn needs(self) -> &'static str {
        match self {
            Self::Comments => "issues: read",
            Self::ReviewComments => "pull requests: read",
        }
    }

    fn read(self, reply: &Reply) -> Result<Vec<Listed>, Error> {
        Ok(match self {
            Self::Comments => reply.json::<Vec<CommentWire>>()?.into_iter().filter_map(comment).collect(),
            Self::ReviewComments => {
                reply.json::<Vec<ReviewCommentWire>>()?.into_iter().filter_map(review_comment).collect()
            }
        })
    }
}

impl Client {
    /// The newest entry of a list: from there on it is read.
    pub async fn newest_written(&self, repo: &RepoName, list: Written) -> Result<Option<Listed>, Error> {
        let doing = format!("reading the newest of {} of {repo}", list.path());
        let url = self.url(&format!("/repos/{repo}/{}?sort=created&direction=desc&per_page=1", list.path()));
        let reply = self.send(Ask::get(url, doing, list.needs())).await?;
        Ok(list.read(&reply)?.into_iter().next())
    }

    /// A page of what was written or edited, the oldest change first.
    pub async fn written(
        &self,
        repo: &RepoName,
        list: Written,
        from: From<'_>,
    ) -> Result<Fetched<Page>, Error> {
        let doing = format!("reading what is new in {} of {repo}", list.path());
        let (url, tag) = match from {
            From::Next(url) => (url.to_owned(), None),
            From::Since(at, tag) => {
                let since = at.format("%Y-%m-%dT%H:%M:%SZ");
                let path = list.path();
                let query = format!("sort=updated&direction=asc&since={since}&per_page=100");
                (self.url(&format!("/repos/{repo}/{path}?{query}")), tag)
            }
        };
        let reply = self.send(Ask::get(url.clone(), doing, list.needs()).etag(tag)).await?;
        if reply.unchanged() {
            return Ok(Fetched::Unchanged);
        }
        let page =
            Page { remarks: list.read(&reply)?, next: self.next_page(&reply, &url)?, etag: reply.etag() };
        let etag = page.etag.clone();
        Ok(Fetched::Fresh(page, etag))
    }

    /// Every review of a pull request that was sent, oldest first.
    pub async fn reviews_sent(&self, repo: &RepoName, pull: u64) -> Result<Vec<Listed>, Error> {
        let doing = format!("reading the reviews of pull request {pull} of {repo}");
        let path = format!("/repos/{repo}/pulls/{pull}/reviews?per_page=100");
        let wires: Vec<ReviewWire> = self.pages(&path, &doing, "pull requests: read").await?;
        Ok(wires.into_iter().filter_map(|wire| review(pull, wire)).collect())
    }

    /// How remarks stand now, by their GraphQL ids; one that was deleted is not among them.
    pub async fn remarks_now(&self, ids: &[String]) -> Result<BTreeMap<String, Present>, Error> {
        let doing = "reading once more what people wrote";
        let query = "query($ids: [ID!]!) { nodes(ids: $ids) { id ... on Comment { body lastEditedAt \
            editor { __typename login } } ... on Minimizable { isMinimized } ... on PullRequestReview { state } } }";
        let mut found = BTreeMap::new();
        for ids in ids.chunks(AT_ONCE) {
            let answer =
                self.graphql(Query::new(query, json!({ "ids": ids }), doing, "issues: read")).await?;
            // What is gone is an error beside the rest.
            let mut failed = answer.errors.iter().map(|error| answer.error(error));
            if let Some(error) = failed.find(|error| !error.is_absent()) {
                return Err(error);
            }
            let nodes: Vec<Option<NodeWire>> = serde_json::from_value(answer.data["nodes"].clone())
                .map_err(|error| Error::malformed(doing, error))?;
            found.extend(nodes.into_iter().flatten().map(|node| (node.id.clone(), present(node))));
        }
        Ok(found)
    }

    /// Whether somebody else than its author edited a comment last, as far as GitHub says it.
    pub async fn is_edited_by_others(&self, comment: &Comment) -> Result<bool, Error> {
        let Some(node) = comment.node() else { return Ok(true) };
        let found = self.remarks_now(std::slice::from_ref(&node.to_owned())).await?;
        let Some(present) = found.get(node) else { return Ok(true) };
        // Apps have a suffix in one of GitHub's interfaces and not in the other.
        let name = |login: &str| login.to_ascii_lowercase().trim_end_matches("[bot]").to_owned();
        let author = comment.author.as_ref().map(|author| name(&author.login));
        Ok(match &present.editor {
            None => present.edited.is_some(),
            Some(editor) => Some(name(editor)) != author,
        })
    }

    /// Puts 👀 on a comment; a second time changes nothing. Reviews take none this way.
    pub async fn show_heard(&self, repo: &RepoName, id: RemarkId) -> Result<(), Error> {
        let list = match id {
            RemarkId::Comment(_) => Written::Comments,
            RemarkId::ReviewComment(_) => Written::ReviewComments,
            RemarkId::Review(_) | RemarkId::Said(_) => return Ok(()),
        };
        let doing = format!("reacting to {id} of {repo}");
        let url = self.url(&format!("/repos/{repo}/{}/{}/reactions", list.path(), id.number()));
        let needs = if list == Written::Comments { "issues: write" } else { "pull requests: write" };
        let ask = Ask::write(Method::POST, url, Some(json!({ "content": "eyes" })), doing, needs);
        self.send(ask.repeatable()).await.map(drop)
    }
}

/// The number at the end of an address.
fn number_of(url: Option<&str>) -> Option<u64> {
    url?.rsplit('/').next()?.parse().ok()
}

fn edited(created: DateTime<Utc>, updated: DateTime<Utc>) -> Option<DateTime<Utc>> {
    (updated > created).then_some(updated)
}

fn comment(wire: CommentWire) -> Option<Listed> {
    let (created, updated) = (wire.created_at?, wire.updated_at.or(wire.created_at)?);
    let on_pull = wire.html_url.as_deref().and_then(on_pull);
    let kind = if on_pull == Some(true) { RemarkKind::PullRequestComment } else { RemarkKind::IssueComment };
    let author = wire.user.map(Actor::from);
    let remark = Remark {
        kind,
        id: RemarkId::new(kind, wire.id),
        node_id: wire.node_id,
        number: number_of(wire.issue_url.as_deref())?,
        url: wire.html_url,
        ..plain(author.as_ref(), created, wire.body)
    };
    Some(Listed {
        remark: Remark { edited: edited(created, updated), ..remark },
        author_id: author.map_or(0, |author| author.id),
        association: Association::parse(&wire.author_association),
        on_pull,
        updated,
    })
}

fn review_comment(wire: ReviewCommentWire) -> Option<Listed> {
    let updated = wire.updated_at.unwrap_or(wire.created_at);
    let author = wire.user.map(Actor::from);
    let remark = Remark {
        kind: RemarkKind::ReviewComment,
        id: RemarkId::ReviewComment(wire.id),
        node_id: wire.node_id,
        number: number_of(wire.pull_request_url.as_deref())?,
        url: wire.html_url,
        in_reply_to: wire.in_reply_to_id,
        review: wire.pull_request_review_id,
        edited: edited(wire.created_at, updated),
        ..plain(author.as_ref(), wire.created_at, wire.body)
    };
    Some(Listed {
        remark,
        author_id: author.map_or(0, |author| author.id),
        association: Association::parse(&wire.author_association),
        on_pull: Some(true),
        updated,
    })
}

/// One that was not sent yet is nobody's business.
fn review(pull: u64, wire: ReviewWire) -> Option<Listed> {
    let created = wire.submitted_at?;
    let author = wire.user.map(Actor::from);
    let remark = Remark {
        kind: RemarkKind::Review,
        id: RemarkId::Review(wire.id),
        node_id: wire.node_id,
        number: pull,
        url: wire.html_url,
        state: Some(ReviewState::parse(&wire.state.to_ascii_lowercase())?),
        ..plain(author.as_ref(), created, wire.body)
    };
    let pending = remark.state == Some(ReviewState::Pending);
    let listed = Listed {
        remark,
        author_id: author.map_or(0, |author| author.id),
        association: Association::parse(&wire.author_association),
        on_pull: Some(true),
        updated: created,
    };
    (!pending).then_some(listed)
}

/// A remark of somebody, of which nothing else is known yet.
fn plain(author: Option<&Actor>, created: DateTime<Utc>, text: String) -> Remark {
    Remark {
        kind: RemarkKind::IssueComment,
        id: RemarkId::Comment(0),
        node_id: None,
        number: 0,
        url: None,
        login: author.map(|author| author.login.clone()).filter(|login| !login.is_empty()),
        bot: author.is_some_and(|author| author.bot),
        created,
        edited: None,
        editor: None,
        edited_by_bot: false,
        text,
        minimized: false,
        thread: None,
        in_reply_to: None,
        review: None,
        state: None,
    }
}

fn present(node: NodeWire) -> Present {
    let edited_by_bot = node.editor.as_ref().is_some_and(|editor| editor.kind == "Bot");
    Present {
        text: node.body,
        edited: node.last_edited_at,
        editor: node.editor.map(super::text_history_wire::ActorWire::login),
        edited_by_bot,
        minimized: node.is_minimized,
        state: node.state.and_then(|state| ReviewState::parse(&state.to_ascii_lowercase())),
    }
}
