//! `agentd cluster import · export`: a state directory into the cluster's store, and the store into a state directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::cluster_access::{configured, connect, failed};
use crate::cli::context::{Context, main_checkout};
use crate::cli::error::CommandError;
use crate::cli::output::Tone;
use crate::cli::remote::Remote;
use crate::config::Config;
use crate::daemon::DaemonFiles;
use crate::domain::name::RepoName;
use crate::domain::seal::SignedSeal;
use crate::record::moving::{self, CellsMoved, ImportFate, NotBrought, SealsMoved};
use crate::record::{finish, run_facts, seal_check};
use crate::store::journal_file;
use crate::store::nats::{NatsStore, Recorded};
use crate::store::port::{HeldLease, LeaseKey, LeaseNotTaken, Store as _, StoreError};
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_key::{HOST_KEY, SealKey};
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::private_place;

/// How long the daemon's lease counts for those who cannot see whether this process lives.
const LASTS: std::time::Duration = std::time::Duration::from_secs(600);

/// What a command tells at its end.
#[derive(Default)]
struct MoveReport {
    moved: usize,
    there: usize,
    /// Run and why it was left.
    left: Vec<(String, String)>,
    /// What has to be seen to.
    problems: Vec<String>,
    cells: CellsMoved,
    seals: SealsMoved,
    leases: usize,
}

/// Brings this state directory into the cluster's store. Exit 1 if something could not be brought that is whole.
pub fn import(context: &Context, dry_run: bool) -> Result<u8, CommandError> {
    let config = configured(context)?;
    let from = StateDir::new(context.state_dir()?.as_path().to_owned());
    let _nobody_else = alone(&from, "an import needs it to stand still: stop the daemon first")?;
    let runs =
        from.runs(context.global.repo.as_ref()).map_err(|error| CommandError::failed(error.to_string()))?;
    at_rest(&runs)?;
    let store = connect(context, &config)?;
    let to = StateDir::on_nats(from.path().to_owned(), store.clone());
    let (clock, key) = (Clock::system(), config.record.seal_key.clone());
    let mut told = MoveReport::default();
    let wrong_key =
        moving::put_keys(&from, &store, key.as_deref(), dry_run).map_err(|error| failed(&error))?;
    // Oldest first: what is cut off leaves a beginning.
    for dir in runs.iter().rev() {
        let stopped = |error| CommandError::failed(format!("run {}: {error}", dir.run_id));
        let fate = moving::import(dir, &to, (&clock, key.as_deref()), dry_run).map_err(stopped)?;
        if !dry_run && matches!(fate, ImportFate::Moves { .. } | ImportFate::IsThere) {
            moving::put_row(dir, &store).map_err(stopped)?;
        }
        match fate {
            ImportFate::Moves { lines, files } => {
                told.moved += 1;
                tracing::debug!(run = %dir.run_id, lines, files, "it is in the store");
            }
            ImportFate::IsThere => told.there += 1,
            ImportFate::Broken(why) => told.left.push((format!("{} {}", dir.repo, dir.run_id), why)),
            ImportFate::TwoChains { here, there } => told.problems.push(format!(
                "run {} has two chains: here it ends with {here}, in the store with {there}",
                dir.run_id
            )),
        }
    }
    match wrong_key {
        Some(problem) => told.seals.problems.push(problem),
        None => {
            told.seals = moving::put_seals(&from, &store, dry_run).map_err(|error| failed(&error))?;
        }
    }
    told.cells = moving::into_store(&from, &to, dry_run).map_err(|error| failed(&error))?;
    for (repo, key, record) in records(&runs, &from) {
        match put_record(&store, (&repo, &key), &record, dry_run).map_err(|error| failed(&error))? {
            Recorded::Written | Recorded::Same => told.leases += 1,
            Recorded::Other(_) => told.cells.kept.push(format!("the mapping of {repo}#{key}")),
            Recorded::Held(by) => told.problems.push(format!(
                "{repo}#{key} is held by {} in the cluster, so its mapping was not brought",
                by.node
            )),
        }
    }
    let done = if dry_run { "would be brought" } else { "brought" };
    tell(context, &told, (done, "The files stay as they are."))
}

/// Nobody else works with a state directory for as long as this is held.
fn alone(state: &StateDir, why: &str) -> Result<Box<dyn HeldLease>, CommandError> {
    match state.store().take(&LeaseKey::Daemon, "moving", LASTS) {
        Ok(held) => Ok(held),
        Err(LeaseNotTaken::Busy(_)) => {
            let by =
                DaemonFiles::of(state).holder().map_or_else(String::new, |holder| format!(" ({holder})"));
            Err(CommandError::failed(format!(
                "a daemon works with the state directory {}{by}",
                state.path().display()
            ))
            .hint(why))
        }
        Err(error @ (LeaseNotTaken::Full { .. } | LeaseNotTaken::Store(_))) => {
            Err(CommandError::failed(error.to_string()))
        }
    }
}

