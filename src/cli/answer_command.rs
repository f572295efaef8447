//! `agentd answer · approve · reject`: what lets a parked issue go on, by whoever is at agentd's machine.

use std::time::Duration;

use super::approvals_command;
use super::args::ApprovalsCommand;
use super::asking;
use super::concealed;
use super::context::Context;
use super::daemon_command::{daemon_files, open_options};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use crate::config::Span;
use crate::conversation::parked::ParkedCell;
use crate::conversation::parked::parked_format::{Parked, ParkedIssue, WaitsFor};
use crate::domain::cluster::person_request::PersonAsks;
use crate::domain::issue::IssueKey;
use crate::domain::plan::ProposedPlan;
use crate::domain::run::RunId;
use crate::github::IssueSnapshot;
use crate::lifecycle::carry_out::{NotCarriedOut, With, carry_out};
use crate::lifecycle::decisions::{NotDecided, Plans};
use crate::repository::context::RepositoryContext;
use crate::sys::shutdown::Shutdown;

/// How long an approved call may be made.
const HOLDS: Span = Span(Duration::from_secs(24 * 60 * 60));

/// What is asked of the run that an issue waits for.
type Wanted = (RunId, PersonAsks);

/// Decides on an issue that waits: by this command, or by the node that polls the repository. `what` picks what is asked, knowing how many
/// plans in a row may be rejected where this command carries it out; `None` = something else is meant. Gives whether it was that.
fn decide(
    context: &Context,
    issue: &IssueArg,
    (done, needs_github): (&str, bool),
    what: impl FnOnce(&ParkedIssue, Option<u32>) -> Result<Option<Wanted>, CommandError>,
) -> Result<bool, CommandError> {
    let key = issue.key.clone();
    if let Some(afar) = asking::from_afar(context)? {
        let cell = ParkedCell::new(&afar.state, &afar.repo, &key);
        let kept = context.block_on(cell.read())?.map_err(failed)?;
        let Some((run_id, what)) = what(&kept, None)? else { return Ok(false) };
        let heard_by = asking::send(&*afar.nodes, &asking::request(&afar.repo, &key, what))?;
        if context.output.json() {
            let told = serde_json::json!({ "issue": issue.key, "run_id": run_id, "heard_by": heard_by });
            return context.output.document(&told).map(|()| true);
        }
        let told = match heard_by {
            Some(node) => format!("{done}: node {node} has heard it, and the work goes on there."),
            None => asking::nobody_yet(&afar.repo),
        };
        return context.output.line(told).map(|()| true);
    }
    // All of it on one runtime: connections to GitHub belong to it.
    context.block_on(async {
        let shutdown = Shutdown::new();
        let options = OpenOptions { fresh: false, needs_github, ..open_options(&shutdown) };
        let site = repositories::one(context, &options).await?;
        repositories::check_host(issue, &site)?;
        let kept = ParkedCell::new(&site.state, &site.repo, &key).read().await.map_err(failed)?;
        // One from a file has a number of its own, and was asked nowhere but here.
        if let Some(parked) = kept.now().filter(|parked| parked.comment.is_some())
            && let Some(seen) = repositories::check_open(issue, &site).await?
        {
            check_wanted(context, &site, parked, &seen)?;
        }
        let most_rejected = site.config.plan.max_rounds;
        let Some((run_id, what)) = what(&kept, Some(most_rejected))? else { return Ok(false) };
        let plans = Plans { github: site.github.as_ref(), most_rejected };
        let with = With { plans, ..With::default() };
        let carried = carry_out(&site.state, &asking::request(&site.repo, &key, what), with).await;
        carried.map_err(|error| match error {
            NotCarriedOut::NotDecided(NotDecided::GitHub(error)) => failed(error),
            error => asking::not_done(&error),
        })?;
        told(context, &site, &key, (done, run_id)).map(|()| true)
    })?
}

/// Answers the question for which the issue waits, and says what goes on.
pub fn answer(context: &Context, issue: &IssueArg, text: &str) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    let text = concealed::text(text.trim()).into_owned();
    if text.is_empty() {
        return Err(CommandError::invalid("there is no answer").hint("agentd answer N TEXT"));
    }
    let key = &issue.key;
    let asks = |parked: &&Parked| matches!(parked.waits_for, WaitsFor::Answer { .. });
    let answers = |kept: &ParkedIssue, _| {
        let Some(parked) = kept.now().filter(asks) else {
            let error = format!("nothing waits for an answer on issue {key}");
            return Err(CommandError::invalid(error).hint(format!("agentd why {key}")));
        };
        Ok(Some((parked.run_id, PersonAsks::Answer { run_id: parked.run_id, text })))
    };
    decide(context, issue, ("Answered", false), answers).map(drop)
}

/// Whether a daemon that lives goes on with what this state decides.
fn is_watched(context: &Context, site: &RepositoryContext, key: &IssueKey) -> Result<bool, CommandError> {
    let files = daemon_files(context)?;
    let watched = files.look().is_ok_and(|state| {
        let known = state.repositories.get(&site.repo);
        key.number().is_some() && known.is_some_and(|known| known.left_at.is_none())
    });
    Ok(watched && files.daemon_lives())
}

