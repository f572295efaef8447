//! The run-wide meter: what is spent, what is left, and when a limit is passed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::RunClock;
use crate::domain::budget::{BudgetKind, Budgets, Spend};
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopDetail};

/// Longest time a deadline can lie ahead; a cap above it is no cap.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Shared by every session of a run.
#[derive(Debug)]
pub struct Meter {
    budgets: Budgets,
    inherited: Spend,
    clock: RunClock,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    steps: u32,
    cost: Money,
    cost_unknown: bool,
    soft: Vec<BudgetKind>,
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
            steps: inherited.steps,
            cost: inherited.cost,
            cost_unknown: inherited.cost_unknown,
            soft: Vec::new(),
        };
        Self { budgets, inherited, clock, used: Mutex::new(used) }
    }

    /// The caps.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// When the wall time is used up.
    pub fn deadline(&self) -> Instant {
        let left = self.budgets.max_wall_time.saturating_sub(self.inherited.wall_time).min(FAR);
        self.clock.started() + left
    }

    /// Wall time that is left.
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Opens one more step visit and gives its number, or says that none is left (C-12: asked before the visit).
    pub fn open_visit(&self) -> Result<u32, Stop> {
        self.check()?;
        let mut used = self.used();
        if used.steps >= self.budgets.max_steps {
            let message = format!("The budget of {} step visits is used up.", self.budgets.max_steps);
            return Err(Stop::new(StopDetail::MaxSteps, message));
        }
        used.steps += 1;
        Ok(used.steps)
    }

    /// Adds what a request cost; `None` = nobody knows. True the first time a cost is unknown.
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

    /// Whether time and money are left (a cap may be reached, not passed).
    pub fn check(&self) -> Result<(), Stop> {
        if Instant::now() >= self.deadline() {
            return Err(self.out_of_time());
        }
        if self.used().cost > self.budgets.max_cost {
            let message = format!("The budget of {} is used up.", self.budgets.max_cost);
            return Err(Stop::new(StopDetail::MaxCost, message));
        }
        Ok(())
    }

    /// As [`Meter::check`], with money that is spent but not charged yet.
    pub fn check_with(&self, pending: Money) -> Result<(), Stop> {
        self.check()?;
        if self.used().cost + pending > self.budgets.max_cost {
            let message = format!("The budget of {} is used up.", self.budgets.max_cost);
            return Err(Stop::new(StopDetail::MaxCost, message));
        }
        Ok(())
    }

    /// The stop of a run whose wall time is used up.
    pub fn out_of_time(&self) -> Stop {
        let cap = self.budgets.max_wall_time;
        Stop::new(StopDetail::MaxWallTime, format!("The budget of {cap:?} wall time is used up."))
    }

    /// Budgets that passed their soft ratio since the last call; each is named once in a run.
    pub fn soft_limits_passed(&self) -> Vec<SoftLimit> {
        let spend = self.spend();
        let budgets = &self.budgets;
        let candidates = [
            (BudgetKind::MaxSteps, f64::from(spend.steps), f64::from(budgets.max_steps)),
            (
                BudgetKind::MaxWallTime,
                spend.wall_time.as_millis() as f64,
                budgets.max_wall_time.as_millis() as f64,
            ),
            (BudgetKind::MaxCost, spend.cost.dollars(), budgets.max_cost.dollars()),
        ];
        let mut used = self.used();
        let mut passed = Vec::new();
        for (kind, amount, cap) in candidates {
            if cap > 0.0 && amount >= cap * budgets.soft_ratio && !used.soft.contains(&kind) {
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
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_082_an_unknown_cost_is_remembered_and_told_once() {
        let meter = meter(Budgets::default(), Spend::default());
        assert!(meter.charge(None));
        assert!(!meter.charge(None));
        assert!(meter.spend().cost_unknown);
    }
}
