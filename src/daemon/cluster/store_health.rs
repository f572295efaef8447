//! In a cluster: how its store is for this node. One whose wall clock is too far off the store's, that does not know the schema in force, or
//! whose store is full, begins nothing and takes nothing of others until that is over. What runs goes on, and who has what goes by other clocks.

use chrono::{DateTime, TimeDelta, Utc};

use crate::daemon::dependencies::Dependencies;
use crate::daemon::status_format::{ClockSkew, SchemaUnknown, StoreSlow, StoreTrouble};
use crate::domain::cluster::clock_skew::too_far;
use crate::store::port::Servers;

/// What is not well; nothing of it where all is.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon) struct StoreHealth {
    pub skew: Option<ClockSkew>,
    pub schema: Option<SchemaUnknown>,
    pub full: Option<StoreTrouble>,
    pub slow: Option<StoreSlow>,
    /// For as long as the day goes of which it is not known any more what was spent.
    pub begun_anew: Option<StoreTrouble>,
}

/// What is said of a store that has begun anew.
const BEGUN_ANEW: &str = "the cluster's store has begun anew, and what was spent today before that is not known: \
     `budgets.max_cost_per_day` counts from nothing";

impl StoreHealth {
    /// Looks how the store is. Where it cannot be told, what was seen last counts. Gives whether this node begins runs now and did not, or
    /// the other way round.
    pub async fn look(&mut self, deps: &Dependencies) -> bool {
        let Some(most) = deps.max_clock_skew else { return false };
        let (state, clock) = (deps.state.clone(), deps.clock.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let seen = state.store().servers();
            (clock.now(), seen)
        });
        let (now, seen) = match looked.await {
            Ok((now, Ok(Some(seen)))) => (now, seen),
            Ok((_, Ok(None))) => return false,
            Ok((_, Err(error))) => {
                tracing::debug!("it cannot be told how the store is: {error}");
                return false;
            }
            Err(panic) => {
                tracing::error!(%panic, "it cannot be told how the store is");
                return false;
            }
        };
        let next = self.next(seen, most, now);
        let before = std::mem::replace(self, next);
        let after = &*self;
        match (&before.skew, &after.skew) {
            (None, Some(skew)) => tracing::warn!("clock_skew: {skew}; this node begins nothing"),
            (Some(_), None) => tracing::info!("this node's clock is right again"),
            _ => {}
        }
        if let (None, Some(SchemaUnknown { in_force, .. })) = (&before.schema, &after.schema) {
            tracing::warn!(
                "schema_unknown: the cluster has the schema {in_force} in force, which this version does not know; this node begins nothing"
            );
        }
        match (&before.full, &after.full) {
            (None, Some(full)) => tracing::warn!("store_full: {}; this node begins nothing", full.error),
            (Some(_), None) => tracing::info!("the cluster's store has room again"),
            _ => {}
        }
        match (&before.slow, &after.slow) {
            (None, Some(slow)) => tracing::warn!("store_slow: {slow}"),
            (Some(_), None) => tracing::info!("the cluster's store is not slow any more"),
            _ => {}
        }
        before.begins() != after.begins()
    }

    /// What the servers said now, since when it is so.
    fn next(&self, seen: Servers, most: std::time::Duration, now: DateTime<Utc>) -> Self {
        let off = seen.time.and_then(|time| too_far(now, time, seen.under_way, most));
        let skew = off.map(|off| ClockSkew {
            since: self.skew.as_ref().map_or(now, |before| before.since),
            seconds: off.num_seconds(),
            most_seconds: most.as_secs(),
        });
        let schema = seen.later_form.map(|in_force| SchemaUnknown {
            since: self.schema.as_ref().map_or(now, |before| before.since),
            in_force,
        });
        let full = seen.full.map(|error| {
            let since = self.full.as_ref().map_or(now, |before| before.since);
            StoreTrouble { since, error }
        });
        let slow = seen.slow.map(|p99| StoreSlow {
            since: self.slow.as_ref().map_or(now, |before| before.since),
            p99_ms: u64::try_from(p99.as_millis()).unwrap_or(u64::MAX),
        });
        let begun_anew = seen.begun_anew.and_then(|ago| {
            let since = now - TimeDelta::from_std(ago).unwrap_or_default();
            (since.date_naive() == now.date_naive())
                .then(|| StoreTrouble { since, error: BEGUN_ANEW.to_owned() })
        });
        Self { skew, schema, full, slow, begun_anew }
    }

    /// Whether this node begins what it is given.
    pub fn begins(&self) -> bool {
        self.takes() && self.full.is_none()
    }

    /// Whether it may be given anything.
    pub fn takes(&self) -> bool {
        self.skew.is_none() && self.schema.is_none()
    }
}
