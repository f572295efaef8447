//! What a run's directory says of the run: the facts of its journal, with those of the runs that it goes on with.

use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::name::RepoName;
use crate::domain::run_output::RunOutput;
use crate::engine::journal::JournalError;
use crate::store::journal_file;
use crate::store::run_dir::{RunDir, StateDir};

/// The facts of a run, from its journal. Blocks.
pub fn read(dir: &RunDir) -> Result<RunFacts, JournalError> {
    journal_file::facts(dir)
}

/// The facts of a run that may be another node's: as its journal here has them where it has ended here, else as that in its cluster has them.
/// `None` = there is no such run. Blocks.
pub fn read_anywhere(dir: &RunDir) -> Result<Option<RunFacts>, JournalError> {
    let here = if dir.events().exists() { Some(read(dir)?) } else { None };
    let is_whole = here.as_ref().is_some_and(|facts| facts.end.is_some());
    let Some(shared) = dir.store().shared().filter(|_| !is_whole) else { return Ok(here) };
    let failed =
        |message: String| JournalError { path: format!("the journal of run {}", dir.run_id), message };
    let there = shared.log(dir).and_then(|log| log.read(0)).map_err(|error| failed(error.to_string()))?;
    if there.0.is_empty() || journal_file::is_a_tail(&there.0) {
        return Ok(here);
    }
    let read = journal_file::parse(&there.0).map_err(|error| failed(error.to_string()))?;
    Ok(Some(journal_file::facts_of(&read.lines)))
}

/// Lines that a run's result knows and its journal does not have, in words. The journal is on disk before the result is
/// written, so somebody has removed lines, and their content cannot be derived from the rest.
pub fn lines_missing(dir: &RunDir, lines: u64) -> Option<String> {
    let result: RunOutput = serde_json::from_slice(&std::fs::read(dir.result()).ok()?).ok()?;
    let named = result.artifacts.events?.last_seq;
    (named > lines).then(|| format!("it ends with line {lines}, and result.json names line {named}"))
}

/// The facts of a run, with the claims and evidence of the visits that it took over from its predecessors. They belong
/// to the report of this run.
pub async fn with_predecessors(state: &StateDir, repo: &RepoName, facts: RunFacts) -> RunFacts {
    let (state, repo, own) = (state.clone(), repo.clone(), facts.clone());
    let work = tokio::task::spawn_blocking(move || {
        let (mut facts, mut left) = (own, facts.imported);
        let mut before = facts.lease.as_ref().and_then(|lease| lease.previous_run);
        while left > 0 {
            let Some(run_id) = before else { break };
            let Ok(earlier) = read(&state.run(&repo, run_id)) else { break };
            let taken_over = |event: &Event| match event {
                Event::SessionOpened(session) => session.visit as usize <= left,
                Event::ItemRecorded { visit, .. } => *visit as usize <= left,
                Event::ReportCaptured(report) => report.visit as usize <= left,
                Event::ToolFacts { .. } | Event::PolicyDecided(..) => true,
                _ => false,
            };
            facts.other.splice(0..0, earlier.other.into_iter().filter(|(_, event)| taken_over(event)));
            left = left.min(earlier.imported);
            before = earlier.lease.and_then(|lease| lease.previous_run);
        }
        facts
    });
    work.await.unwrap_or(facts)
}
