//! The history of an issue's text: title and body now, who changed them, and what they were before.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use super::text_history_wire::{ActorWire, IssueWire};
use crate::domain::name::RepoName;

const NEEDS: &str = "issues: read";
/// Pages of a hundred changes that are read at most.
const MOST_PAGES: usize = 10;

/// The texts themselves are left out: each may be as long as a body, and there may be many.
const HISTORY: &str = "query($owner: String!, $name: String!, $number: Int!, $edits: String, $titles: String) { \
    repository(owner: $owner, name: $name) { issue(number: $number) { title body createdAt lastEditedAt \
    userContentEdits(first: 100, after: $edits) { nodes { id editedAt editor { __typename login } } \
    pageInfo { hasNextPage endCursor } } \
    timelineItems(first: 100, after: $titles, itemTypes: [RENAMED_TITLE_EVENT]) { nodes { \
    ... on RenamedTitleEvent { createdAt previousTitle currentTitle actor { __typename login } } } \
    pageInfo { hasNextPage endCursor } } } } }";

/// GitHub calls the whole content after an edit its `diff`.
const EDIT: &str = "query($id: ID!) { node(id: $id) { ... on UserContentEdit { diff deletedAt } } }";

/// An issue's text and its changes, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHistory {
    /// The title now.
    pub title: String,
    /// The body now.
    pub body: String,
    /// When the issue was opened.
    pub created_at: DateTime<Utc>,
    /// Whether the body was ever edited.
    pub edited: bool,
    /// The body's revisions; the first is the one that the issue was opened with, where GitHub has kept it.
    pub edits: Vec<Edit>,
    /// The title's changes.
    pub renames: Vec<Rename>,
    /// Whether that is all; false = there are too many.
    pub whole: bool,
}

/// A revision of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Node id, for its text.
    pub id: String,
    /// Since when it stood there.
    pub at: DateTime<Utc>,
    /// Login; `None` = the account is gone.
    pub by: Option<String>,
}

/// A change of a title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// When.
    pub at: DateTime<Utc>,
    /// Login; `None` = the account is gone.
    pub by: Option<String>,
    /// What it was before.
    pub from: String,
    /// What it was from then on.
    pub to: String,
}

impl Client {
    /// Reads an issue's text and its changes.
    pub async fn text_history(&self, repo: &RepoName, number: u64) -> Result<TextHistory, Error> {
        let doing = format!("reading how the text of issue {number} of {repo} was changed");
        let mut history: Option<TextHistory> = None;
        let (mut edits, mut titles) = (Value::Null, Value::Null);
        for _ in 0..MOST_PAGES {
            let variables = json!({
                "owner": repo.owner(), "name": repo.name(), "number": number, "edits": edits, "titles": titles,
            });
            let data = self.graphql(Query::new(HISTORY, variables, &doing, NEEDS)).await?.whole()?;
            let page: IssueWire = serde_json::from_value(data["repository"]["issue"].clone())
                .map_err(|error| Error::malformed(&doing, error))?;
            let more = page.user_content_edits.page_info.has_next_page
                || page.timeline_items.page_info.has_next_page;
            edits = page.user_content_edits.page_info.end_cursor.clone().map_or(edits, Value::String);
            titles = page.timeline_items.page_info.end_cursor.clone().map_or(titles, Value::String);
            let whole = history.get_or_insert_with(|| page.text());
            whole.take(page);
            if !more {
                whole.whole = true;
                break;
            }
        }
        let mut history = history.ok_or_else(|| Error::malformed(&doing, "no page"))?;
        // GitHub gives the newest edit first. Of two edits in one second the later one comes second.
        history.edits.reverse();
        history.edits.sort_by_key(|edit| edit.at);
        history.renames.sort_by_key(|rename| rename.at);
        Ok(history)
    }

    /// The text of a revision; `None` = it was removed from the history, or this token cannot see it.
    pub async fn text_of_edit(&self, id: &str) -> Result<Option<String>, Error> {
        let doing = "reading an earlier text of an issue";
        let answer = self.graphql(Query::new(EDIT, json!({"id": id}), doing, NEEDS)).await?;
        let data = match answer.whole() {
            Ok(data) => data,
            Err(error) if error.is_absent() || matches!(error.kind, ErrorKind::Forbidden { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let edit = &data["node"];
        Ok(edit["diff"].as_str().filter(|_| edit["deletedAt"].is_null()).map(str::to_owned))
    }
}

impl ActorWire {
    /// The login as the rest of the API has it: GraphQL leaves an App's suffix out, and a person may be called the same.
    pub(super) fn login(self) -> String {
        match self.kind.as_str() {
            "Bot" if !self.login.ends_with("[bot]") => format!("{}[bot]", self.login),
            _ => self.login,
        }
    }
}

impl IssueWire {
    fn text(&self) -> TextHistory {
        TextHistory {
            title: self.title.clone(),
            body: self.body.clone(),
            created_at: self.created_at,
            edited: self.last_edited_at.is_some(),
            edits: Vec::new(),
            renames: Vec::new(),
            whole: false,
        }
    }
}

impl TextHistory {
    fn take(&mut self, page: IssueWire) {
        self.edits.extend(page.user_content_edits.nodes.into_iter().flatten().map(|edit| Edit {
            id: edit.id,
            at: edit.edited_at,
            by: edit.editor.map(ActorWire::login),
        }));
        self.renames.extend(page.timeline_items.nodes.into_iter().flatten().map(|rename| Rename {
            at: rename.created_at,
            by: rename.actor.map(ActorWire::login),
            from: rename.previous_title,
            to: rename.current_title,
        }));
    }
}
