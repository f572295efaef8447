//! Who works on an issue: a run is offered under a key that no run has answered, one session takes it, and each taking raises
//! the term, the number that fences off who had it before.

use std::cmp::Reverse;
use std::time::Duration;

use serde_json::Value;

use super::cells::{Hold, IssueCell, RunKey, SessionId, SlotsCell};
use super::names::node_of;

/// Why an issue is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotClaimed {
    /// A living session has it.
    Held(SessionId),
    /// No run is due.
    NothingDue,
    /// As many runs as may are at work.
    Full,
}

/// How a session comes to an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseClaim {
    /// By what stands offered, or in the place of a dead holder.
    Due,
    /// By a person's wish, which needs no offer: `run --issue`.
    Asked(RunKey),
}

/// How long nodes that a run is not offered to leave it alone.
pub const OTHERS_WAIT: Duration = Duration::from_secs(2);

/// Whether one more run may be offered: never more than slots are free, so that order and fairness stay the scheduler's. `cap` 0 =
/// none.
pub fn has_room_for_another(offered: usize, held: usize, cap: usize) -> bool {
    cap == 0 || offered + held < cap
}

/// A living node with room, as a poller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub node: String,
    /// Whether the issue's worktree is there.
    pub has_worktree: bool,
    /// Runs that it has.
    pub runs: u32,
    /// Runs that it may have.
    pub capacity: u32,
}

/// The node that has a run: the one with its worktree, else the one with the most room, of these `own`. `None`: none has room.
pub fn preferred<'a>(candidates: &'a [Candidate], own: &str) -> Option<&'a str> {
    best_of(candidates.iter(), own)
}

/// The node that goes on with a run that was moved away from the one with its worktree: `to`, else any other one, else that one. `None`:
/// none has room.
pub fn moved_to<'a>(candidates: &'a [Candidate], to: Option<&str>, own: &str) -> Option<&'a str> {
    best_of(candidates.iter().filter(|one| to == Some(one.node.as_str())), own)
        .or_else(|| best_of(candidates.iter().filter(|one| !one.has_worktree), own))
        .or_else(|| preferred(candidates, own))
}

fn best_of<'a>(candidates: impl Iterator<Item = &'a Candidate>, own: &str) -> Option<&'a str> {
    let room = candidates.filter(|one| one.runs < one.capacity);
    let best = room
        .max_by_key(|one| (one.has_worktree, one.capacity - one.runs, one.node == own, Reverse(&one.node)));
    best.map(|one| one.node.as_str())
}

/// Whether a node may take what stands offered: at once if it is offered to it or to nobody, else when it has seen it for a while by
/// its own time. What is not offered is not held back.
pub fn may_take(cell: &IssueCell, own: &str, seen_for: Duration) -> bool {
    match &cell.hold {
        Hold::Offered { to: Some(node), .. } => node == own || seen_for >= OTHERS_WAIT,
        Hold::Offered { to: None, .. } | Hold::Leased { .. } | Hold::Free => true,
    }
}

/// The issue's cell with a run offered. `None`: the key has been answered, or somebody has the issue already.
pub fn offered(cell: &IssueCell, key: &RunKey, to: Option<&str>) -> Option<IssueCell> {
    let free = matches!(cell.hold, Hold::Free);
    (free && !cell.answered.has(key)).then(|| {
        let hold = Hold::Offered { key: key.clone(), to: to.map(str::to_owned) };
        IssueCell { hold, ..cell.clone() }
    })
}

/// The issue's cell with what was offered taken back; `None` where nothing is offered.
pub fn withdrawn(cell: &IssueCell) -> Option<IssueCell> {
    matches!(cell.hold, Hold::Offered { .. }).then(|| IssueCell { hold: Hold::Free, ..cell.clone() })
}

