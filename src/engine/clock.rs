//! Time as a value: the wall time at the start of the run, advanced by the monotonic clock.

use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use tokio::time::Instant;

/// The clock of one run. A jump of the system's clock cannot move it.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    started_at: DateTime<Utc>,
    started: Instant,
}

impl RunClock {
    /// A clock that shows `at` now.
    pub fn starting(at: DateTime<Utc>) -> Self {
        Self { started_at: at, started: Instant::now() }
    }

    /// Wall time, in whole milliseconds as records have it (D3).
    pub fn now(&self) -> DateTime<Utc> {
        let elapsed = TimeDelta::from_std(self.elapsed()).unwrap_or(TimeDelta::MAX);
        let now = self.started_at.checked_add_signed(elapsed).unwrap_or(DateTime::<Utc>::MAX_UTC);
        now.trunc_subsecs(3)
    }

    /// Wall time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.now().timestamp_millis()
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The start.
    pub fn started(&self) -> Instant {
        self.started
    }
}
