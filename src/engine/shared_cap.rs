//! Caps that several runs share, held across processes in the store: what all runs of one UTC day may cost, and what all
//! runs of one issue may.
//!
//! Before a request its worst case is reserved. Afterwards the reservation becomes the real cost. The reservation of a
//! process that died stays, because the money may have been spent. [`super::shared_caps`] are those of one session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::shared_cap_format::{DAY_SPENDING_SCHEMA, Extension, ISSUE_SPENDING_SCHEMA, Spending};
use super::shortage::{A_DAY, AN_ISSUE, SharedCapError, Shortage, Wanted};
use crate::domain::budget::{IssueBudget, IssueBudgetState};
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::Store;
use crate::store::port::{Cell, CellChange, CommitOutcome, Revision, StoreError};

/// A cap and where the spending under it is kept.
#[derive(Debug)]
pub struct SharedCap {
    pub(super) store: Arc<dyn Store>,
    cap: Money,
    of: Of,
}

/// Whose cap it is.
#[derive(Debug)]
enum Of {
    /// Of the UTC day on which a request is made.
    Day,
    /// Of all runs of an issue.
    Issue(Box<IssueShare>),
}

/// One run's share of its issue's cap.
#[derive(Debug)]
struct IssueShare {
    repo: RepoName,
    issue: IssueKey,
    run_id: RunId,
    soft_ratio: f64,
    seen: Mutex<Seen>,
}

/// What the run knows of its issue's cap already.
#[derive(Debug, Default)]
struct Seen {
    /// What people have given the issue, as far as the run has heeded it.
    given: Money,
    /// The cap under which it was said that it is near.
    near: Option<Money>,
    /// The cap under which it was said that it is used up.
    used_up: Option<Money>,
}

/// Money that is reserved for one request. If this is dropped without being charged, the money stays reserved.
#[derive(Debug)]
#[must_use = "a reservation that is not confirmed counts as spent"]
pub struct Reservation {
    pub(super) cell: Cell,
    id: Uuid,
}

/// What a cell said when it was looked at.
pub(super) struct CapLook {
    cell: Cell,
    after: Revision,
    pub spending: Spending,
}

/// Where the spending of an issue is kept.
pub fn issue_cell(repo: &RepoName, issue: &IssueKey) -> Cell {
    Cell::IssueSpend { repo: repo.clone(), issue: issue.clone() }
}

/// Whether an issue's money is used up, with what is spent and the cap: all of it is spent, or a request was refused and nobody
/// has given more since.
pub fn used_up(spending: &Spending, cap: Money) -> Option<(Money, Money)> {
    let (spent, cap) = (spending.total(), cap + spending.given());
    let refused = spending.used_up_at.is_some_and(|at| at >= cap);
    (refused || spent >= cap).then_some((spent, cap))
}

/// What an issue has cost so far. Blocks.
pub fn issue_spending(
    store: &Arc<dyn Store>,
    repo: &RepoName,
    issue: &IssueKey,
) -> Result<Spending, SharedCapError> {
    let cell = issue_cell(repo, issue);
    let (_, value) = store.get(&cell).map_err(|error| unknown(WHEN_ISSUE, error))?;
    read(store, &cell, value)
}

/// What the UTC day of `now` has cost so far. Blocks.
pub fn day_spending(store: &Arc<dyn Store>, now: DateTime<Utc>) -> Result<Spending, SharedCapError> {
    let cell = Cell::Spend(now.date_naive());
    let (_, value) = store.get(&cell).map_err(|error| unknown(WHEN_DAY, error))?;
    read(store, &cell, value)
}

/// Changes what is kept of an issue's spending. Blocks.
pub fn change_issue_spending(
    store: &Arc<dyn Store>,
    repo: &RepoName,
    issue: &IssueKey,
    change: impl FnMut(&mut Spending) -> Result<(), SharedCapError>,
) -> Result<(), SharedCapError> {
    change_cell(store, &issue_cell(repo, issue), change)
}

pub(super) const WHEN_DAY: &str = "today";
const WHEN_ISSUE: &str = "on this issue";

pub(super) fn when(cell: &Cell) -> &'static str {
    if matches!(cell, Cell::Spend(_)) { WHEN_DAY } else { WHEN_ISSUE }
}

pub(super) fn unknown(when: &'static str, error: StoreError) -> SharedCapError {
    SharedCapError::Unknown(
        when,
        match error {
            StoreError::Failed { action: "read", place, words } => format!("{place}: {words}"),
            other => other.to_string(),
        },
    )
}

