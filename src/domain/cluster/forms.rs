//! Which form of what nodes share is in force, while versions work side by side: the next one, once all that live have offered it for long
//! enough. It never falls.
//!
//! What was seen counts only while this session was valid itself: whoever stood still, or was cut off, begins to count anew, and so does a
//! new session.

use std::time::Duration;

use super::cells::{FORM, NodeCell};
use super::session::Validity;

/// How long all living sessions must have offered a form before it is in force.
const OFFERED_FOR: Duration = Duration::from_secs(3600);

/// The forms that a version knows: the first one up to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forms {
    /// The newest.
    pub newest: u32,
    /// How long all living sessions must have offered the next one before it is in force.
    pub offered_for: Duration,
}

impl Default for Forms {
    /// Those of this version.
    fn default() -> Self {
        Self { newest: FORM, offered_for: OFFERED_FOR }
    }
}

impl Forms {
    /// All of them, as a node's cell tells them.
    pub fn all(self) -> Vec<u32> {
        (1..=self.newest).collect()
    }

    /// Whether a version that knows these may take part while a form is in force.
    pub fn know(self, in_force: u32) -> bool {
        in_force <= self.newest
    }
}

/// Since when all living sessions offer the next form, as one session has seen it. All times are of its monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offered {
    next: u32,
    since: Option<Duration>,
    /// The last revision of a cell that does not offer it, of a session that has ended: a later one was there meanwhile.
    without: u64,
    lapses: u64,
}

impl Offered {
    /// Takes in the cells of all nodes, each with its revision. Gives the form that is to be in force instead of `in_force`.
    pub fn look(
        &mut self,
        forms: Forms,
        in_force: u32,
        cells: &[(u64, NodeCell)],
        own: &Validity,
        now: Duration,
    ) -> Option<u32> {
        let next = in_force + 1;
        let without = cells.iter().filter(|(_, cell)| !cell.schemas.contains(&next));
        let newest_without = without.clone().map(|(revision, _)| *revision).max().unwrap_or(0);
        let all_know = forms.know(next) && !without.clone().any(|(_, cell)| cell.state.lives());
        let is_as_before = self.next == next && self.without == newest_without && self.lapses == own.lapses();
        (self.next, self.without, self.lapses) = (next, newest_without, own.lapses());
        if !all_know || !own.holds(now) {
            self.since = None;
            return None;
        }
        let since = *self.since.filter(|_| is_as_before).get_or_insert(now);
        self.since = Some(since);
        (now.saturating_sub(since) >= forms.offered_for).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::cells::NodeState;
    use crate::domain::cluster::session::a_node;

    const LATER: Forms = Forms { newest: 2, offered_for: Duration::from_secs(10) };

    fn cell(newest: u32, state: NodeState) -> NodeCell {
        NodeCell { schemas: Forms { newest, ..LATER }.all(), ..a_node(1, state) }
    }

    /// A session that is valid all the time, and what it sees second by second.
    struct Watch(Offered, Validity, u64);

    impl Watch {
        fn begin() -> Self {
            Self(Offered::default(), Validity::new(Duration::from_secs(3)), 100)
        }

        fn after(&mut self, seconds: u64, in_force: u32, cells: &[(u64, NodeCell)]) -> Option<u32> {
            let mut rises = None;
            for _ in 0..seconds {
                self.2 += 1;
                let now = Duration::from_secs(self.2);
                self.1.acknowledged(now, now);
                rises = self.0.look(LATER, in_force, cells, &self.1, now);
            }
            rises
        }
    }

    #[test]
    fn the_next_form_is_in_force_once_all_that_live_have_offered_it_for_as_long_without_a_break() {
        let (old, new) = (|state| cell(1, state), || cell(2, NodeState::Live));
        let mut watch = Watch::begin();
        assert_eq!(
            watch.after(30, 1, &[(1, new()), (2, old(NodeState::Live))]),
            None,
            "one does not know it"
        );
        assert_eq!(watch.after(30, 1, &[(1, new()), (2, old(NodeState::Draining))]), None, "it works yet");
        let gone = [(1, new()), (3, old(NodeState::Left))];
        assert_eq!(watch.after(10, 1, &gone), None, "not yet as long");
        assert_eq!(watch.after(1, 1, &gone), Some(2));
        // One that was there between two looks.
        assert_eq!(watch.after(1, 1, &[(1, new()), (5, old(NodeState::Expired))]), None);
        assert_eq!(watch.after(9, 1, &[(1, new()), (5, old(NodeState::Expired))]), None);
        assert_eq!(watch.after(1, 1, &[(1, new()), (5, old(NodeState::Expired))]), Some(2));
        assert_eq!(watch.after(30, 2, &[(1, new())]), None, "the newest that is known here");
        assert_eq!(watch.after(30, 3, &[(1, new())]), None, "a later one is in force");
    }

    #[test]
    fn who_was_not_valid_meanwhile_counts_anew() {
        let all = [(1, cell(2, NodeState::Live))];
        let mut watch = Watch::begin();
        assert_eq!(watch.after(10, 1, &all), None);
        // It stands still for a lease.
        watch.2 += 3;
        assert_eq!(watch.after(10, 1, &all), None);
        assert_eq!(watch.after(1, 1, &all), Some(2));
        let mut expired = Watch::begin();
        assert_eq!(expired.0.look(LATER, 1, &all, &expired.1, Duration::from_secs(1)), None);
        assert_eq!(expired.0.since, None, "it is not valid");
    }
}
