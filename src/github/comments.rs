//! Comments with a marker: one of each kind for each issue. It is found by its first line and edited in place.

use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use serde_json::json;

use super::Ensured;
use super::account::Actor;
use super::client::Client;
use super::error::Error;
use super::issues::Fetched;
use super::memory::OwnComments;
use super::request::Ask;
use super::rest_wire::{CommentWire, ReactionWire};
use crate::domain::name::RepoName;

const NEEDS: &str = "issues: write";
/// How the first line of every comment of ours begins.
const MARKED: &str = "<!-- agentd:";
/// Issues whose own comments are remembered at most.
const MOST_ISSUES: usize = 1_000;

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
    /// Who wrote it; `None` = the account is gone.
    pub author: Option<Actor>,
    /// When it was written.
    pub created_at: Option<DateTime<Utc>>,
    /// When it was last edited.
    pub updated_at: Option<DateTime<Utc>>,
    app: Option<u64>,
    node: Option<String>,
}

/// A sign that somebody put on a comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaction {
    /// Who.
    pub by: Actor,
    /// GitHub's word for it: `+1`, `-1`, `eyes` …
    pub content: String,
    /// When.
    pub at: DateTime<Utc>,
}

impl Comment {
    /// Its id for GraphQL.
    pub(super) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }
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
            node: wire.node_id,
        }
    }
}

