//! The meter of a run: what is spent, what is left, and when a limit is reached.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::RunClock;
use crate::domain::budget::{BudgetKind, Budgets, Spend};
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopDetail};

/// How the end of a run begins whose time does not cover what a provider asks it to wait.
const RATE_LIMITED: &str = "The model provider limits requests, and asks to wait.";

/// Whether a run ended because a provider's limit of requests lasts longer than the run may: another run would meet it, too.
pub fn is_beyond_the_run(stop: &Stop) -> bool {
    stop.detail == StopDetail::MaxWallTime && stop.message.starts_with(RATE_LIMITED)
}

/// The longest time until a deadline. A longer cap is no cap.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Shared by every session of a run.
#[derive(Debug)]
pub struct Meter {
    first: Budgets,
    inherited: Spend,
    clock: RunClock,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    caps: Budgets,
    steps: u32,
    cost: Money,
    cost_unknown: bool,
    /// What requests of an unknown cost are taken to have cost.
    estimated: Money,
    /// Set aside for requests under way.
    held: Money,
    soft: Vec<BudgetKind>,
    /// A cap ended the run: it is too late to raise one.
    over: bool,
}

/// Money of a run that is reserved for one request until this value is dropped.
#[derive(Debug)]
#[must_use = "it is set aside as long as this is kept"]
pub struct ReservedMoney {
    meter: Arc<Meter>,
    amount: Money,
}

impl ReservedMoney {
    /// How much.
    pub fn amount(&self) -> Money {
        self.amount
    }
}

impl Drop for ReservedMoney {
    fn drop(&mut self) {
        let mut used = self.meter.used();
        used.held = used.held.saturating_sub(self.amount);
    }
}

/// A budget that has just passed its soft ratio, in the budget's own unit (visits, milliseconds, dollars).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftLimit {
    /// Which.
    pub kind: BudgetKind,
    /// Used.
    pub used: f64,
    /// Cap.
    pub cap: f64,
}

impl Meter {
    /// A meter that starts with what predecessors spent (D61).
    pub fn new(budgets: Budgets, inherited: Spend, clock: RunClock) -> Self {
        let used = Used {
            caps: budgets.clone(),
            steps: inherited.steps,
            cost: inherited.cost,
            cost_unknown: inherited.cost_unknown,
            estimated: inherited.estimated,
            held: Money::ZERO,
            soft: Vec::new(),
            over: false,
        };
        Self { first: budgets, inherited, clock, used: Mutex::new(used) }
    }

    /// As [`Meter::new`], with caps that were raised before. An extension is still as large as `budgets`.
    pub fn raised(self, caps: Budgets) -> Self {
        self.used().caps = caps;
        self
    }

    /// The caps in force.
    pub fn budgets(&self) -> Budgets {
        self.used().caps.clone()
    }

    /// Raises each cap by the amount that the run was given at first. `record` gets the new caps before they
    /// hold. `None` = a cap has already ended the run.
    pub fn extend<E>(&self, record: impl FnOnce(&Budgets) -> Result<(), E>) -> Result<Option<Budgets>, E> {
        let mut used = self.used();
        if used.over {
            return Ok(None);
        }
        let raised = used.caps.and(&self.first);
        record(&raised)?;
        used.soft.clear();
        used.caps = raised.clone();
        Ok(Some(raised))
    }

    /// Raises the cap of the cost. `record` gets the new caps before they hold. `None` = a cap has already ended the run.
    pub fn give<E>(
        &self,
        amount: Money,
        record: impl FnOnce(&Budgets) -> Result<(), E>,
    ) -> Result<Option<Budgets>, E> {
        let mut used = self.used();
        if used.over {
            return Ok(None);
        }
        let raised = Budgets { max_cost: used.caps.max_cost + amount, ..used.caps.clone() };
        record(&raised)?;
        used.soft.retain(|kind| *kind != BudgetKind::MaxCost);
        used.caps = raised.clone();
        Ok(Some(raised))
    }

    /// When the wall time is used up.
    fn deadline(&self, caps: &Budgets) -> Instant {
        let left = caps.max_wall_time.saturating_sub(self.inherited.wall_time).min(FAR);
        self.clock.started() + left
    }

