//! Pull requests: one for each head branch, found or made, and then updated.

use http::Method;
use serde_json::{Map, Value, json};

use super::Ensured;
use super::account::Actor;
use super::client::Client;
use super::comments::same_text;
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use super::pull_words::{self, SetLast};
use super::request::Ask;
use super::rest_wire::{PullWire, SideWire};
use crate::domain::name::{BranchName, CommitId, RepoName};
use crate::domain::percent::percent_encoded;

const NEEDS: &str = "pull requests: write";
/// Pages of a hundred open pull requests that are listed at most.
const MOST_PAGES: usize = 20;

/// A pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct Pull {
    /// Number.
    pub number: u64,
    /// Node id, for draft and ready.
    pub node_id: Option<String>,
    /// Web address.
    pub url: String,
    /// Title.
    pub title: String,
    /// Markdown.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
    /// When it was last changed, as GitHub writes it.
    pub updated_at: Option<String>,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether it is a draft.
    pub draft: bool,
    /// Head branch.
    pub head: String,
    /// Whether the head is in this repository. A fork is another one, also if it was deleted.
    pub here: bool,
    /// Commit of the head.
    pub head_sha: String,
    /// Base branch.
    pub base: String,
    /// Whether it can be merged; `None` = GitHub does not know yet.
    pub mergeable: Option<bool>,
    /// Who opened it.
    pub author: Option<Actor>,
}

/// The open pull requests of a repository as last listed, page by page, so that unchanged pages cost nothing.
#[derive(Debug, Clone, Default)]
pub struct OpenPulls {
    pages: Vec<PullPage>,
}

#[derive(Debug, Clone)]
struct PullPage {
    url: String,
    etag: Option<String>,
    next: Option<String>,
    pulls: Vec<Pull>,
}

impl OpenPulls {
    /// All of them; one that moved from page to page meanwhile may stand there twice.
    pub fn all(&self) -> impl Iterator<Item = &Pull> {
        self.pages.iter().flat_map(|page| &page.pulls)
    }

    /// Whether there are more than one page has.
    pub fn has_more(&self) -> bool {
        self.pages.len() > 1
    }
}

/// A pull request as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSpec {
    /// Head branch, in the same repository.
    pub head: BranchName,
    /// Commit that the head was pushed at.
    pub commit: CommitId,
    /// Base branch: the origin.
    pub base: BranchName,
    /// Title.
    pub title: String,
    /// Markdown.
    pub body: String,
    /// Draft or ready (D14).
    pub draft: bool,
}

fn pull(repo: &RepoName, wire: PullWire) -> Pull {
    let here = wire.head.as_ref().is_some_and(|head| is_here(head, wire.base.as_ref(), repo));
    let (head, head_sha) = wire.head.map(|head| (head.name, head.sha)).unwrap_or_default();
    Pull {
        number: wire.number,
        node_id: wire.node_id,
        url: wire.html_url.unwrap_or_default(),
        title: wire.title,
        body: wire.body,
        open: wire.state == "open",
        updated_at: wire.updated_at,
        merged: wire.merged_at.is_some(),
        draft: wire.draft,
        head,
        here,
        head_sha,
        base: wire.base.map(|base| base.name).unwrap_or_default(),
        mergeable: wire.mergeable,
        author: wire.user.map(Actor::from),
    }
}

impl Client {
    /// Reads one pull request.
    pub async fn pull(&self, repo: &RepoName, number: u64) -> Result<Pull, Error> {
        let doing = format!("reading pull request {number} of {repo}");
        let path = format!("/repos/{repo}/pulls/{number}");
        Ok(pull(repo, self.get::<PullWire>(&path, &doing, "pull requests: read").await?))
    }

    /// Pull requests of a branch of this repository; `state` is open, closed or all.
    async fn pulls_of(&self, repo: &RepoName, head: &BranchName, state: &str) -> Result<Vec<Pull>, Error> {
        let doing = format!("looking for pull requests of {head} in {repo}");
        let name = percent_encoded(head.as_str());
        let path = format!("/repos/{repo}/pulls?state={state}&head={}:{name}&per_page=100", repo.owner());
        let wires: Vec<PullWire> = self.pages(&path, &doing, "pull requests: read").await?;
        // GitHub ignores a head filter it does not understand and lists everything, forks' branches too.
        Ok(wires.into_iter().map(|wire| pull(repo, wire)).filter(|pull| pull.is_of(head)).collect())
    }

    /// The open pull request of a branch; if there are several, the one against its base, else the newest. If none is
    /// open, the one that was merged with this commit, since nothing is left to ask for.
    async fn find_pull(&self, repo: &RepoName, spec: &PullSpec) -> Result<Option<Pull>, Error> {
        let mut found = self.pulls_of(repo, &spec.head, "all").await?;
        found.retain(|pull| pull.open || pull.merged && pull.head_sha == spec.commit.as_str());
        found.sort_by_key(|pull| (pull.open, pull.base == spec.base.as_str(), pull.number));
        Ok(found.pop())
    }