/// The issue's cell with the lease taken: written together with the taker's own cell, so that a session that has expired takes
/// nothing. `dead`: whether the holder that the cell names has ended, which its own node's cell says.
pub fn taken(
    cell: &IssueCell,
    dead: bool,
    own: &SessionId,
    claim: &LeaseClaim,
    holder: Value,
) -> Result<IssueCell, NotClaimed> {
    let key = match (&cell.hold, claim) {
        (Hold::Leased { by, .. }, _) if !dead => return Err(NotClaimed::Held(by.clone())),
        // Whoever takes a dead holder's place goes on with what that one answered.
        (Hold::Leased { key, .. } | Hold::Offered { key, .. }, _) | (Hold::Free, LeaseClaim::Asked(key)) => {
            key.clone()
        }
        (Hold::Free, LeaseClaim::Due) => return Err(NotClaimed::NothingDue),
    };
    let mut next = cell.clone();
    next.term += 1;
    next.answered.put(&key);
    next.worktree_on = Some(node_of(&own.node).to_owned());
    next.hold = Hold::Leased { by: own.clone(), key, holder };
    Ok(next)
}

/// Whether a session has the issue in that term.
pub fn holds(cell: &IssueCell, own: &SessionId, term: u64) -> bool {
    cell.term == term && matches!(&cell.hold, Hold::Leased { by, .. } if by == own)
}

/// Whether a holder may go on behind what it read of a journal: not if a line there is of a later term. The last sequence alone does not
/// fence off a holder that was overtaken before it had read its journal.
pub fn may_open(own_term: u64, terms: impl Iterator<Item = u64>) -> bool {
    terms.max().is_none_or(|latest| latest <= own_term)
}

/// The issue's cell as this session had it, where the store has come back with an older copy of it. `None`: another has had it since. `dead`:
/// whether the holder that the copy names has ended.
pub fn retaken(found: &IssueCell, had: &IssueCell, own: &SessionId, dead: bool) -> Option<IssueCell> {
    let may = match &found.hold {
        Hold::Leased { by, .. } if by == own => found.term <= had.term,
        Hold::Leased { .. } => dead && found.term < had.term,
        Hold::Free | Hold::Offered { .. } => found.term < had.term,
    };
    may.then(|| had.clone())
}

/// The issue's cell after its holder ended; `None` where that one does not have it any more.
pub fn given_back(cell: &IssueCell, own: &SessionId, term: u64) -> Option<IssueCell> {
    holds(cell, own, term).then(|| IssueCell { hold: Hold::Free, ..cell.clone() })
}

/// A cap's cell with one holder more; the slot of an earlier term of the same issue becomes the taker's. `cap` 0 = none.
pub fn slot_taken(
    slots: &SlotsCell,
    issue: &str,
    own: &SessionId,
    cap: usize,
) -> Result<SlotsCell, NotClaimed> {
    let mut next = slots.clone();
    next.holders.insert(issue.to_owned(), own.clone());
    match cap == 0 || next.holders.len() <= cap || next.holders.len() == slots.holders.len() {
        true => Ok(next),
        false => Err(NotClaimed::Full),
    }
}

