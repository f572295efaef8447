//! How long the servers take to acknowledge what is written.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::sys::clock::Stopwatch;

/// How long what was measured counts.
const LATELY: Duration = Duration::from_secs(60);
/// Most measurements that are remembered.
const MOST: usize = 1000;
/// A longer wait for the acknowledgement of a write is slow.
const SLOW: Duration = Duration::from_secs(1);

/// How long writes took lately until they were acknowledged.
#[derive(Debug, Default)]
pub(super) struct Flushes(Mutex<VecDeque<(Stopwatch, Duration)>>);

impl Flushes {
    /// One took so long.
    pub fn took(&self, time: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back((Stopwatch::start(), time));
    }

    /// The time that 99 of 100 of them stayed below, where that is slow.
    pub fn slow(&self) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while all.front().is_some_and(|(at, _)| at.elapsed() > LATELY) {
            all.pop_front();
        }
        let times: Vec<Duration> = all.iter().map(|(_, time)| *time).collect();
        drop(all);
        p99(times).filter(|time| *time > SLOW)
    }
}

fn p99(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    let last = (times.len() * 99).div_ceil(100).checked_sub(1)?;
    times.get(last).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_hundred_may_be_slow_and_one_of_a_few_may_not() {
        let flushes = Flushes::default();
        assert_eq!(flushes.slow(), None);
        flushes.took(SLOW * 3);
        assert_eq!(flushes.slow(), Some(SLOW * 3));
        (0..98).for_each(|_| flushes.took(SLOW / 9));
        assert_eq!(flushes.slow(), Some(SLOW * 3), "one of 99");
        flushes.took(SLOW / 9);
        assert_eq!(flushes.slow(), None, "one of 100");
        flushes.took(SLOW * 2);
        assert_eq!(flushes.slow(), Some(SLOW * 2), "two of 101");
    }
}