    /// The newest open pull request of a branch of this repository.
    pub async fn open_pull_of(&self, repo: &RepoName, head: &BranchName) -> Result<Option<Pull>, Error> {
        let mut open = self.pulls_of(repo, head, "open").await?;
        open.retain(|pull| pull.open);
        open.sort_by_key(|pull| pull.number);
        Ok(open.pop())
    }

    /// Brings a list of the open pull requests up to date, the latest change first; `whole` = also the pages after the first,
    /// where a change of the first does not ask for them. True = something differs. Where a page cannot be read, the list
    /// stays as it was.
    pub async fn list_pulls(
        &self,
        repo: &RepoName,
        known: &mut OpenPulls,
        whole: bool,
    ) -> Result<bool, Error> {
        let doing = format!("listing the open pull requests of {repo}");
        let mut url =
            self.url(&format!("/repos/{repo}/pulls?state=open&sort=updated&direction=desc&per_page=100"));
        let (mut pages, mut changed) = (Vec::new(), false);
        loop {
            let before = known.pages.get(pages.len()).filter(|page: &&PullPage| page.url == url);
            let tag = before.and_then(|page| page.etag.as_deref());
            let reply = self.send(Ask::get(url.clone(), &doing, "pull requests: read").etag(tag)).await?;
            let page = match before.filter(|_| reply.unchanged()) {
                Some(before) => before.clone(),
                None => {
                    changed = true;
                    let pulls = reply.json::<Vec<PullWire>>()?.into_iter().map(|wire| pull(repo, wire));
                    PullPage {
                        pulls: pulls.collect(),
                        etag: reply.etag(),
                        next: self.next_page(&reply, &url)?,
                        url,
                    }
                }
            };
            let next = page.next.clone();
            pages.push(page);
            // What was pushed from a page to the next changed both.
            match next {
                Some(next) if (changed || whole) && pages.len() < MOST_PAGES => url = next,
                _ => break,
            }
        }
        match changed || whole {
            true => known.pages = pages,
            false => known.pages.splice(..pages.len(), pages).for_each(drop),
        }
        Ok(changed)
    }

    /// The branch's merged pull requests with their heads, however they were merged. Squashed ones are in no history.
    pub async fn merged_heads(
        &self,
        repo: &RepoName,
        head: &BranchName,
        onto: Option<&BranchName>,
    ) -> Result<Vec<(u64, CommitId)>, Error> {
        let closed = self.pulls_of(repo, head, "closed").await?;
        let counts = |pull: &Pull| pull.merged && onto.is_none_or(|onto| pull.base == onto.as_str());
        let merged = closed.into_iter().filter(counts);
        Ok(merged.filter_map(|pull| Some((pull.number, CommitId::parse(&pull.head_sha).ok()?))).collect())
    }

    /// Finds or makes the pull request of `spec.head`, and updates title, body, base and draft where people have not changed
    /// them. One that is merged stays as it is. `NoCommits` = the base has all commits without a pull request. In a
    /// repository without drafts it is ready instead.
    pub async fn ensure_pull(&self, repo: &RepoName, spec: &PullSpec) -> Result<(Pull, Ensured), Error> {
        let (title, body) = (self.public(&spec.title), self.public(&spec.body));
        let spec = &PullSpec { title, body, ..spec.clone() };
        let mut uncertain: Option<Error> = None;
        let mut draft = spec.draft;
        for attempt in 0..4 {
            if let Some(found) = self.find_pull(repo, spec).await? {
                let (pull, change) = self.adapt_pull(repo, found, spec, draft).await?;
                let made = uncertain.is_some() && change == Ensured::Unchanged;
                return Ok((pull, if made { Ensured::Created } else { change }));
            }
            match self.open_pull(repo, spec, draft).await {
                Ok(pull) => return Ok((pull, Ensured::Created)),
                Err(error) if error.kind == ErrorKind::Validation && draft && no_drafts(&error) => {
                    draft = false;
                }
                // It may exist: made by somebody else, or by our request whose answer was lost. Wait, then look.
                Err(error) if error.kind == ErrorKind::AlreadyExists || error.is_ambiguous() => {
                    uncertain = Some(error);
                    tokio::time::sleep(self.retry_delay().saturating_mul(1 << attempt)).await;
                }
                Err(error) => return Err(error),
            }
        }
        // One last look: the last try may have come through as well.
        if let Some(found) = self.find_pull(repo, spec).await? {
            let (pull, _) = self.adapt_pull(repo, found, spec, draft).await?;
            return Ok((pull, Ensured::Created));
        }
        let doing = format!("opening a pull request in {repo}");
        Err(uncertain.unwrap_or_else(|| Error::malformed(&doing, "it is neither found nor made")))
    }

    async fn open_pull(&self, repo: &RepoName, spec: &PullSpec, draft: bool) -> Result<Pull, Error> {
        let doing = format!("opening a pull request from {} to {} in {repo}", spec.head, spec.base);
        let words = pull_words::of_new(spec, draft);
        let body = json!({
            "title": words.title,
            "head": spec.head.as_str(),
            "base": spec.base.as_str(),
            "body": words.body,
            "draft": draft,
        });
        let reply =
            self.write(Method::POST, &format!("/repos/{repo}/pulls"), Some(body), &doing, NEEDS).await?;
        Ok(pull(repo, reply.json::<PullWire>()?))
    }

