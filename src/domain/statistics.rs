//! Sums over runs. They show whether the default budgets fit.

use std::collections::BTreeMap;

use serde::Serialize;

use super::money::Money;
use super::run_output::RunOutput;
use super::stop::StopReason;

/// What finished runs come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// How many.
    pub runs: usize,
    /// How many by stop reason.
    pub by_stop_reason: BTreeMap<String, usize>,
    /// Successes among all; `null` without runs.
    pub success_rate: Option<f64>,
    /// Ends for want of evidence among all.
    pub no_evidence_rate: Option<f64>,
    /// Median of the visits that successes took.
    pub median_steps_to_success: Option<f64>,
    /// Median of the time used, in milliseconds.
    pub median_wall_time_ms: Option<f64>,
    /// Median of the part of the time budget that was used.
    pub median_wall_time_used_ratio: Option<f64>,
    /// Known cost.
    pub cost_usd: Money,
    /// Runs of which some cost is not known.
    pub runs_of_unknown_cost: usize,
    /// Verified claims.
    pub verified_claims: usize,
    /// Known cost by verified claim, in dollars.
    pub cost_per_verified_claim_usd: Option<f64>,
}

impl Statistics {
    /// Sums up.
    pub fn of(runs: &[RunOutput]) -> Self {
        let count = |wanted: StopReason| runs.iter().filter(|run| run.stop_reason == wanted).count();
        let rate = |part: usize| (!runs.is_empty()).then(|| part as f64 / runs.len() as f64);
        let mut by_stop_reason = BTreeMap::new();
        for run in runs {
            *by_stop_reason.entry(run.stop_reason.to_string()).or_insert(0) += 1;
        }
        let cost: Money = runs.iter().filter_map(|run| run.totals.cost_usd).sum();
        let verified_claims =
            runs.iter().flat_map(|run| &run.claims).filter(|claim| claim.is_verified()).count();
        let budgeted = runs.iter().filter(|run| run.budgets.max_wall_time_ms > 0);
        Self {
            runs: runs.len(),
            success_rate: rate(count(StopReason::ObjectiveAchieved)),
            no_evidence_rate: rate(count(StopReason::NoEvidence)),
            by_stop_reason,
            median_steps_to_success: median(
                runs.iter().filter(|run| run.success).map(|run| f64::from(run.iterations)),
            ),
            median_wall_time_ms: median(runs.iter().map(|run| run.budgets.wall_time_used_ms as f64)),
            median_wall_time_used_ratio: median(
                budgeted
                    .map(|run| run.budgets.wall_time_used_ms as f64 / run.budgets.max_wall_time_ms as f64),
            ),
            cost_usd: cost,
            runs_of_unknown_cost: runs.iter().filter(|run| run.totals.cost_usd.is_none()).count(),
            verified_claims,
            cost_per_verified_claim_usd: (verified_claims > 0)
                .then(|| cost.dollars() / verified_claims as f64),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (1, Some(value)) => Some(*value),
        (_, Some(upper)) => Some((values.get(middle.checked_sub(1)?)? + upper) / 2.0),
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
