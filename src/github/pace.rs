//! The pace of all requests of one credential: GitHub minds their number a minute, also of those that it does not count.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests in any minute at most: half of them at once, the rest spread over the minute. GitHub's secondary limit is 900
/// points a minute, of which a read takes one and a write five.
const MOST_A_MINUTE: u32 = 300;
const AT_ONCE: u32 = MOST_A_MINUTE / 2;
const MINUTE: Duration = Duration::from_secs(60);

/// Gives each request its turn.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// How long the next request waits, from `now`. It counts as sent then.
    pub fn turn(&self, now: Instant) -> Duration {
        let each = MINUTE / (MOST_A_MINUTE - AT_ONCE);
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // As if each request took its part of the minute: so many may be ahead of that.
        let turn = sent.map_or(now, |sent| sent.max(now)) + each;
        *sent = Some(turn);
        (turn - now).saturating_sub(each * AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_than_three_hundred_and_a_burst_does_not_wait() {
        let (pace, start) = (Pace::default(), Instant::now());
        let mut now = start;
        let mut sent: Vec<Instant> = Vec::new();
        for count in 0..1_500 {
            let wait = pace.turn(now);
            assert!(wait.is_zero() || count >= AT_ONCE, "{count}: {wait:?}");
            now += wait;
            sent.push(now);
        }
        let busiest =
            sent.iter().map(|from| sent.iter().filter(|at| *at >= from && **at - *from < MINUTE).count());
        assert!(busiest.max().unwrap() <= 301);
        // After a rest there is a burst again.
        now += Duration::from_secs(120);
        assert!((0..AT_ONCE).all(|_| pace.turn(now).is_zero()));
        assert!(!pace.turn(now).is_zero());
    }
}
