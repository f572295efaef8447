//! `agentd runs …`: looks at runs, checks them, compares them, and acts on them.

mod choice;
mod control;
mod golden_file;
mod inspection;
mod listing;
mod log;
mod replay;

pub(super) use control::{DecisionOutcome, approve, decide, resume as go_on, told_of_call, worked_on};
pub(super) use log::follow;

use super::args::RunsCommand;
use super::context::Context;
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
use crate::domain::facts::RunFacts;
use crate::domain::run_output::RunOutput;
use crate::engine::journal::JournalError;
use crate::record::finish::{self, RunState};
use crate::record::{report, run_facts};
use crate::store::run_dir::{FindError, RunDir, StateDir};
use crate::sys::clock::Clock;

/// Does what was asked; gives the exit code.
pub fn run(context: &Context, command: &RunsCommand) -> Result<u8, CommandError> {
    let done = |result: Result<(), CommandError>| result.map(|()| 0);
    match command {
        RunsCommand::List(args) => done(listing::list(context, args)),
        RunsCommand::Show(run) => {
            done(find_seen(context, &run.run).and_then(|(dir, seen)| listing::show(context, &dir, &seen)))
        }
        RunsCommand::Log(args) => {
            done(find(context, &args.run.run).and_then(|dir| log::print(context, &dir, args)))
        }
        RunsCommand::Report(run) => {
            done(find_seen(context, &run.run).and_then(|(dir, seen)| listing::report(context, &dir, &seen)))
        }
        RunsCommand::Evidence(run) => done(find(context, &run.run).and_then(|dir| {
            listing::ledger(context, &dir, (&dir.evidence(), "evidence"), report::fold_evidence)
        })),
        RunsCommand::Accounting(run) => done(find(context, &run.run).and_then(|dir| {
            listing::ledger(context, &dir, (&dir.accounting(), "ledger"), report::fold_ledger)
        })),
        RunsCommand::Events(run) => {
            done(find(context, &run.run).and_then(|dir| listing::events(context, &dir)))
        }
        RunsCommand::Diff(run) => done(find(context, &run.run).and_then(|dir| listing::diff(context, &dir))),
        RunsCommand::Verify(run) => {
            let dir = match find_unfinished(context, &run.run) {
                Err(unknown) => {
                    return inspection::verify_gone(context, &run.run)?.ok_or(unknown);
                }
                Ok(dir) => dir,
            };
            inspection::verify(context, &dir)
        }
        RunsCommand::Compare { a, b } => inspection::compare(context, a, b),
        RunsCommand::Stats => done(inspection::stats(context)),
        RunsCommand::Stop { run, abort } => {
            done(find_now(context, run).and_then(|dir| control::stop(context, &dir, *abort)))
        }
        RunsCommand::Resume(run) => {
            find_now(context, &run.run).and_then(|dir| control::resume(context, &dir))
        }
        RunsCommand::Approve { run, proposal_hash, expires } => {
            done(find_now(context, run).and_then(|dir| approve(context, &dir, proposal_hash, expires.0)))
        }
        RunsCommand::Replay { run, mode, with_agents } => find(context, &run.run)
            .and_then(|dir| replay::replay(context, &dir, mode, with_agents.as_deref())),
        RunsCommand::Eval { golden } => inspection::eval(context, golden),
    }
}

/// The state with what people decide about runs: in a cluster the one that all nodes share.
pub(super) fn state_dir(context: &Context) -> Result<StateDir, CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::shared(&mirror);
    }
    context.state()
}

/// Of a run of a cluster: its node, and how old what is known of it is; empty for one of this state directory.
type Seen = serde_json::Map<String, serde_json::Value>;

pub(super) fn all(context: &Context) -> Result<Vec<RunDir>, CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::all(context, &mirror);
    }
    let unreadable = |error: FindError| {
        CommandError::failed(error.to_string())
            .hint("--state-dir names the directory that agentd keeps its runs in")
    };
    state_dir(context)?.runs(context.global.repo.as_ref()).map_err(unreadable)
}

/// A run, ended and written down if its process died.
fn find(context: &Context, asked: &str) -> Result<RunDir, CommandError> {
    find_seen(context, asked).map(|(dir, _)| dir)
}

/// The same, with when what is shown of it was so.
fn find_seen(context: &Context, asked: &str) -> Result<(RunDir, Seen), CommandError> {
    let found = found(context, asked)?;
    finished(&found.0)?;
    Ok(found)
}