    /// Waits until the wall time is used up, also when it is raised meanwhile.
    pub async fn time_over(&self) -> Stop {
        loop {
            let deadline = self.deadline(&self.used().caps);
            tokio::time::sleep_until(deadline).await;
            if let Err(stop) = self.check_wait(Duration::ZERO) {
                return stop;
            }
        }
    }

    /// Opens one more step visit and gives its number, or says that none is left. It is asked before the visit (C-12).
    pub fn open_visit(&self) -> Result<u32, Stop> {
        self.check()?;
        let mut used = self.used();
        let max_steps = used.caps.max_steps;
        if used.steps >= max_steps {
            used.over = true;
            let message = format!("The budget of {max_steps} step visits is used up.");
            return Err(Stop::new(StopDetail::MaxSteps, message));
        }
        used.steps += 1;
        Ok(used.steps)
    }

    /// Adds the cost of a request; `None` = it is unknown. True the first time a cost is unknown.
    pub fn charge(&self, cost: Option<Money>) -> bool {
        let mut used = self.used();
        match cost {
            Some(cost) => {
                used.cost += cost;
                false
            }
            None => !std::mem::replace(&mut used.cost_unknown, true),
        }
    }

    /// Checks the cap for a request with an unknown cost, by its estimate. So a provider that counts no tokens does not
    /// lift the cap. The estimate is not added to what is spent.
    pub fn charge_estimate(&self, cost: Money) {
        self.used().estimated += cost;
    }

    /// Reserves money for a request. `choose` gets what is left of the cap and answers with its choice and the amount.
    /// `Err` has what is left when `choose` took nothing.
    pub fn hold<T>(
        self: &Arc<Self>,
        choose: impl FnOnce(Money) -> Option<(T, Money)>,
    ) -> Result<(T, ReservedMoney), Money> {
        let mut used = self.used();
        let left = used.caps.max_cost.saturating_sub(used.cost + used.estimated + used.held);
        let (chosen, amount) = choose(left).ok_or(left)?;
        used.held += amount;
        drop(used);
        Ok((chosen, ReservedMoney { meter: Arc::clone(self), amount }))
    }

    /// What is left of the money.
    pub fn left(&self) -> Money {
        let used = self.used();
        used.caps.max_cost.saturating_sub(used.cost + used.estimated + used.held)
    }

    /// Says that the money does not cover what the run needs. Then it is too late to raise the cap.
    pub fn end_by_cost(&self) {
        self.used().over = true;
    }

    /// Whether time and money are left. A cap may be reached but not exceeded.
    pub fn check(&self) -> Result<(), Stop> {
        self.check_with(Money::ZERO)
    }

    /// As [`Meter::check`], with money that is spent but not charged yet.
    pub fn check_with(&self, pending: Money) -> Result<(), Stop> {
        self.check_wait(Duration::ZERO)?;
        let mut used = self.used();
        let max_cost = used.caps.max_cost;
        if used.cost + used.estimated + pending > max_cost {
            used.over = true;
            let message = format!("The budget of {max_cost} is used up.{}", by_estimate(used.estimated));
            return Err(Stop::new(StopDetail::MaxCost, message));
        }
        Ok(())
    }

    /// Whether there is wall time for the wait that a provider asks for before its next request.
    pub fn check_rate_limit(&self, wait: Duration) -> Result<(), Stop> {
        self.check_wait(wait)
            .map_err(|stop| Stop { message: format!("{RATE_LIMITED} {}", stop.message), ..stop })
    }

    /// Whether there is wall time for a wait. A wait that does not end within it is not begun (C-13).
    pub fn check_wait(&self, wait: Duration) -> Result<(), Stop> {
        // Held against an extension that comes at this moment.
        let mut used = self.used();
        let left = self.deadline(&used.caps).saturating_duration_since(Instant::now());
        if wait < left {
            return Ok(());
        }
        used.over = true;
        let cap = used.caps.max_wall_time;
        if !left.is_zero() {
            let [wait, left] = [wait, left].map(|time| Duration::from_millis(time.as_millis() as u64));
            return Err(Stop::new(
                StopDetail::MaxWallTime,
                format!(
                    "The budget of {cap:?} wall time does not cover a wait of {wait:?}: {left:?} of it is left."
                ),
            ));
        }
        Err(Stop::new(StopDetail::MaxWallTime, format!("The budget of {cap:?} wall time is used up.")))
    }

