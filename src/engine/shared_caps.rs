//! All caps that a session shares with others, asked at once and off the runtime's threads. What a request has cost is written while the
//! session goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::task::{JoinError, JoinHandle};

use super::shared_cap::{CapLook, Lasts, Reservation, SharedCap, WHEN_DAY, unknown, when};
use super::shortage::{SharedCapError, Wanted};
use crate::domain::budget::IssueBudget;
use crate::domain::money::Money;
use crate::store::port::Cell;

/// How long the last change waits for the next one before it goes to the disk by itself.
const MOMENT: Duration = Duration::from_millis(100);

/// Every cap that a session shares with others. Its methods work off the runtime's threads.
#[derive(Debug, Clone, Default)]
pub struct SharedCaps {
    caps: Arc<Vec<SharedCap>>,
    /// What is being confirmed meanwhile.
    confirming: Arc<Mutex<Vec<JoinHandle<Confirmed>>>>,
    /// What a loss of power may take back.
    unsynced: Arc<Mutex<Vec<Cell>>>,
    /// How often something was reserved or confirmed.
    changes: Arc<AtomicU64>,
}

type Confirmed = Result<Vec<IssueBudget>, SharedCapError>;

/// What is reserved of each of them for one request.
#[derive(Debug, Default)]
#[must_use = "a reservation that is not confirmed counts as spent"]
pub struct Reservations(Vec<Reservation>);

impl FromIterator<SharedCap> for SharedCaps {
    fn from_iter<T: IntoIterator<Item = SharedCap>>(caps: T) -> Self {
        Self {
            caps: Arc::new(caps.into_iter().collect()),
            confirming: Arc::default(),
            unsynced: Arc::default(),
            changes: Arc::default(),
        }
    }
}

impl SharedCaps {
    /// What the tightest of them leaves, `None` = there is no cap; and what is new of an issue's cap.
    pub async fn look(
        &self,
        now: DateTime<Utc>,
    ) -> Result<(Option<Money>, Vec<IssueBudget>), SharedCapError> {
        self.off_thread(move |caps| looked_at(caps, now)).await
    }

    /// Reserves `worst` of each, or of none.
    pub async fn reserve(&self, worst: Money, now: DateTime<Utc>) -> Result<Reservations, SharedCapError> {
        self.off_thread(move |caps| reserved(caps, |cap| cap.reserve(worst, now))).await
    }

