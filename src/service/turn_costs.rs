//! What the turns of conversations have cost, by day. They use up `budgets.max_cost_per_day` as runs do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, NaiveDate};
use uuid::Uuid;

use crate::domain::event::Event;
use crate::domain::ledger_entry::CostSum;
use crate::domain::run::RunId;
use crate::record::in_flight;
use crate::store::journal_file;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::lock::Turn;

/// Reads the journal of each turn that ended once.
#[derive(Debug)]
pub struct TurnCosts {
    state: StateDir,
    ended: Mutex<BTreeMap<RunId, (NaiveDate, CostSum)>>,
}

impl TurnCosts {
    /// Of the conversations that a state directory keeps.
    pub fn new(state: StateDir) -> Self {
        Self { state, ended: Mutex::default() }
    }

    /// The cost by UTC day, of all users; of a turn under way what it has cost so far. Where its process died, nobody knows the cost of what
    /// it had sent. What cannot be read counts nothing. Blocks.
    pub fn by_day(&self) -> BTreeMap<NaiveDate, CostSum> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut days: BTreeMap<NaiveDate, CostSum> = BTreeMap::new();
        for user in ids(&self.state.users()) {
            for run in ids(&self.state.user_runs(user)).map(RunId) {
                let Ok(dir) = self.state.user_run(user, run) else { continue };
                // Asked first: who ends a turn writes its journal before.
                let has_ended = dir.record().exists();
                if let Some((day, cost)) = ended.get(&run) {
                    *days.entry(*day).or_default() += *cost;
                    continue;
                }
                // Asked before its lines are read, too, as it may end between both.
                let is_over = has_ended || is_left(&dir);
                let Some((day, cost)) = cost_of(&dir, is_over && !has_ended) else { continue };
                *days.entry(day).or_default() += cost;
                if is_over {
                    ended.insert(run, (day, cost));
                }
            }
        }
        days
    }
}

/// Whether no process has a turn any more.
fn is_left(turn: &RunDir) -> bool {
    let place = turn.accounting();
    place.exists() && matches!(Turn::wait(&place, Duration::ZERO), Ok(Some(_)))
}

/// When a turn began and what it has cost; `None` = it has not begun. `killed`: its process died.
fn cost_of(turn: &RunDir, killed: bool) -> Option<(NaiveDate, CostSum)> {
    let mut facts = journal_file::facts_of(&journal_file::read(turn).ok()?.lines);
    let began = DateTime::from_timestamp_millis(facts.started_at).filter(|_| facts.started_at > 0)?;
    if killed {
        let cut_off = in_flight::cut_off(&facts, turn.run_id);
        facts.ledger.extend(cut_off.into_iter().filter_map(|event| match event {
            Event::LlmAttempted { entry } => Some(*entry),
            _ => None,
        }));
    }
    Some((began.date_naive(), (&facts.totals()).into()))
}

/// The entries of a folder that are named by an id.
fn ids(folder: &Path) -> impl Iterator<Item = Uuid> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Uuid::parse_str(entry.file_name().to_str()?).ok())
}
