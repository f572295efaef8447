//! A node of the model: what it knows, and what it does in one moment. Its decisions are the functions of the program.

use std::rc::Rc;
use std::time::Duration;

use agentd::domain::cluster::cells::{
    Hold, IssueCell, NODE_SCHEMA, NodeCell, NodeState, RepoCell, RunKey, SessionId, SlotsCell,
};
use agentd::domain::cluster::lease::{self, LeaseClaim};
use agentd::domain::cluster::outcome::{self, WriteOutcome};
use agentd::domain::cluster::poller;
use agentd::domain::cluster::session::{self, Begin, Sight, Sightings, Validity};

use super::random::Random;
use super::world::{
    Bug, CAP, Commit, Doc, EFFECTS, Entry, FIRST_ISSUE, ISSUES, LEASE, Late, Line, NAMES, NODES, REPO, SLOTS,
    VISITS, World,
};

/// What may go wrong, by bits of a mask.
pub const LOST: u8 = 1;
pub const LATE: u8 = 2;
pub const TWICE: u8 = 4;
pub const STALE: u8 = 8;

/// What this node waits to know the end of.
#[derive(Debug, Clone)]
enum Pending {
    Commit(Box<(Commit, Purpose)>),
    Append(Entry, usize),
}

/// What follows from a commit.
#[derive(Debug, Clone)]
enum Purpose {
    Begin(NodeCell),
    /// Its own cell was written too, where it says so.
    Own(Option<NodeCell>, After),
    Other,
}

#[derive(Debug, Clone)]
enum After {
    Nothing,
    Taken { issue: usize, event: u64, term: u64 },
    GivenBack,
}

/// A run that this node works on.
#[derive(Debug, Clone)]
struct Run {
    issue: usize,
    event: u64,
    term: u64,
    /// Where the journal ends, as this node knows; `None` = it has not read it.
    place: Option<usize>,
    /// A visit is under way.
    visiting: bool,
}

pub struct Node {
    index: usize,
    /// How fast its clock runs, in thousandths.
    pub rate: u64,
    /// What people add to its time of day, in milliseconds.
    pub wall: i64,
    pub sleeps_until: u64,
    pub cut_until: u64,
    own: Option<(SessionId, u64, NodeCell)>,
    /// The time at which its last own write was sent.
    sent: u64,
    validity: Validity,
    sightings: Sightings,
    renew_at: u64,
    /// Which revision of an issue it saw, and since when.
    offered_seen: [(u64, Duration); ISSUES],
    run: Option<Run>,
    pending: Option<Pending>,
    next_id: u64,
}

fn lease() -> Duration {
    Duration::from_millis(LEASE)
}

impl Node {
    pub fn new(index: usize, rate: u64) -> Self {
        Self {
            index,
            rate,
            wall: 0,
            sleeps_until: 0,
            cut_until: 0,
            own: None,
            sent: 0,
            validity: Validity::new(lease()),
            sightings: Sightings::default(),
            renew_at: 0,
            offered_seen: [(0, Duration::ZERO); ISSUES],
            run: None,
            pending: None,
            next_id: 1,
        }
    }

    /// It is killed: what it knew is gone.
    pub fn crash(&mut self) {
        let next_id = self.next_id;
        let (rate, wall) = (self.rate, self.wall);
        *self = Self { rate, wall, next_id, ..Self::new(self.index, rate) };
    }

    /// Its own clock, which goes on while it sleeps.
    fn clock(&self, world: &World) -> Duration {
        Duration::from_millis(world.now * self.rate / 1000)
    }

    /// What it judges its own validity by.
    fn own_clock(&self, world: &World) -> Duration {
        match world.bug {
            Bug::WallClock => {
                let wall = self.clock(world).as_millis() as i64 + self.wall + 100_000;
                Duration::from_millis(wall.try_into().unwrap_or_default())
            }
            _ => self.clock(world),
        }
    }

    fn valid(&self, world: &World) -> bool {
        self.own.is_some() && self.validity.holds(self.own_clock(world))
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id * NODES as u64 + self.index as u64
    }

    fn reads(&self, world: &World, cell: usize, random: &mut Random, faults: u8) -> (u64, Rc<Doc>) {
        let back = if faults & STALE != 0 && random.one_in(6) { 1 + random.below(3) } else { 0 };
        world.read(cell, back as usize)
    }