/// Refuses what a daemon would drop at its next look: whoever takes the trigger label off wants nothing more of what waits.
fn check_wanted(
    context: &Context,
    site: &RepositoryContext,
    parked: &Parked,
    seen: &IssueSnapshot,
) -> Result<(), CommandError> {
    let labels = &site.config.github.labels;
    let key = &seen.issue.key;
    // The label of a run that was refused is off as well, and another one says so.
    let dropped =
        !parked.unlabelled && !seen.has_label(&labels.trigger) && seen.has_label(&labels.needs_input);
    if !dropped || !is_watched(context, site, key)? {
        return Ok(());
    }
    let message = format!(
        "the label \"{}\" was taken off issue {key}, so that nothing waits there any more",
        labels.trigger
    );
    Err(CommandError::invalid(message)
        .hint("put the label on again, and say it on the issue or here once more"))
}

/// Says what follows.
fn told(
    context: &Context,
    site: &RepositoryContext,
    key: &IssueKey,
    (done, run_id): (&str, RunId),
) -> Result<(), CommandError> {
    // In a cluster another node may poll the repository.
    let goes_on = match site.state.shared() {
        None => Some(is_watched(context, site, key)?),
        Some(_) => None,
    };
    if context.output.json() {
        return context.output.document(&serde_json::json!({
            "issue": key, "run_id": run_id, "goes_on": goes_on,
        }));
    }
    context.output.advice(match goes_on {
        Some(true) => format!("{done}. The daemon goes on with it at its next look."),
        Some(false) => format!("{done}. Go on: agentd runs resume {run_id}"),
        None => format!(
            "{done}. The node that polls the repository goes on with it; where none does: agentd runs resume {run_id}"
        ),
    })
}

/// Approves the plan for which the issue waits, as its comment reads now; or the call that the hash names.
pub fn approve(context: &Context, issue: &IssueArg, hash: Option<&str>) -> Result<(), CommandError> {
    let of_issue = context.for_issue(issue)?;
    let key = &issue.key;
    let calls = approvals_command::waiting(context, issue)?;
    let approves = |kept: &ParkedIssue, _| {
        let Some((run_id, plan)) = waiting_plan(kept) else { return Ok(None) };
        match hash {
            Some(hash) if !plan.is_named(hash) && calls.iter().any(|call| call.starts_with(hash)) => Ok(None),
            Some(hash) if !plan.is_named(hash) => {
                let error = format!("nothing that waits on issue {key} has the hash \"{hash}\"");
                let hint = format!("agentd approve {key} {}  (the plan)", plan.short());
                Err(CommandError::invalid(error).hint(hint))
            }
            None if !calls.is_empty() => {
                let error = format!("several things wait on issue {key}; name the one that is meant");
                let error = CommandError::invalid(error)
                    .hint(format!("agentd approve {key} {}  (the plan)", plan.short()));
                Err(calls
                    .iter()
                    .fold(error, |error, call| error.hint(format!("agentd approve {key} {call}"))))
            }
            _ => Ok(Some((run_id, PersonAsks::ApprovePlan { run_id, sha256: plan.sha256.clone() }))),
        }
    };
    if decide(&of_issue, issue, ("Approved", true), approves)? {
        return Ok(());
    }
    match hash {
        Some(hash) if !calls.is_empty() => {
            let (hash, expires) = (hash.to_owned(), HOLDS);
            approvals_command::run(context, &ApprovalsCommand::Approve { hash, expires })
        }
        None if !calls.is_empty() => {
            let error = format!("no plan waits for approval on issue {key}, but a call does");
            Err(calls.iter().fold(CommandError::invalid(error), |error, call| {
                error.hint(format!("agentd approve {key} {call}"))
            }))
        }
        _ => Err(nothing_waits(key)),
    }
}

/// Has the plan for which the issue waits made again, for a reason.
pub fn reject(context: &Context, issue: &IssueArg, why: &str) -> Result<(), CommandError> {
    let of_issue = context.for_issue(issue)?;
    let (key, text) = (&issue.key, why.trim().to_owned());
    if text.is_empty() {
        return Err(CommandError::invalid("there is no reason").hint("agentd reject N TEXT"));
    }
    let rejects = |kept: &ParkedIssue, most: Option<u32>| {
        let Some((run_id, _)) = waiting_plan(kept) else { return Err(nothing_waits(key)) };
        match most.filter(|most| kept.rejected >= *most) {
            Some(most) => {
                let error = format!(
                    "the plan of issue {key} was rejected {most} times already and is not made again"
                );
                Err(CommandError::invalid(error)
                    .hint("approve it, take the issue's trigger label off, or raise plan.max_rounds"))
            }
            None => Ok(Some((run_id, PersonAsks::RejectPlan { run_id, text }))),
        }
    };
    decide(&of_issue, issue, ("Rejected", false), rejects).map(drop)
}

fn failed(error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(error.to_string())
}

fn nothing_waits(key: &IssueKey) -> CommandError {
    CommandError::invalid(format!("nothing waits for an approval on issue {key}"))
        .hint(format!("agentd why {key}"))
}

/// The plan that nobody has decided on yet, and its run.
fn waiting_plan(kept: &ParkedIssue) -> Option<(RunId, &ProposedPlan)> {
    let parked = kept.now().filter(|parked| parked.answer.is_none())?;
    match &parked.waits_for {
        WaitsFor::Plan { plan, .. } => Some((parked.run_id, plan)),
        WaitsFor::Answer { .. } | WaitsFor::GiveBack(_) => None,
    }
}