    /// Looks at each of them and reserves of each what `decide` says, in one go. `decide` is given what [`SharedCaps::look`]
    /// gives; `None` from it = nothing is reserved. It is asked again where others were quicker.
    pub(super) async fn reserve_of_left<T, E>(
        &self,
        now: DateTime<Utc>,
        mut decide: impl FnMut(Option<Money>, Vec<IssueBudget>) -> Result<(T, Option<Money>), E> + Send + 'static,
    ) -> Result<(T, Reservations), E>
    where
        T: Send + 'static,
        E: From<SharedCapError> + Send + 'static,
    {
        if self.caps.is_empty() {
            return Ok((decide(None, Vec::new())?.0, Reservations::default()));
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        let caps = Arc::clone(&self.caps);
        let work = move || loop {
            let looked = looks(&caps, now)?;
            let (left, news) = told(&caps, &looked);
            let (decided, wanted) = decide(left, news)?;
            let Some(wanted) = wanted else { return Ok((decided, Reservations::default())) };
            let mut looked = looked.into_iter();
            let held = reserved(&caps, |cap| match looked.next() {
                Some(looked) => cap.reserve_of(looked, wanted),
                None => cap.reserve(wanted, now),
            });
            match held {
                Ok(held) => return Ok((decided, held)),
                Err(SharedCapError::NotCovered(_)) => {}
                Err(error) => return Err(error.into()),
            }
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(lost(&panic).into()))
    }

    /// Turns what was reserved into the cost of the request. Gives what is new of an issue's cap then.
    pub async fn confirm(&self, held: Reservations, cost: Money) -> Confirmed {
        self.off_thread(move |caps| confirmed(caps, &held, cost, Lasts::Always)).await
    }

    /// Does that while the caller goes on. Until it is done the reservation counts as spent, as it does if the process dies.
    /// [`SharedCaps::wait_confirmed`] says what came of it. The next reservation makes it outlive a loss of power as well, or
    /// [`SharedCaps::sync`], or that it stays the last change for a moment.
    pub(super) fn confirm_meanwhile(&self, held: Reservations, cost: Money) {
        if self.caps.is_empty() {
            return;
        }
        let own = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let news = confirmed(&own.caps, &held, cost, Lasts::ForNow);
            let mut unsynced = own.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            for Reservation { cell, .. } in held.0 {
                if !unsynced.contains(&cell) {
                    unsynced.push(cell);
                }
            }
            news
        });
        self.confirming().push(work);
        let now = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let own = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(MOMENT).await;
            if own.changes.load(Ordering::Relaxed) == now {
                own.sync().await;
            }
        });
    }

    /// Waits until what was confirmed outlives a loss of power.
    pub(super) async fn sync(&self) {
        let cells = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        if cells.is_empty() {
            return;
        }
        let synced = self.off_thread(move |caps| {
            let Some(cap) = caps.first() else { return Ok(()) };
            let sync = |cell: &Cell| cap.store.sync_cell(cell).map_err(|error| unknown(when(cell), error));
            cells.iter().try_for_each(sync)
        });
        if let Err(error) = synced.await {
            tracing::warn!(%error, "a loss of power now would count a request as dearer than it was");
        }
    }

    /// Waits until everything is confirmed. Gives what is new of an issue's cap since.
    pub(super) async fn wait_confirmed(&self) -> Confirmed {
        let mut news = Vec::new();
        let confirming = std::mem::take(&mut *self.confirming());
        for confirming in confirming {
            news.extend(confirming.await.unwrap_or_else(|panic| Err(lost(&panic)))?);
        }
        Ok(news)
    }

    fn confirming(&self) -> MutexGuard<'_, Vec<JoinHandle<Confirmed>>> {
        self.confirming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves what a launch has cost so far, and beside it what is `under_way` as far as that is left. `Err(NotCovered)` = one of
    /// them does not cover what it has cost.
    pub async fn hold(
        &self,
        held: &Arc<Reservations>,
        (so_far, under_way): (Money, Money),
        now: DateTime<Utc>,
    ) -> Result<(), SharedCapError> {
        let held = Arc::clone(held);
        self.off_thread(move |caps| {
            let mut refused = None;
            for (cap, reservation) in caps.iter().zip(&held.0) {
                if !cap.hold(reservation, so_far, under_way)? {
                    refused = Some(cap.refuse(so_far.into(), Some(reservation), now)?);
                }
            }
            refused.map_or(Ok(()), Err)
        })
        .await
    }

    /// Reserves for a launch what `decide` says, given what the tightest of them leaves beside others; `None` = there is no cap. `None`
    /// from it = nothing changes. It is asked again where others were quicker.
    pub(super) async fn hold_of_left<T: Default + Send + 'static>(
        &self,
        held: &Arc<Reservations>,
        mut decide: impl FnMut(Option<Money>) -> Option<(T, Money)> + Send + 'static,
    ) -> Result<Option<T>, SharedCapError> {
        if self.caps.is_empty() {
            return Ok(decide(None).map(|(decided, _)| decided));
        }
        let held = Arc::clone(held);
        self.off_thread(move |caps| {
            loop {
                let beside = || caps.iter().zip(&held.0);
                let left =
                    beside().map(|(cap, held)| cap.left_beside(held)).collect::<Result<Vec<_>, _>>()?;
                let Some((decided, amount)) = decide(left.into_iter().min()) else { return Ok(None) };
                let mut covered = true;
                for (cap, held) in beside() {
                    covered &= cap.hold_all(held, amount)?;
                }
                if covered {
                    return Ok(Some(decided));
                }
            }
        })
        .await
    }

    /// Why a launch may not cost so much: by the first cap that does not cover it beside what others spent and reserved. An issue's
    /// cap remembers it. `None` = all of them cover it.
    pub(super) async fn refusal_of(
        &self,
        held: &Arc<Reservations>,
        wanted: Money,
        now: DateTime<Utc>,
    ) -> Result<Option<SharedCapError>, SharedCapError> {
        let held = Arc::clone(held);
        self.off_thread(move |caps| {
            for (cap, held) in caps.iter().zip(&held.0) {
                if wanted > cap.left_beside(held)? {
                    return cap.refuse(wanted.into(), Some(held), now).map(Some);
                }
            }
            Ok(None)
        })
        .await
    }

    /// Why a request that asks for `wanted` is refused: by the first cap that does not cover it. An issue's cap remembers
    /// it. `None` = all of them cover it.
    pub async fn refusal(
        &self,
        wanted: Wanted,
        now: DateTime<Utc>,
    ) -> Result<Option<SharedCapError>, SharedCapError> {
        self.off_thread(move |caps| {
            for cap in caps {
                if wanted.total() > cap.left(now)? {
                    return cap.refuse(wanted, None, now).map(Some);
                }
            }
            Ok(None)
        })
        .await
    }

    /// Whether every cap would cover so much if what is set aside of it came back. False = there is no cap.
    pub(super) async fn may_come_back(
        &self,
        wanted: Money,
        now: DateTime<Utc>,
    ) -> Result<bool, SharedCapError> {
        self.off_thread(move |caps| {
            for cap in caps {
                if wanted > cap.left_of_spent(now)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn off_thread<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&[SharedCap]) -> Result<T, SharedCapError> + Send + 'static,
    ) -> Result<T, SharedCapError> {
        if self.caps.is_empty() {
            return Ok(T::default());
        }
        let caps = Arc::clone(&self.caps);
        let done = tokio::task::spawn_blocking(move || work(&caps)).await;
        done.unwrap_or_else(|panic| Err(lost(&panic)))
    }
}

fn lost(panic: &JoinError) -> SharedCapError {
    SharedCapError::Unknown(WHEN_DAY, panic.to_string())
}

/// Turns what was reserved of each into the cost of the request. Blocks.
fn confirmed(caps: &[SharedCap], held: &Reservations, cost: Money, lasts: Lasts) -> Confirmed {
    let mut news = Vec::new();
    for (cap, reservation) in caps.iter().zip(&held.0) {
        news.extend(cap.confirm_so(reservation, cost, lasts)?);
    }
    Ok(news)
}

/// What the tightest of them leaves, and what is new of an issue's. Blocks.
fn looked_at(
    caps: &[SharedCap],
    now: DateTime<Utc>,
) -> Result<(Option<Money>, Vec<IssueBudget>), SharedCapError> {
    Ok(told(caps, &looks(caps, now)?))
}

fn looks(caps: &[SharedCap], now: DateTime<Utc>) -> Result<Vec<CapLook>, SharedCapError> {
    caps.iter().map(|cap| cap.look(cap.cell(now))).collect()
}

fn told(caps: &[SharedCap], looked: &[CapLook]) -> (Option<Money>, Vec<IssueBudget>) {
    let seen = || caps.iter().zip(looked);
    let left = seen().map(|(cap, looked)| cap.left_of(&looked.spending)).min();
    (left, seen().flat_map(|(cap, looked)| cap.news(&looked.spending)).collect())
}

/// Reserves something of each, or of none. Blocks.
fn reserved(
    caps: &[SharedCap],
    mut reserve: impl FnMut(&SharedCap) -> Result<Reservation, SharedCapError>,
) -> Result<Reservations, SharedCapError> {
    let mut held = Vec::new();
    for cap in caps {
        match reserve(cap) {
            Ok(reservation) => held.push(reservation),
            Err(error) => {
                for (cap, reservation) in caps.iter().zip(&held) {
                    cap.confirm(reservation, Money::ZERO)?;
                }
                return Err(error);
            }
        }
    }
    Ok(Reservations(held))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::run_dir::StateDir;

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn cap(folder: &Path, micros: u64) -> SharedCap {
        SharedCap::of_days(Arc::clone(StateDir::new(folder.to_owned()).store()), Money::from_micros(micros))
    }

    #[tokio::test]
    async fn what_is_left_is_reserved_as_it_was_seen_and_looked_at_again_where_others_were_quicker() {
        let folder = tempfile::tempdir().unwrap();
        let caps: SharedCaps = [cap(folder.path(), 100)].into_iter().collect();
        let other = cap(folder.path(), 100);
        let money = Money::from_micros;
        // While it decides, another process takes a little: the wish still fits, beside that.
        let decide = move |left: Option<Money>, _| {
            drop(other.reserve(money(5), noon()).unwrap());
            Ok::<_, SharedCapError>((left, Some(money(50))))
        };
        let (seen, held) = caps.reserve_of_left(noon(), decide).await.unwrap();
        assert_eq!(seen, Some(money(100)));
        assert_eq!(cap(folder.path(), 100).used(noon()).unwrap(), money(55));
        caps.confirm_meanwhile(held, money(20));
        caps.wait_confirmed().await.unwrap();
        assert_eq!(cap(folder.path(), 100).used(noon()).unwrap(), money(25));
        let other = cap(folder.path(), 100);
        let mut looks = 0;
        let decide = move |left: Option<Money>, _| {
            looks += 1;
            if looks == 1 {
                drop(other.reserve(money(60), noon()).unwrap());
            }
            Ok::<_, SharedCapError>((looks, left))
        };
        let (looks, _held) = caps.reserve_of_left(noon(), decide).await.unwrap();
        assert_eq!(looks, 2, "the first wish was for what another process had by then");
        assert_eq!(cap(folder.path(), 100).used(noon()).unwrap(), money(100));
    }

    #[tokio::test]
    async fn requests_without_a_price_leave_nothing_behind_and_what_they_cost_counts_once_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let caps: SharedCaps = [cap(folder.path(), 100)].into_iter().collect();
        drop(caps.reserve(Money::ZERO, noon()).await.unwrap());
        let decide = |_, _| Ok::<_, SharedCapError>(((), Some(Money::ZERO)));
        drop(caps.reserve_of_left(noon(), decide).await.unwrap());
        assert!(!folder.path().join("spend").exists());
        let held = caps.reserve(Money::ZERO, noon()).await.unwrap();
        caps.confirm(held, Money::from_micros(7)).await.unwrap();
        let kept = std::fs::read_to_string(folder.path().join("spend/2023-11-14.json")).unwrap();
        assert_eq!(cap(folder.path(), 100).used(noon()).unwrap(), Money::from_micros(7));
        assert!(kept.contains("\"reserved\":{}"), "{kept}");
    }
}