    /// One moment: at most one thing is asked of the store.
    pub fn act(&mut self, world: &mut World, random: &mut Random, faults: u8) {
        if world.now < self.cut_until || world.now < world.outage_until {
            return self.act_alone(world);
        }
        match self.pending.take() {
            Some(Pending::Commit(both)) => {
                let (commit, purpose) = *both;
                return self.resolve(world, random, faults, commit, purpose);
            }
            Some(Pending::Append(entry, place)) => {
                return self.resolve_line(world, random, faults, entry, place);
            }
            None => {}
        }
        let Some((id, revision, cell)) = self.own.clone() else { return self.begin(world, random, faults) };
        // The renewal is another task's than the run's: either may come first.
        if self.clock(world).as_millis() as u64 >= self.renew_at && random.one_in(2) {
            let next = session::renewed(&cell);
            let commit =
                Commit { id: self.id(), changes: vec![(self.index, revision, Doc::Node(next.clone()))] };
            return self.commit(world, random, faults, commit, Purpose::Own(Some(next), After::Nothing));
        }
        match random.below(4) {
            0 => self.poll(world, random, faults, &id),
            1 => self.take(world, random, faults, &id, revision, &cell),
            _ => self.work(world, random, faults, &id, revision, &cell),
        }
    }

    /// What goes on without a store: nothing that others would see, but the effect that is planned, while it is valid.
    fn act_alone(&mut self, world: &mut World) {
        if let (Some(run), Some((id, ..))) = (self.run.clone(), self.own.clone())
            && self.pending.is_none()
        {
            self.effect(world, &run, &id);
        }
    }

    fn begin(&mut self, world: &mut World, random: &mut Random, faults: u8) {
        let (revision, doc) = world.read(self.index, 0);
        let found = if let Doc::Node(cell) = &*doc { Some(cell) } else { None };
        let own = NodeCell {
            schema_version: NODE_SCHEMA.to_owned(),
            session: 0,
            renewed: 0,
            state: NodeState::Live,
            host: String::new(),
            boot_id: String::new(),
            pid: 0,
            started: 0,
            version: String::new(),
            schemas: vec![1],
            capacity: 1,
            runs: 0,
            github_fails: false,
            serves: Vec::new(),
            configuration: None,
            place: String::new(),
            rest: serde_json::Map::new(),
        };
        // Its own former process is gone, which it sees on its host.
        let Begin::Write(cell) = session::begin(found, &own, Sight::Gone) else { return };
        let commit =
            Commit { id: self.id(), changes: vec![(self.index, revision, Doc::Node((*cell).clone()))] };
        self.commit(world, random, faults, commit, Purpose::Begin(*cell));
    }

    /// Sends a commit. Its answer may get lost, it may come late, or twice.
    fn commit(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        commit: Commit,
        purpose: Purpose,
    ) {
        self.sent = self.own_clock(world).as_millis() as u64;
        if faults & LATE != 0 && random.one_in(12) {
            let at = world.now + random.below(2 * LEASE);
            world.late.push((at, Late::Commit(commit.clone())));
            self.pending = Some(Pending::Commit(Box::new((commit, purpose))));
            return;
        }
        let done = world.apply(&commit);
        if faults & TWICE != 0 && random.one_in(12) {
            world.late.push((world.now + random.below(LEASE), Late::Commit(commit.clone())));
        }
        if faults & LOST != 0 && random.one_in(8) {
            self.pending = Some(Pending::Commit(Box::new((commit, purpose))));
            return;
        }
        match done {
            Some(revision) => self.committed(world, revision, purpose),
            None => self.refused(world, purpose),
        }
    }

    /// What became of a commit without an answer: its id stands in the cells, or they are as they were, or another's.
    fn resolve(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        commit: Commit,
        purpose: Purpose,
    ) {
        let cells = commit.changes.iter().map(|(cell, after, _)| {
            let (revision, writer) = world.writer(*cell);
            (revision, *after, writer == commit.id)
        });
        match outcome::of_commit(cells) {
            WriteOutcome::There(revision) => self.committed(world, revision, purpose),
            WriteOutcome::Overtaken => self.refused(world, purpose),
            WriteOutcome::Open => self.commit(world, random, faults, commit, purpose),
        }
    }

    fn committed(&mut self, world: &mut World, revision: u64, purpose: Purpose) {
        let name = NAMES[self.index];
        match purpose {
            Purpose::Begin(cell) => {
                let id = SessionId { node: name.to_owned(), session: cell.session };
                world.say(|| format!("{name} begins session {}", cell.session));
                self.own = Some((id, revision, cell));
                self.validity = Validity::new(lease());
                self.acknowledged(world);
            }
            Purpose::Own(cell, after) => {
                if let (Some(cell), Some(own)) = (cell, &mut self.own) {
                    (own.1, own.2) = (revision, cell);
                    self.acknowledged(world);
                }
                match after {
                    After::Nothing => {}
                    After::Taken { issue, event, term } => {
                        world.say(|| format!("{name} has issue {issue} (labelling {event}) as term {term}"));
                        self.run = Some(Run { issue, event, term, place: None, visiting: false });
                    }
                    After::GivenBack => {
                        world.say(|| format!("{name} gives its issue back"));
                        self.run = None;
                    }
                }
            }
            Purpose::Other => {}
        }
    }

