//! `agentd runs stop · resume · approve`: acts on a run from another process.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{finished, written_output};
use crate::cli::asking;
use crate::cli::context::Context;
use crate::cli::daemon_command;
use crate::cli::error::CommandError;
use crate::cli::repositories;
use crate::cli::run_command;
use crate::config::Flag;
use crate::config::config_file::Publish;
use crate::domain::budget::Budgets;
use crate::domain::cluster::person_request::PersonAsks;
use crate::domain::event::RequestOptions;
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::run::{Principal, RunId};
use crate::domain::run_output::RunOutput;
use crate::domain::shell_words;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::SuspendedProposal;
use crate::issue::approval::{self, NotApproved};
use crate::issue::reference::IssueSource;
use crate::lifecycle::carry_out::{Done, NotCarriedOut, With, carry_out};
use crate::lifecycle::request::RunRequest;
use crate::record::finish::RunState;
use crate::record::{report, run_facts};
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::{Clock, Stopwatch};
use crate::sys::host::Host;

/// How long the end of a run that was told to stop is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

/// Asks a live run to stop, and waits for its end for a while.
pub(super) fn stop(context: &Context, dir: &RunDir, abort: bool) -> Result<(), CommandError> {
    let (facts, standing) = finished(dir)?;
    if standing == RunState::Ended {
        return Err(CommandError::invalid(format!("run {} has ended already", dir.run_id))
            .hint(format!("agentd runs show {}", dir.run_id)));
    }
    // Where its node looks.
    let state = super::state_dir(context)?;
    let nodes = asking::nodes_to_ask(&state)?;
    let issue = match facts.lease.map(|lease| lease.issue.key) {
        Some(issue) => issue,
        None if nodes.is_some() => {
            return Err(CommandError::failed(format!("run {} has only just begun; ask again", dir.run_id)));
        }
        // Where it is not sent, the run alone counts.
        None => IssueKey::Word(String::new()),
    };
    let what = PersonAsks::Stop { run_id: dir.run_id, at_once: abort };
    let request = asking::request(&dir.repo, &issue, what);
    let heard_by = match &nodes {
        Some(nodes) => asking::send(&**nodes, &request)?,
        None => {
            let done = context.block_on(carry_out(&state, &request, With::default()))?;
            done.map(|_| None).map_err(|error| asking::not_done(&error))?
        }
    };
    if nodes.is_some() && heard_by.is_none() {
        if context.output.json() {
            return context.output.document(&stop_document(dir, abort, None, Some(None)));
        }
        context.output.line(format!("Run {} is asked to end.", dir.run_id))?;
        return context.output.line(asking::nobody_yet(&dir.repo));
    }
    let watch = Stopwatch::start();
    let (facts, standing) = context.block_on(async {
        loop {
            super::brought_again(context, dir)?;
            let now = finished(dir)?;
            if now.1 == RunState::Ended || watch.elapsed() > PATIENCE {
                return Ok::<_, CommandError>(now);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })??;
    let end = facts.end.as_ref().filter(|_| standing == RunState::Ended);
    if context.output.json() {
        let heard = nodes.is_some().then_some(heard_by);
        return context.output.document(&stop_document(dir, abort, end, heard));
    }
    if let Some(node) = heard_by {
        context.output.line(format!("Node {node} has heard it."))?;
    }
    match end {
        Some(stop) => {
            let next = match stop.success() {
                true => "Its agent was done already, and its work is published".to_owned(),
                false => format!("Go on with it: agentd runs resume {}", dir.run_id),
            };
            context.output.advice(format!(
                "Run {} ended: {} ({}). {next}",
                dir.run_id,
                stop.reason(),
                stop.detail
            ))
        }
        None if dir.state().only_reads() => context.output.advice(format!(
            "Run {} was told to stop; its node has not ended it yet. At once: agentd runs stop {} --abort{}",
            dir.run_id,
            dir.run_id,
            goes_on_by(dir, &facts)
                .map(|command| format!(". Where its process is gone: {command}"))
                .unwrap_or_default()
        )),
        None if abort => context.output.advice(format!(
            "Run {} was told to end at once, and has not ended yet. agentd runs show {} says when it has",
            dir.run_id, dir.run_id
        )),
        None => context.output.advice(format!(
            "Run {} was told to stop and is finishing. At once: agentd runs stop {} --abort",
            dir.run_id, dir.run_id
        )),
    }
}

/// What became of asking a run to end; `heard`: of a message, by which node.
fn stop_document(
    dir: &RunDir,
    abort: bool,
    end: Option<&Stop>,
    heard: Option<Option<String>>,
) -> serde_json::Value {
    let mut told = serde_json::json!({
        "run_id": dir.run_id, "asked": if abort { "abort" } else { "stop" },
        "ended": end.is_some(),
        "stop_reason": end.map(Stop::reason), "stop_detail": end.map(|stop| stop.detail),
    });
    if let Some(heard) = heard {
        told["heard_by"] = serde_json::json!(heard);
    }
    told
}

/// Continues a run that was stopped or killed, as a new run on the same branch (D61).
pub(in crate::cli) fn resume(context: &Context, dir: &RunDir) -> Result<u8, CommandError> {
    let (facts, standing) = finished(dir)?;
    if standing == RunState::Running {
        let error = CommandError::invalid(format!("run {} has not ended", dir.run_id))
            .hint(format!("stop it: agentd runs stop {}", dir.run_id));
        return Err(match goes_on_by(dir, &facts) {
            Some(command) => error.hint(format!("where its process is gone: {command}")),
            None => error,
        });
    }
    let output = written_output(dir)?;
    if output.success {
        let error = format!("run {} reached its objective: there is nothing to go on with", dir.run_id);
        return Err(
            CommandError::invalid(error).hint("agentd run --issue N starts the next run on the same branch")
        );
    }
    let Some(lease) = &facts.lease else {
        return Err(CommandError::invalid(format!("run {} has no mapping to go on with", dir.run_id)));
    };
    let base = repositories::checkout_of(context, lease)?;
    let asked = facts.started.as_ref().map(|started| started.asked.clone()).unwrap_or_default();
    let earlier = asked.flags.clone();
    let flags = |configured: &Budgets| {
        let mut flags = caps(&facts, configured);
        // A cap that the run reached comes from the configuration now. Every other flag stays.
        flags.extend(run_command::flags_of(&earlier, |key| {
            key.starts_with("session.") && !ran_out(&facts, key)
        }));
        flags
    };
    let request = request(&facts, &output, asked, dir);
    run_command::resume(context, flags, &dir.repo, base.as_ref(), request)
}

/// In a cluster: the command that goes on with a run whose process is gone, once its lease is over.
fn goes_on_by(dir: &RunDir, facts: &RunFacts) -> Option<String> {
    let number = facts.lease.as_ref().filter(|_| dir.state().only_reads())?.issue.key.number()?;
    Some(shell_words::line(&["agentd", "--repo", &dir.repo.to_string(), "run", &number.to_string()]))
}

fn ran_out(facts: &RunFacts, key: &str) -> bool {
    let end = facts.end.as_ref().map(|stop| stop.detail);
    key == "session.max_turns" && end == Some(StopDetail::MaxTurnsExhausted)
}

/// The issue that a run worked on, for the next run; where its record does not say it, the one of that key in the tracker.
///
/// # Errors
/// It is in no tracker, and the record is damaged.
pub(in crate::cli) fn worked_on(dir: &RunDir, key: &IssueKey) -> Result<IssueSource, CommandError> {
    match (run_facts::read(dir), report::read_output(dir)) {
        (Ok(facts), Ok(output)) => Ok(issue_of(&facts, &output)),
        _ => key.number().map(IssueSource::Number).ok_or_else(|| {
            let what = format!(
                "the record of run {} is damaged, and nothing else says what issue {key} is",
                dir.run_id
            );
            CommandError::invalid(what).hint(key.run_command())
        }),
    }
}

fn issue_of(facts: &RunFacts, output: &RunOutput) -> IssueSource {
    let issue = facts.lease.as_ref().map(|lease| lease.issue.clone());
    match (&output.objective.issue, issue) {
        (Some(tracked), _) => IssueSource::Number(tracked.number),
        (None, Some(issue)) => IssueSource::Recorded(Box::new(issue)),
        (None, None) => IssueSource::Number(0),
    }
}

fn request(facts: &RunFacts, output: &RunOutput, asked: RequestOptions, dir: &RunDir) -> RunRequest {
    let issue = issue_of(facts, output);
    let host = Host::current();
    let operator: Principal = run_command::operator(&host);
    RunRequest {
        issue,
        source: output.objective.source,
        principal: operator,
        permission: None,
        asked: None,
        origin: None,
        agent: asked.agent,
        publish: asked.publish.as_deref().and_then(Publish::parse),
        format: asked.format,
        parameters: asked.parameters,
        metadata: output.metadata.clone(),
        answers: None,
        resume: Some(dir.run_id),
        follow_up: None,
        new_remarks: Vec::new(),
        check_reruns: Vec::new(),
        catches_up: false,
        completes: false,
        other_definition: OtherDefinition::default(),
        dry_run: false,
    }
}

/// The caps that the run had. A cap that it reached comes from the configuration, which may have been raised since.
fn caps(facts: &RunFacts, configured: &Budgets) -> Vec<Flag> {
    let Some(started) = &facts.started else { return Vec::new() };
    let end = facts.end.as_ref().map(|stop| stop.detail);
    let caps = &started.budgets;
    let integer = |value: u64| toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    let all = [
        (
            StopDetail::MaxSteps,
            caps.max_steps == configured.max_steps,
            "budgets.max_steps",
            integer(u64::from(caps.max_steps)),
        ),
        (
            StopDetail::MaxWallTime,
            caps.max_wall_time == configured.max_wall_time,
            "budgets.max_wall_time",
            toml::Value::String(format!("{}ms", caps.max_wall_time.as_millis().max(1))),
        ),
        (
            StopDetail::MaxCost,
            caps.max_cost == configured.max_cost,
            "budgets.max_cost",
            toml::Value::Float(caps.max_cost.dollars()),
        ),
    ];
    all.into_iter()
        .filter(|(detail, same, ..)| !same && end != Some(*detail))
        .map(|(.., key, value)| Flag { name: "the resumed run's cap", key, value })
        .collect()
}

/// Grants what a run proposed and the policy left to a person: once, for a while. Nothing is executed (P-037).
pub fn approve(context: &Context, dir: &RunDir, asked: &str, holds: Duration) -> Result<(), CommandError> {
    if holds.is_zero() {
        return Err(CommandError::invalid("--expires 0s: such an approval holds for no moment")
            .hint("write how long it holds, for example --expires 24h"));
    }
    let (facts, _) = finished(dir)?;
    let state = super::state_dir(context)?;
    let decided = decide(context, &state, (dir, &facts), asked, |run_id, proposal, instead_of| {
        let holds_ms = u64::try_from(holds.as_millis()).unwrap_or(u64::MAX);
        PersonAsks::Approve { run_id, proposal, holds_ms, instead_of }
    })?;
    let (grant, proposal) = match decided {
        DecisionOutcome::Here(Done::Approved(approved)) => *approved,
        DecisionOutcome::Here(_) => return Ok(()),
        DecisionOutcome::Asked { heard_by, call } => {
            return told_of_call(context, dir, "approved", (heard_by, &call));
        }
    };
    if context.output.json() {
        return context.output.document(&grant);
    }
    let until = grant.expires_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    context.output.line(format!(
        "Approved once, until {until}: {} {}",
        proposal.resource.name, proposal.canonical_json
    ))?;
    if facts.end.as_ref().is_some_and(Stop::success) {
        let next = match &grant.issue {
            IssueKey::Number(number) => format!("agentd run --issue {number}"),
            word => word.run_command(),
        };
        return context.output.advice(format!(
            "The run reached its objective without it: there is nothing to go on with. The issue's next run may use it: {next}"
        ));
    }
    context.output.advice(match daemon_command::goes_on_when_approved(context, &dir.repo, &facts) {
        true => {
            "The daemon goes on with it at its next look, where the issue is open and nobody has its work."
                .to_owned()
        }
        false => format!("Go on: agentd runs resume {}", dir.run_id),
    })
}

/// What became of a decision.
pub enum DecisionOutcome {
    /// It was made here.
    Here(Done),
    /// A node is asked to make it.
    Asked {
        /// The node that has; `None` = none has yet.
        heard_by: Option<String>,
        /// What it is about.
        call: SuspendedProposal,
    },
}

/// Decides on what a run left to people, or has the node decide that polls the repository.
pub fn decide(
    context: &Context,
    state: &StateDir,
    (dir, facts): (&RunDir, &RunFacts),
    asked: &str,
    what: impl FnOnce(RunId, String, Option<DateTime<Utc>>) -> PersonAsks,
) -> Result<DecisionOutcome, CommandError> {
    let (lease, call) = approval::named(state, dir, facts, asked).map_err(not_decided)?;
    let hash = call.proposal_hash.clone();
    let of = (hash.as_str(), lease.principal.id);
    let instead_of = approval::decision(state, &dir.repo, of, Clock::system().now()).at();
    let request = asking::request(&dir.repo, &lease.issue.key, what(dir.run_id, hash, instead_of));
    if let Some(nodes) = asking::nodes_to_ask(state)? {
        let heard_by = asking::send(&*nodes, &request)?;
        return Ok(DecisionOutcome::Asked { heard_by, call: call.clone() });
    }
    let with = With { left: Some((dir.clone(), facts.clone())), ..With::default() };
    let done = context.block_on(carry_out(state, &request, with))?;
    match done {
        Ok(done) => Ok(DecisionOutcome::Here(done)),
        Err(NotCarriedOut::NotApproved(refused)) => Err(not_decided(refused)),
        Err(error) => Err(asking::not_done(&error)),
    }
}

/// Says what became of a decision that a node was asked to make.
pub fn told_of_call(
    context: &Context,
    dir: &RunDir,
    done: &str,
    (heard_by, call): (Option<String>, &SuspendedProposal),
) -> Result<(), CommandError> {
    if context.output.json() {
        return context.output.document(&serde_json::json!({
            "run_id": dir.run_id, "repo": dir.repo, "proposal_hash": call.proposal_hash, "asked": done, "heard_by": heard_by,
        }));
    }
    let call = format!("{} {}", call.resource.name, call.canonical_json);
    match heard_by {
        Some(node) => context.output.line(format!("Node {node} has heard that it is {done}: {call}")),
        None => {
            context.output.line(format!("It is to be {done}: {call}"))?;
            context.output.line(asking::nobody_yet(&dir.repo))
        }
    }
}

/// Why nothing was decided, with what can be.
pub fn not_decided(refused: NotApproved) -> CommandError {
    let error = match &refused {
        NotApproved::Store(_) | NotApproved::Unreadable(_) => CommandError::failed(refused.to_string()),
        _ => CommandError::invalid(refused.to_string()),
    };
    let next = match &refused {
        NotApproved::Unknown { waiting, .. } if waiting.is_empty() => {
            "nothing of this run waits; `agentd approvals list` shows the calls that wait, and their hashes"
        }
        NotApproved::Unknown { .. } => "name one that waits, by the first digits of its hash:",
        NotApproved::Several { .. } | NotApproved::TooShort { .. } => "write more digits of the hash:",
        NotApproved::NoRun => "`agentd runs list` shows the runs that are known here",
        NotApproved::TooLong => "write a shorter time, for example --expires 24h",
        NotApproved::Unreadable(_) | NotApproved::Store(_) => return error,
    };
    let error = error.hint(next);
    refused.waiting().iter().fold(error, |error, (hash, name)| error.hint(format!("{hash} {name}")))
}
