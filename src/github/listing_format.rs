//! What is kept of issues between polls, so that an unchanged page (304) still has its content, also after a restart.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::issue::Issue;

/// An issue with what the tracker says around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IssueSnapshot {
    /// The issue. In a listing its body is empty.
    pub issue: Issue,
    /// GitHub's database id.
    pub id: u64,
    /// The author's database id.
    pub author_id: Option<u64>,
    /// When it was opened.
    pub created_at: Option<DateTime<Utc>>,
    /// Title of its milestone.
    pub milestone: Option<String>,
    /// Values of issue fields; `None` = the answer had none of the kind, so they have to be asked for.
    pub fields: Option<Vec<FieldValue>>,
    /// Open issues that block it; `None` = this GitHub has no dependencies.
    pub open_blockers: Option<u64>,
    /// Its open sub-issues; `None` = this GitHub has no sub-issues.
    pub open_sub_issues: Option<u64>,
}

impl IssueSnapshot {
    /// Whether it carries a label; GitHub's labels know no case.
    pub fn has_label(&self, name: &str) -> bool {
        let name = name.trim();
        self.issue.labels.iter().any(|label| label.trim().eq_ignore_ascii_case(name))
    }
}

/// The value of one issue field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FieldValue {
    /// The field's name, as people gave it.
    pub name: String,
    /// `text`, `single_select`, `number`, `date`, …
    pub kind: String,
    /// Text, or the name of the chosen option.
    pub value: String,
}

/// Pages of listings by URL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PageCache {
    pub(super) pages: BTreeMap<String, Page>,
}

/// One page as last seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(super) struct Page {
    pub etag: String,
    pub next: Option<String>,
    pub issues: Vec<IssueSnapshot>,
    /// Numbers of the pull requests on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<u64>,
}
