//! The parts of GitHub's JSON that agentd reads. Everything may be absent, because a changed field must not stop a
//! poll.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `null` reads as the default, like an absent field.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Deserialize)]
pub(super) struct IssueWire {
    pub number: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub id: u64,
    pub node_id: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    pub html_url: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub labels: Vec<LabelWire>,
    pub user: Option<UserWire>,
    pub milestone: Option<MilestoneWire>,
    pub created_at: Option<DateTime<Utc>>,
    pub updated_at: Option<String>,
    pub pull_request: Option<Value>,
    pub issue_field_values: Option<Vec<FieldValueWire>>,
    pub sub_issues_summary: Option<SubIssuesWire>,
    pub issue_dependencies_summary: Option<DependenciesWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct MilestoneWire {
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
}

/// GitHub gives labels as objects; some old answers as bare names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum LabelWire {
    Name(String),
    Object {
        #[serde(default, deserialize_with = "nullable")]
        name: String,
    },
}

impl LabelWire {
    pub fn name(self) -> String {
        match self {
            Self::Name(name) | Self::Object { name } => name,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitWire {
    pub author: Option<UserWire>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct UserWire {
    #[serde(default, deserialize_with = "nullable")]
    pub login: String,
    #[serde(default, deserialize_with = "nullable")]
    pub id: u64,
    #[serde(rename = "type", default, deserialize_with = "nullable")]
    pub kind: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct FieldValueWire {
    pub issue_field_name: Option<String>,
    /// Some versions say `name`.
    pub name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub data_type: String,
    #[serde(default)]
    pub value: Value,
    pub single_select_option: Option<OptionWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OptionWire {
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct SubIssuesWire {
    #[serde(default, deserialize_with = "nullable")]
    pub total: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub completed: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct DependenciesWire {
    #[serde(default, deserialize_with = "nullable")]
    pub blocked_by: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventWire {
    #[serde(default)]
    pub id: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub event: String,
    pub actor: Option<UserWire>,
    pub label: Option<LabelWire>,
    pub created_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PermissionWire {
    #[serde(default, deserialize_with = "nullable")]
    pub permission: String,
    #[serde(default, deserialize_with = "nullable")]
    pub role_name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct AppWire {
    #[serde(default, deserialize_with = "nullable")]
    pub slug: String,
    #[serde(default, deserialize_with = "nullable")]
    pub id: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommentWire {
    pub id: u64,
    pub node_id: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    pub html_url: Option<String>,
    /// The issue's or pull request's.
    pub issue_url: Option<String>,
    pub user: Option<UserWire>,
    #[serde(default, deserialize_with = "nullable")]
    pub author_association: String,
    pub created_at: Option<DateTime<Utc>>,
    pub updated_at: Option<DateTime<Utc>>,
    pub performed_via_github_app: Option<AppWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReactionWire {
    pub user: Option<UserWire>,
    #[serde(default, deserialize_with = "nullable")]
    pub content: String,
    pub created_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RepositoryWire {
    #[serde(default, deserialize_with = "nullable")]
    pub full_name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub default_branch: String,
    #[serde(default, deserialize_with = "nullable")]
    pub private: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub archived: bool,
    pub clone_url: Option<String>,
    pub permissions: Option<PermissionsWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PermissionsWire {
    #[serde(default)]
    pub admin: bool,
    #[serde(default)]
    pub maintain: bool,
    #[serde(default)]
    pub push: bool,
    #[serde(default)]
    pub triage: bool,
    #[serde(default)]
    pub pull: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct PullWire {
    pub number: u64,
    pub node_id: Option<String>,
    pub html_url: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub draft: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    pub merged_at: Option<DateTime<Utc>>,
    pub updated_at: Option<String>,
    pub mergeable: Option<bool>,
    pub head: Option<SideWire>,
    pub base: Option<SideWire>,
    pub user: Option<UserWire>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SideWire {
    #[serde(rename = "ref", default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub sha: String,
    /// `null` where it was in a fork that is deleted.
    pub repo: Option<RepositoryWire>,
}

#[derive(Deserialize)]
pub(super) struct AccessTokenWire {
    pub token: String,
    pub expires_at: Option<DateTime<Utc>>,
}
