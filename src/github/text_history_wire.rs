//! An issue's text and its changes, as GraphQL gives them.

use chrono::{DateTime, Utc};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IssueWire {
    pub title: String,
    pub body: String,
    pub created_at: DateTime<Utc>,
    pub last_edited_at: Option<DateTime<Utc>>,
    pub user_content_edits: PageWire<EditWire>,
    pub timeline_items: PageWire<RenameWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageWire<T> {
    pub nodes: Vec<Option<T>>,
    pub page_info: PageInfoWire,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageInfoWire {
    pub has_next_page: bool,
    pub end_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EditWire {
    pub id: String,
    pub edited_at: DateTime<Utc>,
    pub editor: Option<ActorWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RenameWire {
    pub created_at: DateTime<Utc>,
    pub previous_title: String,
    pub current_title: String,
    pub actor: Option<ActorWire>,
}

#[derive(Debug, Deserialize)]
pub(in crate::github) struct ActorWire {
    #[serde(rename = "__typename")]
    pub kind: String,
    pub login: String,
}