    fn acknowledged(&mut self, world: &World) {
        let (sent, now) = (Duration::from_millis(self.sent), self.own_clock(world));
        self.validity.acknowledged(sent, now.max(sent));
        self.renew_at = self.clock(world).as_millis() as u64 + session::renewal(lease()).as_millis() as u64;
    }

    fn refused(&mut self, world: &mut World, purpose: Purpose) {
        if let Purpose::Begin(_) | Purpose::Other = purpose {
            return;
        }
        // Perhaps its own cell was changed: then this session has been expired, and never comes back.
        let expired =
            self.own.as_ref().is_some_and(|(_, revision, _)| world.writer(self.index).0 != *revision);
        if expired {
            world.say(|| format!("{} sees that its session has ended", NAMES[self.index]));
            self.own = None;
            self.run = None;
        }
    }

    /// What of the others' cells shows that they have ended; who is silent for a lease is expired. `None`: it was, and this
    /// moment is over.
    fn lives(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        other: &SessionId,
    ) -> Option<bool> {
        let node = NAMES.iter().position(|name| *name == other.node).unwrap();
        let (revision, doc) = self.reads(world, node, random, faults);
        let Doc::Node(cell) = &*doc else { return Some(true) };
        if session::has_ended(other, Some(cell)) {
            return Some(false);
        }
        let now = self.clock(world);
        let silent = match world.bug {
            Bug::TimeToLive => {
                // The other one's time of day, against this one's.
                let theirs = world.signed_at[node] as i64;
                world.now as i64 + self.wall - theirs > LEASE as i64
            }
            Bug::CountsWhileCutOff => {
                let mut always = Validity::new(lease());
                always.acknowledged(now, now);
                self.sightings.unchanged_for_a_lease(NAMES[node], revision, &always, now)
            }
            Bug::WallClock => {
                let mut own = self.validity.clone();
                if self.valid(world) {
                    own.acknowledged(now, now);
                }
                self.sightings.unchanged_for_a_lease(NAMES[node], revision, &own, now)
            }
            _ => self.sightings.unchanged_for_a_lease(NAMES[node], revision, &self.validity, now),
        };
        if !silent {
            return Some(true);
        }
        world.say(|| format!("{} expires {}", NAMES[self.index], NAMES[node]));
        let ended = session::ended(cell, NodeState::Expired);
        let commit = Commit { id: self.id(), changes: vec![(node, revision, Doc::Node(ended))] };
        self.commit(world, random, faults, commit, Purpose::Other);
        None
    }

    fn poll(&mut self, world: &mut World, random: &mut Random, faults: u8, id: &SessionId) {
        if !self.valid(world) {
            return;
        }
        let (revision, doc) = self.reads(world, REPO, random, faults);
        let repo = if let Doc::Repo(cell) = &*doc { cell.clone() } else { RepoCell::default() };
        let lives = match &repo.poller {
            Some(poller) if poller != id => match self.lives(world, random, faults, poller) {
                Some(lives) => lives,
                None => return,
            },
            _ => false,
        };
        let live =
            (0..NODES).filter(|node| world.node(*node).is_some_and(|cell| cell.state == NodeState::Live));
        let first = poller::first("o/n", live.map(|node| NAMES[node]));
        let own_first = first == Some(NAMES[self.index]);
        let Some((_, own_revision, own)) = self.own.clone() else { return };
        if own_first && let Some(next) = poller::taken(&repo, lives, id) {
            let renewed = session::renewed(&own);
            let changes = vec![
                (REPO, revision, Doc::Repo(next)),
                (self.index, own_revision, Doc::Node(renewed.clone())),
            ];
            let commit = Commit { id: self.id(), changes };
            return self.commit(world, random, faults, commit, Purpose::Own(Some(renewed), After::Nothing));
        }
        let next_one = first.filter(|_| !own_first).and_then(|name| {
            let node = NAMES.iter().position(|one| *one == name)?;
            Some(SessionId { node: name.to_owned(), session: world.node(node)?.session })
        });
        if let Some(next) = next_one.and_then(|next| poller::handed_over(&repo, &next, id)) {
            let commit = Commit { id: self.id(), changes: vec![(REPO, revision, Doc::Repo(next))] };
            return self.commit(world, random, faults, commit, Purpose::Other);
        }
        if repo.poller.as_ref() != Some(id) {
            return;
        }
        let issue = random.below(ISSUES as u64) as usize;
        let (revision, doc) = self.reads(world, FIRST_ISSUE + issue, random, faults);
        let cell = if let Doc::Issue(cell) = &*doc { cell.clone() } else { IssueCell::default() };
        let event = world.labelled[issue];
        let key = match world.bug {
            Bug::KeyWithoutEvent => RunKey::Other(format!("{event}-{}", self.id())),
            _ => RunKey::Label(event),
        };
        // No more stand offered than may begin.
        let holds = (0..ISSUES).map(|issue| world.issue(issue).hold);
        let offered = holds.filter(|hold| matches!(hold, Hold::Offered { .. })).count();
        let free = lease::has_room_for_another(offered, world.slots().holders.len(), CAP);
        let to = NAMES[random.below(NODES as u64) as usize];
        if event > 0
            && free
            && let Some(next) = lease::offered(&cell, &key, Some(to))
        {
            let commit =
                Commit { id: self.id(), changes: vec![(FIRST_ISSUE + issue, revision, Doc::Issue(next))] };
            self.commit(world, random, faults, commit, Purpose::Other);
        }
    }

