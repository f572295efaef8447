//! When a sweep is due: a cron expression in a time zone, and what to do about those that were missed.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;

/// A cron expression that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{expression}\" is not a cron expression of five fields (minute hour day month weekday): {why}")]
pub struct CronError {
    expression: String,
    why: String,
}

/// Whether a sweep has become due between `since` and `now`. If several were missed, it is still one.
pub fn due(
    expression: &str,
    timezone: Tz,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, CronError> {
    Ok(next(expression, timezone, since)?.is_some_and(|at| at <= now))
}

/// The first time after `since` at which the expression holds.
pub fn next(
    expression: &str,
    timezone: Tz,
    since: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, CronError> {
    let wrong = |why: String| CronError { expression: expression.to_owned(), why };
    if expression.split_whitespace().count() != 5 {
        return Err(wrong("it has another number of fields".to_owned()));
    }
    let cron = Cron::from_str(expression).map_err(|error| wrong(error.to_string()))?;
    Ok(cron
        .find_next_occurrence(&since.with_timezone(&timezone), false)
        .ok()
        .map(|at| at.with_timezone(&Utc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_sweep_is_due_in_its_own_time_zone_over_the_change_of_clocks_too() {
        let berlin: Tz = "Europe/Berlin".parse().unwrap();
        let friday = at("2026-10-23T02:00:00Z");
        assert_eq!(
            next("0 3 * * 1-5", berlin, friday).unwrap(),
            Some(at("2026-10-26T02:00:00Z")),
            "winter time from Sunday on"
        );
        assert!(!due("0 3 * * 1-5", berlin, friday, at("2026-10-26T01:59:59Z")).unwrap());
        assert!(due("0 3 * * 1-5", berlin, friday, at("2026-10-26T02:00:00Z")).unwrap());
    }

    #[test]
    fn several_missed_sweeps_are_one() {
        let (last, now) = (at("2026-11-01T03:00:00Z"), at("2026-11-21T12:00:00Z"));
        assert!(due("0 3 * * *", Tz::UTC, last, now).unwrap());
        assert!(!due("0 3 * * *", Tz::UTC, now, now).unwrap());
    }

    #[test]
    fn other_numbers_of_fields_are_refused() {
        for bad in ["", "* * * *", "0 0 3 * * *", "61 * * * *"] {
            assert!(
                due(bad, Tz::UTC, at("2026-11-01T03:00:00Z"), at("2026-11-01T03:00:00Z")).is_err(),
                "{bad}"
            );
        }
    }
}