/// An error of the store while a cell is changed; what the cell is, the caller knows.
enum Broken {
    Store(StoreError),
    Cap(SharedCapError),
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What a loss of power may do to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Nothing.
    Always,
    /// Take it back, until the next change or [`super::shared_caps::SharedCaps::sync`]. What was reserved counts then as spent.
    ForNow,
}

/// Reads, changes and writes a cell, again where another process did so in between.
fn change_cell(
    store: &Arc<dyn Store>,
    cell: &Cell,
    change: impl FnMut(&mut Spending) -> Result<(), SharedCapError>,
) -> Result<(), SharedCapError> {
    change_cell_so(store, cell, Lasts::Always, change)
}

fn change_cell_so(
    store: &Arc<dyn Store>,
    cell: &Cell,
    lasts: Lasts,
    mut change: impl FnMut(&mut Spending) -> Result<(), SharedCapError>,
) -> Result<(), SharedCapError> {
    let change = |value| {
        let mut spending = read(store, cell, value).map_err(Broken::Cap)?;
        change(&mut spending).map_err(Broken::Cap)?;
        written(cell, &spending).map(Some).map_err(Broken::Cap)
    };
    let changed = match lasts {
        Lasts::Always => store.update(cell, change),
        Lasts::ForNow => store.update_for_now(cell, change),
    };
    changed.map_err(|broken| match broken {
        Broken::Store(error) => unknown(when(cell), error),
        Broken::Cap(error) => error,
    })
}

fn written(cell: &Cell, spending: &Spending) -> Result<String, SharedCapError> {
    serde_json::to_string(spending).map_err(|error| SharedCapError::Unknown(when(cell), error.to_string()))
}

/// A cell without a value has no spending yet.
fn read(store: &Arc<dyn Store>, cell: &Cell, value: Option<String>) -> Result<Spending, SharedCapError> {
    let schema = if matches!(cell, Cell::Spend(_)) { DAY_SPENDING_SCHEMA } else { ISSUE_SPENDING_SCHEMA };
    let Some(value) = value else { return Ok(Spending::none(schema)) };
    let unreadable = |words: String| {
        SharedCapError::Unknown(when(cell), format!("{}: {words}", store.place(cell).display()))
    };
    let spending: Spending = serde_json::from_str(&value).map_err(|error| {
        unreadable(format!("{error}; mend it, or move it away: what was spent is then forgotten"))
    })?;
    if spending.schema_version != schema {
        let version = &spending.schema_version;
        return Err(unreadable(format!("its version is {version}, which this agentd does not know")));
    }
    Ok(spending)
}

impl SharedCap {
    /// A cap of each day, kept in `store`, one cell a day.
    pub fn of_days(store: Arc<dyn Store>, cap: Money) -> Self {
        Self { store, cap, of: Of::Day }
    }

    /// A run's share of the cap of its issue. `given` = what people had given the issue when the run was planned.
    pub fn of_issue(
        store: Arc<dyn Store>,
        (cap, soft_ratio): (Money, f64),
        (repo, issue): (RepoName, IssueKey),
        run_id: RunId,
        given: Money,
    ) -> Self {
        let seen = Mutex::new(Seen { given, ..Seen::default() });
        Self { store, cap, of: Of::Issue(Box::new(IssueShare { repo, issue, run_id, soft_ratio, seen })) }
    }

    pub(super) fn cell(&self, now: DateTime<Utc>) -> Cell {
        match &self.of {
            Of::Day => Cell::Spend(now.date_naive()),
            Of::Issue(share) => issue_cell(&share.repo, &share.issue),
        }
    }

    fn spending(&self, cell: &Cell) -> Result<Spending, SharedCapError> {
        Ok(self.look(cell.clone())?.spending)
    }

    /// What a cell says, and which value that is. Blocks.
    pub(super) fn look(&self, cell: Cell) -> Result<CapLook, SharedCapError> {
        let (after, value) = self.store.get(&cell).map_err(|error| unknown(when(&cell), error))?;
        let spending = read(&self.store, &cell, value)?;
        Ok(CapLook { cell, after, spending })
    }

    /// The cap, with what people gave beyond it.
    fn cap_of(&self, spending: &Spending) -> Money {
        self.cap + spending.given()
    }

    fn not_covered(&self, spending: &Spending, wanted: Wanted) -> SharedCapError {
        let cap = self.cap_of(spending);
        let of = if matches!(self.of, Of::Day) { A_DAY } else { AN_ISSUE };
        let (left, set_aside) = (self.left_of(spending), spending.set_aside());
        SharedCapError::NotCovered(Shortage { cap, of, left, set_aside, wanted })
    }