    /// The budgets that passed their soft ratio since the last call. Each is named once under the same caps.
    pub fn soft_limits_passed(&self) -> Vec<SoftLimit> {
        let spend = self.spend();
        let budgets = self.budgets();
        let micros = |money: Money| (u128::from(money.micros()), money.dollars());
        let millis = |time: Duration| (time.as_millis(), time.as_millis() as f64);
        let steps = |steps: u32| (u128::from(steps), f64::from(steps));
        let candidates = [
            (BudgetKind::MaxSteps, steps(spend.steps), steps(budgets.max_steps)),
            (BudgetKind::MaxWallTime, millis(spend.wall_time), millis(budgets.max_wall_time)),
            (BudgetKind::MaxCost, micros(spend.cost + self.used().estimated), micros(budgets.max_cost)),
        ];
        // Computed in whole numbers, because 0.8 times 3 is more than 2.4 in floating point.
        let share = (budgets.soft_ratio * 1e6).round() as u128;
        let mut used = self.used();
        let mut passed = Vec::new();
        for (kind, (whole, amount), (most, cap)) in candidates {
            if most > 0 && whole * 1_000_000 >= most * share && !used.soft.contains(&kind) {
                used.soft.push(kind);
                passed.push(SoftLimit { kind, used: amount, cap });
            }
        }
        passed
    }

    /// What is spent so far, of predecessors too.
    pub fn spend(&self) -> Spend {
        let used = self.used();
        Spend {
            steps: used.steps,
            wall_time: self.inherited.wall_time + self.clock.elapsed(),
            cost: used.cost,
            cost_unknown: used.cost_unknown,
            estimated: used.estimated,
        }
    }

