//! The only file that reads clocks: wall time as a value that tests can fix, and stopwatches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound as _, Utc};

/// Where time comes from. Cheap to clone; clones of a fixed clock share its time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant },
    Fixed(Arc<Mutex<FixedTime>>),
}

#[derive(Debug)]
struct FixedTime {
    wall: DateTime<Utc>,
    monotonic: Duration,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands at `at` until [`Clock::advance`] moves it.
    pub fn fixed(at: DateTime<Utc>) -> Self {
        Self(Source::Fixed(Arc::new(Mutex::new(FixedTime { wall: at, monotonic: Duration::ZERO }))))
    }

    /// Wall time, cut to milliseconds, the resolution of every record (D3).
    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "this is the place that reads the time")]
            Source::System { .. } => Utc::now().trunc_subsecs(3),
            Source::Fixed(time) => time.lock().unwrap_or_else(PoisonError::into_inner).wall,
        }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.now().timestamp_millis()
    }

    /// Time since the clock was made; never goes back.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Fixed(time) => time.lock().unwrap_or_else(PoisonError::into_inner).monotonic,
        }
    }

    /// Moves a fixed clock on; a system clock takes no orders.
    pub fn advance(&self, by: Duration) {
        if let Source::Fixed(time) = &self.0 {
            let mut time = time.lock().unwrap_or_else(PoisonError::into_inner);
            time.monotonic += by;
            time.wall += by;
        }
    }
}

/// Measures how long something really took, whatever clock the run has.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Time since some moment before this process, which goes on while the machine sleeps and never goes back. What was true a
/// while ago is not true any more after a suspension, which [`Stopwatch`] does not see.
#[cfg(unix)]
pub fn awake_or_asleep() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    // Elsewhere the monotonic clock counts sleep by itself.
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    #[test]
    fn a_fixed_clock_moves_only_when_told_and_its_clones_move_with_it() {
        let clock = Clock::fixed(Utc.with_ymd_and_hms(2026, 1, 2, 3, 4, 5).unwrap());
        let clone = clock.clone();
        assert_eq!(clock.now(), clone.now());
        clone.advance(Duration::from_millis(1500));
        assert_eq!(clock.monotonic(), Duration::from_millis(1500));
        assert_eq!(clock.now().to_rfc3339(), "2026-01-02T03:04:06.500+00:00");
    }

    #[test]
    fn the_system_clock_has_millisecond_resolution() {
        assert_eq!(Clock::system().now().timestamp_subsec_nanos() % 1_000_000, 0);
    }
}
