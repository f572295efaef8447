//! Comments with a marker: one of each kind per issue, found again by its first line and edited in place.

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::json;

use super::Change;
use super::client::Client;
use super::error::Error;
use super::issues::Fetched;
use super::people::Actor;
use super::request::Ask;
use super::rest_wire::CommentWire;
use crate::domain::name::RepoName;

const NEEDS: &str = "issues: write";

/// A comment of an issue or pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct Comment {
    /// Database id.
    pub id: u64,
    /// Number of its issue or pull request, where GitHub says it.
    pub number: Option<u64>,
    /// Markdown.
    pub body: String,
    /// Web address.
    pub url: Option<String>,
    /// Who wrote it.
    pub author: Option<Actor>,
    /// When it was written.
    pub created_at: Option<DateTime<Utc>>,
    /// When it was last edited.
    pub updated_at: Option<DateTime<Utc>>,
    app: Option<u64>,
}

impl From<CommentWire> for Comment {
    fn from(wire: CommentWire) -> Self {
        Self {
            id: wire.id,
            number: wire.issue_url.as_deref().and_then(|url| url.rsplit('/').next()?.parse().ok()),
            body: wire.body,
            url: wire.html_url,
            author: wire.user.map(Actor::from),
            created_at: wire.created_at,
            updated_at: wire.updated_at,
            app: wire.performed_via_github_app.map(|app| app.id),
        }
    }
}

impl Client {
    /// Every comment of an issue, oldest first; `since` leaves out those not changed after it.
    pub async fn comments(
        &self,
        repo: &RepoName,
        number: u64,
        since: Option<DateTime<Utc>>,
    ) -> Result<Vec<Comment>, Error> {
        let doing = format!("reading the comments of issue {number} of {repo}");
        let since = since.map(|at| format!("&since={}", at.format("%Y-%m-%dT%H:%M:%SZ"))).unwrap_or_default();
        let path = format!("/repos/{repo}/issues/{number}/comments?per_page=100{since}");
        let wires: Vec<CommentWire> = self.pages(&path, &doing, "issues: read").await?;
        Ok(wires.into_iter().map(Comment::from).collect())
    }

    /// The newest comment of the whole repository.
    pub async fn newest_comment(&self, repo: &RepoName) -> Result<Option<Comment>, Error> {
        let doing = format!("reading the newest comment of {repo}");
        let path = format!("/repos/{repo}/issues/comments?sort=created&direction=desc&per_page=1");
        let wires: Vec<CommentWire> = self.get(&path, &doing, "issues: read").await?;
        Ok(wires.into_iter().next().map(Comment::from))
    }

    /// Comments of the whole repository that changed at or after `since`, the oldest change first, unless the list is as it
    /// was at `etag`; at most one page: what is left comes with the next `since`.
    pub async fn recent_comments(
        &self,
        repo: &RepoName,
        since: DateTime<Utc>,
        etag: Option<&str>,
    ) -> Result<Fetched<Vec<Comment>>, Error> {
        let doing = format!("reading the latest comments of {repo}");
        let since = since.format("%Y-%m-%dT%H:%M:%SZ");
        let path =
            format!("/repos/{repo}/issues/comments?sort=updated&direction=asc&since={since}&per_page=100");
        let reply = self.send(Ask::get(self.url(&path), &doing, "issues: read").etag(etag)).await?;
        if reply.unchanged() {
            return Ok(Fetched::Unchanged);
        }
        let comments = reply.json::<Vec<CommentWire>>()?.into_iter().map(Comment::from).collect();
        Ok(Fetched::Fresh(comments, reply.etag()))
    }

    /// Our own comment whose text begins with `marker` (an HTML comment); the oldest, should there be several. A marker
    /// copied by somebody else is not ours.
    pub async fn find_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
    ) -> Result<Option<Comment>, Error> {
        let mut marked = self.comments(repo, number, None).await?;
        marked.retain(|comment| comment.body.trim_start().starts_with(marker));
        if marked.is_empty() {
            return Ok(None);
        }
        let login = &self.viewer().await?.actor.login;
        let ours = |comment: &Comment| {
            // Where it cannot be told who we are, nor who wrote it, the marker alone has to do.
            let by_login = login.is_empty()
                || comment.author.as_ref().is_none_or(|author| author.login.eq_ignore_ascii_case(login));
            by_login || (comment.app.is_some() && comment.app == self.app_id())
        };
        Ok(marked.into_iter().find(ours))
    }

    /// Brings our comment with `marker` to `text`, whose first line is the marker's: writes it where there is none, edits
    /// it where it differs. A write that may have happened is looked for before it is tried again.
    pub async fn settle_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
        text: &str,
    ) -> Result<(Comment, Change), Error> {
        let body = format!("{marker}\n{text}");
        let mut uncertain = None;
        for attempt in 0..3 {
            if let Some(found) = self.find_comment(repo, number, marker).await? {
                return self.edit_comment(repo, found, &body, uncertain.is_some()).await;
            }
            let doing = format!("commenting on issue {number} of {repo}");
            let path = format!("/repos/{repo}/issues/{number}/comments");
            let made = self.write(Method::POST, &path, Some(json!({"body": body})), &doing, NEEDS).await;
            match made.and_then(|reply| reply.json::<CommentWire>()) {
                Ok(wire) => return Ok((Comment::from(wire), Change::Created)),
                Err(error) if error.is_ambiguous() => uncertain = Some(error),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(self.retry_delay().saturating_mul(1 << attempt)).await;
        }
        // One last look: the third try may have come through as well.
        match (self.find_comment(repo, number, marker).await?, uncertain) {
            (Some(found), _) => self.edit_comment(repo, found, &body, true).await,
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::malformed("commenting", "no attempt was made")),
        }
    }

    /// Takes a comment away; one that is gone is no error.
    pub async fn delete_comment(&self, repo: &RepoName, id: u64) -> Result<(), Error> {
        let doing = format!("deleting a comment in {repo}");
        let path = format!("/repos/{repo}/issues/comments/{id}");
        match self.write(Method::DELETE, &path, None, &doing, NEEDS).await {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(()),
        }
    }

    async fn edit_comment(
        &self,
        repo: &RepoName,
        found: Comment,
        body: &str,
        just_made: bool,
    ) -> Result<(Comment, Change), Error> {
        if same_text(&found.body, body) {
            return Ok((found, if just_made { Change::Created } else { Change::Unchanged }));
        }
        let doing = format!("editing a comment in {repo}");
        let path = format!("/repos/{repo}/issues/comments/{}", found.id);
        let reply = self.write(Method::PATCH, &path, Some(json!({"body": body})), &doing, NEEDS).await?;
        Ok((Comment::from(reply.json::<CommentWire>()?), Change::Updated))
    }
}

/// GitHub may give line ends back in another form, and cuts white space at the end.
pub(super) fn same_text(left: &str, right: &str) -> bool {
    left.replace("\r\n", "\n").trim_end() == right.replace("\r\n", "\n").trim_end()
}