/// Refuses runs that work.
fn at_rest(runs: &[RunDir]) -> Result<(), CommandError> {
    match runs.iter().find(|dir| finish::living(dir).is_some()) {
        None => Ok(()),
        Some(dir) => Err(CommandError::failed(format!("run {} of {} works", dir.run_id, dir.repo))
            .hint(format!("agentd runs stop {}", dir.run_id))),
    }
}

/// What holders recorded of the issues of these runs, in the folders where their leases are: repository, key, record.
fn records(runs: &[RunDir], from: &StateDir) -> Vec<(RepoName, String, Value)> {
    let mut folders = BTreeSet::new();
    for dir in runs {
        let lease = run_facts::read(dir).ok().and_then(|facts| facts.lease);
        if let Some(folder) = lease.and_then(|lease| Some(Path::new(&lease.lease_file).parent()?.to_owned()))
        {
            folders.insert((dir.repo.clone(), folder));
        }
    }
    let mut found = Vec::new();
    for (repo, folder) in folders {
        for lease in from.store().leases(&repo, &folder) {
            let record = from.store().look(&lease).and_then(|found| found.record);
            if let (Some(record), LeaseKey::Issue { file, .. }) = (record, &lease)
                && let Some(key) = file.file_stem().and_then(|name| name.to_str()?.strip_prefix("issue-"))
            {
                found.push((repo.clone(), key.to_owned(), record));
            }
        }
    }
    found
}

/// A record gives way to that of a later run: run ids sort by time.
fn put_record(
    store: &NatsStore,
    (repo, key): (&RepoName, &str),
    record: &Value,
    dry_run: bool,
) -> Result<Recorded, StoreError> {
    if dry_run {
        return Ok(Recorded::Same);
    }
    store.put_record(repo, key, record, |there| is_older(there, record))
}

fn is_older(record: &Value, other: &Value) -> bool {
    let run = |record: &Value| record["run_id"].as_str().map(str::to_owned);
    matches!((run(record), run(other)), (Some(one), Some(two)) if one < two)
}

/// Writes a state directory from the cluster's store; with `leases` also the records of leases, into the checkouts that are
/// configured here.
pub fn export(context: &Context, dir: &Path, leases: bool) -> Result<u8, CommandError> {
    let config = configured(context)?;
    let store = connect(context, &config)?;
    let living = store.living().map_err(|error| failed(&error))?;
    if let Some((repo, key, by)) = living.first() {
        let others = living.len() - 1;
        let more = if others > 0 { format!(", and {others} more") } else { String::new() };
        return Err(CommandError::failed(format!("{} works on {repo}#{key}{more}", by.node))
            .hint("stop the nodes first; `agentd cluster status` shows who holds what"));
    }
    let place = context.env.working_dir().join(dir);
    files::create_private_dir(&place).map_err(|error| CommandError::failed(error.to_string()))?;
    private_place::ensure(&place).map_err(|fault| {
        CommandError::invalid(format!("{} {fault}", place.display())).hint(fault.remedy(&place))
    })?;
    let to = StateDir::new(place.clone());
    let _nobody_else = alone(&to, "export into another folder, or stop that daemon first")?;
    let from = StateDir::on_nats(context.state_dir()?.as_path().to_owned(), store.clone());
    let mut found =
        store.runs(context.global.repo.as_ref()).map_err(|error| CommandError::failed(error.to_string()))?;
    found.sort_by_key(|(_, run_id)| *run_id);
    let mut told = MoveReport::default();
    let (mut seals, mut spelled): (Vec<SignedSeal>, BTreeSet<RepoName>) = (Vec::new(), BTreeSet::new());
    for (repo, run_id) in found {
        match moving::bring(&from, &repo, run_id, &to) {
            Ok(brought) => {
                told.moved += 1;
                let lines = journal_file::read(&brought.dir).map(|read| read.lines).unwrap_or_default();
                seals.extend(seal_check::seal_of(&lines));
                spelled.insert(brought.dir.repo.clone());
                if !brought.missing.is_empty() {
                    let what = format!("files of it are not in the store: {}", brought.missing.join(", "));
                    told.left.push((format!("{repo} {run_id}"), what));
                }
            }
            Err(error @ (NotBrought::NotThere | NotBrought::Broken(_))) => {
                told.left.push((format!("{repo} {run_id}"), error.to_string()));
            }
            Err(error @ NotBrought::TwoChains { .. }) => told.problems.push(format!("run {run_id}: {error}")),
            Err(NotBrought::Store(error)) => return Err(failed(&error)),
        }
    }
    told.seals = moving::gather_seals(&store, &to, &seals).map_err(|error| failed(&error))?;
    keep_key(context, &place)?;
    told.cells = moving::into_files(&store, &to, &spelled).map_err(|error| failed(&error))?;
    for place in &told.cells.conflicts {
        told.problems.push(format!(
            "{place}: something else is there already, and a daemon there would do again what was asked for in the cluster; \
             export into a new folder"
        ));
    }
    if leases {
        put_leases(context, (&config, &store), &to, &mut told)?;
    }
    let last = format!("It is in {}.", place.display());
    tell(context, &told, ("written", &last))
}