/// Whether a comment's web address (`…/issues/7#issuecomment-1`, `…/pull/8#issuecomment-2`) is a pull request's.
pub(super) fn on_pull(url: &str) -> Option<bool> {
    let (path, _) = url.split_once('#')?;
    match path.rsplit('/').nth(1)? {
        "pull" => Some(true),
        "issues" => Some(false),
        _ => None,
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

    /// agentd's own comment whose text begins with `marker` (an HTML comment); the oldest if there are several. A
    /// marker that somebody else copied does not count.
    pub async fn find_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
    ) -> Result<Option<Comment>, Error> {
        self.find_comment_since(repo, number, marker, None).await
    }

    /// The same of one that is an answer to what was written at `since`, by GitHub's clock: the pages before it are not read.
    async fn find_comment_since(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
        since: Option<DateTime<Utc>>,
    ) -> Result<Option<Comment>, Error> {
        let key = (repo.clone(), number);
        let is_known = self.memory().own_comments.lock().await.contains_key(&key);
        if let Some(since) = since.filter(|_| !is_known) {
            let comments = self.comments(repo, number, Some(since - TimeDelta::seconds(2))).await?;
            let own = self.own_marked(&comments).await?;
            return Ok(own.into_iter().find(|comment| comment.body.trim_start().starts_with(marker)));
        }
        let mut known = self.memory().own_comments.lock().await.get(&key).cloned().unwrap_or_default();
        for _ in 0..2 {
            let comments = self.comments(repo, number, known.since).await?;
            let own = self.own_marked(&comments).await?;
            for comment in &own {
                let first = comment.body.trim_start().lines().next().unwrap_or_default().trim_end();
                let id = known.ids.entry(first.to_owned()).or_insert(comment.id);
                let (older, later) = (comment.id.min(*id), comment.id.max(*id));
                *id = older;
                if older < later {
                    known.doubles.entry(first.to_owned()).or_default().insert(later);
                }
            }
            let newest = comments.iter().filter_map(|comment| comment.updated_at).max();
            // GitHub's times are whole seconds, and it is not documented whether the second itself counts.
            known.since = newest.map(|at| at - TimeDelta::seconds(2)).max(known.since);
            let Some(id) = known.ids.get(marker).copied() else {
                self.remember_own(key, known).await;
                return Ok(None);
            };
            let found = match own.into_iter().find(|comment| comment.id == id) {
                Some(found) => Some(found),
                None => self.comment(repo, id).await?,
            };
            if let Some(found) = found.filter(|found| found.body.trim_start().starts_with(marker)) {
                self.remember_own(key, known).await;
                return Ok(Some(found));
            }
            // It was deleted, or somebody removed its marker. So the others are searched.
            known = OwnComments::default();
        }
        Ok(None)
    }

    /// Whether agentd's own comment with a marker was among those of an issue that were read by now. Asks nobody.
    pub async fn has_seen_comment(&self, repo: &RepoName, number: u64, marker: &str) -> bool {
        let known = self.memory().own_comments.lock().await;
        known.get(&(repo.clone(), number)).is_some_and(|known| known.ids.contains_key(marker))
    }

    async fn remember_own(&self, key: (RepoName, u64), known: OwnComments) {
        let mut all = self.memory().own_comments.lock().await;
        if all.len() >= MOST_ISSUES {
            all.clear();
        }
        all.insert(key, known);
    }

    /// A comment by id; `None` = there is none any more.
    pub async fn comment(&self, repo: &RepoName, id: u64) -> Result<Option<Comment>, Error> {
        let doing = format!("reading a comment in {repo}");
        let path = format!("/repos/{repo}/issues/comments/{id}");
        match self.get::<CommentWire>(&path, &doing, "issues: read").await {
            Ok(wire) => Ok(Some(Comment::from(wire))),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The reactions to a comment of an issue, the first hundred, unless they are as they were at `etag`.
    pub async fn reactions(
        &self,
        repo: &RepoName,
        id: u64,
        etag: Option<&str>,
    ) -> Result<Fetched<Vec<Reaction>>, Error> {
        let doing = format!("reading the reactions to a comment in {repo}");
        let url = self.url(&format!("/repos/{repo}/issues/comments/{id}/reactions?per_page=100"));
        let reply = self.send(Ask::get(url, doing, "issues: read").etag(etag)).await?;
        if reply.unchanged() {
            return Ok(Fetched::Unchanged);
        }
        let wires: Vec<ReactionWire> = reply.json()?;
        let known = wires.into_iter().filter_map(|wire| {
            Some(Reaction { by: wire.user.map(Actor::from)?, content: wire.content, at: wire.created_at? })
        });
        Ok(Fetched::Fresh(known.collect(), reply.etag()))
    }

    /// agentd's own comments that begin with a marker. A comment of a deleted account belongs to nobody.
    async fn own_marked(&self, comments: &[Comment]) -> Result<Vec<Comment>, Error> {
        let marked = comments.iter().filter(|comment| comment.body.trim_start().starts_with(MARKED));
        let marked: Vec<Comment> = marked.cloned().collect();
        if marked.is_empty() {
            return Ok(marked);
        }
        let login = &self.viewer().await?.actor.login;
        let ours = |comment: &Comment| {
            // Where it cannot be told who we are, the marker alone has to do.
            let by_login = login.is_empty()
                || comment.author.as_ref().is_some_and(|author| author.login.eq_ignore_ascii_case(login));
            by_login || (comment.app.is_some() && comment.app == self.app_id())
        };
        Ok(marked.into_iter().filter(ours).collect())
    }

    /// Ensures that agentd's comment with `marker` has this `text`, whose first line is the marker. It is written if it
    /// is missing and edited if it differs. After a write that may have happened, agentd looks before it tries again.
    pub async fn ensure_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
        text: &str,
    ) -> Result<(Comment, Ensured), Error> {
        self.ensure_answer(repo, number, marker, (text, None)).await
    }

    /// The same of an answer to what was written at a time, by GitHub's clock: on an issue with thousands of comments it costs no more than
    /// elsewhere.
    pub async fn ensure_answer(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
        (text, to): (&str, Option<DateTime<Utc>>),
    ) -> Result<(Comment, Ensured), Error> {
        let body = format!("{marker}\n{}", self.public(text));
        let mut uncertain = None;
        for attempt in 0..3 {
            if let Some(found) = self.find_comment_since(repo, number, marker, to).await? {
                let edited = self.edit_comment(repo, found, &body, uncertain.is_some()).await?;
                self.delete_doubles(repo, number, marker).await;
                return Ok(edited);
            }
            let doing = format!("commenting on issue {number} of {repo}");
            let path = format!("/repos/{repo}/issues/{number}/comments");
            let made = self.write(Method::POST, &path, Some(json!({"body": body})), &doing, NEEDS).await;
            match made.and_then(|reply| reply.json::<CommentWire>()) {
                Ok(wire) => {
                    let mut all = self.memory().own_comments.lock().await;
                    // Of one whose earlier pages were not read, not all is known.
                    let known = match to {
                        None => Some(all.entry((repo.clone(), number)).or_default()),
                        Some(_) => all.get_mut(&(repo.clone(), number)),
                    };
                    if let Some(known) = known {
                        known.ids.entry(marker.to_owned()).or_insert(wire.id);
                    }
                    return Ok((Comment::from(wire), Ensured::Created));
                }
                Err(error) if error.is_ambiguous() => uncertain = Some(error),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(self.retry_delay().saturating_mul(1 << attempt)).await;
        }
        // One last look: the third try may have come through as well.
        match (self.find_comment_since(repo, number, marker, to).await?, uncertain) {
            (Some(found), _) => self.edit_comment(repo, found, &body, true).await,
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::malformed("commenting", "no attempt was made")),
        }
    }

    /// Assigns somebody to an issue; who is assigned already stays.
    pub async fn assign(&self, repo: &RepoName, number: u64, login: &str) -> Result<(), Error> {
        let doing = format!("assigning {login} to issue {number} of {repo}");
        let path = format!("/repos/{repo}/issues/{number}/assignees");
        let body = json!({ "assignees": [login] });
        self.write(Method::POST, &path, Some(body), &doing, NEEDS).await.map(drop)
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

    /// Heeds a comment that begins with `marker` and was seen in a list. Where it is not the one that is known, it may have come late, when
    /// nobody that works on the issue looks any more: of two of our own the later one goes.
    ///
    /// # Errors
    /// The comments cannot be read.
    pub async fn heed_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
        id: u64,
    ) -> Result<(), Error> {
        let key = (repo.clone(), number);
        let known =
            self.memory().own_comments.lock().await.get(&key).and_then(|k| k.ids.get(marker).copied());
        if known != Some(id) && self.find_comment(repo, number, marker).await?.is_some() {
            self.delete_doubles(repo, number, marker).await;
        }
        Ok(())
    }

    /// Two processes may have written a comment at once, because one's request came late. The older one stays. What cannot be
    /// deleted now is found again by the next process.
    async fn delete_doubles(&self, repo: &RepoName, number: u64, marker: &str) {
        // Where it cannot be told who we are, others' comments are not told from our own.
        if !self.viewer().await.is_ok_and(|viewer| !viewer.actor.login.is_empty()) {
            return;
        }
        let key = (repo.clone(), number);
        let doubles = {
            let mut known = self.memory().own_comments.lock().await;
            known.get_mut(&key).and_then(|known| known.doubles.remove(marker)).unwrap_or_default()
        };
        for id in doubles {
            match self.delete_comment(repo, id).await {
                Ok(()) => tracing::info!(%repo, number, id, "a comment that stood there twice was deleted"),
                Err(error) => tracing::warn!(%repo, number, id, %error, "a comment stands there twice"),
            }
        }
    }

    async fn edit_comment(
        &self,
        repo: &RepoName,
        found: Comment,
        body: &str,
        just_made: bool,
    ) -> Result<(Comment, Ensured), Error> {
        if same_text(&found.body, body) {
            return Ok((found, if just_made { Ensured::Created } else { Ensured::Unchanged }));
        }
        let doing = format!("editing a comment in {repo}");
        let path = format!("/repos/{repo}/issues/comments/{}", found.id);
        let reply = self.write(Method::PATCH, &path, Some(json!({"body": body})), &doing, NEEDS).await?;
        Ok((Comment::from(reply.json::<CommentWire>()?), Ensured::Updated))
    }
}

/// GitHub may give line ends back in another form, and cuts white space at the end.
pub(super) fn same_text(left: &str, right: &str) -> bool {
    left.replace("\r\n", "\n").trim_end() == right.replace("\r\n", "\n").trim_end()
}
