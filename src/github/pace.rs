//! The pace of all requests of one credential: GitHub minds their number a minute, also of those that it does not count.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// The time in which so many may go. Requests are not equally long on their way, so that those of a minute arrive in less.
const WINDOW: Duration = Duration::from_secs(61);

/// Gives each request its turn.
#[derive(Debug)]
pub(super) struct Pace {
    /// So many may go in any minute, those of all who share the credential together.
    in_a_minute: u32,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// The part of the requests of a minute that is this process's.
    own: usize,
    /// When the requests of the last minute and a little more went, and when those go that wait; in order.
    sent: VecDeque<Instant>,
}

impl Pace {
    /// At most `in_a_minute` requests in any minute: half of them at once, the rest as fast as those of the minute before went, so
    /// that a busy hour has more than half of what its minutes may have.
    pub fn new(in_a_minute: u32) -> Self {
        let pace = Self { in_a_minute, turns: Mutex::default() };
        pace.share(1);
        pace
    }

    /// How many may go in any minute, those of all who share the credential together.
    pub fn in_a_minute(&self) -> u32 {
        self.in_a_minute
    }

    /// So many share it from now on; each has its part, and one request a minute at least.
    pub fn share(&self, among: u32) {
        let own = (self.in_a_minute / among.max(1)).max(1);
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).own = own as usize;
    }

    /// Whether less than a quarter of a minute's requests went in the last one, so that what nobody waits for may go, too.
    pub fn has_room(&self, now: Instant) -> bool {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.sent.iter().rev().take_while(|sent| **sent + WINDOW > now).count() < turns.own.div_ceil(4)
    }

    /// How long the next request waits, from `now`. It counts as sent then.
    pub fn turn(&self, now: Instant) -> Duration {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        while turns.sent.front().is_some_and(|sent| *sent + WINDOW <= now) {
            turns.sent.pop_front();
        }
        let (own, count) = (turns.own, turns.sent.len());
        let last = turns.sent.back().copied().unwrap_or(now);
        let mut turn = now.max(last);
        if count >= own / 2 {
            let each = MINUTE / u32::try_from(count).unwrap_or(u32::MAX).max(1);
            turn = now.max(last + each);
        }
        // The one that went so many requests before must be a minute away, and a little more.
        if let Some(before) = count.checked_sub(own).and_then(|place| turns.sent.get(place)) {
            turn = turn.max(*before + WINDOW);
        }
        turns.sent.push_back(turn);
        turn - now
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
        assert!(busiest.max().unwrap() <= 300);
        // One is a second longer on its way than those after it.
        for late in 0..sent.len() - 300 {
            let arrived = sent[late] + Duration::from_secs(1);
            let with = sent[late + 1..].iter().filter(|at| **at < arrived + MINUTE).count();
            assert!(with < 300, "{late}: {with}");
        }
        let took = now - start;
        assert!(took <= MINUTE * 7, "more than two hundred a minute go: {took:?}");
        // After a rest there is a burst again.
        now += Duration::from_secs(120);
        assert!((0..150).all(|_| pace.turn(now).is_zero()));
        assert!(!pace.turn(now).is_zero());
    }

    #[test]
    fn there_is_room_for_what_nobody_waits_for_while_little_goes() {
        let (pace, now) = (Pace::new(40), Instant::now());
        for _ in 0..10 {
            assert!(pace.has_room(now));
            pace.turn(now);
        }
        assert!(!pace.has_room(now) && pace.turn(now).is_zero());
        assert!(pace.has_room(now + WINDOW));
        assert!(Pace::new(1).has_room(now));
    }

    #[test]
    fn who_shares_it_has_a_part_and_all_of_it_again_when_the_others_are_gone() {
        let (pace, now) = (Pace::new(300), Instant::now());
        pace.share(3);
        assert!((0..50).all(|_| pace.turn(now).is_zero()));
        assert_eq!(pace.turn(now).as_millis(), 1_200, "a hundred in a minute, and fifty of them at once");
        pace.share(1);
        assert!(pace.turn(now + MINUTE * 2).is_zero());
        assert!((0..149).all(|_| pace.turn(now + MINUTE * 2).is_zero()));
        pace.share(1_000);
        assert_eq!(pace.turn(now + MINUTE * 9).as_secs(), 60);
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
