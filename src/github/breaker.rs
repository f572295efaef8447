//! The shared breaker for GitHub's primary and secondary limits. While a limit holds, a caller waits or is told until
//! when.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::cluster::quota::QuotaLimit;

/// Shortest pause after a limit was hit, so that a clock that is off never makes a tight loop.
const SHORTEST: Duration = Duration::from_secs(1);
/// Pause after a secondary limit without `Retry-After`; doubles each time in a row, up to [`LONGEST`].
const SECONDARY: Duration = Duration::from_secs(60);
/// Longest pause that a doubling reaches.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The longest pause that is accepted. GitHub's own limits end within the hour; a proxy in between could name any time.
const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);

/// What a limited request has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    /// From now.
    pub wait: Duration,
    /// By GitHub's clock, if it says so.
    pub until: Option<DateTime<Utc>>,
}

/// A primary budget as last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// `core`, `graphql`, …
    pub resource: String,
    /// Requests an hour.
    pub limit: u64,
    /// Requests left.
    pub remaining: u64,
    /// When it is full again.
    pub reset: Option<DateTime<Utc>>,
}

/// The breaker's state, for `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BreakerState {
    /// Primary budgets by resource.
    pub budgets: Vec<Budget>,
    /// Until when requests are held back, and by which limit.
    pub held: Option<LimitInForce>,
    /// Requests that GitHub counted.
    pub counted: u64,
    /// Requests answered with 304, which cost nothing.
    pub unchanged: u64,
}

/// A limit that holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitInForce {
    /// `primary` or `secondary`.
    pub limit: &'static str,
    /// How long still.
    pub wait: Duration,
    /// By GitHub's clock.
    pub until: Option<DateTime<Utc>>,
}

#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
    /// Counts the limits that were met here.
    met: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    primary: BTreeMap<String, Primary>,
    secondary: Option<Gate>,
    in_a_row: u32,
    counted: u64,
    unchanged: u64,
    /// GitHub's clock as an answer said it, and when that came.
    clock: Option<(DateTime<Utc>, Instant)>,
}

#[derive(Debug)]
struct Primary {
    limit: u64,
    remaining: u64,
    reset: Option<DateTime<Utc>>,
    closed: Option<Gate>,
}

#[derive(Debug, Clone, Copy)]
struct Gate {
    until: Instant,
    reset: Option<DateTime<Utc>>,
    /// Whether another process met it.
    is_others: bool,
}

impl Gate {
    fn pause(self, now: Instant) -> Option<Pause> {
        let wait = self.until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(Pause { wait, until: self.reset })
    }
}

impl Breaker {
    /// Whether a request for `resource` that would be sent at `now` has to wait.
    pub fn pause(&self, resource: &str, now: Instant) -> Option<Pause> {
        let state = self.lock();
        let primary =
            state.primary.get(resource).and_then(|primary| primary.closed).and_then(|gate| gate.pause(now));
        let secondary = state.secondary.and_then(|gate| gate.pause(now));
        [primary, secondary].into_iter().flatten().max_by_key(|pause| pause.wait)
    }

