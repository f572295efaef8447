//! What a day has cost so far, as the state directory keeps it: `spend/YYYY-MM-DD.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::money::Money;

/// Version of [`DaySpending`].
pub const DAY_SPENDING_SCHEMA: &str = "agentd.day_spending.v1";

/// One UTC day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaySpending {
    /// [`DAY_SPENDING_SCHEMA`].
    pub schema_version: String,
    /// Cost of requests that ended.
    pub spent: Money,
    /// The worst cases of running requests, and of requests whose process died.
    pub reserved: BTreeMap<Uuid, Money>,
}

impl Default for DaySpending {
    fn default() -> Self {
        Self { schema_version: DAY_SPENDING_SCHEMA.to_owned(), spent: Money::ZERO, reserved: BTreeMap::new() }
    }
}

impl DaySpending {
    /// Spent and set aside.
    pub fn total(&self) -> Money {
        self.reserved.values().fold(self.spent, |sum, held| sum + *held)
    }
}