    /// Reserves `worst`, or says that the money does not cover it. Nothing is written of a request whose worst case is nothing or unknown:
    /// what has no price would leave an entry for each request, for ever. Blocks.
    pub fn reserve(&self, worst: Money, now: DateTime<Utc>) -> Result<Reservation, SharedCapError> {
        let reservation = Reservation { cell: self.cell(now), id: Uuid::new_v4() };
        if worst == Money::ZERO {
            return Ok(reservation);
        }
        change_cell(&self.store, &reservation.cell, |spending| {
            self.set_aside(spending, reservation.id, worst)
        })?;
        Ok(reservation)
    }

    /// The same of what a look has just seen: the cell is read again only where somebody came in between. Blocks.
    pub(super) fn reserve_of(&self, looked: CapLook, worst: Money) -> Result<Reservation, SharedCapError> {
        let CapLook { cell, after, mut spending } = looked;
        let reservation = Reservation { cell: cell.clone(), id: Uuid::new_v4() };
        if worst == Money::ZERO {
            return Ok(reservation);
        }
        self.set_aside(&mut spending, reservation.id, worst)?;
        let value = Some(written(&cell, &spending)?);
        let changed = self.store.commit(&[CellChange { cell: cell.clone(), after, value }]);
        match changed.map_err(|error| unknown(when(&cell), error))? {
            CommitOutcome::Done => {}
            CommitOutcome::Overtaken => {
                change_cell(&self.store, &cell, |spending| self.set_aside(spending, reservation.id, worst))?;
            }
        }
        Ok(reservation)
    }

    fn set_aside(&self, spending: &mut Spending, id: Uuid, worst: Money) -> Result<(), SharedCapError> {
        if worst > self.left_of(spending) {
            return Err(self.not_covered(spending, worst.into()));
        }
        spending.reserved.insert(id, worst);
        Ok(())
    }

    pub(super) fn left_of(&self, spending: &Spending) -> Money {
        self.cap_of(spending).saturating_sub(spending.total())
    }

    /// Turns a reservation into the cost of the request, where it was reserved. Gives what is new of an issue's cap then.
    /// Blocks.
    pub fn confirm(
        &self,
        reservation: &Reservation,
        cost: Money,
    ) -> Result<Vec<IssueBudget>, SharedCapError> {
        self.confirm_so(reservation, cost, Lasts::Always)
    }

    pub(super) fn confirm_so(
        &self,
        reservation: &Reservation,
        cost: Money,
        lasts: Lasts,
    ) -> Result<Vec<IssueBudget>, SharedCapError> {
        let mut then = None;
        change_cell_so(&self.store, &reservation.cell, lasts, |spending| {
            spending.reserved.remove(&reservation.id);
            spending.spent += cost;
            if let Of::Issue(share) = &self.of
                && cost > Money::ZERO
            {
                *spending.by_run.entry(share.run_id).or_default() += cost;
            }
            then = Some(spending.clone());
            Ok(())
        })?;
        Ok(then.map(|then| self.news(&then)).unwrap_or_default())
    }

    /// Reserves what a launch has cost so far, in place of its earlier amount, and beside it of what is `under_way` as much as the
    /// cap leaves. False = the money does not cover what it has cost together with what others spent and reserved. Blocks.
    pub fn hold(&self, held: &Reservation, so_far: Money, under_way: Money) -> Result<bool, SharedCapError> {
        let mut covered = true;
        change_cell(&self.store, &held.cell, |spending| {
            spending.reserved.remove(&held.id);
            let left = self.left_of(spending);
            covered = so_far <= left;
            spending.reserved.insert(held.id, left.min(so_far + under_way).max(so_far));
            Ok(())
        })?;
        Ok(covered)
    }

    /// Reserves so much in place of the earlier amount. False = the money does not cover it, and nothing has changed. Blocks.
    pub(super) fn hold_all(&self, held: &Reservation, amount: Money) -> Result<bool, SharedCapError> {
        let mut covered = true;
        change_cell(&self.store, &held.cell, |spending| {
            let before = spending.reserved.remove(&held.id);
            covered = amount <= self.left_of(spending);
            if let Some(reserved) = Some(amount).filter(|_| covered).or(before) {
                spending.reserved.insert(held.id, reserved);
            }
            Ok(())
        })?;
        Ok(covered)
    }

