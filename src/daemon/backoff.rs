//! The pause after a start that failed before a run existed. It doubles up to a cap, and in the end a person is asked.

use chrono::{DateTime, TimeDelta, Utc};

use super::state_format::BackOff;

/// First pause.
const FIRST: TimeDelta = TimeDelta::seconds(10);
/// Longest pause.
const LONGEST: TimeDelta = TimeDelta::seconds(300);
/// Starts in a row that may fail before a person is asked (I27).
const MOST: u32 = 8;

impl BackOff {
    /// Whether it is too early. A clock that was set back does not make a pause longer than the longest pause.
    pub fn holds(&self, now: DateTime<Utc>) -> bool {
        self.until > now && self.until - now <= LONGEST
    }

    /// The pause after one more failure; `None` = enough, a person has to look.
    pub fn after(previous: Option<&Self>, now: DateTime<Utc>, why: impl Into<String>) -> Option<Self> {
        let attempts = previous.map_or(0, |previous| previous.attempts) + 1;
        if attempts > MOST {
            return None;
        }
        let pause = (FIRST * (1 << (attempts - 1).min(16))).min(LONGEST);
        Some(Self { attempts, until: now + pause, why: why.into(), held: false })
    }

    /// A pause without a failure, because somebody else holds the branch. It never leads to a person.
    pub fn held(previous: Option<&Self>, now: DateTime<Utc>, why: impl Into<String>) -> Self {
        let attempts = previous.map_or(0, |previous| previous.attempts).min(MOST - 1);
        let pause = (FIRST * (1 << attempts.min(16))).min(LONGEST);
        Self { attempts: (attempts + 1).min(MOST - 1), until: now + pause, why: why.into(), held: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_ends_a_pause() {
        let now = DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(9);
        let pause = BackOff::after(None, now, "why").unwrap();
        assert!(pause.holds(now) && !pause.holds(now + TimeDelta::seconds(10)));
        assert!(!pause.holds(now - TimeDelta::days(1)));
    }

    #[test]
    fn i27_pauses_double_up_to_five_minutes_and_then_a_person_is_asked() {
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let mut pauses = Vec::new();
        let mut last = None;
        while let Some(next) = BackOff::after(last.as_ref(), now, "why") {
            pauses.push((next.until - now).num_seconds());
            last = Some(next);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
    }
}
