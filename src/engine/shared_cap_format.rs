//! What a day, or an issue, has cost so far, as the state directory keeps it: `spend/YYYY-MM-DD.json`, and
//! `repos/OWNER/NAME/spend/ISSUE.json`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::money::Money;
use crate::domain::run::RunId;

/// Version of a day's [`Spending`].
pub const DAY_SPENDING_SCHEMA: &str = "agentd.day_spending.v1";
/// Version of an issue's [`Spending`].
pub const ISSUE_SPENDING_SCHEMA: &str = "agentd.issue_spending.v1";

/// One UTC day, or one issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spending {
    /// [`DAY_SPENDING_SCHEMA`] or [`ISSUE_SPENDING_SCHEMA`].
    pub schema_version: String,
    /// Cost of requests that ended.
    pub spent: Money,
    /// The worst cases of running requests, and of requests whose process died.
    pub reserved: BTreeMap<Uuid, Money>,
    /// What the requests of an issue's runs cost, by run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_run: BTreeMap<RunId, Money>,
    /// What people gave an issue beyond its cap, by what asked for it: a comment, or a command on this machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, Extension>,
    /// The cap at which a request of an issue was refused. As long as the cap is no higher, nothing is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_up_at: Option<Money>,
}

/// Money that a person gave an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Extension {
    /// Who: a login, or `local:UID`.
    pub by: String,
    /// How much.
    pub amount: Money,
    /// When.
    pub at: DateTime<Utc>,
    /// Whether a comment asked for it. Comments give `budgets.max_extension` at most, all together.
    pub by_comment: bool,
}

impl Spending {
    /// Nothing yet.
    pub fn none(schema_version: &str) -> Self {
        Self {
            schema_version: schema_version.to_owned(),
            spent: Money::ZERO,
            reserved: BTreeMap::new(),
            by_run: BTreeMap::new(),
            extensions: BTreeMap::new(),
            used_up_at: None,
        }
    }

    /// Spent and set aside.
    pub fn total(&self) -> Money {
        self.spent + self.set_aside()
    }

    /// What is set aside for requests.
    pub fn set_aside(&self) -> Money {
        self.reserved.values().copied().sum()
    }

    /// What people gave beyond the cap.
    pub fn given(&self) -> Money {
        self.extensions.values().map(|given| given.amount).sum()
    }

    /// What comments gave beyond the cap.
    pub fn given_by_comments(&self) -> Money {
        self.extensions.values().filter(|given| given.by_comment).map(|given| given.amount).sum()
    }
}
