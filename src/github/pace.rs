//! The pace of all requests of one credential: GitHub minds their number a minute, also of those that it does not count.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// Gives each request its turn.
#[derive(Debug)]
pub(super) struct Pace {
    /// So many go at once.
    at_once: u32,
    /// The part of a minute that each takes.
    each: Duration,
    /// Until when the minutes are taken.
    taken: Mutex<Option<Instant>>,
}

impl Pace {
    /// At most `in_a_minute` requests in any minute: half of them at once, the rest spread over the minute.
    pub fn new(in_a_minute: u32) -> Self {
        let at_once = in_a_minute / 2;
        Self { at_once, each: MINUTE / (in_a_minute - at_once).max(1), taken: Mutex::default() }
    }

    /// How long the next request waits, from `now`. It counts as sent then.
    pub fn turn(&self, now: Instant) -> Duration {
        let each = self.each;
        let mut sent = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // As if each request took its part of the minute: so many may be ahead of that.
        let turn = sent.map_or(now, |sent| sent.max(now)) + each;
        *sent = Some(turn);
        (turn - now).saturating_sub(each * self.at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_than_three_hundred_and_a_burst_does_not_wait() {
        let (pace, start) = (Pace::new(300), Instant::now());
        let mut now = start;
        let mut sent: Vec<Instant> = Vec::new();
        for count in 0..1_500 {
            let wait = pace.turn(now);
            assert!(wait.is_zero() || count >= 150, "{count}: {wait:?}");
            now += wait;
            sent.push(now);
        }
        let busiest =
            sent.iter().map(|from| sent.iter().filter(|at| *at >= from && **at - *from < MINUTE).count());
        assert!(busiest.max().unwrap() <= 301);
        // After a rest there is a burst again.
        now += Duration::from_secs(120);
        assert!((0..150).all(|_| pace.turn(now).is_zero()));
        assert!(!pace.turn(now).is_zero());
    }

    #[test]
    fn how_many_go_at_once_and_how_long_the_next_one_waits_follows_the_number() {
        for (in_a_minute, at_once, wait) in [(1, 0, 60), (2, 1, 60), (20, 10, 6), (100_000, 50_000, 0)] {
            let (pace, now) = (Pace::new(in_a_minute), Instant::now());
            assert!((0..at_once).all(|_| pace.turn(now).is_zero()), "{in_a_minute}");
            assert_eq!(pace.turn(now).as_secs(), wait, "{in_a_minute}");
        }
    }
}