    async fn adapt_pull(
        &self,
        repo: &RepoName,
        found: Pull,
        spec: &PullSpec,
        draft: bool,
    ) -> Result<(Pull, Ensured), Error> {
        let mut change = Ensured::Unchanged;
        let mut current = found;
        if !current.open {
            return Ok((current, change));
        }
        // What a person changed since agentd set it stays.
        let set = SetLast::of(&current.body);
        let drafted = current.draft && set.as_ref().is_some_and(|set| !set.draft);
        let moved = set.is_some_and(|set| set.base != current.base);
        let (draft, wants_draft) = (draft || drafted, draft && !drafted);
        let base = if moved { current.base.as_str() } else { spec.base.as_str() };
        // Where a person moved it, what agentd had set is remembered.
        let words = pull_words::of_known(&current, spec, wants_draft);
        if words.is_peoples {
            tracing::info!(%repo, pull = current.number, "people changed agentd's words on it: they stay as they are");
        }
        let mut body = Map::new();
        if current.title != words.title {
            body.insert("title".to_owned(), json!(words.title));
        }
        if !same_text(&current.body, &words.body) {
            body.insert("body".to_owned(), json!(words.body));
        }
        if current.base != base {
            body.insert("base".to_owned(), json!(base));
        }
        // Before the words that remember it: where it fails, the next run tries it again, and takes it for nobody's doing.
        if current.draft != draft && self.set_draft(repo, &current, draft).await? {
            current.draft = draft;
            change = Ensured::Updated;
        }
        if !body.is_empty() {
            let doing = format!("updating pull request {} of {repo}", current.number);
            let path = format!("/repos/{repo}/pulls/{}", current.number);
            let reply = self.write(Method::PATCH, &path, Some(Value::Object(body)), &doing, NEEDS).await?;
            current = pull(repo, reply.json::<PullWire>()?);
            change = Ensured::Updated;
        }
        Ok((current, change))
    }

    /// Makes a pull request a draft, or ready for review. False = the repository has no drafts.
    pub async fn set_draft(&self, repo: &RepoName, of: &Pull, draft: bool) -> Result<bool, Error> {
        let word = if draft { "a draft" } else { "ready" };
        let doing = format!("making pull request {} of {repo} {word}", of.number);
        let Some(id) = &of.node_id else {
            tracing::warn!(%repo, pull = of.number, "it has no node id, so it cannot be made {word}");
            return Ok(false);
        };
        let mutation = if draft { "convertPullRequestToDraft" } else { "markPullRequestReadyForReview" };
        let text = format!(
            "mutation($id: ID!) {{ {mutation}(input: {{pullRequestId: $id}}) {{ pullRequest {{ isDraft }} }} }}"
        );
        match self.graphql(Query::new(text, json!({"id": id}), doing, NEEDS)).await?.whole() {
            Ok(_) => Ok(true),
            Err(error) if draft && no_drafts(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Pull {
    /// Whether it is from this branch of this repository. GitHub ignores a head filter that it does not understand.
    fn is_of(&self, head: &BranchName) -> bool {
        self.here && self.head == head.as_str()
    }
}

/// Whether a head is in the repository of its base, which is this one, also where it has another name by now. GitHub says `null`
/// if its fork was deleted. That is never here, whatever the names of the branch and its owner are.
fn is_here(head: &SideWire, base: Option<&SideWire>, repo: &RepoName) -> bool {
    let base = base.and_then(|base| base.repo.as_ref()).map(|at| at.full_name.clone());
    let here = base.unwrap_or_else(|| repo.to_string());
    head.repo.as_ref().is_some_and(|at| at.full_name.eq_ignore_ascii_case(&here))
}

/// Private repositories of some plans have no draft pull requests.
fn no_drafts(error: &Error) -> bool {
    error.technical().to_ascii_lowercase().contains("draft pull requests are not supported")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pull_request_is_from_here_also_where_the_repository_was_renamed_and_never_from_a_fork() {
        let repo = RepoName::parse("demo/shop").unwrap();
        let is_here = |head: Value, base: Value| {
            let side = |side: Value| json!({ "ref": "feature/issue-7", "sha": "", "repo": side });
            let wire = json!({
                "number": 3, "state": "open", "title": "t", "node_id": "n", "draft": false,
                "head": side(head), "base": side(base),
            });
            pull(&repo, serde_json::from_value(wire).unwrap()).here
        };
        let named = |name: &str| json!({ "full_name": name });
        assert!(is_here(named("Demo/Shop"), named("demo/shop")));
        assert!(is_here(named("demo/store"), named("demo/store")), "it was renamed");
        assert!(is_here(named("demo/shop"), json!(null)));
        assert!(!is_here(named("else/store"), named("demo/store")), "a fork");
        assert!(!is_here(json!(null), named("demo/shop")), "a fork that was deleted");
    }
}
