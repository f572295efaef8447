//! What the nodes of the model share: a store that is linear and whose answers get lost, come late and come twice; GitHub as sets;
//! and what must hold at every change of either.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use agentd::domain::cluster::cells::{
    Hold, IssueCell, NodeCell, NodeState, RepoCell, RunKey, SessionId, SlotsCell,
};
use agentd::domain::cluster::session;

/// How many nodes, issues, and runs at a time.
pub const NODES: usize = 3;
pub const ISSUES: usize = 3;
pub const CAP: usize = 2;
/// A lease, in milliseconds of true time.
pub const LEASE: u64 = 3000;
/// Visits of a run, and its writes to GitHub.
pub const VISITS: u8 = 2;
pub const EFFECTS: u8 = 3;

/// A guard that is taken out, to see that the model misses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// Appends do not name the last sequence.
    NoFence,
    /// Effects begin whether the node is valid or not.
    NoValidity,
    /// Effects begin before their plan is acknowledged.
    EffectBeforePlan,
    /// A labelling is asked for under a new key each time.
    KeyWithoutEvent,
    /// Taking does not write the node's own cell.
    NoOwnCell,
    /// Whoever was cut off goes on counting the silence of others.
    CountsWhileCutOff,
    /// Sessions end by a time of day that others compare with their own.
    TimeToLive,
    /// A holder goes on behind whatever it finds in its journal.
    OpensWhatever,
    /// A node counts its own validity by a clock that people set.
    WallClock,
}

pub const NAMES: [&str; NODES] = ["a", "b", "c"];

/// What a cell says.
#[derive(Debug, Clone)]
pub enum Doc {
    Absent,
    Node(NodeCell),
    Repo(RepoCell),
    Issue(IssueCell),
    Slots(SlotsCell),
}

/// Cells by number: the nodes', the repository's, the slots', the issues'.
pub const REPO: usize = NODES;
pub const SLOTS: usize = NODES + 1;
pub const FIRST_ISSUE: usize = NODES + 2;

/// Several cells, changed together or not at all.
#[derive(Debug, Clone)]
pub struct Commit {
    pub id: u64,
    pub changes: Vec<(usize, u64, Doc)>,
}

/// A line of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Begun,
    Visit(u8),
    Planned(u8),
    Done(u8),
    End,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub id: u64,
    pub term: u64,
    pub line: Line,
}

/// Something on its way to the store.
#[derive(Debug, Clone)]
pub enum Late {
    Commit(Commit),
    Append(usize, u64, usize, Entry),
}

#[derive(Debug, Clone)]
struct Version {
    revision: u64,
    commit: u64,
    doc: Rc<Doc>,
}