/// A run that something is to be done with. What was last known of a cluster's runs says nothing of now.
fn find_now(context: &Context, asked: &str) -> Result<RunDir, CommandError> {
    let (dir, seen) = find_seen(context, asked)?;
    if seen.contains_key("stale") {
        return Err(CommandError::failed(format!(
            "nothing is done with run {}: what becomes of it now is not known without the store",
            dir.run_id
        ))
        .hint("`agentd cluster doctor` says what the cluster needs"));
    }
    Ok(dir)
}

fn find_unfinished(context: &Context, asked: &str) -> Result<RunDir, CommandError> {
    found(context, asked).map(|(dir, _)| dir)
}

/// Where people's approvals of a run's proposals are.
fn approvals_of(context: &Context, _dir: &RunDir) -> Result<StateDir, CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return Ok(elsewhere::approvals(&mirror, _dir));
    }
    state_dir(context)
}

/// What was written of a run of another node since it was brought here, for whoever follows it.
fn brought_again(context: &Context, _dir: &RunDir) -> Result<(), CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::follow(&mirror, _dir);
    }
    let _ = context;
    Ok(())
}

/// RUN = run id, unique prefix, instance or `latest` (interface §2).
fn found(context: &Context, asked: &str) -> Result<(RunDir, Seen), CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::find(context, &mirror, asked).map(|found| (found.dir, found.seen));
    }
    in_files(context, asked).map(|dir| (dir, Seen::new()))
}

/// The directory of a run that works: this one, or a copy where another node has it.
pub(super) fn here_or_brought(context: &Context, dir: RunDir) -> Result<RunDir, CommandError> {
    match dir.events().exists() {
        true => Ok(dir),
        false => find_unfinished(context, &dir.run_id.to_string()),
    }
}

fn in_files(context: &Context, asked: &str) -> Result<RunDir, CommandError> {
    let runs = all(context)?;
    let none = || {
        CommandError::invalid(format!(
            "there is no run \"{asked}\" in {}",
            context.state_dir().map_or_else(|_| String::new(), |dir| dir.to_string())
        ))
        .hint("`agentd runs list` lists them")
    };
    if asked.is_empty() {
        return Err(CommandError::invalid(
            "a run is named by its id, its beginning, its instance, or \"latest\"",
        )
        .hint("`agentd runs list` lists them"));
    }
    if asked == "latest" {
        return runs.into_iter().next().ok_or_else(none);
    }
    let mut by_id: Vec<RunDir> =
        runs.iter().filter(|dir| dir.run_id.to_string().starts_with(asked)).cloned().collect();
    match by_id.len() {
        1 => Ok(by_id.remove(0)),
        0 => runs
            .into_iter()
            .find(|dir| {
                run_facts::read(dir)
                    .ok()
                    .and_then(|facts| facts.lease)
                    .is_some_and(|lease| lease.instance.as_str() == asked)
            })
            .ok_or_else(none),
        n => Err(CommandError::invalid(format!("{n} runs begin with \"{asked}\""))
            .hint("write more of the run id")),
    }
}

/// The facts of a run's journal, and whether the run is over. A dead run is ended here, a live one is left alone (D61).
pub(super) fn finished(dir: &RunDir) -> Result<(RunFacts, RunState), CommandError> {
    // Reading failed, or writing what a killed process could not write itself.
    finish::ensure_ended(dir, &Clock::system(), None).map_err(|error| unreadable(dir, &error))
}

fn unreadable(dir: &RunDir, error: &JournalError) -> CommandError {
    CommandError::failed(format!("run {}: {}: {}", dir.run_id, error.path, error.message))
        .hint(format!("agentd runs verify {} names every file that is damaged", dir.run_id))
}

/// The run output of a run that has ended.
fn output(dir: &RunDir) -> Result<RunOutput, CommandError> {
    let (_, standing) = finished(dir)?;
    if standing == RunState::Running {
        return Err(CommandError::failed(format!("run {} has not ended", dir.run_id))
            .hint(format!("agentd runs show {}", dir.run_id)));
    }
    written_output(dir)
}

/// The run output of a run that has ended; folded again where its file cannot be read.
fn written_output(dir: &RunDir) -> Result<RunOutput, CommandError> {
    report::read_output(dir).map_err(|error| unreadable(dir, &error))
}

fn read<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Result<T, CommandError> {
    let failed = |error: String| CommandError::failed(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        failed(error.to_string()).hint("agentd runs verify names every file of a run that is damaged")
    })
}