/// The key that signed here goes along, so that its seals still count where agentd knows no other keys. It never leaves the host.
fn keep_key(context: &Context, place: &Path) -> Result<(), CommandError> {
    let own = context.state_dir()?.as_path().to_owned();
    let failed = |error: files::FileError| CommandError::failed(error.to_string());
    if matches!(SealKey::of_host(&own), Ok(Some(_))) {
        files::copy_new(&own.join(HOST_KEY), &place.join(HOST_KEY)).map_err(failed)?;
    }
    Ok(())
}

/// Writes what holders recorded into the lease files of the checkouts that are configured here.
fn put_leases(
    context: &Context,
    (config, store): (&Config, &NatsStore),
    to: &StateDir,
    told: &mut MoveReport,
) -> Result<(), CommandError> {
    let checkouts = checkouts(context, config)?;
    for (repo, key, cell) in store.issues().map_err(|error| failed(&error))? {
        let Some(record) = cell.record else { continue };
        let Some((_, folder)) = checkouts.iter().find(|(name, _)| *name == repo) else {
            told.left
                .push((format!("the lease of {repo}#{key}"), "no checkout of it is configured here".into()));
            continue;
        };
        let lease = LeaseKey::Issue { repo: repo.clone(), file: folder.join(format!("issue-{key}.json")) };
        let mut held = match to.store().take(&lease, "moving", LASTS) {
            Ok(held) => held,
            Err(error) => {
                told.problems.push(format!("the lease of {repo}#{key}: {error}"));
                continue;
            }
        };
        let keeps = held.record().is_some_and(|there| *there != record && !is_older(there, &record));
        if keeps {
            told.cells.kept.push(format!("the lease file of {repo}#{key}"));
        } else {
            held.set_record(record).map_err(|error| failed(&error))?;
            told.leases += 1;
        }
        held.release().map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// The checkouts that are configured here, or the one that this is: repository, and the folder of its leases.
fn checkouts(context: &Context, config: &Config) -> Result<Vec<(RepoName, PathBuf)>, CommandError> {
    let mut places: Vec<(Option<RepoName>, PathBuf)> = Vec::new();
    for entry in &config.repositories {
        places.extend(entry.path.as_ref().map(|path| (entry.name.clone(), path.as_path().to_owned())));
    }
    if places.is_empty() && context.stands_in_checkout() {
        places.push((context.global.repo.clone(), context.base.clone()));
    }
    let mut found = Vec::new();
    for (name, path) in places {
        let Some(root) = main_checkout(&path) else { continue };
        let name = match name {
            Some(name) => Some(name),
            None => {
                let root = AbsPath::new(&root).map_err(|error| CommandError::invalid(error.to_string()))?;
                context.block_on(Remote::find(&root, &context.env))?.and_then(|remote| remote.repo)
            }
        };
        let folder = root.join(".git/agentd");
        files::create_dir(&folder).map_err(|error| CommandError::failed(error.to_string()))?;
        found.extend(name.map(|name| (name, folder)));
    }
    Ok(found)
}

fn tell(context: &Context, told: &MoveReport, (done, last): (&str, &str)) -> Result<u8, CommandError> {
    let out = context.output;
    let code = u8::from(!told.problems.is_empty() || !told.seals.problems.is_empty());
    if out.json() {
        let left: Vec<Value> =
            told.left.iter().map(|(what, why)| json!({ "what": what, "why": why })).collect();
        let problems: Vec<&String> = told.problems.iter().chain(&told.seals.problems).collect();
        out.document(&json!({
            "ok": code == 0,
            "runs": told.moved, "runs_there_already": told.there, "left": left,
            "cells": told.cells.moved, "cells_there_already": told.cells.same, "cells_kept": told.cells.kept,
            "seals": told.seals.lines, "leases": told.leases, "problems": problems,
        }))?;
        return Ok(code);
    }
    for (what, why) in &told.left {
        out.line(format!("{}  {what}: {why}", out.toned("left", Tone::Warn)))?;
    }
    for place in &told.cells.kept {
        out.line(format!("{}  {place}: something else is there already", out.toned("kept", Tone::Warn)))?;
    }
    for problem in told.problems.iter().chain(&told.seals.problems) {
        out.line(format!("{}  {problem}", out.toned("problem", Tone::Bad)))?;
    }
    let already = told.there + told.cells.same;
    out.line(format!(
        "{} runs, {} cells, {} seals and {} leases {done}; {already} runs and cells were there already. {last}",
        told.moved, told.cells.moved, told.seals.lines, told.leases
    ))?;
    Ok(code)
}