pub struct World {
    pub bug: Bug,
    pub now: u64,
    cells: Vec<Vec<Version>>,
    revision: u64,
    /// Issue and labelling → journal of the chain of runs that answers it.
    pub logs: BTreeMap<(usize, u64), Vec<Entry>>,
    /// What was sent and did not arrive yet, with the time when it does.
    pub late: Vec<(u64, Late)>,
    /// Until when nobody reaches the store.
    pub outage_until: u64,
    /// The last labelling of each issue.
    pub labelled: [u64; ISSUES],
    /// Since when each node had no trouble of its own: stood still, was cut off, was killed.
    pub well_since: [u64; NODES],
    /// When each node's cell was last written by itself.
    pub signed_at: [u64; NODES],
    starts: BTreeMap<(usize, u64), u32>,
    done: BTreeSet<(usize, u64, u8)>,
    pub effects: u64,
    pub wrong: Option<String>,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(bug: Bug, traced: bool) -> Self {
        let cell = |_| vec![Version { revision: 0, commit: 0, doc: Rc::new(Doc::Absent) }];
        Self {
            bug,
            now: 0,
            cells: (0..FIRST_ISSUE + ISSUES).map(cell).collect(),
            revision: 0,
            logs: BTreeMap::new(),
            late: Vec::new(),
            outage_until: 0,
            labelled: [0; ISSUES],
            well_since: [0; NODES],
            signed_at: [0; NODES],
            starts: BTreeMap::new(),
            done: BTreeSet::new(),
            effects: 0,
            wrong: None,
            trace: traced.then(Vec::new),
        }
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>6} ms  {}", text()));
        }
    }

    fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            let what = what();
            self.say(|| format!("WRONG: {what}"));
            self.wrong = Some(what);
        }
    }

    fn last(&self, cell: usize) -> &Version {
        self.cells[cell].last().unwrap()
    }

    /// What a cell says; `back` versions ago, where it has as many.
    pub fn read(&self, cell: usize, back: usize) -> (u64, Rc<Doc>) {
        let versions = &self.cells[cell];
        let version = &versions[versions.len() - 1 - back.min(versions.len() - 1)];
        (version.revision, Rc::clone(&version.doc))
    }

    /// Which commit wrote what a cell says now.
    pub fn writer(&self, cell: usize) -> (u64, u64) {
        let last = self.last(cell);
        (last.revision, last.commit)
    }

    pub fn node(&self, node: usize) -> Option<NodeCell> {
        match &*self.last(node).doc {
            Doc::Node(cell) => Some(cell.clone()),
            _ => None,
        }
    }

    pub fn issue(&self, issue: usize) -> IssueCell {
        match &*self.last(FIRST_ISSUE + issue).doc {
            Doc::Issue(cell) => cell.clone(),
            _ => IssueCell::default(),
        }
    }

    pub fn slots(&self) -> SlotsCell {
        match &*self.last(SLOTS).doc {
            Doc::Slots(cell) => cell.clone(),
            _ => SlotsCell::default(),
        }
    }

    fn lives(&self, id: &SessionId) -> bool {
        let node = NAMES.iter().position(|name| *name == id.node).unwrap();
        !session::has_ended(id, self.node(node).as_ref())
    }

    /// Does a commit, if each cell is still what it follows. Gives the revision.
    pub fn apply(&mut self, commit: &Commit) -> Option<u64> {
        let fits = commit.changes.iter().all(|(cell, after, _)| self.last(*cell).revision == *after);
        if !fits {
            return None;
        }
        let before: Vec<Rc<Doc>> =
            commit.changes.iter().map(|(cell, ..)| Rc::clone(&self.last(*cell).doc)).collect();
        self.revision += 1;
        for (cell, _, doc) in &commit.changes {
            let versions = &mut self.cells[*cell];
            // A few are enough to be stale.
            if versions.len() > 4 {
                versions.remove(0);
            }
            versions.push(Version { revision: self.revision, commit: commit.id, doc: Rc::new(doc.clone()) });
        }
        for ((cell, _, doc), before) in commit.changes.iter().zip(before) {
            self.check(*cell, &before, doc);
        }
        Some(self.revision)
    }

    /// What must hold of each change of a cell.
    fn check(&mut self, cell: usize, before: &Doc, after: &Doc) {
        match (before, after) {
            (Doc::Node(was), Doc::Node(is)) => {
                if is.state == NodeState::Expired && was.state == NodeState::Live {
                    self.expired(cell);
                } else {
                    self.signed_at[cell] = self.now;
                }
                if is.session < was.session
                    || (is.session == was.session
                        && was.state == NodeState::Expired
                        && is.state == NodeState::Live)
                {
                    self.violate(|| format!("an ended session of {} came back", NAMES[cell]));
                }
            }
            (_, Doc::Node(_)) => self.signed_at[cell] = self.now,
            (_, Doc::Slots(slots)) if slots.holders.len() > CAP => {
                self.violate(|| format!("{} runs hold a slot, and {CAP} may", slots.holders.len()));
            }
            (before, Doc::Issue(is)) => {
                let none = IssueCell::default();
                let was = if let Doc::Issue(was) = before { was } else { &none };
                self.taken(cell - FIRST_ISSUE, was, is);
            }
            _ => {}
        }
    }

    fn expired(&mut self, node: usize) {
        // Who had no trouble of its own keeps what it has, also where nobody reached the store for a while.
        let (well, signed, outage) = (self.well_since[node], self.signed_at[node], self.outage_until);
        if well <= signed && outage > signed {
            self.violate(|| {
                format!("{} was expired, and only an outage for all had kept it from renewing", NAMES[node])
            });
        }
    }

    fn taken(&mut self, issue: usize, was: &IssueCell, is: &IssueCell) {
        let Hold::Leased { by, key, .. } = &is.hold else { return };
        if matches!(&was.hold, Hold::Leased { by: before, .. } if before == by) && was.term == is.term {
            return;
        }
        if is.term != was.term + 1 {
            self.violate(|| format!("the term of issue {issue} went from {} to {}", was.term, is.term));
        }
        if !self.lives(by) {
            self.violate(|| format!("issue {issue} was taken by a session of {} that has ended", by.node));
        }
        match &was.hold {
            Hold::Leased { by: before, .. } if self.lives(before) => {
                self.violate(|| format!("issue {issue} was taken from {}, which lives", before.node));
            }
            Hold::Offered { .. } => {
                let event = event_of(key);
                let starts = self.starts.entry((issue, event)).or_default();
                *starts += 1;
                if *starts > 1 {
                    self.violate(|| format!("labelling {event} of issue {issue} started two chains of runs"));
                }
            }
            _ => {}
        }
    }

    /// Adds a line, if the journal ends there. Gives whether it did.
    pub fn append(&mut self, issue: usize, event: u64, after: usize, entry: &Entry) -> bool {
        let fence = self.bug != Bug::NoFence;
        let log = self.logs.entry((issue, event)).or_default();
        if fence && log.len() != after {
            return false;
        }
        let overtaken = log.iter().any(|before| before.term > entry.term);
        let again = matches!(entry.line, Line::Visit(_) | Line::End)
            && log.iter().any(|before| before.line == entry.line);
        log.push(entry.clone());
        if overtaken {
            self.violate(|| format!("term {} of issue {issue} wrote behind a later one", entry.term));
        } else if again {
            self.violate(|| format!("issue {issue}: {:?} stands twice in the journal", entry.line));
        }
        true
    }

    /// A write to GitHub begins.
    pub fn effect(&mut self, issue: usize, event: u64, effect: u8, by: &SessionId, term: u64) {
        self.effects += 1;
        let planned = self.logs.get(&(issue, event)).is_some_and(|log| {
            log.iter().any(|entry| entry.line == Line::Planned(effect) && entry.term == term)
        });
        if !planned {
            self.violate(|| {
                format!("issue {issue}, term {term}: an effect began without an acknowledged plan")
            });
        }
        let cell = self.issue(issue);
        let holds =
            cell.term == term && matches!(&cell.hold, Hold::Leased { by: holder, .. } if holder == by);
        if !holds {
            self.violate(|| {
                format!(
                    "issue {issue}: {} began an effect of term {term}, and term {} holds it",
                    by.node, cell.term
                )
            });
        }
        self.done.insert((issue, event, effect));
    }

    pub fn is_done(&self, issue: usize, event: u64, effect: u8) -> bool {
        self.done.contains(&(issue, event, effect))
    }

    /// What was late arrives.
    pub fn deliver(&mut self) {
        let mut index = 0;
        while index < self.late.len() {
            if self.late[index].0 > self.now {
                index += 1;
                continue;
            }
            match self.late.swap_remove(index).1 {
                Late::Commit(commit) => {
                    let done = self.apply(&commit).is_some();
                    self.say(|| {
                        format!("late: commit {} {}", commit.id, if done { "done" } else { "refused" })
                    });
                }
                Late::Append(issue, event, after, entry) => {
                    let done = self.append(issue, event, after, &entry);
                    self.say(|| {
                        format!(
                            "late: line {:?} of issue {issue} {}",
                            entry.line,
                            if done { "kept" } else { "refused" }
                        )
                    });
                }
            }
        }
    }

    /// Whether everything that was asked for has been done, and nothing is left over.
    pub fn unfinished(&self) -> Option<String> {
        for issue in 0..ISSUES {
            let cell = self.issue(issue);
            if cell.answered.label != self.labelled[issue] {
                return Some(format!("issue {issue} was labelled and no run answers it"));
            }
            if !matches!(cell.hold, Hold::Free) {
                return Some(format!("issue {issue} is still held: {:?}", cell.hold));
            }
            let event = self.labelled[issue];
            let ended = self
                .logs
                .get(&(issue, event))
                .is_some_and(|log| log.iter().any(|entry| entry.line == Line::End));
            let written = (0..EFFECTS).all(|effect| self.is_done(issue, event, effect));
            if event > 0 && !(ended && written) {
                return Some(format!("the run of issue {issue} has no end"));
            }
        }
        let left = self.slots().holders.len();
        (left > 0).then(|| format!("{left} slots are left"))
    }
}

pub fn event_of(key: &RunKey) -> u64 {
    match key {
        RunKey::Label(event) => *event,
        // Of the bug: the labelling, then a number of its own.
        RunKey::Other(text) => text.split('-').next().unwrap().parse().unwrap(),
    }
}