/// A cap's cell without a holder that has ended; a slot that another has now stays.
pub fn slot_given_back(slots: &SlotsCell, issue: &str, own: &SessionId) -> SlotsCell {
    let mut next = slots.clone();
    if next.holders.get(issue) == Some(own) {
        next.holders.remove(issue);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_copy_does_not_know_is_had_as_before_unless_another_had_it_since() {
        let (own, other) = (id("a"), id("b"));
        let at = |term, hold| IssueCell { term, hold, ..IssueCell::default() };
        let of = |by: &SessionId| Hold::Leased { by: by.clone(), key: RunKey::Label(1), holder: Value::Null };
        let had = at(3, of(&own));
        let may = |found: IssueCell, dead| match retaken(&found, &had, &own, dead) {
            Some(next) => next == had,
            None => false,
        };
        assert!(
            may(at(2, Hold::Free), false) && may(at(0, Hold::Free), false) && may(at(3, of(&own)), false)
        );
        assert!(may(at(2, of(&other)), true), "the one before it, who has ended");
        assert!(!may(at(2, of(&other)), false), "who may have taken it since");
        assert!(!may(at(3, Hold::Free), false), "who has had it since, and ended");
        assert!(!may(at(3, of(&other)), true) && !may(at(4, of(&own)), false));
    }

    fn id(node: &str) -> SessionId {
        SessionId { node: node.into(), session: 1 }
    }

    #[test]
    fn one_labelling_starts_one_run_and_each_taking_raises_the_term() {
        let free = IssueCell::default();
        let key = RunKey::Label(40);
        let due = offered(&free, &key, Some("a")).unwrap();
        assert_eq!(offered(&due, &RunKey::Label(41), None), None, "one at a time");
        assert!(may_take(&due, "a", Duration::ZERO) && !may_take(&due, "b", Duration::from_millis(1999)));
        assert!(may_take(&due, "b", OTHERS_WAIT), "who is away keeps nobody waiting");
        let held = taken(&due, false, &id("a"), &LeaseClaim::Due, Value::Null).unwrap();
        assert_eq!(held.term, 1);
        assert_eq!(
            taken(&held, false, &id("b"), &LeaseClaim::Due, Value::Null),
            Err(NotClaimed::Held(id("a")))
        );
        let over = taken(&held, true, &id("b"), &LeaseClaim::Due, Value::Null).unwrap();
        assert!(may_open(2, [1, 2].into_iter()) && may_open(1, std::iter::empty()));
        assert!(!may_open(1, [1, 2].into_iter()), "its journal is another's now");
        assert!(holds(&over, &id("b"), 2) && !holds(&over, &id("a"), 1));
        assert_eq!(given_back(&over, &id("a"), 1), None, "who lost it gives nothing back");
        let ended = given_back(&over, &id("b"), 2).unwrap();
        assert_eq!(offered(&ended, &key, None), None, "it has been answered");
        assert_eq!(offered(&ended, &RunKey::Label(39), None), None, "and so has what came before");
        assert!(offered(&ended, &RunKey::Label(41), None).is_some());
        assert_eq!(
            taken(&ended, false, &id("a"), &LeaseClaim::Due, Value::Null),
            Err(NotClaimed::NothingDue)
        );
        let asked = LeaseClaim::Asked(RunKey::Other("operator:1".into()));
        assert_eq!(taken(&ended, false, &id("a"), &asked, Value::Null).unwrap().term, 3);
    }

    #[test]
    fn a_slot_is_one_issues_and_a_cap_holds() {
        let none = SlotsCell::default();
        let one = slot_taken(&none, "7", &id("a"), 1).unwrap();
        assert_eq!(slot_taken(&one, "8", &id("b"), 1), Err(NotClaimed::Full));
        assert!(slot_taken(&one, "8", &id("b"), 0).is_ok(), "0 = no cap");
        let over = slot_taken(&one, "7", &id("b"), 1).unwrap();
        assert_eq!(slot_given_back(&over, "7", &id("a")), over, "the slot is another's now");
        assert_eq!(slot_given_back(&over, "7", &id("b")).holders.len(), 0);
    }
    #[test]
    fn a_run_is_offered_to_who_has_the_worktree_and_else_to_who_has_the_most_room() {
        let node =
            |node: &str, has_worktree, runs| Candidate { node: node.into(), has_worktree, runs, capacity: 4 };
        let of = |nodes: &[Candidate]| preferred(nodes, "o").map(str::to_owned);
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(of(&[node("a", false, 2), node("b", false, 1), node("c", true, 3)]), is("c"));
        assert_eq!(of(&[node("a", false, 2), node("b", false, 1), node("c", true, 4)]), is("b"));
        assert_eq!(of(&[node("b", false, 1), node("a", false, 1)]), is("a"));
        assert_eq!(of(&[node("a", false, 1), node("o", false, 1)]), is("o"), "nothing is moved for nothing");
        assert_eq!(of(&[node("a", true, 4)]), None);
        assert!(
            has_room_for_another(1, 1, 3) && !has_room_for_another(1, 2, 3) && has_room_for_another(9, 9, 0)
        );
    }
}
