//! Who lives: a node renews one cell, and the others count for how long they saw it unchanged, by their own time.
//!
//! Renewed is at a third of a lease. A node counts itself as valid until two thirds, others let it expire after a whole one:
//! so the clocks of two hosts may run at rates that differ by half before both would think to hold the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cells::{NODE_SCHEMA, NodeCell, NodeState, SessionId};

/// How often a node renews its cell.
pub fn renewal(lease: Duration) -> Duration {
    lease / 3
}

/// Whether this node may still do what only a living one may. All times are of one monotonic clock that goes on while
/// the machine sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Validity {
    lease: Duration,
    /// When the last renewal that was acknowledged was sent.
    sent: Option<Duration>,
    /// How often it became valid again after it was not.
    lapses: u64,
}

impl Validity {
    /// Of a node that has not been acknowledged yet.
    pub fn new(lease: Duration) -> Self {
        Self { lease, sent: None, lapses: 0 }
    }

    /// A renewal that was sent then is acknowledged now.
    pub fn acknowledged(&mut self, sent: Duration, now: Duration) {
        if !self.holds(now) {
            self.lapses += 1;
        }
        self.sent = self.sent.max(Some(sent));
    }

    /// It is not valid until the next acknowledgement: what it had may be another's.
    pub fn lapse(&mut self) {
        self.sent = None;
    }

    /// How often it became valid again after it was not.
    pub(super) fn lapses(&self) -> u64 {
        self.lapses
    }

    /// Whether it is valid now.
    pub fn holds(&self, now: Duration) -> bool {
        self.left(now) > Duration::ZERO
    }

    /// For how long it is valid yet.
    pub fn left(&self, now: Duration) -> Duration {
        self.sent.map_or(Duration::ZERO, |sent| (sent + self.lease * 2 / 3).saturating_sub(now))
    }
}

/// What this node has seen of the others' cells. It counts only while this node is valid itself: whoever was cut off begins
/// to count anew, so that after an outage for all everybody keeps what they have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Sightings {
    /// Node → revision, and when it was first seen.
    seen: BTreeMap<String, (u64, Duration)>,
    lapses: u64,
}

impl Sightings {
    /// Takes in what was read of a node's cell. Gives whether the same revision was there for a whole lease of this node's
    /// own valid time; then its session may be expired, on that revision.
    pub fn unchanged_for_a_lease(
        &mut self,
        node: &str,
        revision: u64,
        own: &Validity,
        now: Duration,
    ) -> bool {
        if !own.holds(now) || own.lapses != self.lapses {
            self.seen.clear();
            self.lapses = own.lapses;
        }
        match self.seen.get(node) {
            Some((known, since)) if *known == revision => {
                own.holds(now) && now.saturating_sub(*since) >= own.lease
            }
            _ => {
                self.seen.insert(node.to_owned(), (revision, now));
                false
            }
        }
    }
}

/// What is known of the process that a node's cell names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It is gone: this host and boot, and no such process.
    Gone,
    /// Its cell was watched for a whole lease and did not change.
    Silent,
    /// It was not watched for that long yet.
    Watching,
    /// Its cell changed while it was watched.
    Renewing,
}

/// How a node's session begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// By writing this, on the revision that was read.
    Write(Box<NodeCell>),
    /// The cell has to be watched first.
    Watch,
    /// Another process has the name.
    Taken,
}

/// Begins the next session of a node's name. `own` has what the process says of itself; its session is set here.
pub fn begin(found: Option<&NodeCell>, own: &NodeCell, sight: Sight) -> Begin {
    let Some(found) = found else { return Begin::Write(Box::new(first(own, 1))) };
    let next = || Begin::Write(Box::new(first(own, found.session + 1)));
    match found.state {
        NodeState::Expired | NodeState::Left => next(),
        NodeState::Live | NodeState::Draining => match sight {
            Sight::Gone | Sight::Silent => next(),
            Sight::Watching => Begin::Watch,
            Sight::Renewing => Begin::Taken,
        },
    }
}

fn first(own: &NodeCell, session: u64) -> NodeCell {
    NodeCell {
        schema_version: NODE_SCHEMA.to_owned(),
        session,
        renewed: 0,
        state: NodeState::Live,
        ..own.clone()
    }
}

