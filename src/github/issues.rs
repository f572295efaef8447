//! Issues: one at a time, and who last put a label on.

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::json;

use super::account::Actor;
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::listing_format::{FieldValue, IssueSnapshot};
use super::request::{Ask, Reply};
use super::rest_wire::{EventWire, FieldValueWire, IssueWire};
use crate::domain::issue::{Issue, IssueKey};
use crate::domain::name::RepoName;

/// What a conditional read gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Fetched<T> {
    /// As before (304, costs nothing).
    Unchanged,
    /// The content, and the tag for the next time.
    Fresh(T, Option<String>),
}

impl Client {
    /// Reads one issue, closed ones too (`issue.open`). A pull request is [`ErrorKind::IsPullRequest`], a missing issue
    /// `NotFound`, a deleted one `Gone`, a transferred one `Moved`.
    pub async fn issue(&self, repo: &RepoName, number: u64) -> Result<IssueSnapshot, Error> {
        match self.issue_if_changed(repo, number, None).await? {
            Fetched::Fresh(issue, _) => Ok(issue),
            Fetched::Unchanged => Err(Error::malformed(
                &format!("reading issue {number} of {repo}"),
                "304 to an unconditional request",
            )),
        }
    }

    /// Reads one issue unless it is as it was at `etag`.
    pub async fn issue_if_changed(
        &self,
        repo: &RepoName,
        number: u64,
        etag: Option<&str>,
    ) -> Result<Fetched<IssueSnapshot>, Error> {
        let doing = format!("reading issue {number} of {repo}");
        let ask =
            Ask::get(self.url(&format!("/repos/{repo}/issues/{number}")), &doing, "issues: read").etag(etag);
        let reply: Reply = self.send(ask).await?;
        if reply.unchanged() {
            return Ok(Fetched::Unchanged);
        }
        let wire: IssueWire = reply.json()?;
        if wire.pull_request.is_some() {
            return Err(Error::new(ErrorKind::IsPullRequest, doing, "the issue has a pull_request member"));
        }
        if wire.number != number {
            let detail = format!("redirected to issue {}", wire.number);
            let to = wire.html_url.as_deref().and_then(named);
            return Err(Error::new(ErrorKind::Moved { to }, doing, detail));
        }
        if wire.state.is_empty() {
            return Err(Error::malformed(&doing, "the issue has no state"));
        }
        Ok(Fetched::Fresh(snapshot(repo, wire), reply.etag()))
    }

    /// Closes an issue as completed; one that is closed stays as it is.
    pub async fn close_issue(&self, repo: &RepoName, number: u64) -> Result<(), Error> {
        let doing = format!("closing issue {number} of {repo}");
        let body = json!({"state": "closed", "state_reason": "completed"});
        let url = self.url(&format!("/repos/{repo}/issues/{number}"));
        // Closing twice is closing once.
        let ask = Ask::write(Method::PATCH, url, Some(body), doing, "issues: write").repeatable();
        self.send(ask).await.map(drop)
    }

    /// Who put `label` on the issue last; `None` = nobody is known to have.
    pub async fn last_labelling(
        &self,
        repo: &RepoName,
        number: u64,
        label: &str,
    ) -> Result<Option<Labelling>, Error> {
        let doing = format!("reading who labelled issue {number} of {repo}");
        let path = format!("/repos/{repo}/issues/{number}/events?per_page=100");
        let events: Vec<EventWire> = self.pages(&path, &doing, "issues: read").await?;
        let newest = events.into_iter().rev().find_map(|event| {
            let name = event.label?.name();
            (event.event == "labeled" && name.trim().eq_ignore_ascii_case(label.trim())).then_some(
                Labelling {
                    event: event.id,
                    at: event.created_at,
                    by: event.actor.map(Actor::from).filter(|actor| !actor.login.is_empty()),
                },
            )
        });
        Ok(newest)
    }
}

/// A label's being put on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelling {
    /// Id of the event: another one = it was put on again.
    pub event: u64,
    /// When; `None` = GitHub does not say.
    pub at: Option<DateTime<Utc>>,
    /// Who did it; `None` = GitHub does not say.
    pub by: Option<Actor>,
}

/// An issue as people name it, from the address of its page.
fn named(url: &str) -> Option<String> {
    let mut parts = url.trim_end_matches('/').rsplit('/');
    let number: u64 = parts.next()?.parse().ok()?;
    parts.next().filter(|part| *part == "issues")?;
    let (name, owner) = (parts.next()?, parts.next()?);
    RepoName::parse(&format!("{owner}/{name}")).ok().map(|repo| format!("{repo}#{number}"))
}

/// Our form of GitHub's issue.
pub(super) fn snapshot(repo: &RepoName, wire: IssueWire) -> IssueSnapshot {
    let author_id = wire.user.as_ref().map(|user| user.id).filter(|id| *id > 0);
    IssueSnapshot {
        id: wire.id,
        author_id,
        created_at: wire.created_at,
        milestone: wire.milestone.map(|milestone| milestone.title).filter(|title| !title.is_empty()),
        fields: wire.issue_field_values.map(|values| values.into_iter().filter_map(field_value).collect()),
        open_blockers: wire.issue_dependencies_summary.map(|summary| summary.blocked_by),
        open_sub_issues: wire
            .sub_issues_summary
            .map(|summary| summary.total.saturating_sub(summary.completed)),
        issue: Issue {
            repo: repo.clone(),
            key: IssueKey::Number(wire.number),
            title: wire.title,
            body: wire.body,
            url: wire.html_url.or_else(|| Some(format!("https://github.com/{repo}/issues/{}", wire.number))),
            node_id: wire.node_id,
            open: wire.state == "open",
            labels: wire
                .labels
                .into_iter()
                .map(super::rest_wire::LabelWire::name)
                .filter(|name| !name.trim().is_empty())
                .collect(),
            author: wire.user.map(|user| user.login).filter(|login| !login.is_empty()),
            updated_at: wire.updated_at,
        },
    }
}

/// Our form of a field's value; one without a name cannot be asked for.
pub(super) fn field_value(wire: FieldValueWire) -> Option<FieldValue> {
    let name = wire.issue_field_name.or(wire.name)?;
    let value = match (wire.single_select_option, wire.value) {
        (Some(option), _) => option.name,
        (None, serde_json::Value::String(text)) => text,
        (None, serde_json::Value::Null) => String::new(),
        (None, other) => other.to_string(),
    };
    Some(FieldValue { name, kind: wire.data_type, value })
}
