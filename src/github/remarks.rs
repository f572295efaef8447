//! What people wrote on an issue or a pull request, with who edited and hid it: read when a run is prepared.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Client;
use super::discussion::{IssueLinks, ReviewThread};
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use super::remark_wire::{CommentWire, ConnectionWire, EditWire, LinksWire, ReviewWire, ThreadWire};
use super::text_history::Edit;
use crate::domain::name::RepoName;
use crate::domain::remark::{Remark, RemarkKind};

const PAGE: u64 = 100;

const ISSUE_NEEDS: &str = "issues: read";
const PULL_NEEDS: &str = "pull requests: read";

/// What of a comment is read.
macro_rules! comment_fields {
    () => {
        "id databaseId url body createdAt lastEditedAt isMinimized author { __typename login } editor { __typename login }"
    };
}

/// The head and the tail of every query of a list; between them stand the list's name and the fields of its items.
macro_rules! list_query {
    ($of:literal, $list:literal, $fields:expr) => {
        concat!(
            "query($owner: String!, $name: String!, $number: Int!, $first: Int, $after: String, $last: Int, $before: String) { \
             repository(owner: $owner, name: $name) { subject: ",
            $of,
            "(number: $number) { list: ",
            $list,
            "(first: $first, after: $after, last: $last, before: $before) { totalCount nodes { ",
            $fields,
            " } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } } }"
        )
    };
}

const ISSUE_COMMENTS: &str = list_query!("issue", "comments", comment_fields!());
const PULL_COMMENTS: &str = list_query!("pullRequest", "comments", comment_fields!());
const REVIEWS: &str = list_query!("pullRequest", "reviews", concat!(comment_fields!(), " state submittedAt"));
const THREADS: &str = list_query!(
    "pullRequest",
    "reviewThreads",
    concat!(
        "id isResolved isOutdated path line originalLine subjectType viewerCanReply viewerCanResolve \
         opening: comments(first: 1) { totalCount nodes { ",
        comment_fields!(),
        " diffHunk replyTo { databaseId } pullRequestReview { databaseId } } } \
         latest: comments(last: 100) { totalCount nodes { ",
        comment_fields!(),
        " diffHunk replyTo { databaseId } pullRequestReview { databaseId } } }"
    )
);

/// Revisions of a remark's text, without the texts.
const EDITS: &str = "query($id: ID!) { node(id: $id) { __typename \
    ... on IssueComment { userContentEdits(first: 100) { nodes { id editedAt editor { __typename login } } } } \
    ... on PullRequestReview { userContentEdits(first: 100) { nodes { id editedAt editor { __typename login } } } } \
    ... on PullRequestReviewComment { userContentEdits(first: 100) { nodes { id editedAt editor { __typename login } } } } } }";

const LINKS: &str = "query($owner: String!, $name: String!, $number: Int!) { repository(owner: $owner, name: $name) { \
    issue(number: $number) { parent { number title state repository { nameWithOwner } } \
    subIssues(first: 50) { totalCount nodes { number title state repository { nameWithOwner } } } \
    blockedBy(first: 50) { totalCount nodes { number title state repository { nameWithOwner } } } } } }";

/// A list of which the middle may not have been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded<T> {
    /// What was read, in GitHub's order.
    pub items: Vec<T>,
    /// How many were not read.
    pub unread: usize,
    /// How many of `items` stand before the ones that were not read.
    pub before_gap: usize,
}

impl Client {
    /// The comments of an issue, oldest first: of more than `max_pages` pages the first one and the last ones.
    pub async fn issue_remarks(
        &self,
        repo: &RepoName,
        number: u64,
        max_pages: u32,
    ) -> Result<Bounded<Remark>, Error> {
        let doing = format!("reading the comments of issue {number} of {repo}");
        let list = (ISSUE_COMMENTS, ISSUE_NEEDS, doing.as_str());
        let wires: Bounded<CommentWire> = self.bounded_list(repo, number, max_pages, list).await?;
        Ok(wires.map(|wire| wire.remark(RemarkKind::IssueComment, number)))
    }

    /// The comments of a pull request, as [`Client::issue_remarks`].
    pub async fn pull_remarks(
        &self,
        repo: &RepoName,
        number: u64,
        max_pages: u32,
    ) -> Result<Bounded<Remark>, Error> {
        let doing = format!("reading the comments of pull request {number} of {repo}");
        let list = (PULL_COMMENTS, PULL_NEEDS, doing.as_str());
        let wires: Bounded<CommentWire> = self.bounded_list(repo, number, max_pages, list).await?;
        Ok(wires.map(|wire| wire.remark(RemarkKind::PullRequestComment, number)))
    }

