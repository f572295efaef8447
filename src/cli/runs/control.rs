//! `agentd runs stop · resume · approve`: acts on a run from another process.

use std::time::Duration;

use super::{finished, read};
use crate::cli::context::Context;
use crate::cli::daemon_command;
use crate::cli::error::CommandError;
use crate::cli::run_command;
use crate::config::Flag;
use crate::config::config_file::Publish;
use crate::domain::budget::Budgets;
use crate::domain::event::Asked;
use crate::domain::facts::RunFacts;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::run::Principal;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::StopDetail;
use crate::issue::approval::{self, NewApproval, NotApproved};
use crate::issue::reference::IssueSource;
use crate::lifecycle::request::RunRequest;
use crate::lifecycle::stop_request::{self, StopRequest};
use crate::record::finish::Standing;
use crate::store::run_dir::RunDir;
use crate::sys::clock::{Clock, Stopwatch};
use crate::sys::host::Host;
use crate::sys::paths::AbsPath;

/// How long the end of a run that was told to stop is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

/// Asks a live run to stop, and waits for its end for a while.
pub(super) fn stop(context: &Context, dir: &RunDir, abort: bool) -> Result<(), CommandError> {
    if finished(dir)?.1 == Standing::Ended {
        return Err(CommandError::invalid(format!("run {} has ended already", dir.run_id))
            .hint(format!("agentd runs show {}", dir.run_id)));
    }
    let request = if abort { StopRequest::AtOnce } else { StopRequest::LastReport };
    // Where its node looks.
    let asked = super::state_dir(context)?.run(&dir.repo, dir.run_id);
    stop_request::ask(&asked, &request).map_err(|error| {
        let words = error.to_string();
        match words.contains("not permitted") {
            true => CommandError::invalid(words),
            false => CommandError::failed(words),
        }
    })?;
    let watch = Stopwatch::start();
    let (facts, standing) = context.block_on(async {
        loop {
            super::brought_again(context, dir)?;
            let now = finished(dir)?;
            if now.1 == Standing::Ended || watch.elapsed() > PATIENCE {
                return Ok::<_, CommandError>(now);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })??;
    let end = facts.end.as_ref().filter(|_| standing == Standing::Ended);
    if context.output.json() {
        return context.output.document(&serde_json::json!({
            "run_id": dir.run_id, "asked": if abort { "abort" } else { "stop" },
            "ended": end.is_some(),
            "stop_reason": end.map(|stop| stop.reason()), "stop_detail": end.map(|stop| stop.detail),
        }));
    }
    match end {
        Some(stop) => context.output.line(format!(
            "Run {} ended: {} ({}). Go on with it: agentd runs resume {}",
            dir.run_id,
            stop.reason(),
            stop.detail,
            dir.run_id
        )),
        None if dir.state().only_reads() => context.output.line(format!(
            "Run {} was told to stop; its node has not ended it yet. At once: agentd runs stop {} --abort",
            dir.run_id, dir.run_id
        )),
        None => context.output.line(format!(
            "Run {} was told to stop and is finishing. At once: agentd runs stop {} --abort",
            dir.run_id, dir.run_id
        )),
    }
}

/// Continues a run that was stopped or killed, as a new run on the same branch (D61).
pub(in crate::cli) fn resume(context: &Context, dir: &RunDir) -> Result<u8, CommandError> {
    let (facts, standing) = finished(dir)?;
    if standing == Standing::Running {
        return Err(CommandError::invalid(format!("run {} has not ended", dir.run_id))
            .hint(format!("stop it: agentd runs stop {}", dir.run_id)));
    }
    let output: RunOutput = read(&dir.result())?;
    if output.success {
        let error = format!("run {} reached its objective: there is nothing to go on with", dir.run_id);
        return Err(
            CommandError::invalid(error).hint("agentd run --issue N starts the next run on the same branch")
        );
    }
    let Some(lease) = &facts.lease else {
        return Err(CommandError::invalid(format!("run {} has no mapping to go on with", dir.run_id)));
    };
    let base = AbsPath::new(&lease.checkout).map_err(|error| CommandError::invalid(error.to_string()))?;
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
    run_command::resume(context, flags, &dir.repo, &base, request)
}

fn ran_out(facts: &RunFacts, key: &str) -> bool {
    let end = facts.end.as_ref().map(|stop| stop.detail);
    key == "session.max_turns" && end == Some(StopDetail::MaxTurnsExhausted)
}

fn request(facts: &RunFacts, output: &RunOutput, asked: Asked, dir: &RunDir) -> RunRequest {
    let issue = facts.lease.as_ref().map(|lease| lease.issue.clone());
    let issue = match (&output.objective.issue, issue) {
        (Some(tracked), _) => IssueSource::Number(tracked.number),
        (None, Some(issue)) => IssueSource::Recorded(Box::new(issue)),
        (None, None) => IssueSource::Number(0),
    };
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
            toml::Value::String(format!("{}s", caps.max_wall_time.as_secs().max(1))),
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
    let approver = run_command::operator(&Host::current());
    let approval = NewApproval { proposal: asked.to_owned(), approver, holds };
    let state = super::state_dir(context)?;
    let granted = approval::grant(&state, dir, &facts, &approval, Clock::system().now());
    let (grant, proposal) = granted.map_err(not_decided)?;
    if context.output.json() {
        return context.output.document(&grant);
    }
    let until = grant.expires_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    context.output.line(format!(
        "Approved once, until {until}: {} {}",
        proposal.resource.name, proposal.canonical_json
    ))?;
    context.output.line(match daemon_command::goes_on_when_approved(context, &dir.repo, &facts) {
        true => "The daemon goes on with it at its next look.".to_owned(),
        false => format!("Go on: agentd runs resume {}", dir.run_id),
    })
}

/// Why nothing was decided, with what can be.
pub fn not_decided(refused: NotApproved) -> CommandError {
    let error = match &refused {
        NotApproved::Store(_) | NotApproved::Unreadable(_) => CommandError::failed(refused.to_string()),
        _ => CommandError::invalid(refused.to_string()),
    };
    refused.waiting().iter().fold(error, |error, (hash, name)| error.hint(format!("{hash} {name}")))
}
