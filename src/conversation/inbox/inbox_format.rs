//! The inbox of an issue as it is kept.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::remark::{Remark, RemarkId, Standing};

/// Version of the file.
pub const SCHEMA: &str = "agentd.inbox.v1";

/// `repos/OWNER/NAME/inbox/N.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Inbox {
    /// [`SCHEMA`].
    pub schema_version: String,
    /// By id.
    #[serde(default)]
    pub remarks: BTreeMap<RemarkId, Heard>,
    /// What the last briefing told before it was heard in these words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unheard: BTreeMap<RemarkId, Unheard>,
    /// When somebody without permission was last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<DateTime<Utc>>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA.to_owned(),
            remarks: BTreeMap::new(),
            unheard: BTreeMap::new(),
            refused_at: None,
        }
    }
}

/// What becomes of a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is to be told.
    Waiting,
    /// A model got it.
    Told,
    /// It was a command. It is followed once, whatever becomes of it.
    Command,
    /// It is never told.
    Dropped,
}

/// A remark that a run was told before it was heard. When it is heard, it is that run's, if it still says the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unheard {
    /// Tells what it said apart from what it says later.
    pub words: String,
    /// What becomes of it: it waits, or was told.
    pub fate: Fate,
    /// Whether the run that was told it has not ended yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// A remark that was heard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Heard {
    /// As it was heard last. What is finished has no text any more.
    pub remark: Remark,
    /// Database id of its author; 0 = not said.
    #[serde(default)]
    pub author_id: u64,
    /// Whether GitHub says that its author belongs to the repository. It decides nothing but whom to look up first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub member: bool,
    /// Tells its versions apart.
    pub version: String,
    /// What becomes of it.
    pub fate: Fate,
    /// When, by this machine's clock.
    pub heard_at: DateTime<Utc>,
    /// How its author stands; absent = that was not asked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// Whether its author was shown that it was heard, as far as that can be; of a command: whether it was followed or
    /// refused.
    #[serde(default)]
    pub acknowledged: bool,
    /// Whether a run was started with it that has not ended yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// Whether a run that was cut off was told it in a visit that the run which goes on keeps: that one is not told it again. It is told for
    /// good once that one has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
    /// Whether it was said by a command or on this machine: an edit does not change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub said: bool,
    /// Whether it was changed after it was told, and no run knows that yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// Why it was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
