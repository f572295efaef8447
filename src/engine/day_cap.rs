//! The cap on what all runs of one UTC day may cost, held across processes in the store (D87).
//!
//! Before a request its worst case is reserved. Afterwards the reservation becomes the real cost. The reservation of a
//! process that died stays, because the money may have been spent.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use uuid::Uuid;

use super::day_cap_format::{DAY_SPENDING_SCHEMA, DaySpending};
use crate::domain::money::Money;
use crate::store::Store;
use crate::store::port::{Cell, StoreError};

/// The cap and where the day's spending is kept.
#[derive(Debug, Clone)]
pub struct DayCap {
    store: Arc<dyn Store>,
    cap: Money,
}

/// Money that is reserved for one request. If this is dropped without being charged, the money stays reserved.
#[derive(Debug)]
#[must_use = "a reservation that is not confirmed counts as spent"]
pub struct Reservation {
    day: NaiveDate,
    id: Uuid,
}

/// Why nothing was reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DayCapError {
    /// The day's money does not cover the request's worst case.
    #[error(
        "the cap of {cap} a day (UTC) is used up: {left} is left, and the next request may cost up to {wanted}"
    )]
    UsedUp {
        /// `budgets.max_cost_per_day`.
        cap: Money,
        /// Not spent and not set aside.
        left: Money,
        /// The request's worst case.
        wanted: Money,
    },
    /// What was spent today is not known, so nothing may be.
    #[error("what was spent today cannot be told: {0}")]
    Unknown(String),
}

impl From<StoreError> for DayCapError {
    fn from(error: StoreError) -> Self {
        Self::Unknown(match error {
            StoreError::Failed { action: "read", place, words } => format!("{place}: {words}"),
            other => other.to_string(),
        })
    }
}

impl DayCap {
    /// A cap whose days are kept in `store`, one cell each.
    pub fn new(store: Arc<dyn Store>, cap: Money) -> Self {
        Self { store, cap }
    }

    /// Reserves `worst`, or says that the day's money does not cover it. Blocks.
    pub fn reserve(&self, worst: Money, now: DateTime<Utc>) -> Result<Reservation, DayCapError> {
        let reservation = Reservation { day: now.date_naive(), id: Uuid::new_v4() };
        self.change(reservation.day, |day| {
            let left = self.cap.saturating_sub(day.total());
            if worst > left {
                return Err(DayCapError::UsedUp { cap: self.cap, left, wanted: worst });
            }
            day.reserved.insert(reservation.id, worst);
            Ok(())
        })?;
        Ok(reservation)
    }

    /// Turns a reservation into the cost of the request, on the day of the reservation. Blocks.
    pub fn confirm(&self, reservation: &Reservation, cost: Money) -> Result<(), DayCapError> {
        self.change(reservation.day, |day| {
            day.reserved.remove(&reservation.id);
            day.spent += cost;
            Ok(())
        })
    }

    /// Reserves what a launch has cost so far, in place of its earlier amount. False = the day's money does not cover
    /// it together with what others spent and reserved. Blocks.
    pub fn hold(&self, id: (NaiveDate, Uuid), so_far: Money) -> Result<bool, DayCapError> {
        let mut covered = true;
        self.change(id.0, |day| {
            day.reserved.insert(id.1, so_far);
            covered = day.total() <= self.cap;
            Ok(())
        })?;
        Ok(covered)
    }

    /// [`DayCap::hold`] off the runtime's threads.
    pub async fn hold_for(self: &Arc<Self>, held: &Reservation, so_far: Money) -> Result<bool, DayCapError> {
        let (cap, id) = (Arc::clone(self), (held.day, held.id));
        off_thread(move || cap.hold(id, so_far)).await
    }

    /// That the day's money does not cover a request.
    pub fn used_up(&self, left: Money, wanted: Money) -> DayCapError {
        DayCapError::UsedUp { cap: self.cap, left, wanted }
    }

    /// Spent and set aside on the day of `now`. Blocks.
    pub fn used(&self, now: DateTime<Utc>) -> Result<Money, DayCapError> {
        let cell = Cell::Spend(now.date_naive());
        let (_, value) = self.store.get(&cell)?;
        Ok(self.read(&cell, value)?.total())
    }

    /// What is left of the day of `now`, off the runtime's threads.
    pub async fn left_for(self: &Arc<Self>, now: DateTime<Utc>) -> Result<Money, DayCapError> {
        let day = Arc::clone(self);
        off_thread(move || Ok(day.cap.saturating_sub(day.used(now)?))).await
    }

    /// [`DayCap::reserve`] off the runtime's threads.
    pub async fn reserve_for(
        self: &Arc<Self>,
        worst: Money,
        now: DateTime<Utc>,
    ) -> Result<Reservation, DayCapError> {
        let cap = Arc::clone(self);
        off_thread(move || cap.reserve(worst, now)).await
    }

    /// [`DayCap::confirm`] off the runtime's threads.
    pub async fn confirm_with(
        self: &Arc<Self>,
        reservation: Reservation,
        cost: Money,
    ) -> Result<(), DayCapError> {
        let cap = Arc::clone(self);
        off_thread(move || cap.confirm(&reservation, cost)).await
    }

