//! How far a node's wall clock is off that of the store's servers. Nothing is decided by either clock but that a node which is too far
//! off begins nothing: its days, schedules and ages would be others than its neighbours'.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// How far a clock is off, where that is too far; positive = it is ahead of the servers'. `under_way`: how long the answer took, by which
/// nothing is known.
pub fn too_far(
    own: DateTime<Utc>,
    servers: DateTime<Utc>,
    under_way: Duration,
    most: Duration,
) -> Option<TimeDelta> {
    let off = own - servers;
    let is_too_far = off.abs().to_std().is_ok_and(|off| off > most.saturating_add(under_way));
    is_too_far.then_some(off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_took_counts_for_the_node_and_either_direction_counts_against_it() {
        let (now, most) = (DateTime::<Utc>::UNIX_EPOCH, Duration::from_secs(30));
        let off = |seconds, took| {
            too_far(now + TimeDelta::seconds(seconds), now, Duration::from_secs(took), most)
                .map(|off| off.num_seconds())
        };
        assert_eq!((off(30, 0), off(31, 0), off(-31, 0)), (None, Some(31), Some(-31)));
        assert_eq!((off(-33, 3), off(-34, 3)), (None, Some(-34)));
    }
}