/// Whether an effect may begin: its plan is acknowledged, and this node is valid now. Of what it began, a request may still be on its
/// way when another node takes over.
pub fn may_begin(planned: bool, own: &Validity, now: Duration) -> bool {
    planned && own.holds(now)
}

/// The cell with one more sign of life.
pub fn renewed(cell: &NodeCell) -> NodeCell {
    NodeCell { renewed: cell.renewed + 1, ..cell.clone() }
}

/// The cell of a session that others let expire, or that goes by itself.
pub fn ended(cell: &NodeCell, state: NodeState) -> NodeCell {
    NodeCell { state, ..cell.clone() }
}

/// Whether a node's cell shows that a session has ended: once so, always so. What was read may be old, so a cell from before the
/// session, or none at all, says nothing.
pub fn has_ended(id: &SessionId, cell: Option<&NodeCell>) -> bool {
    cell.is_some_and(|cell| {
        cell.session > id.session
            || (cell.session == id.session && matches!(cell.state, NodeState::Expired | NodeState::Left))
    })
}

#[cfg(test)]
pub(super) fn a_node(session: u64, state: NodeState) -> NodeCell {
    NodeCell {
        schema_version: NODE_SCHEMA.to_owned(),
        session,
        renewed: 0,
        state,
        host: "h".into(),
        boot_id: "b".into(),
        pid: 1,
        started: 1,
        version: "0".into(),
        schemas: vec![1],
        capacity: 1,
        runs: 0,
        github_fails: false,
        serves: Vec::new(),
        configuration: None,
        place: String::new(),
        rest: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_node_is_valid_for_two_thirds_of_a_lease_from_the_sending() {
        let mut own = Validity::new(LEASE);
        assert!(!own.holds(at(0)));
        own.acknowledged(at(100), at(900));
        assert!(own.holds(at(2099)) && !own.holds(at(2100)));
        // An older acknowledgement that comes late takes nothing away.
        own.acknowledged(at(50), at(950));
        assert!(own.holds(at(2099)));
    }

    #[test]
    fn another_expires_after_a_whole_lease_of_own_valid_time_on_one_revision() {
        let mut own = Validity::new(LEASE);
        let mut seen = Sightings::default();
        let mut now = 0;
        let mut look = |own: &mut Validity, ms: u64, revision| {
            now += ms;
            own.acknowledged(at(now), at(now));
            seen.unchanged_for_a_lease("b", revision, own, at(now))
        };
        assert!(!look(&mut own, 0, 7));
        assert!(!look(&mut own, 1000, 7) && !look(&mut own, 1000, 7));
        assert!(look(&mut own, 1000, 7), "a whole lease");
        assert!(!look(&mut own, 1, 8), "it was renewed");
        assert!(!look(&mut own, 1000, 8) && !look(&mut own, 1000, 8));
        // This node was not valid for a moment in between: nothing that it saw before counts.
        assert!(!look(&mut own, 2001, 8));
        assert!(!look(&mut own, 1000, 8) && !look(&mut own, 1000, 8) && look(&mut own, 1000, 8));
    }

    #[test]
    fn a_name_is_taken_over_only_from_who_is_gone_silent_or_ended() {
        let own = a_node(0, NodeState::Live);
        let session = |begin: Begin| match begin {
            Begin::Write(cell) => cell.session,
            other => panic!("{other:?}"),
        };
        assert_eq!(session(begin(None, &own, Sight::Watching)), 1);
        let found = a_node(4, NodeState::Live);
        assert_eq!(begin(Some(&found), &own, Sight::Watching), Begin::Watch);
        assert_eq!(begin(Some(&found), &own, Sight::Renewing), Begin::Taken);
        assert_eq!(session(begin(Some(&found), &own, Sight::Gone)), 5);
        assert_eq!(session(begin(Some(&a_node(4, NodeState::Left)), &own, Sight::Renewing)), 5);
        let id = SessionId { node: "a".into(), session: 4 };
        assert!(!has_ended(&id, Some(&found)) && has_ended(&id, Some(&a_node(5, NodeState::Live))));
        assert!(has_ended(&id, Some(&ended(&found, NodeState::Expired))));
        // A reader of an old copy sees the node as it was before that session.
        assert!(!has_ended(&id, Some(&a_node(3, NodeState::Expired))) && !has_ended(&id, None));
    }
}
