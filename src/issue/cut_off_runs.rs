//! Runs of a repository's issues that were cut off: by the end of their process, or by a shutdown.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

pub use super::begun_format::BegunBy;
use super::ended_leases::EndedLeases;
use super::shown_lease;
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::issue::ObjectiveSource;
use crate::domain::mapping::InstanceId;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::record::{bring, finish, run_facts, seal, taking_over};
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::store::journal_file;
use crate::store::port::LeaseKey;
use crate::store::run_dir::RunDir;
use crate::sys::files;
use crate::sys::holder_format::{Holder, LeaseRecord};
use crate::sys::host::Host;

/// What became of the labels of a run that is to be gone on with: nothing.
pub const UNCHANGED_LABELS: &str = "unchanged: the run is to be continued";

/// Longer than it takes to complete a record.
const COMPLETING: Duration = Duration::from_secs(60);

/// A run of a daemon or a sweep whose process died or was stopped, and that nobody has continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOffRun {
    /// The issue.
    pub number: u64,
    /// What people want, according to the trigger label.
    pub begun: BegunBy,
}

/// What a daemon does first: [`clear_left`], and the runs of a repository whose processes died. Their ends are written,
/// and those that can be continued are given back.
pub async fn at_start(context: &RepositoryContext) -> Vec<CutOffRun> {
    let looked = look_at_leases(context).await;
    if context.state.shared().is_some() {
        return left_by_nodes(context, looked).await;
    }
    clear(context, &looked.open).await;
    end_dead_runs(context, looked).await
}

/// In a cluster: what dead nodes left, and what this one did. Who takes the lease ends the run.
async fn left_by_nodes(context: &RepositoryContext, looked: Looked) -> Vec<CutOffRun> {
    let here = context.clone();
    let looked = tokio::task::spawn_blocking(move || {
        seal::complete_index(&here.state);
        let (mut found, mut completed) = (Vec::new(), Vec::new());
        for lease in looked.open.into_iter().chain(looked.left) {
            let Some(Open { last, left }) = open_lease(&here, &lease) else { continue };
            let dir = here.state.run(&here.repo, last.run_id);
            if !dir.events().exists() && !left {
                continue;
            }
            if let Err(error) = bring::to_node(&here.state, &here.repo, last.run_id) {
                tracing::warn!(run = %last.run_id, %error, "what another node left cannot be brought here");
                continue;
            }
            let Some(last) = last_run(&here, &lease) else { continue };
            if !ended_by_itself(&last.1) {
                found.extend(cut_off(&here, last));
            } else if left || last.1.sealed.is_none() {
                match complete(&here, &lease, &last.0) {
                    Ok(()) => completed.push(dir),
                    Err(error) => {
                        tracing::warn!(run = %dir.run_id, "the record of a run that ended cannot be completed: {error}");
                    }
                }
            }
        }
        completed.extend(end_unnamed(&here));
        (found, completed)
    });
    let (found, completed) = looked.await.unwrap_or_default();
    for dir in completed {
        tracing::info!(run = %dir.run_id, "a run had died at its very end; its record is complete");
        if let Err(error) = finish::emit(&context.sinks(), &dir, &context.clock).await {
            tracing::warn!(run = %dir.run_id, %error, "its record was not fed to the sinks");
        }
    }
    found
}

/// Ends the runs that no lease names: a node died before its lease did, and the one that was to end its run died as well. Blocks.
fn end_unnamed(context: &RepositoryContext) -> Vec<RunDir> {
    let (state, repo, key) = (&context.state, &context.repo, context.config.record.seal_key.as_deref());
    taking_over::end_left(state, repo, (&context.clock, key), |row| {
        let Some(issue) = &row.issue else { return false };
        // The lease is looked at after the row: whoever works under it is named there by now.
        let Some(lease) = state.store().look(&context.lease(issue)) else { return false };
        let named =
            lease.record.as_ref().and_then(mapping_of).is_some_and(|last| last.run_id.0 == row.run_id);
        let held = lease.holder.and_then(|holder| holder.held).map(|held| held.term);
        !named && held.is_none_or(|term| row.term < term)
    })
}

/// Whether a run came to an end of its own.
fn ended_by_itself(facts: &RunFacts) -> bool {
    facts.end.as_ref().is_some_and(|end| !end.detail.is_gone_on_with())
}

/// Completes the record of such a run under its issue's lease, and gives that back. Nobody else would, because the issue is done.
/// Blocks.
fn complete(context: &RepositoryContext, lease: &LeaseKey, last: &MappingRecord) -> Result<(), String> {
    let taken = context.state.store().take(lease, last.instance.as_str(), COMPLETING);
    let held = taken.map_err(|error| error.to_string())?;
    // Whatever came meanwhile comes before the seal.
    bring::to_node(&context.state, &context.repo, last.run_id).map_err(|error| error.to_string())?;
    let (dir, key) =
        (context.state.run(&context.repo, last.run_id), context.config.record.seal_key.as_deref());
    finish::finalise(&dir, &context.clock, key).map_err(|error| error.to_string())?;
    held.release().map_err(|error| error.to_string())
}