    /// What is left beside what others spent and reserved. Blocks.
    pub(super) fn left_beside(&self, held: &Reservation) -> Result<Money, SharedCapError> {
        let mut spending = self.spending(&held.cell)?;
        spending.reserved.remove(&held.id);
        Ok(self.left_of(&spending))
    }

    /// Spent and set aside, of the day of `now` or of the issue. Blocks.
    pub fn used(&self, now: DateTime<Utc>) -> Result<Money, SharedCapError> {
        Ok(self.spending(&self.cell(now))?.total())
    }

    /// What is left. Blocks.
    pub(super) fn left(&self, now: DateTime<Utc>) -> Result<Money, SharedCapError> {
        Ok(self.left_of(&self.spending(&self.cell(now))?))
    }

    /// What would be left if all came back that is set aside for requests. Blocks.
    pub(super) fn left_of_spent(&self, now: DateTime<Utc>) -> Result<Money, SharedCapError> {
        let spending = self.spending(&self.cell(now))?;
        Ok(self.cap_of(&spending).saturating_sub(spending.spent))
    }

    /// Says that a request was refused because of this cap, and why. What it holds itself is not set aside for others. Blocks.
    pub(super) fn refuse(
        &self,
        wanted: Wanted,
        held: Option<&Reservation>,
        now: DateTime<Utc>,
    ) -> Result<SharedCapError, SharedCapError> {
        let cell = self.cell(now);
        if matches!(self.of, Of::Issue(_)) {
            change_cell(&self.store, &cell, |spending| {
                spending.used_up_at = Some(self.cap_of(spending));
                Ok(())
            })?;
        }
        let mut spending = self.spending(&cell)?;
        if let Some(held) = held {
            spending.reserved.remove(&held.id);
        }
        Ok(self.not_covered(&spending, wanted))
    }

    /// What is new of the issue's cap, each once under the same cap.
    pub(super) fn news(&self, spending: &Spending) -> Vec<IssueBudget> {
        let Of::Issue(share) = &self.of else { return Vec::new() };
        let (cap, spent, given) = (self.cap_of(spending), spending.total(), spending.given());
        let mut seen = share.seen();
        let mut news = Vec::new();
        let is = |state| IssueBudget { state, spent, cap, by: None, given: Money::ZERO };
        if given > seen.given {
            let newest = spending.extensions.values().max_by_key(|given| given.at);
            news.push(IssueBudget {
                by: newest.map(|newest| newest.by.clone()),
                given: given.saturating_sub(seen.given),
                ..is(IssueBudgetState::Extended)
            });
            seen.given = given;
        }
        let share_of_cap = (share.soft_ratio * 1e6).round() as u128;
        let near = u128::from(spent.micros()) * 1_000_000 >= u128::from(cap.micros()) * share_of_cap;
        if near && seen.near != Some(cap) {
            seen.near = Some(cap);
            news.push(is(IssueBudgetState::Near));
        }
        if spending.used_up_at.is_some_and(|at| at >= cap) && seen.used_up != Some(cap) {
            seen.used_up = Some(cap);
            news.push(is(IssueBudgetState::UsedUp));
        }
        news
    }
}

impl IssueShare {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an issue more, once for each `key`, in all by comments at most `most`. Gives what its spending is then, or what
/// comments may still give. Blocks.
pub fn extend_issue(
    store: &Arc<dyn Store>,
    (repo, issue): (&RepoName, &IssueKey),
    (key, extension): (&str, &Extension),
    most_by_comments: Money,
) -> Result<Result<Spending, Money>, SharedCapError> {
    let mut outcome = Err(Money::ZERO);
    change_issue_spending(store, repo, issue, |spending| {
        let left = most_by_comments.saturating_sub(spending.given_by_comments());
        let known = spending.extensions.contains_key(key);
        if extension.by_comment && !known && extension.amount > left {
            outcome = Err(left);
            return Ok(());
        }
        spending.extensions.entry(key.to_owned()).or_insert_with(|| extension.clone());
        outcome = Ok(spending.clone());
        Ok(())
    })?;
    Ok(outcome)
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
        let hold = |of: &Reservation, micros| cap.hold(of, Money::from_micros(micros), Money::ZERO).unwrap();
        assert!(hold(&one, 60) && hold(&two, 40));
        assert!(!hold(&two, 41), "together they are over the cap, and neither is alone");
        cap.confirm(&two, Money::from_micros(41)).unwrap();
        assert!(!hold(&one, 60) && hold(&one, 59));
    }

