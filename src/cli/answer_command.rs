//! `agentd answer · approve · reject`: what lets a parked issue go on, by whoever is at agentd's machine.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::approvals_command;
use super::args::ApprovalsCommand;
use super::context::Context;
use super::daemon_command::{daemon_files, open_options};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use crate::config::Span;
use crate::conversation::parked::parked_format::{Answer, Parked, ParkedIssue, WaitsFor};
use crate::conversation::parked::{ParkedCell, plan_in, plan_shown};
use crate::domain::issue::IssueKey;
use crate::domain::plan::{PlanVerdict, ProposedPlan};
use crate::domain::run::RunId;
use crate::repository::context::RepositoryContext;
use crate::sys::host::Host;
use crate::sys::shutdown::Shutdown;

/// How long an approved call may be made.
const HOLDS: Span = Span(Duration::from_secs(24 * 60 * 60));

/// Answers the question for which the issue waits, and says what goes on.
pub fn answer(context: &Context, issue: &IssueArg, text: &str) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    let text = text.trim().to_owned();
    if text.is_empty() {
        return Err(CommandError::invalid("there is no answer").hint("agentd answer N TEXT"));
    }
    context.block_on(async {
        let shutdown = Shutdown::new();
        let options = OpenOptions { fresh: false, needs_github: false, ..open_options(&shutdown) };
        let site = repositories::one(context, &options).await?;
        repositories::check_host(issue, &site)?;
        let cell = ParkedCell::new(&site.state, &site.repo, &IssueKey::Number(issue.number));
        let by = local();
        let at = site.clock.now();
        let put = move |issue: &mut ParkedIssue| {
            issue.now()?;
            let parked = issue.parked.as_mut()?;
            let WaitsFor::Answer { question, .. } = &parked.waits_for else { return None };
            if parked.answer.is_some() {
                return Some(None);
            }
            let text = question.chosen(&text).map_or_else(|| text.clone(), str::to_owned);
            parked.answer = Some(Answer { text, by: by.clone(), permission: None, at, plan: None });
            Some(Some(parked.run_id))
        };
        let (_, put) = cell.update(put).await.map_err(|error| CommandError::failed(error.to_string()))?;
        let number = issue.number;
        let run_id = match put {
            None => {
                let error = format!("nothing waits for an answer on issue {number}");
                return Err(CommandError::invalid(error).hint(format!("agentd why {number}")));
            }
            Some(None) => {
                return Err(CommandError::invalid(format!(
                    "the question of issue {number} is answered already"
                )));
            }
            Some(Some(run_id)) => run_id,
        };
        told(context, &site, number, ("Answered", run_id))
    })?
}

/// Says what follows.
fn told(
    context: &Context,
    site: &RepositoryContext,
    number: u64,
    (done, run_id): (&str, RunId),
) -> Result<(), CommandError> {
    let files = daemon_files(context)?;
    let known = files.load().ok().and_then(|state| {
        let memory = state.repositories.get(&site.repo)?.issues.get(&number)?;
        Some(memory.parked.as_ref()?.waits_for_person())
    });
    let goes_on = known == Some(true) && files.daemon_lives();
    if context.output.json() {
        return context.output.document(&serde_json::json!({
            "issue": number, "run_id": run_id, "goes_on": goes_on,
        }));
    }
    context.output.line(match goes_on {
        true => format!("{done}. The daemon goes on with it at its next look."),
        false => format!("{done}. Go on: agentd runs resume {run_id}"),
    })
}

/// Approves the plan for which the issue waits, as its comment reads now; or the call that the hash names.
pub fn approve(context: &Context, issue: &IssueArg, hash: Option<&str>) -> Result<(), CommandError> {
    let of_issue = context.for_issue(issue)?;
    let number = issue.number;
    let calls = approvals_command::waiting(context, issue)?;
    let decided = of_issue.block_on(async {
        let (site, cell) = parked_of(&of_issue, issue, true).await?;
        let Some((parked, plan)) = waiting_plan(&cell).await? else { return Ok(None) };
        match hash {
            Some(hash) if !plan.is_named(hash) && calls.iter().any(|call| call.starts_with(hash)) => {
                return Ok(None);
            }
            Some(hash) if !plan.is_named(hash) => {
                let error = format!("nothing that waits on issue {number} has the hash \"{hash}\"");
                let hint = format!("agentd approve {number} {}  (the plan)", plan.short());
                return Err(CommandError::invalid(error).hint(hint));
            }
            None if !calls.is_empty() => {
                let error = format!("several things wait on issue {number}; name the one that is meant");
                let error = CommandError::invalid(error)
                    .hint(format!("agentd approve {number} {}  (the plan)", plan.short()));
                return Err(calls
                    .iter()
                    .fold(error, |error, call| error.hint(format!("agentd approve {number} {call}"))));
            }
            _ => {}
        }
        let (text, verdict, at) = plan_now(&site, number, &parked, &plan).await?;
        let answer = Answer { text, by: local(), permission: None, at, plan: Some(verdict) };
        decide(&cell, number, parked.run_id, answer).await?;
        told(&of_issue, &site, number, ("Approved", parked.run_id)).map(Some)
    })??;
    match (decided, hash) {
        (Some(()), _) => Ok(()),
        (None, Some(hash)) if !calls.is_empty() => {
            let (hash, expires) = (hash.to_owned(), HOLDS);
            approvals_command::run(context, &ApprovalsCommand::Approve { hash, expires })
        }
        (None, None) if !calls.is_empty() => {
            let error = format!("no plan waits for approval on issue {number}, but a call does");
            Err(calls.iter().fold(CommandError::invalid(error), |error, call| {
                error.hint(format!("agentd approve {number} {call}"))
            }))
        }
        (None, _) => Err(nothing_waits(number)),
    }
}

