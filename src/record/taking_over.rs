//! In a cluster: the record of a run whose node died is completed by another one, which brings here first what the store has of it.

use std::path::Path;

use super::bring;
use super::finish;
use super::run_facts;
use crate::domain::cluster::run_row::RunRow;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::engine::journal::JournalError;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;

/// How often the end of a dead run is tried that a late line of its own comes before.
const MOST_TRIES: u32 = 3;

/// Brings a run here. Without a cluster there is nothing to bring. Blocks.
pub fn brought(state: &StateDir, repo: &RepoName, run_id: RunId) -> Result<(), JournalError> {
    bring::to_node(state, repo, run_id).map_err(|error| JournalError {
        path: state.run(repo, run_id).events().display().to_string(),
        message: error.to_string(),
    })
}

/// Ends a dead run, once this node has all of it, and completes its record. The caller holds the lease. Blocks.
pub fn end(
    state: &StateDir,
    repo: &RepoName,
    run_id: RunId,
    (clock, key): (&Clock, Option<&Path>),
) -> Result<(), JournalError> {
    let dir = state.run(repo, run_id);
    let mut tried = 0;
    loop {
        let ended = finish::finalise(&dir, clock, key);
        tried += 1;
        // A line of the dead one's may have come in meanwhile: it counts, and the end comes behind it.
        match ended {
            Err(_) if state.shared().is_some() && tried < MOST_TRIES => brought(state, repo, run_id)?,
            ended => return ended,
        }
    }
}

/// Ends the runs of a repository that have no seal and that `is_left` says nobody works on or goes on with: no lease names them, because
/// the node died that was to complete them. Where two nodes do so at once, the log takes the lines of one. Gives those that it ended.
/// Blocks.
pub fn end_left(
    state: &StateDir,
    repo: &RepoName,
    (clock, key): (&Clock, Option<&Path>),
    is_left: impl Fn(&RunRow) -> bool,
) -> Vec<RunDir> {
    let rows = state.store().unsealed(repo).unwrap_or_else(|error| {
        tracing::warn!(%repo, %error, "whether runs were left without a seal cannot be looked at");
        Vec::new()
    });
    // What was brought into the cluster from files is as it was there.
    let left = rows
        .iter()
        .filter(|row| !row.node.is_empty() && is_left(row))
        .map(|row| state.run(repo, RunId(row.run_id)));
    left.filter(|dir| end_unnamed(state, repo, dir.run_id, (clock, key))).collect()
}

/// Ends a run that no lease names, if there was one and it is not sealed; gives whether it did. Blocks.
pub fn end_unnamed(state: &StateDir, repo: &RepoName, run_id: RunId, with: (&Clock, Option<&Path>)) -> bool {
    let ended = || {
        brought(state, repo, run_id)?;
        let dir = state.run(repo, run_id);
        if !dir.events().exists() {
            return Ok(false);
        }
        let facts = run_facts::read(&dir)?;
        // Without its first line there was no run, only a file for one.
        if facts.lease.is_none() || facts.sealed.is_some() {
            return Ok(false);
        }
        end(state, repo, run_id, with).map(|()| true)
    };
    ended().unwrap_or_else(|error: JournalError| {
        tracing::warn!(%run_id, "a run that no lease names cannot be ended: {error}");
        false
    })
}
