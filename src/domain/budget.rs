//! Budgets of a run and what was spent of them (X-002… …X-022).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::money::Money;
use super::words::words;

/// The hard caps of one run: 12 visits, 15 minutes and 10 dollars by default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budgets {
    /// Step visits.
    pub max_steps: u32,
    /// From the run's start to its end.
    pub max_wall_time: Duration,
    /// Provider cost of the run.
    pub max_cost: Money,
    /// Whether somebody set `max_cost`. Then a model without a known price is an error (D87).
    pub max_cost_is_explicit: bool,
    /// Part of a cap at which people are warned, 0 to 1.
    pub soft_ratio: f64,
    /// Provider cost of all runs of one UTC day; `None` = no cap.
    pub max_cost_per_day: Option<Money>,
    /// Provider cost of all runs of one issue; `None` = no cap. Journals of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_per_issue: Option<Money>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            max_steps: 12,
            max_wall_time: Duration::from_secs(15 * 60),
            max_cost: Money::from_micros(10_000_000),
            max_cost_is_explicit: false,
            soft_ratio: 0.8,
            max_cost_per_day: None,
            max_cost_per_issue: Some(Money::from_micros(25_000_000)),
        }
    }
}

/// Caps that an issue or a definition names beside the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedBudgets {
    /// Step visits.
    pub max_steps: Option<u32>,
    /// From the run's start to its end.
    pub max_wall_time: Option<Duration>,
    /// Provider cost.
    pub max_cost: Option<Money>,
}

impl WantedBudgets {
    /// Whether more is asked for than these caps.
    pub fn raises(&self, budgets: &Budgets, kind: BudgetKind) -> bool {
        match kind {
            BudgetKind::MaxSteps => self.max_steps.is_some_and(|steps| steps > budgets.max_steps),
            BudgetKind::MaxWallTime => self.max_wall_time.is_some_and(|time| time > budgets.max_wall_time),
            BudgetKind::MaxCost => self.max_cost.is_some_and(|cost| cost > budgets.max_cost),
        }
    }

    /// Drops the requests that are not followed.
    pub fn keep(&mut self, wanted: impl Fn(&Self, BudgetKind) -> bool) {
        let asked = self.clone();
        for kind in BudgetKind::ALL.into_iter().filter(|kind| !wanted(&asked, *kind)) {
            match kind {
                BudgetKind::MaxSteps => self.max_steps = None,
                BudgetKind::MaxWallTime => self.max_wall_time = None,
                BudgetKind::MaxCost => self.max_cost = None,
            }
        }
    }
}

impl Budgets {
    /// What it means where a run may cost nothing. Elsewhere 0 means that there is no cap.
    pub fn asks_nothing(&self) -> Option<&'static str> {
        const TOLD: &str = "budgets.max_cost is 0, which is not \"no cap\": no model that has a price can be asked anything, and a run ends at its first request";
        (self.max_cost == Money::ZERO).then_some(TOLD)
    }

    /// Takes a request over; false = there is none of this kind.
    pub fn follow(&mut self, wanted: &WantedBudgets, kind: BudgetKind) -> bool {
        match kind {
            BudgetKind::MaxSteps => wanted.max_steps.map(|steps| self.max_steps = steps).is_some(),
            BudgetKind::MaxWallTime => wanted.max_wall_time.map(|time| self.max_wall_time = time).is_some(),
            BudgetKind::MaxCost => {
                self.max_cost_is_explicit |= wanted.max_cost.is_some();
                wanted.max_cost.map(|cost| self.max_cost = cost).is_some()
            }
        }
    }

    /// These caps, raised by the steps, time and cost of `more`. The cap of the day stays.
    pub fn and(&self, more: &Self) -> Self {
        Self {
            max_steps: self.max_steps.saturating_add(more.max_steps),
            max_wall_time: self.max_wall_time.saturating_add(more.max_wall_time),
            max_cost: self.max_cost + more.max_cost,
            ..self.clone()
        }
    }

    /// These caps, none of them below `other`'s.
    pub fn at_least(&self, other: &Self) -> Self {
        Self {
            max_steps: self.max_steps.max(other.max_steps),
            max_wall_time: self.max_wall_time.max(other.max_wall_time),
            max_cost: self.max_cost.max(other.max_cost),
            ..self.clone()
        }
    }

    /// The three caps of a run for people.
    pub fn all_shown(&self) -> String {
        BudgetKind::ALL.map(|kind| self.shown(kind)).join(", ")
    }

    /// A cap for people.
    pub fn shown(&self, kind: BudgetKind) -> String {
        match kind {
            BudgetKind::MaxSteps => format!("{} step visits", self.max_steps),
            BudgetKind::MaxWallTime => format!("{:?}", self.max_wall_time),
            BudgetKind::MaxCost => self.max_cost.to_string(),
        }
    }
}

/// What a run has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spend {
    /// Step visits begun.
    pub steps: u32,
    /// Wall time, of predecessors too (D61).
    pub wall_time: Duration,
    /// Known cost.
    pub cost: Money,
    /// Whether some request's cost could not be known.
    pub cost_unknown: bool,
    /// What such requests are taken to have cost.
    #[serde(default, skip_serializing_if = "Money::is_zero")]
    pub estimated: Money,
}

words! {
    /// What became of the budget that all runs of an issue share.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum IssueBudgetState {
        /// Its soft ratio is used; the run goes on.
        Near = "near",
        /// It does not cover the next request.
        UsedUp = "used_up",
        /// A person gave the issue more.
        Extended = "extended",
    }
}

/// What a run heard of the budget that it shares with all runs of its issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueBudget {
    /// What became of it.
    pub state: IssueBudgetState,
    /// Spent, and set aside for requests under way.
    pub spent: Money,
    /// The cap, with what people gave.
    pub cap: Money,
    /// Who gave more: a login, or `local:UID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they gave.
    #[serde(default, skip_serializing_if = "Money::is_zero")]
    pub given: Money,
}

words! {
    /// The kinds of budget, as events and `soft_hits` name them.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum BudgetKind {
        /// `max_steps`.
        MaxSteps = "max_steps",
        /// `max_wall_time`.
        MaxWallTime = "max_wall_time",
        /// `max_cost`.
        MaxCost = "max_cost",
    }
}

impl BudgetKind {
    /// An amount of it with its unit; `amount`: visits, milliseconds, dollars.
    pub fn shown(self, amount: f64) -> String {
        match self {
            Self::MaxSteps => amount.to_string(),
            Self::MaxWallTime => format!("{:.1} s", amount / 1000.0),
            Self::MaxCost => format!("${amount:.4}"),
        }
    }
}
