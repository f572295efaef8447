//! Conditional listings: every page with its own tag, so that a list that has not changed costs nothing (D76).

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::client::Client;
use super::error::Error;
use super::issues::{Fetched, snapshot};
use super::listing_format::{IssueSnapshot, Page, PageCache};
use super::request::Ask;
use super::rest_wire::IssueWire;
use crate::domain::name::RepoName;
use crate::domain::percent::percent_encoded;

/// A whole list, or none at all (S24).
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// Open issues (no pull requests), newest change first; without bodies.
    pub issues: Vec<IssueSnapshot>,
    /// Numbers of the open pull requests with the same labels.
    pub pulls: Vec<u64>,
    /// Whether any page differed from the cache.
    pub changed: bool,
}

impl Client {
    /// Lists the open issues with a label. `cache` holds the pages of earlier calls and is brought up to date; it is
    /// left as it was when a page fails.
    pub async fn list_labelled(
        &self,
        repo: &RepoName,
        label: &str,
        cache: &mut PageCache,
    ) -> Result<Listing, Error> {
        self.list_open(repo, &[label], cache).await
    }

    /// Lists the open issues with all of these labels; see [`Client::list_labelled`].
    pub async fn list_open(
        &self,
        repo: &RepoName,
        labels: &[&str],
        cache: &mut PageCache,
    ) -> Result<Listing, Error> {
        let doing = format!("listing the issues of {repo}");
        // Sorted by change. A new label makes an issue the last changed one, so page 1 shows it. Sorted by creation, an
        // old issue could come in after a full last page, whose tag would not change.
        let mut query = "state=open&sort=updated&direction=desc&per_page=100".to_owned();
        if !labels.is_empty() {
            let labels: Vec<String> = labels.iter().map(|label| percent_encoded(label)).collect();
            query = format!("{query}&labels={}", labels.join(","));
        }
        let first = self.url(&format!("/repos/{repo}/issues?{query}"));
        let mut url = Some(first.clone());
        let mut fresh = PageCache::default();
        let mut listing = Listing { issues: Vec::new(), pulls: Vec::new(), changed: false };
        let mut seen = BTreeSet::new();
        while let Some(at) = url {
            let page = self.page(repo, &at, cache, &doing, &mut listing.changed).await?;
            // While pages are read, an issue that changes moves to the front and pushes another over the border.
            for issue in page.issues.iter().filter(|issue| seen.insert(issue.id)) {
                listing.issues.push(issue.clone());
            }
            listing.pulls.extend(&page.pulls);
            url = page.next.clone().filter(|next| !fresh.pages.contains_key(next));
            fresh.pages.insert(at, page);
        }
        // Pages that this list no longer has are removed; those of other lists stay.
        cache.forget(&first);
        cache.pages.extend(fresh.pages);
        Ok(listing)
    }

    /// Whether anything is new in a repository since `etag`, and when its newest change was, where it has one: its issues and pull
    /// requests by their last change, the first alone. Labels, comments, reviews and pushes make one the last changed; what is
    /// only edited may not.
    pub async fn newest_change(
        &self,
        repo: &RepoName,
        etag: Option<&str>,
    ) -> Result<Fetched<Option<DateTime<Utc>>>, Error> {
        let doing = format!("asking whether anything changed in {repo}");
        let query = "state=all&sort=updated&direction=desc&per_page=1";
        let url = self.url(&format!("/repos/{repo}/issues?{query}"));
        let reply =
            self.send(Ask::get(url, doing, "issues: read").etag(etag.filter(|tag| !tag.is_empty()))).await?;
        if reply.unchanged() {
            return Ok(Fetched::Unchanged);
        }
        let listed: Value = reply.json()?;
        let newest = listed.pointer("/0/updated_at").and_then(Value::as_str);
        Ok(Fetched::Fresh(newest.and_then(|at| at.parse().ok()), reply.etag()))
    }

    async fn page(
        &self,
        repo: &RepoName,
        url: &str,
        cache: &PageCache,
        doing: &str,
        changed: &mut bool,
    ) -> Result<Page, Error> {
        let known = cache.pages.get(url);
        let ask = Ask::get(url.to_owned(), doing, "issues: read")
            .etag(known.map(|page| page.etag.as_str()).filter(|tag| !tag.is_empty()));
        let reply = self.send(ask).await?;
        if let (true, Some(known)) = (reply.unchanged(), known) {
            return Ok(known.clone());
        }
        *changed = true;
        let next = self.next_page(&reply, url)?;
        let (mut issues, mut pulls) = (Vec::new(), Vec::new());
        for item in reply.json::<Vec<Value>>()? {
            match serde_json::from_value::<IssueWire>(item) {
                Ok(wire) if wire.pull_request.is_some() => pulls.push(wire.number),
                // One without a title is told so by the run that it asks for.
                Ok(wire) if wire.state.is_empty() => {
                    tracing::warn!(%repo, issue = wire.number, "left out of the list: no state");
                }
                Ok(wire) => issues.push(snapshot(repo, IssueWire { body: String::new(), ..wire })),
                // One bad record may be left out of a list, but not silently (S22).
                Err(error) => tracing::warn!(%repo, %error, "left out of the list: cannot be understood"),
            }
        }
        Ok(Page { etag: reply.etag().unwrap_or_default(), next, issues, pulls })
    }
}

impl PageCache {
    /// The issues as last seen.
    pub fn issues(&self) -> impl Iterator<Item = &IssueSnapshot> {
        self.pages.values().flat_map(|page| &page.issues)
    }

    /// Drops a list's pages, from its first on.
    fn forget(&mut self, first: &str) {
        let mut at = Some(first.to_owned());
        while let Some(page) = at.and_then(|url| self.pages.remove(&url)) {
            at = page.next;
        }
    }
}