async fn end_dead_runs(context: &RepositoryContext, looked: Looked) -> Vec<CutOffRun> {
    let context = context.clone();
    let ended = tokio::task::spawn_blocking(move || {
        seal::complete_index(&context.state);
        for dir in without_result(&context, &looked.over) {
            if let Err(error) =
                finish::ensure_ended(&dir, &context.clock, context.config.record.seal_key.as_deref())
            {
                tracing::warn!(run = %dir.run_id, %error, "an earlier run cannot be ended; it is left as it is");
            }
        }
        looked.open.iter().filter_map(|lease| cut_off(&context, last_run(&context, lease)?)).collect()
    });
    ended.await.unwrap_or_default()
}

/// The runs that have begun and have no result, newest first. `over`: those of which that is known. Blocks.
fn without_result(context: &RepositoryContext, over: &HashSet<RunId>) -> Vec<RunDir> {
    let (state, repo) = (&context.state, &context.repo);
    let entries = std::fs::read_dir(state.repo(repo).join("runs")).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| Uuid::parse_str(entry.file_name().to_str()?).ok());
    let ids = ids.map(RunId).filter(|run| !over.contains(run));
    let has_begun = |dir: &RunDir| std::fs::metadata(dir.events()).is_ok_and(|journal| journal.len() > 0);
    let dirs = ids.map(|run| state.run(repo, run)).filter(|dir| !dir.result().exists() && has_begun(dir));
    let mut dirs: Vec<RunDir> = dirs.collect();
    dirs.sort_by_key(|dir| Reverse(dir.run_id));
    dirs
}

/// An issue whose run on the command line was killed while its label said that a run works on it.
pub struct Left {
    /// The issue.
    pub number: u64,
    /// The run's instance.
    pub instance: InstanceId,
    /// `None`: it says so no longer; else why it still does.
    pub still_shown: Option<String>,
}

/// Removes the running label from issues whose run on the command line was killed. Nobody else would before its lease
/// ends. Gives the issues that had it.
pub async fn clear_left(context: &RepositoryContext) -> Vec<Left> {
    clear(context, &look_at_leases(context).await.open).await
}

async fn clear(context: &RepositoryContext, open: &[LeaseKey]) -> Vec<Left> {
    // In a cluster only who has taken the issue's lease says what became of a run; and it writes so.
    if context.github.is_none() || context.state.shared().is_some() {
        return Vec::new();
    }
    let (here, open) = (context.clone(), open.to_vec());
    let look =
        move || open.iter().filter_map(|lease| left_by_hand(last_run(&here, lease)?)).collect::<Vec<_>>();
    let left = tokio::task::spawn_blocking(look);
    let mut found = Vec::new();
    for (number, instance, run_id) in left.await.unwrap_or_default() {
        let still_shown = match shown_lease::clear(context, number, (&instance, run_id)).await {
            Ok(true) => {
                tracing::info!(repo = %context.repo, number, %instance, "a killed run no longer shows as working");
                None
            }
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(repo = %context.repo, number, %error, "a killed run still shows as working on its issue");
                Some(error.to_string())
            }
        };
        found.push(Left { number, instance, still_shown });
    }
    found
}

/// A run on the command line that was killed before it had written back to its issue.
fn left_by_hand((last, facts): (MappingRecord, RunFacts)) -> Option<(u64, InstanceId, RunId)> {
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail.is_cut_off());
    let written_back = facts.outcome(Effect::Labels).is_some();
    (killed && !written_back && began.source == ObjectiveSource::Cli).then_some(())?;
    Some((began.issue.key.number()?, last.instance, last.run_id))
}

/// What a look at all leases found.
#[derive(Default)]
struct Looked {
    /// The leases that nobody holds and whose last run may have been cut off.
    open: Vec<LeaseKey>,
    /// The runs whose results say that they were not.
    over: HashSet<RunId>,
    /// The leases of such runs whose nodes died before they gave them back.
    left: Vec<LeaseKey>,
    /// Who holds the others.
    held: Vec<Holder>,
}

/// How many runs other processes have under way in a repository. In a cluster its store counts them.
pub async fn of_other_processes(context: &RepositoryContext) -> usize {
    if context.state.shared().is_some() {
        return 0;
    }
    let host = Host::current();
    look_at_leases(context).await.held.iter().filter(|holder| !holder.is_process_of(&host)).count()
}