/// Has the plan for which the issue waits made again, for a reason.
pub fn reject(context: &Context, issue: &IssueArg, why: &str) -> Result<(), CommandError> {
    let of_issue = context.for_issue(issue)?;
    let (number, text) = (issue.number, why.trim().to_owned());
    if text.is_empty() {
        return Err(CommandError::invalid("there is no reason").hint("agentd reject N TEXT"));
    }
    of_issue.block_on(async {
        let (site, cell) = parked_of(&of_issue, issue, false).await?;
        let Some((parked, _)) = waiting_plan(&cell).await? else { return Err(nothing_waits(number)) };
        let most = site.config.plan.max_rounds;
        if cell.read().await.map_err(failed)?.rejected >= most {
            let error =
                format!("the plan of issue {number} was rejected {most} times already and is not made again");
            return Err(CommandError::invalid(error)
                .hint("approve it, take the issue's trigger label off, or raise plan.max_rounds"));
        }
        let (by, at) = (local(), site.clock.now());
        let answer = Answer { text, by, permission: None, at, plan: Some(PlanVerdict::Rejected) };
        decide(&cell, number, parked.run_id, answer).await?;
        told(&of_issue, &site, number, ("Rejected", parked.run_id))
    })?
}

fn local() -> String {
    format!("local:{}", Host::current().uid)
}

fn failed(error: impl std::fmt::Display) -> CommandError {
    CommandError::failed(error.to_string())
}

fn nothing_waits(number: u64) -> CommandError {
    CommandError::invalid(format!("nothing waits for an approval on issue {number}"))
        .hint(format!("agentd why {number}"))
}

async fn parked_of(
    context: &Context,
    issue: &IssueArg,
    needs_github: bool,
) -> Result<(RepositoryContext, ParkedCell), CommandError> {
    let shutdown = Shutdown::new();
    let options = OpenOptions { fresh: false, needs_github, ..open_options(&shutdown) };
    let site = repositories::one(context, &options).await?;
    repositories::check_host(issue, &site)?;
    let cell = ParkedCell::new(&site.state, &site.repo, &IssueKey::Number(issue.number));
    Ok((site, cell))
}

/// The plan that nobody has decided on yet.
async fn waiting_plan(cell: &ParkedCell) -> Result<Option<(Parked, ProposedPlan)>, CommandError> {
    let kept = cell.read().await.map_err(failed)?;
    Ok(kept.now().filter(|parked| parked.answer.is_none()).and_then(|parked| match &parked.waits_for {
        WaitsFor::Plan { plan, .. } => Some((parked.clone(), plan.clone())),
        WaitsFor::Answer { .. } | WaitsFor::GiveBack(_) => None,
    }))
}

/// The plan as its comment has it now, whether people changed it, and the time by GitHub's clock.
async fn plan_now(
    site: &RepositoryContext,
    number: u64,
    parked: &Parked,
    plan: &ProposedPlan,
) -> Result<(String, PlanVerdict, DateTime<Utc>), CommandError> {
    let (Some(github), Some(told)) = (&site.github, &parked.comment) else {
        return Err(CommandError::invalid("the plan's comment cannot be read without GitHub"));
    };
    let gone = || {
        CommandError::invalid("the plan's comment is gone, so nobody can see what would be approved")
            .hint(format!("agentd reject {number} TEXT has the plan made again"))
    };
    let comment = github.comment(&site.repo, told.id).await.map_err(failed)?.ok_or_else(gone)?;
    let text = plan_in(&comment.body);
    let at = github.now().unwrap_or_else(|| site.clock.now());
    if text.is_empty() {
        return Err(gone());
    }
    if comment.updated_at.is_some_and(|edited| edited >= at - TimeDelta::seconds(1)) {
        return Err(CommandError::failed(
            "the plan was edited this very second; read it again and approve it then",
        ));
    }
    match text == plan_shown(plan, &IssueKey::Number(number)) {
        true => Ok((plan.text.clone(), PlanVerdict::Approved, at)),
        false => Ok((text, PlanVerdict::Edited, at)),
    }
}

async fn decide(cell: &ParkedCell, number: u64, run_id: RunId, answer: Answer) -> Result<(), CommandError> {
    let rejects = answer.plan == Some(PlanVerdict::Rejected);
    let put = move |issue: &mut ParkedIssue| {
        issue.now()?;
        let parked =
            issue.parked.as_mut().filter(|parked| parked.run_id == run_id && parked.answer.is_none())?;
        parked.answer = Some(answer.clone());
        issue.rejected += u32::from(rejects);
        Some(())
    };
    let (_, put) = cell.update(put).await.map_err(failed)?;
    put.ok_or_else(|| CommandError::invalid(format!("the plan of issue {number} was decided on meanwhile")))
}
