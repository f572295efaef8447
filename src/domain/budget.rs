//! Budgets of a run and what was spent of them (X-002… …X-022).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::money::Money;

/// The hard caps of one run. Defaults are the contract's: 12 visits, 15 minutes, 10 dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budgets {
    /// Step visits.
    pub max_steps: u32,
    /// From the run's start to its end.
    pub max_wall_time: Duration,
    /// Provider cost of the run.
    pub max_cost: Money,
    /// Whether `max_cost` was set by someone rather than by default: then an unknown price is an error (contracts §3.7).
    pub max_cost_is_explicit: bool,
    /// Part of a cap at which people are warned, 0 to 1.
    pub soft_ratio: f64,
    /// Provider cost of all runs of one UTC day; `None` = no cap.
    pub max_cost_per_day: Option<Money>,
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
}

/// The kinds of budget, as events and `soft_hits` name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// `max_steps`.
    MaxSteps,
    /// `max_wall_time`.
    MaxWallTime,
    /// `max_cost`.
    MaxCost,
}

impl BudgetKind {
    /// The word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxSteps => "max_steps",
            Self::MaxWallTime => "max_wall_time",
            Self::MaxCost => "max_cost",
        }
    }
}