/// Looks at all leases. Of the many whose last run came to an end of its own no journal is read, and where the last look found
/// that already, neither lease nor result.
async fn look_at_leases(context: &RepositoryContext) -> Looked {
    let context = context.clone();
    let look = move || {
        let folder = context.checkout.lease_folder();
        // Where several hosts share the leases, their files are not what counts.
        let mut known = match context.state.shared().is_some() {
            true => None,
            false => Some(EndedLeases::read(folder.as_path(), context.clock.now_ms())),
        };
        let runs = context.state.repo(&context.repo).join("runs");
        let result = |run: RunId| context.state.run_in(&runs, &context.repo, run).result();
        let mut looked = Looked::default();
        let leases = context.leases();
        let files: Vec<&Path> = leases.iter().filter_map(file_of).collect();
        let mut remembered = known.as_mut().map(|known| known.look(&files, &result).into_iter());
        for lease in leases.iter().cloned() {
            let of_file = remembered.as_mut().filter(|_| file_of(&lease).is_some()).and_then(Iterator::next);
            let unread = match of_file {
                Some(Ok(run)) => {
                    looked.over.insert(run);
                    continue;
                }
                Some(Err(unread)) => Some(unread),
                None => None,
            };
            let Some(found) = context.state.store().look(&lease) else { continue };
            if let Some(holder) = &found.holder {
                looked.held.push(holder.clone());
                continue;
            }
            let Some(Open { last, left }) = open(&found) else { continue };
            let (run, result) = (last.run_id, result(last.run_id));
            let stamp = files::stamp(&result);
            // In a cluster a node may have died between a run's result and its seal, and another one given its lease back.
            let in_cluster = context.state.shared().is_some();
            let is_sealed = || journal_file::sealed_files(&context.state.run(&context.repo, run)).is_some();
            if !is_over(&result) || in_cluster && !is_sealed() {
                looked.open.push(lease);
                continue;
            }
            looked.over.insert(run);
            if left {
                looked.left.push(lease);
            }
            if let (Some(known), Some(unread)) = (&mut known, unread) {
                known.is_over(unread, run, stamp);
            }
        }
        known.into_iter().for_each(EndedLeases::keep);
        looked
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

fn file_of(lease: &LeaseKey) -> Option<&Path> {
    match lease {
        LeaseKey::Issue { file, .. } => Some(file),
        LeaseKey::Daemon | LeaseKey::Poller(_) => None,
    }
}

/// A lease that nobody holds.
struct Open {
    /// The last run that had it.
    last: MappingRecord,
    /// Whether a node died with it.
    left: bool,
}

fn open_lease(context: &RepositoryContext, lease: &LeaseKey) -> Option<Open> {
    open(&context.state.store().look(lease).filter(|found| found.holder.is_none())?)
}

fn open(found: &LeaseRecord) -> Option<Open> {
    Some(Open { last: mapping_of(found.record.as_ref()?)?, left: found.left })
}

/// The last run of a lease that nobody holds, with what its journal says.
fn last_run(context: &RepositoryContext, lease: &LeaseKey) -> Option<(MappingRecord, RunFacts)> {
    let Open { last, .. } = open_lease(context, lease)?;
    let facts = run_facts::read(&context.state.run(&context.repo, last.run_id)).ok()?;
    Some((last, facts))
}

/// Whether a run's result says that it was not cut off.
fn is_over(result: &Path) -> bool {
    let result = std::fs::read(result).ok();
    let result = result.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let detail = result.and_then(|result| StopDetail::deserialize(&result["stop_detail"]).ok());
    detail.is_some_and(|detail| !detail.is_gone_on_with())
}

fn cut_off(context: &RepositoryContext, (last, facts): (MappingRecord, RunFacts)) -> Option<CutOffRun> {
    if last.given_up {
        return None;
    }
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail.is_cut_off());
    let stopped = facts.end.as_ref().is_some_and(|end| end.detail == StopDetail::Shutdown);
    if !(killed || stopped) || began.source == ObjectiveSource::Cli {
        return None;
    }
    // A person stopped what they had begun by hand, and the labels say that it is theirs.
    if stopped && facts.outcome(Effect::Labels).is_some_and(|outcome| outcome != UNCHANGED_LABELS) {
        return None;
    }
    // A run that is told to stop with its daemon leaves the labels as they are.
    let writing_labels = killed && facts.effects.iter().any(|(effect, _)| *effect == Effect::Labels);
    let trigger = &context.config.github.labels.trigger;
    let labelled = began.issue.labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    let begun = match () {
        () if writing_labels => BegunBy::WritingLabels,
        () if began.goes_on && !labelled => BegunBy::GoesOn,
        () if began.follow_up => BegunBy::FollowUp,
        () if labelled => BegunBy::Labelled,
        () if began.source == ObjectiveSource::Sweep => BegunBy::Swept,
        () => BegunBy::GoesOn,
    };
    Some(CutOffRun { number: began.issue.key.number()?, begun })
}
