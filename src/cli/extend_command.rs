//! `agentd extend N USD`: more money for an issue, by whoever is at agentd's machine.

use super::asking::{self, Afar};
use super::context::Context;
use super::daemon_command::{daemon_files, open_options};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use crate::domain::cluster::person_request::PersonAsks;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::issue::spending;
use crate::lifecycle::carry_out::{Done, With, carry_out};
use crate::sys::shutdown::Shutdown;

/// Gives the issue `amount` more, and says what goes on.
pub fn extend(context: &Context, issue: &IssueArg, amount: Money) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    let key = issue.key.clone();
    if let Some(afar) = asking::from_afar(context)? {
        return ask(context, &afar, (&key, amount));
    }
    context.block_on(async {
        let shutdown = Shutdown::new();
        let options = OpenOptions { fresh: false, needs_github: false, ..open_options(&shutdown) };
        let site = repositories::one(context, &options).await?;
        repositories::check_host(issue, &site)?;
        repositories::check_open(issue, &site).await?;
        let request = asking::request(&site.repo, &key, PersonAsks::Extend { amount });
        let done = carry_out(&site.state, &request, With::default())
            .await
            .map_err(|error| asking::not_done(&error))?;
        let Done::Given(spending) = done else {
            return Err(CommandError::failed("the issue could not be given more"));
        };
        let stands = spending::stands(&site, &spending);
        let ended = spending::ended_by_cost(&site, &key).await;
        let goes_on = ended.is_some()
            && issue.key.number().is_some_and(|number| daemon_goes_on(context, &site.repo, number));
        if context.output.json() {
            return context.output.document(&serde_json::json!({
                "issue": issue.key, "given_usd": amount, "spent_usd": stands.spent, "set_aside_usd": stands.set_aside,
                "budget_usd": stands.cap,
                "ended_run": ended.map(|(run_id, _)| run_id), "goes_on": goes_on,
            }));
        }
        let may = stands.in_words();
        let may = may.unwrap_or_else(|| {
            "there is no budget of an issue (budgets.max_cost_per_issue = 0)".to_owned()
        });
        context.output.line(format!("Issue {key} was given {amount} more: {may}."))?;
        match ended {
            Some(_) if goes_on => context.output.line("The daemon goes on with it at its next look."),
            Some((run_id, _)) => context.output.advice(format!("Go on: agentd runs resume {run_id}")),
            None => Ok(()),
        }
    })?
}

/// Has the node that polls the repository give it.
fn ask(context: &Context, afar: &Afar, (key, amount): (&IssueKey, Money)) -> Result<(), CommandError> {
    let request = asking::request(&afar.repo, key, PersonAsks::Extend { amount });
    let heard_by = asking::send(&*afar.nodes, &request)?;
    if context.output.json() {
        return context.output.document(&serde_json::json!({
            "issue": key, "given_usd": amount, "heard_by": heard_by,
        }));
    }
    match heard_by {
        Some(node) => {
            context.output.line(format!("Issue {key} was given {amount} more: node {node} has heard it."))
        }
        None => {
            context.output.line(format!("Issue {key} is to be given {amount} more."))?;
            context.output.line(asking::nobody_yet(&afar.repo))
        }
    }
}

/// Whether the daemon goes on by itself with a run that a cap of money ended.
fn daemon_goes_on(context: &Context, repo: &crate::domain::name::RepoName, number: u64) -> bool {
    let Ok(files) = daemon_files(context) else { return false };
    let known = files
        .look()
        .ok()
        .and_then(|state| Some(state.repositories.get(repo)?.issues.get(&number)?.out_of_money.is_some()));
    known == Some(true) && files.daemon_lives()
}