    #[test]
    fn what_is_under_way_of_a_launch_is_reserved_as_far_as_the_cap_leaves_it_and_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cap = cap(dir.path(), 100);
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let (one, two) = (cap.reserve(Money::ZERO, now).unwrap(), cap.reserve(Money::ZERO, now).unwrap());
        let micros = Money::from_micros;
        assert!(cap.hold_all(&one, micros(60)).unwrap() && !cap.hold_all(&two, micros(41)).unwrap());
        assert_eq!(cap.left_beside(&two).unwrap(), micros(40));
        assert!(cap.hold(&two, micros(30), micros(30)).unwrap(), "a part of it may be counted twice");
        assert_eq!((cap.used(now).unwrap(), cap.left_beside(&one).unwrap()), (micros(100), micros(60)));
        assert!(!cap.hold_all(&two, micros(41)).unwrap());
        assert_eq!(cap.used(now).unwrap(), micros(100), "what was held stays");
    }

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn cap(folder: &Path, micros: u64) -> SharedCap {
        let state = StateDir::new(folder.to_owned());
        SharedCap::of_days(Arc::clone(state.store()), Money::from_micros(micros))
    }

    #[test]
    fn what_is_set_aside_counts_until_it_is_confirmed_and_a_day_begins_empty() {
        let folder = tempfile::tempdir().unwrap();
        let cap = cap(folder.path(), 100);
        let money = Money::from_micros;
        let first = cap.reserve(money(60), noon()).unwrap();
        assert_eq!(
            cap.reserve(money(50), noon()).unwrap_err(),
            SharedCapError::NotCovered(Shortage {
                cap: money(100),
                of: "a day (UTC)",
                left: money(40),
                set_aside: money(60),
                wanted: money(50).into()
            })
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
    fn from_its_second_change_on_a_request_waits_once_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (cap, money) = (cap(folder.path(), 1_000), Money::from_micros);
        let request = |cap: &SharedCap| {
            let waits = files::waits();
            let held = cap.reserve(money(10), noon()).unwrap();
            let reserved = files::waits();
            cap.confirm_so(&held, money(1), Lasts::ForNow).unwrap();
            (reserved - waits, files::waits() - reserved)
        };
        assert_eq!(
            request(&cap),
            (2, 2),
            "the file and its name; once more for the place of all that follow"
        );
        assert_eq!([request(&cap), request(&cap), request(&cap)], [(1, 0); 3]);
        // What another process left for now, the next one waits for before it writes.
        let other = self::cap(folder.path(), 1_000);
        assert_eq!([request(&other), request(&other)], [(2, 0), (1, 0)]);
        let cell = other.cell(noon());
        for expected in [1, 0] {
            let waits = files::waits();
            other.store.sync_cell(&cell).unwrap();
            assert_eq!(files::waits() - waits, expected);
        }
        assert_eq!(request(&other), (1, 0));
        assert_eq!(cap.used(noon()).unwrap(), money(7));
    }

    #[test]
    fn a_loss_of_power_counts_a_request_as_what_it_may_cost_and_never_as_less_than_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let (cap, money) = (cap(folder.path(), 1_000), Money::from_micros);
        let slots = folder.path().join("spend/2023-11-14.slots");
        let request = || {
            let held = cap.reserve(money(10), noon()).unwrap();
            // All that the disk need have at this moment.
            let on_disk = std::fs::read(&slots).ok();
            cap.confirm_so(&held, money(1), Lasts::ForNow).unwrap();
            on_disk
        };
        let image = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file.as_file(), bytes).unwrap();
            file
        };
        request();
        for requests in 1..5 {
            let on_disk = request().unwrap();
            let after = std::fs::read(&slots).unwrap();
            std::fs::copy(image(&on_disk).path(), &slots).unwrap();
            assert_eq!(cap.used(noon()).unwrap(), money(requests + 10));
            std::fs::copy(image(&after).path(), &slots).unwrap();
            assert_eq!(cap.used(noon()).unwrap(), money(requests + 1));
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_stops_spending() {
        let folder = tempfile::tempdir().unwrap();
        let cap = cap(folder.path(), 100);
        files::create_private_dir(&folder.path().join("spend")).unwrap();
        files::write_private(&folder.path().join("spend/2023-11-14.json"), b"{").unwrap();
        let refused = cap.reserve(Money::from_micros(1), noon()).unwrap_err();
        assert!(
            matches!(&refused, SharedCapError::Unknown(_, words) if words.contains("2023-11-14") && words.contains("move it away")),
            "{refused}"
        );
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