    /// Reads the status and headers of an answer that came at `now`. True = a limit refused the request (`message` is
    /// GitHub's text, for limits that are told in words only). The request had no effect and may be sent again after
    /// [`Breaker::pause`].
    pub fn note(
        &self,
        resource: &str,
        status: u16,
        headers: &HeaderMap,
        message: &str,
        now: Instant,
    ) -> bool {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let date = date_of(headers);
        let reset = number("x-ratelimit-reset")
            .and_then(|seconds| DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0));
        // GitHub's clock against GitHub's clock: ours may be off.
        let until_reset = match (reset, date) {
            (Some(reset), Some(date)) => {
                (reset - date).to_std().unwrap_or(SHORTEST).clamp(SHORTEST, BELIEVED)
            }
            _ => SECONDARY,
        };
        let remaining = number("x-ratelimit-remaining");
        let retry_after = number("retry-after").map(Duration::from_secs);
        let words = message.to_ascii_lowercase();
        let said = words.contains("rate limit") || words.contains("abuse detection");
        let limited = status == 429
            || (status == 403 && (retry_after.is_some() || remaining == Some(0) || said))
            || (status == 200 && said);
        let mut state = self.lock();
        state.clock = date.map(|date| (date, now)).or(state.clock);
        if status == 304 {
            state.unchanged += 1;
        } else if !limited {
            state.counted += 1;
        }
        let resource =
            headers.get("x-ratelimit-resource").and_then(|name| name.to_str().ok()).unwrap_or(resource);
        if let Some(remaining) = remaining {
            let known = state.primary.get(resource).map(|primary| primary.limit);
            let limit = number("x-ratelimit-limit").or(known).unwrap_or_default();
            let closed =
                (remaining == 0).then_some(Gate { until: now + until_reset, reset, is_others: false });
            state.primary.insert(resource.to_owned(), Primary { limit, remaining, reset, closed });
            if closed.is_some() {
                self.met.send_modify(|count| *count += 1);
            }
        }
        if !limited {
            state.in_a_row = 0;
            return false;
        }
        if remaining == Some(0) && retry_after.is_none() {
            return true;
        }
        state.in_a_row += 1;
        let doubled = SECONDARY.saturating_mul(1 << (state.in_a_row - 1).min(10)).min(LONGEST);
        let wait = retry_after.unwrap_or(doubled).clamp(SHORTEST, BELIEVED);
        let reset = date.and_then(|date| date.checked_add_signed(TimeDelta::from_std(wait).ok()?));
        state.secondary = Some(Gate { until: now + wait, reset, is_others: false });
        self.met.send_modify(|count| *count += 1);
        true
    }

    /// Changes each time that a limit is met here.
    pub fn met(&self) -> watch::Receiver<u64> {
        self.met.subscribe()
    }

    /// The limits that were met here and hold at `now`, for others with the same credential.
    pub fn own(&self, now: Instant) -> Vec<QuotaLimit> {
        let state = self.lock();
        let own = |resource: Option<&String>, gate: Option<Gate>, in_a_row: u32| {
            let pause = gate.filter(|gate| !gate.is_others)?.pause(now)?;
            let wait_ms = u64::try_from(pause.wait.as_millis()).unwrap_or(u64::MAX);
            Some(QuotaLimit { resource: resource.cloned(), until: pause.until, wait_ms, in_a_row })
        };
        let primary = state.primary.iter().filter_map(|(name, primary)| own(Some(name), primary.closed, 0));
        own(None, state.secondary, state.in_a_row).into_iter().chain(primary).collect()
    }

    /// Takes the limits that others met and told of at `now`, by GitHub's clock where it is known. The longer one of two holds.
    pub fn hold_back(&self, limits: &[QuotaLimit], now: Instant) {
        let mut state = self.lock();
        for limit in limits {
            let clock = state.clock.map(|(said, at)| (said, now.saturating_duration_since(at)));
            let wait = match (limit.until, clock) {
                (Some(until), Some((said, since))) => {
                    (until - said).to_std().unwrap_or_default().saturating_sub(since)
                }
                _ => Duration::from_millis(limit.wait_ms),
            };
            let gate = Gate { until: now + wait.min(BELIEVED), reset: limit.until, is_others: true };
            if gate.pause(now).is_none() {
                continue;
            }
            let known = match &limit.resource {
                None => {
                    state.in_a_row = state.in_a_row.max(limit.in_a_row);
                    &mut state.secondary
                }
                Some(resource) => {
                    let none = Primary { limit: 0, remaining: 0, reset: limit.until, closed: None };
                    &mut state.primary.entry(resource.clone()).or_insert(none).closed
                }
            };
            if known.is_none_or(|known| known.until < gate.until) {
                *known = Some(gate);
            }
        }
    }

    /// What GitHub's clock says at `now`; `None` = no answer has said it yet.
    pub fn clock(&self, now: Instant) -> Option<DateTime<Utc>> {
        let (said, at) = self.lock().clock?;
        said.checked_add_signed(TimeDelta::from_std(now.saturating_duration_since(at)).ok()?)
    }

    /// For `status`.
    pub fn snapshot(&self, now: Instant) -> BreakerState {
        let state = self.lock();
        let budgets = state.primary.iter().map(|(resource, primary)| Budget {
            resource: resource.clone(),
            limit: primary.limit,
            remaining: primary.remaining,
            reset: primary.reset,
        });
        let held = |limit, gate: Option<Gate>| {
            gate.and_then(|gate| gate.pause(now)).map(|pause| LimitInForce {
                limit,
                wait: pause.wait,
                until: pause.until,
            })
        };
        let primary = state
            .primary
            .values()
            .filter_map(|primary| held("primary", primary.closed))
            .max_by_key(|held| held.wait);
        BreakerState {
            budgets: budgets.collect(),
            held: held("secondary", state.secondary).or(primary),
            counted: state.counted,
            unchanged: state.unchanged,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Reads several answers and gives what is known afterwards. For tests with answers that GitHub does not send.
#[doc(hidden)]
pub fn read_limits<'a>(answers: impl IntoIterator<Item = (u16, &'a HeaderMap, &'a str)>) -> BreakerState {
    let (breaker, now) = (Breaker::default(), Instant::now());
    for (status, headers, message) in answers {
        breaker.note("core", status, headers, message, now);
        breaker.pause("core", now);
    }
    breaker.snapshot(now)
}

/// The `Date` header: GitHub's clock.
pub(super) fn date_of(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    DateTime::parse_from_rfc2822(text).ok().map(|at| at.with_timezone(&Utc))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_used_up_primary_budget_holds_its_own_resource_until_the_reset() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let answer = headers(&[
            ("date", "Sat, 21 Nov 2026 08:00:00 GMT"),
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1795248090"),
        ]);
        assert!(!breaker.note("core", 200, &answer, "", now), "the last request itself was served");
        let pause = breaker.pause("core", now).unwrap();
        assert_eq!(pause.wait, Duration::from_secs(90));
        assert_eq!(pause.until.unwrap().timestamp(), 1_795_248_090);
        assert_eq!(breaker.pause("graphql", now), None);
        assert_eq!(breaker.pause("core", now + Duration::from_secs(91)), None);
    }

    #[test]
    fn a_refusal_by_a_primary_limit_that_does_not_name_the_limit_holds_too() {
        for status in [403, 429] {
            let (breaker, now) = (Breaker::default(), Instant::now());
            let answer = headers(&[
                ("date", "Sat, 21 Nov 2026 08:00:00 GMT"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1795248090"),
            ]);
            assert!(breaker.note("core", status, &answer, "API rate limit exceeded", now));
            assert_eq!(breaker.pause("core", now).unwrap().wait, Duration::from_secs(90));
        }
    }

    #[test]
    fn a_secondary_limit_holds_everything_and_doubles_without_retry_after() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let words = "You have exceeded a secondary rate limit";
        assert!(breaker.note("core", 403, &headers(&[]), words, now));
        assert_eq!(breaker.pause("graphql", now).unwrap().wait, Duration::from_secs(60));
        assert!(breaker.note("core", 403, &headers(&[]), words, now));
        assert_eq!(breaker.pause("core", now).unwrap().wait, Duration::from_secs(120));
        assert!(!breaker.note("core", 200, &headers(&[]), "", now));
        assert!(breaker.note("core", 429, &headers(&[("retry-after", "7")]), "", now));
        assert_eq!(breaker.pause("core", now).unwrap().wait, Duration::from_secs(7));
    }

    #[test]
    fn a_wait_beyond_all_time_is_a_day() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        assert!(breaker.note("core", 429, &headers(&[("retry-after", "18446744073709551615")]), "", now));
        assert_eq!(breaker.pause("core", now).unwrap().wait, BELIEVED);
        let (breaker, reset) = (Breaker::default(), "8210266876799");
        let answer = [
            ("date", "Sat, 21 Nov 2026 08:00:00 GMT"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset),
        ];
        assert!(breaker.note("core", 403, &headers(&answer), "", now));
        assert_eq!(breaker.pause("core", now).unwrap().wait, BELIEVED);
    }

    #[test]
    fn what_another_met_holds_back_and_is_not_told_again_and_the_longer_one_holds() {
        let (one, other, now) = (Breaker::default(), Breaker::default(), Instant::now());
        let date = ("date", "Sat, 21 Nov 2026 08:00:00 GMT");
        assert!(one.note("core", 429, &headers(&[date, ("retry-after", "30")]), "", now));
        let told = one.own(now);
        // The other has heard GitHub's clock ten seconds later.
        other.note("core", 200, &headers(&[("date", "Sat, 21 Nov 2026 08:00:10 GMT")]), "", now);
        other.hold_back(&told, now);
        assert_eq!(other.pause("graphql", now).unwrap().wait, Duration::from_secs(20));
        assert_eq!(other.own(now), []);
        // Who knows no clock counts from when it was told.
        let third = Breaker::default();
        third.hold_back(&told, now);
        assert_eq!(third.pause("core", now).unwrap().wait, Duration::from_secs(30));
        assert!(third.note("core", 429, &headers(&[date, ("retry-after", "50")]), "", now));
        third.hold_back(&told, now);
        assert_eq!(third.pause("core", now).unwrap().wait, Duration::from_secs(50));
    }

    #[test]
    fn a_missing_permission_is_not_a_limit() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let answer = headers(&[("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4999")]);
        assert!(!breaker.note("core", 403, &answer, "Resource not accessible by personal access token", now));
        assert_eq!(breaker.pause("core", now), None);
    }
}
