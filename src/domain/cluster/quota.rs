//! Limits of GitHub that one node met, for all that ask with the same credential.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of [`QuotaCell`].
pub const QUOTA_SCHEMA: &str = "agentd.cell.quota.v1";

/// `quota.CREDENTIAL`: the limits that were met last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct QuotaCell {
    /// [`QUOTA_SCHEMA`].
    pub schema_version: String,
    /// At most one a resource.
    pub limits: Vec<QuotaLimit>,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A limit that holds requests back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct QuotaLimit {
    /// Of which resource's budget; `None` = all requests, by the secondary limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Until when by GitHub's clock, where its answer had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// How long from when it was met, in milliseconds: for who does not know GitHub's clock.
    pub wait_ms: u64,
    /// How many secondary limits came in a row.
    #[serde(default)]
    pub in_a_row: u32,
}

impl Default for QuotaCell {
    fn default() -> Self {
        Self { schema_version: QUOTA_SCHEMA.to_owned(), limits: Vec::new(), rest: Map::new() }
    }
}

impl QuotaCell {
    /// The cell with limits that were met now: of two of one resource the longer one stays. `None`: it says all of it.
    pub fn with(&self, met: &[QuotaLimit]) -> Option<Self> {
        let mut next = self.clone();
        for limit in met {
            match next.limits.iter_mut().find(|known| known.resource == limit.resource) {
                // What has no time by GitHub's clock counts from when it is told.
                Some(known) if known.until.is_some() && limit.until <= known.until => {}
                Some(known) => *known = limit.clone(),
                None => next.limits.push(limit.clone()),
            }
        }
        (next != *self).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_longer_limit_of_a_resource_stays_and_nothing_is_said_twice() {
        let now = DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000);
        let limit = |resource: Option<&str>, seconds: Option<i64>| QuotaLimit {
            resource: resource.map(str::to_owned),
            until: seconds.map(|seconds| now + TimeDelta::seconds(seconds)),
            wait_ms: 1000,
            in_a_row: 1,
        };
        let cell = QuotaCell::default().with(&[limit(None, Some(60))]).unwrap();
        assert_eq!(cell.with(&[limit(None, Some(60))]), None);
        assert_eq!(cell.with(&[limit(None, Some(5))]), None, "the longer one stays");
        assert_eq!(cell.with(&[limit(None, None)]), None);
        let both = cell.with(&[limit(Some("core"), Some(5)), limit(None, Some(61))]).unwrap();
        assert_eq!(both.limits, [limit(None, Some(61)), limit(Some("core"), Some(5))]);
    }
}