    /// The reviews of a pull request that were sent, as [`Client::issue_remarks`].
    pub async fn reviews(
        &self,
        repo: &RepoName,
        number: u64,
        max_pages: u32,
    ) -> Result<Bounded<Remark>, Error> {
        let doing = format!("reading the reviews of pull request {number} of {repo}");
        let list = (REVIEWS, PULL_NEEDS, doing.as_str());
        let wires: Bounded<ReviewWire> = self.bounded_list(repo, number, max_pages, list).await?;
        Ok(wires.filter_map(|wire| wire.remark(number)))
    }

    /// The threads of a pull request, as [`Client::issue_remarks`].
    pub async fn review_threads(
        &self,
        repo: &RepoName,
        number: u64,
        max_pages: u32,
    ) -> Result<Bounded<ReviewThread>, Error> {
        let doing = format!("reading the review threads of pull request {number} of {repo}");
        let list = (THREADS, PULL_NEEDS, doing.as_str());
        let wires: Bounded<ThreadWire> = self.bounded_list(repo, number, max_pages, list).await?;
        Ok(wires.map(|wire| wire.thread(number)))
    }

    /// What an issue is linked with. Where GitHub does not have such links, there are none.
    pub async fn issue_links(&self, repo: &RepoName, number: u64) -> Result<IssueLinks, Error> {
        let doing = format!("reading what issue {number} of {repo} is linked with");
        let variables = json!({ "owner": repo.owner(), "name": repo.name(), "number": number });
        let answer = self.graphql(Query::new(LINKS, variables, &doing, ISSUE_NEEDS)).await?;
        let wire: Option<LinksWire> = serde_json::from_value(answer.data["repository"]["issue"].clone())
            .map_err(|error| Error::malformed(&doing, error))?;
        Ok(wire.map(LinksWire::links).unwrap_or_default())
    }

    /// The revisions of a remark's text, oldest first; empty = GitHub does not show them.
    pub async fn edits_of_remark(&self, node_id: &str) -> Result<Vec<Edit>, Error> {
        let doing = "reading how a remark was changed";
        let answer = self.graphql(Query::new(EDITS, json!({ "id": node_id }), doing, ISSUE_NEEDS)).await?;
        let data = match answer.whole() {
            Ok(data) => data,
            Err(error) if error.is_absent() || matches!(error.kind, ErrorKind::Forbidden { .. }) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let nodes = data["node"]["userContentEdits"]["nodes"].clone();
        let wires: Option<Vec<Option<EditWire>>> =
            serde_json::from_value(nodes).map_err(|error| Error::malformed(doing, error))?;
        let mut edits: Vec<Edit> = wires.into_iter().flatten().flatten().map(EditWire::edit).collect();
        edits.reverse();
        edits.sort_by_key(|edit| edit.at);
        Ok(edits)
    }

    async fn bounded_list<T: DeserializeOwned>(
        &self,
        repo: &RepoName,
        number: u64,
        max_pages: u32,
        (query, needs, doing): (&'static str, &'static str, &str),
    ) -> Result<Bounded<T>, Error> {
        let page = async |window: Value| -> Result<ConnectionWire<T>, Error> {
            let mut variables = json!({ "owner": repo.owner(), "name": repo.name(), "number": number });
            if let (Some(all), Value::Object(window)) = (variables.as_object_mut(), window) {
                all.extend(window);
            }
            let data = self.graphql(Query::new(query, variables, doing, needs)).await?.whole()?;
            serde_json::from_value(data["repository"]["subject"]["list"].clone())
                .map_err(|error| Error::malformed(doing, error))
        };
        let first = page(json!({ "first": PAGE })).await?;
        let total = first.total_count;
        let mut items: Vec<T> = first.nodes.into_iter().flatten().collect();
        let before_gap = items.len();
        // GraphQL gives null for what may not be seen; the pages count by places.
        let mut left = total.saturating_sub(PAGE);
        let mut pages = Vec::new();
        let mut before = Value::Null;
        while left > 0 && (pages.len() as u64) + 1 < u64::from(max_pages) {
            let size = left.min(PAGE);
            let last = page(json!({ "last": size, "before": before })).await?;
            left -= size;
            let more = last.page_info.has_previous_page;
            before = last.page_info.start_cursor.map_or(Value::Null, Value::String);
            pages.push(last.nodes);
            if !more || before.is_null() {
                break;
            }
        }
        items.extend(pages.into_iter().rev().flatten().flatten());
        Ok(Bounded { items, unread: usize::try_from(left).unwrap_or(usize::MAX), before_gap })
    }
}

impl<T> Bounded<T> {
    fn map<U>(self, with: impl Fn(T) -> U) -> Bounded<U> {
        self.filter_map(|item| Some(with(item)))
    }

    fn filter_map<U>(self, with: impl Fn(T) -> Option<U>) -> Bounded<U> {
        let mut before_gap = 0;
        let mut items = Vec::with_capacity(self.items.len());
        for (place, item) in self.items.into_iter().enumerate() {
            if let Some(item) = with(item) {
                before_gap += usize::from(place < self.before_gap);
                items.push(item);
            }
        }
        Bounded { items, unread: self.unread, before_gap }
    }
}