    /// The part of what is used that is an estimate, as a sentence; empty = none is.
    pub fn told_estimate(&self) -> String {
        by_estimate(self.used().estimated)
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_estimate(estimated: Money) -> String {
    match estimated {
        Money::ZERO => String::new(),
        some => format!(" {some} of what is used is an estimate for requests whose cost nobody knows."),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn meter(budgets: Budgets, inherited: Spend) -> Meter {
        Meter::new(budgets, inherited, RunClock::starting(DateTime::UNIX_EPOCH))
    }

    #[test]
    fn x_018_the_visit_after_the_last_is_refused_and_predecessors_count() {
        let inherited = Spend { steps: 1, ..Spend::default() };
        let meter = meter(Budgets { max_steps: 2, ..Budgets::default() }, inherited);
        assert_eq!(meter.open_visit(), Ok(2));
        assert_eq!(meter.open_visit().unwrap_err().detail, StopDetail::MaxSteps);
    }

    #[test]
    fn x_018_a_cost_cap_may_be_reached_but_not_passed() {
        let meter =
            meter(Budgets { max_cost: Money::from_micros(10), ..Budgets::default() }, Spend::default());
        meter.charge(Some(Money::from_micros(10)));
        assert_eq!(meter.check(), Ok(()));
        meter.charge(Some(Money::from_micros(1)));
        assert_eq!(meter.check().unwrap_err().detail, StopDetail::MaxCost);
    }

    #[test]
    fn x_018_time_of_a_predecessor_is_time() {
        let inherited = Spend { wall_time: Duration::from_secs(60), ..Spend::default() };
        let budgets = Budgets { max_wall_time: Duration::from_secs(60), ..Budgets::default() };
        assert_eq!(meter(budgets, inherited).check().unwrap_err().detail, StopDetail::MaxWallTime);
    }

    #[test]
    fn x_019_a_soft_limit_is_told_once_per_kind() {
        let meter =
            meter(Budgets { max_cost: Money::from_micros(100), ..Budgets::default() }, Spend::default());
        meter.charge(Some(Money::from_micros(79)));
        assert!(meter.soft_limits_passed().is_empty());
        meter.charge(Some(Money::from_micros(1)));
        let told = meter.soft_limits_passed();
        assert_eq!(told.iter().map(|limit| limit.kind).collect::<Vec<_>>(), [BudgetKind::MaxCost]);
        meter.charge(Some(Money::from_micros(5)));
        assert!(meter.soft_limits_passed().is_empty());
    }

    #[test]
    fn x_019_a_soft_limit_is_passed_when_it_is_reached_exactly() {
        for (cap, at) in [(3_000_000, 2_400_000), (30_000_000, 24_000_000), (7, 6), (1, 1)] {
            let meter =
                meter(Budgets { max_cost: Money::from_micros(cap), ..Budgets::default() }, Spend::default());
            meter.charge(Some(Money::from_micros(at - 1)));
            assert!(meter.soft_limits_passed().is_empty(), "{at} of {cap}");
            meter.charge(Some(Money::from_micros(1)));
            assert_eq!(meter.soft_limits_passed().len(), 1, "{at} of {cap}");
        }
    }

    #[test]
    fn x_019_an_extension_gives_as_much_again_until_a_cap_has_ended_the_run() {
        let first = Budgets { max_cost: Money::from_micros(100), max_steps: 1, ..Budgets::default() };
        let meter = meter(first.clone(), Spend::default());
        let extend = || meter.extend(|_| Ok::<_, Stop>(())).unwrap();
        meter.charge(Some(Money::from_micros(90)));
        assert_eq!(meter.soft_limits_passed().len(), 1);
        assert_eq!(extend(), Some(first.and(&first)));
        assert!(meter.soft_limits_passed().is_empty());
        meter.charge(Some(Money::from_micros(80)));
        assert_eq!(meter.soft_limits_passed()[0].cap, Money::from_micros(200).dollars());
        assert_eq!((meter.open_visit(), meter.open_visit()), (Ok(1), Ok(2)));
        let refused = meter.extend(|_| Err("not recorded"));
        assert_eq!((refused, meter.budgets()), (Err("not recorded"), first.and(&first)));
        assert_eq!(extend().unwrap().max_cost, Money::from_micros(300), "as much as at first, not twice");
        meter.charge(Some(Money::from_micros(131)));
        assert_eq!(meter.check().unwrap_err().detail, StopDetail::MaxCost);
        assert_eq!(extend(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn x_019_time_that_is_raised_during_a_wait_lengthens_it() {
        let budgets = Budgets { max_wall_time: Duration::from_secs(60), ..Budgets::default() };
        let meter = meter(budgets, Spend::default());
        let over = meter.time_over();
        tokio::pin!(over);
        let within = tokio::time::timeout(Duration::from_secs(59), &mut over).await;
        assert!(within.is_err());
        meter.extend(|_| Ok::<_, Stop>(())).unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut over).await.is_err());
        assert_eq!(over.await.detail, StopDetail::MaxWallTime);
        assert_eq!(meter.extend(|_| Ok::<_, Stop>(())), Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn c_13_a_wait_that_is_too_long_is_not_called_used_up_time() {
        let budgets = Budgets { max_wall_time: Duration::from_secs(60), ..Budgets::default() };
        let meter = meter(budgets, Spend::default());
        tokio::time::advance(Duration::from_millis(700)).await;
        let told = meter.check_wait(Duration::from_secs(90)).unwrap_err().message;
        assert!(!told.contains("used up") && told.contains("90s") && told.contains("59.3s"), "{told}");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(meter.check().unwrap_err().message.contains("used up"));
    }

    #[test]
    fn a_082_an_unknown_cost_is_remembered_and_told_once() {
        let meter = meter(Budgets::default(), Spend::default());
        assert!(meter.charge(None));
        assert!(!meter.charge(None));
        assert!(meter.spend().cost_unknown);
        // Nor does it lift the cap, where an estimate has a price.
        meter.charge_estimate(Budgets::default().max_cost);
        assert_eq!((meter.spend().cost, meter.check()), (Money::ZERO, Ok(())));
        assert_eq!(meter.soft_limits_passed().len(), 1);
        meter.charge_estimate(Money::from_micros(1));
        assert_eq!(meter.check().unwrap_err().detail, StopDetail::MaxCost);
    }
}
