//! Reviews and their comments as GitHub's JSON has them.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::rest_wire::{UserWire, nullable};
use super::text_history_wire::ActorWire;

#[derive(Debug, Deserialize)]
pub(super) struct ReviewCommentWire {
    pub id: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub author_association: String,
    pub node_id: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    pub html_url: Option<String>,
    pub pull_request_url: Option<String>,
    pub pull_request_review_id: Option<u64>,
    pub in_reply_to_id: Option<u64>,
    pub user: Option<UserWire>,
    pub created_at: DateTime<Utc>,
    pub updated_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReviewWire {
    pub id: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub author_association: String,
    pub node_id: Option<String>,
    pub user: Option<UserWire>,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    pub html_url: Option<String>,
    /// Absent as long as it was not sent.
    pub submitted_at: Option<DateTime<Utc>>,
}

/// A remark by its GraphQL id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeWire {
    pub id: String,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    pub last_edited_at: Option<DateTime<Utc>>,
    pub editor: Option<ActorWire>,
    #[serde(default, deserialize_with = "nullable")]
    pub is_minimized: bool,
    pub state: Option<String>,
}