    /// Reads, changes and writes a day, again where another process did so in between.
    fn change(
        &self,
        day: NaiveDate,
        mut change: impl FnMut(&mut DaySpending) -> Result<(), DayCapError>,
    ) -> Result<(), DayCapError> {
        let cell = Cell::Spend(day);
        self.store.update(&cell, |value| {
            let mut spending = self.read(&cell, value)?;
            change(&mut spending)?;
            let text = serde_json::to_string(&spending);
            text.map(Some).map_err(|error| DayCapError::Unknown(error.to_string()))
        })
    }

    /// A day without a value has no spending yet.
    fn read(&self, cell: &Cell, value: Option<String>) -> Result<DaySpending, DayCapError> {
        let Some(value) = value else { return Ok(DaySpending::default()) };
        let unreadable =
            |words: String| DayCapError::Unknown(format!("{}: {words}", self.store.place(cell).display()));
        let day: DaySpending = serde_json::from_str(&value).map_err(|error| unreadable(error.to_string()))?;
        if day.schema_version != DAY_SPENDING_SCHEMA {
            let version = &day.schema_version;
            return Err(unreadable(format!("its version is {version}, which this agentd does not know")));
        }
        Ok(day)
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DayCapError> + Send + 'static,
) -> Result<T, DayCapError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(DayCapError::Unknown(panic.to_string())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::store::run_dir::StateDir;
    use crate::sys::files;

    #[test]
    fn two_launches_at_once_do_not_both_use_the_rest_of_the_day() {
        let dir = tempfile::tempdir().unwrap();
        let cap = cap(dir.path(), 100);
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let (one, two) = (cap.reserve(Money::ZERO, now).unwrap(), cap.reserve(Money::ZERO, now).unwrap());
        let hold = |of: &Reservation, micros| cap.hold((of.day, of.id), Money::from_micros(micros)).unwrap();
        assert!(hold(&one, 60) && hold(&two, 40));
        assert!(!hold(&two, 41), "together they are over the cap, and neither is alone");
        cap.confirm(&two, Money::from_micros(41)).unwrap();
        assert!(!hold(&one, 60) && hold(&one, 59));
    }

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn cap(folder: &Path, micros: u64) -> DayCap {
        let state = StateDir::new(folder.to_owned());
        DayCap::new(Arc::clone(state.store()), Money::from_micros(micros))
    }

    #[test]
    fn what_is_set_aside_counts_until_it_is_confirmed_and_a_day_begins_empty() {
        let folder = tempfile::tempdir().unwrap();
        let cap = cap(folder.path(), 100);
        let money = Money::from_micros;
        let first = cap.reserve(money(60), noon()).unwrap();
        assert_eq!(
            cap.reserve(money(50), noon()).unwrap_err(),
            DayCapError::UsedUp { cap: money(100), left: money(40), wanted: money(50) }
        );
        cap.confirm(&first, money(10)).unwrap();
        let dropped = cap.reserve(money(90), noon()).unwrap();
        drop(dropped);
        assert_eq!(cap.used(noon()).unwrap(), money(100), "an unconfirmed reservation stays");
        let tomorrow = noon() + TimeDelta::days(1);
        drop(cap.reserve(money(100), tomorrow).unwrap());
        assert_eq!(cap.used(tomorrow).unwrap(), money(100));
    }

    #[test]
    fn a_file_that_cannot_be_read_stops_spending() {
        let folder = tempfile::tempdir().unwrap();
        let cap = cap(folder.path(), 100);
        files::create_private_dir(&folder.path().join("spend")).unwrap();
        files::write_private(&folder.path().join("spend/2023-11-14.json"), b"{").unwrap();
        let refused = cap.reserve(Money::from_micros(1), noon()).unwrap_err();
        assert!(matches!(&refused, DayCapError::Unknown(words) if words.contains("2023-11-14")), "{refused}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Each worker stands for a process: it has its own handle, and only the directory is common.
        #[test]
        fn parallel_reservations_never_exceed_the_cap(
            limit in 50_u64..500,
            workers in prop::collection::vec(prop::collection::vec((1_u64..60, 0_u64..=100), 1..6), 2..6),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let spent: u64 = std::thread::scope(|scope| {
                let running: Vec<_> = workers.iter().map(|requests| {
                    let cap = cap(folder.path(), limit);
                    scope.spawn(move || {
                        let mut spent = 0;
                        for (worst, part) in requests {
                            let Ok(held) = cap.reserve(Money::from_micros(*worst), noon()) else { continue };
                            assert!(cap.used(noon()).unwrap() <= Money::from_micros(limit));
                            let cost = worst * part / 100;
                            cap.confirm(&held, Money::from_micros(cost)).unwrap();
                            spent += cost;
                        }
                        spent
                    })
                }).collect();
                running.into_iter().map(|worker| worker.join().unwrap()).sum()
            });
            prop_assert!(spent <= limit);
            prop_assert_eq!(cap(folder.path(), limit).used(noon()).unwrap(), Money::from_micros(spent));
        }
    }
}
