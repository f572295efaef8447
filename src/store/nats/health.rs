//! How the servers are for this node: their clock, the room of their streams, and how long they take.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::shared::NatsStore;
use crate::domain::cluster::names::StreamKind;
use crate::store::port::{Servers, StoreError};
use crate::sys::clock::Stopwatch;

/// How long what was measured counts.
const LATELY: Duration = Duration::from_secs(60);
/// Most measurements that are remembered.
const MOST: usize = 1000;
/// A longer wait for the acknowledgement of a write is slow.
const SLOW: Duration = Duration::from_secs(1);
/// The longest line of a journal: where a stream has less room than that, a run that begins may not come far.
const LONGEST_LINE: u64 = 1024 * 1024;
/// The streams that a run cannot begin without.
const NEEDED: [StreamKind; 3] = [StreamKind::Log, StreamKind::Cells, StreamKind::Blobs];

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
    fn slow(&self) -> Option<Duration> {
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

impl NatsStore {
    pub(super) fn health(&self) -> Result<Option<Servers>, StoreError> {
        let Some((time, under_way)) = self.servers_time()? else { return Ok(None) };
        let slow = self.shared.flushes.slow();
        let later_form = self.session().and_then(|session| session.later_form());
        Ok(Some(Servers { time: Some(time), under_way, full: self.full()?, slow, later_form }))
    }

    fn full(&self) -> Result<Option<String>, StoreError> {
        for kind in NEEDED {
            let Some(stream) = self.stream(kind)? else { continue };
            let Ok(most) = u64::try_from(stream.config.max_bytes) else { continue };
            let left = most.saturating_sub(stream.state.bytes);
            if most > 0 && left < LONGEST_LINE {
                let name = self.names().stream(kind);
                return Ok(Some(format!(
                    "the stream {name} may have {most} bytes and has room for {left} more"
                )));
            }
        }
        Ok(None)
    }
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