    fn take(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        id: &SessionId,
        own_revision: u64,
        own: &NodeCell,
    ) {
        if self.run.is_some() || !self.valid(world) {
            return;
        }
        let issue = random.below(ISSUES as u64) as usize;
        let (revision, doc) = self.reads(world, FIRST_ISSUE + issue, random, faults);
        let Doc::Issue(cell) = &*doc else { return };
        let now = self.clock(world);
        let (known, since) = self.offered_seen[issue];
        if known != revision {
            self.offered_seen[issue] = (revision, now);
        }
        let seen_for = if known == revision { now.saturating_sub(since) } else { Duration::ZERO };
        if !lease::may_take(cell, NAMES[self.index], seen_for) {
            return;
        }
        let dead = match &cell.hold {
            Hold::Leased { by, .. } => match self.lives(world, random, faults, by) {
                Some(lives) => !lives,
                None => return,
            },
            _ => false,
        };
        let Ok(next) = lease::taken(cell, dead, id, &LeaseClaim::Due, serde_json::Value::Null) else {
            return;
        };
        let (slots_revision, slots) = world.read(SLOTS, 0);
        let slots = if let Doc::Slots(slots) = &*slots { slots.clone() } else { SlotsCell::default() };
        let Ok(slots) = lease::slot_taken(&slots, &issue.to_string(), id, CAP) else { return };
        let Hold::Leased { key, .. } = &next.hold else { return };
        let after = After::Taken { issue, event: super::world::event_of(key), term: next.term };
        let renewed = session::renewed(own);
        let mut changes = vec![
            (FIRST_ISSUE + issue, revision, Doc::Issue(next)),
            (SLOTS, slots_revision, Doc::Slots(slots)),
        ];
        let written = (world.bug != Bug::NoOwnCell).then(|| {
            changes.push((self.index, own_revision, Doc::Node(renewed.clone())));
            renewed
        });
        let commit = Commit { id: self.id(), changes };
        self.commit(world, random, faults, commit, Purpose::Own(written, after));
    }

    /// The effect that is planned begins, if this node is valid now.
    fn effect(&mut self, world: &mut World, run: &Run, id: &SessionId) {
        // What this node knows: its own last line is a plan. Whether somebody came behind it, it cannot know.
        let log = world.logs.get(&(run.issue, run.event));
        let last = run.place.and_then(|place| log?.get(place.checked_sub(1)?));
        let Some(Entry { line: Line::Planned(effect), .. }) =
            last.filter(|last| last.term == run.term).cloned()
        else {
            return;
        };
        let now = self.own_clock(world);
        let may = world.bug == Bug::NoValidity || session::may_begin(true, &self.validity, now);
        if may && !world.is_done(run.issue, run.event, effect) {
            world.say(|| {
                format!("{} writes {effect} to GitHub for issue {}, term {}", id.node, run.issue, run.term)
            });
            world.effect(run.issue, run.event, effect, id, run.term);
        }
    }

