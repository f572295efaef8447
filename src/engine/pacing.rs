//! Waits between attempts: `Retry-After` if the provider sent it, otherwise waits that double.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How a doubling wait begins and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first refusal.
    pub first: Duration,
    /// Never longer.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl Backoff {
    fn after(&self, refusals: u32) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(refusals.saturating_sub(1)));
        doubled.min(self.cap)
    }
}

/// Targets of one turn that asked to be left alone for a while.
#[derive(Debug, Default)]
pub struct Refusals {
    until: BTreeMap<usize, Instant>,
    count: BTreeMap<usize, u32>,
}

impl Refusals {
    /// A target refused. It is asked again after `retry_after`, or after the backoff.
    pub fn note(&mut self, target: usize, retry_after: Option<Duration>, backoff: &Backoff) {
        let count = self.count.entry(target).or_default();
        *count += 1;
        let wait = retry_after.unwrap_or_else(|| backoff.after(*count));
        // A wait beyond any wall time counts as for ever.
        let far = Duration::from_secs(365 * 24 * 3600);
        self.until.insert(target, Instant::now() + wait.min(far));
    }

    /// When `target` may be asked: at once, unless it refused. If all of `live` refused, the cycle waits for the
    /// longest wait among them.
    pub fn wait_for(&self, target: usize, live: &[usize]) -> Duration {
        let now = Instant::now();
        let left = |target: &usize| {
            self.until.get(target).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
        };
        if live.iter().all(|target| self.until.contains_key(target)) {
            live.iter().map(left).max().unwrap_or_default()
        } else {
            left(&target)
        }
    }

    /// A wait is over: who refused before it is asked afresh.
    pub fn waited(&mut self) {
        self.until.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_053_waits_double_up_to_their_cap() {
        let backoff = Backoff::default();
        let waits: Vec<u64> = [1, 2, 3, 7, 40].map(|refusals| backoff.after(refusals).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 60, 60]);
    }

    #[test]
    fn a_052_another_target_is_asked_at_once_and_a_whole_cycle_waits_for_the_longest() {
        let mut refusals = Refusals::default();
        refusals.note(0, Some(SECOND * 2), &Backoff::default());
        assert_eq!(refusals.wait_for(1, &[0, 1]), Duration::ZERO);
        assert!(refusals.wait_for(0, &[0, 1]) > SECOND);
        refusals.note(1, Some(SECOND * 9), &Backoff::default());
        assert!(refusals.wait_for(0, &[0, 1]) > SECOND * 8);
        refusals.waited();
        assert_eq!(refusals.wait_for(0, &[0, 1]), Duration::ZERO);
    }
}