    fn work(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        id: &SessionId,
        own_revision: u64,
        own: &NodeCell,
    ) {
        let Some(run) = self.run.clone() else { return };
        let log = world.logs.get(&(run.issue, run.event)).cloned().unwrap_or_default();
        // Its journal is read once, where it takes over; from then on it only goes on behind its own lines.
        let Some(place) = run.place else {
            let terms = log.iter().map(|entry| entry.term);
            if world.bug != Bug::OpensWhatever && !lease::may_open(run.term, terms) {
                return self.overtaken(world);
            }
            let entry = Entry { id: self.id(), term: run.term, line: Line::Begun };
            return self.append(world, random, faults, entry, log.len());
        };
        let known = &log[..place.min(log.len())];
        let has = |line: Line| known.iter().any(|entry| entry.line == line);
        let line = if let Some(visit) = (0..VISITS).find(|visit| !has(Line::Visit(*visit))) {
            if !run.visiting {
                // A visit begins only while this node is valid; its end is written whatever has become of that.
                if self.valid(world)
                    && let Some(run) = &mut self.run
                {
                    run.visiting = true;
                }
                return;
            }
            Line::Visit(visit)
        } else if let Some(effect) = (0..EFFECTS).find(|effect| !has(Line::Done(*effect))) {
            let plan = |entry: &Entry| entry.line == Line::Planned(effect) && entry.term == run.term;
            let written = world.is_done(run.issue, run.event, effect);
            if world.bug == Bug::EffectBeforePlan && !written && self.valid(world) {
                return world.effect(run.issue, run.event, effect, id, run.term);
            }
            match (written, known.iter().any(plan)) {
                (true, _) => Line::Done(effect),
                (false, true) => return self.effect(world, &run, id),
                (false, false) => Line::Planned(effect),
            }
        } else if !has(Line::End) {
            Line::End
        } else {
            return self.give_back(world, random, faults, id, own_revision, own, &run);
        };
        let entry = Entry { id: self.id(), term: run.term, line };
        self.append(world, random, faults, entry, place);
    }

    fn append(&mut self, world: &mut World, random: &mut Random, faults: u8, entry: Entry, place: usize) {
        let Some(run) = self.run.clone() else { return };
        if faults & LATE != 0 && random.one_in(12) {
            let at = world.now + random.below(2 * LEASE);
            world.late.push((at, Late::Append(run.issue, run.event, place, entry.clone())));
            self.pending = Some(Pending::Append(entry, place));
            return;
        }
        let done = world.append(run.issue, run.event, place, &entry);
        if faults & LOST != 0 && random.one_in(8) {
            self.pending = Some(Pending::Append(entry, place));
            return;
        }
        match done {
            true => self.appended(world, &entry, place + 1),
            false => self.overtaken(world),
        }
    }

    fn resolve_line(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        entry: Entry,
        place: usize,
    ) {
        let Some(run) = self.run.clone() else { return };
        let log = world.logs.get(&(run.issue, run.event)).cloned().unwrap_or_default();
        let next = log.get(place).map(|found| (place as u64 + 1, found.id == entry.id));
        match outcome::of_append(place as u64, next, log.len() as u64) {
            WriteOutcome::There(_) => self.appended(world, &entry, place + 1),
            WriteOutcome::Overtaken => self.overtaken(world),
            WriteOutcome::Open => self.append(world, random, faults, entry, place),
        }
    }

    fn appended(&mut self, world: &mut World, entry: &Entry, place: usize) {
        let name = NAMES[self.index];
        if let Some(run) = &mut self.run {
            run.place = Some(place);
            run.visiting = false;
            let issue = run.issue;
            world.say(|| format!("{name} writes {:?} of issue {issue}, term {}", entry.line, entry.term));
        }
    }

    fn overtaken(&mut self, world: &mut World) {
        world.say(|| format!("{} is overtaken", NAMES[self.index]));
        self.run = None;
    }

    fn give_back(
        &mut self,
        world: &mut World,
        random: &mut Random,
        faults: u8,
        id: &SessionId,
        own_revision: u64,
        own: &NodeCell,
        run: &Run,
    ) {
        let (revision, doc) = world.read(FIRST_ISSUE + run.issue, 0);
        let Doc::Issue(cell) = &*doc else { return };
        let Some(next) = lease::given_back(cell, id, run.term) else { return self.overtaken(world) };
        let (slots_revision, _) = world.read(SLOTS, 0);
        let slots = lease::slot_given_back(&world.slots(), &run.issue.to_string(), id);
        let renewed = session::renewed(own);
        let changes = vec![
            (FIRST_ISSUE + run.issue, revision, Doc::Issue(next)),
            (SLOTS, slots_revision, Doc::Slots(slots)),
            (self.index, own_revision, Doc::Node(renewed.clone())),
        ];
        let commit = Commit { id: self.id(), changes };
        self.commit(world, random, faults, commit, Purpose::Own(Some(renewed), After::GivenBack));
    }
}
