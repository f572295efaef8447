//! `agentd attach · say`: a person beside a run that works.

use super::asking;
use super::context::Context;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use super::runs;
use crate::domain::cluster::person_request::PersonAsks;
use crate::lifecycle::carry_out::{Done, With, carry_out};
use crate::record::report;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::run_dir::RunDir;

/// An issue's repository, and its run where one works.
async fn of(
    context: &Context,
    issue: &IssueArg,
) -> Result<(RepositoryContext, Option<RunDir>), CommandError> {
    let site = repositories::one(context, &OpenOptions::default()).await?;
    repositories::check_host(issue, &site)?;
    let lease = site.lease(&issue.key);
    let found = site.state.store().look(&lease).filter(|lease| lease.holder.is_some());
    let mapping = found.and_then(|lease| lease.record).as_ref().and_then(mapping_of);
    let run = mapping.map(|mapping| site.state.run(&site.repo, mapping.run_id));
    Ok((site, run))
}

/// Shows the run that works from its start and follows it. Gives the run's exit code.
pub fn attach(context: &Context, issue: &IssueArg) -> Result<u8, CommandError> {
    let context = &context.for_issue(issue)?;
    let (_, run) = context.block_on(of(context, issue))??;
    let Some(dir) = run else {
        return Err(CommandError::invalid(format!("no run works on issue {}", issue.key)).hint(format!(
            "agentd why {} says what becomes of it; agentd runs log latest shows the last run",
            issue.key
        )));
    };
    let dir = runs::here_or_brought(context, dir)?;
    runs::follow(context, &dir)?;
    let output = report::read_output(&dir);
    let output = output
        .map_err(|error| CommandError::failed(format!("run {} left no result: {error}", dir.run_id)))?;
    Ok(output.stop_detail.exit_code())
}

/// Keeps what the local user says, and prints where it stands.
pub fn say(context: &Context, issue: &IssueArg, text: &str) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    if text.trim().is_empty() {
        return Err(CommandError::invalid("there is nothing to say")
            .hint("agentd say 42 \"keep the name of the function\""));
    }
    let what = PersonAsks::Say { text: text.trim().to_owned() };
    let key = issue.key.clone();
    if let Some(afar) = asking::from_afar(context)? {
        let heard_by = asking::send(&*afar.nodes, &asking::request(&afar.repo, &key, what))?;
        let place = match &heard_by {
            Some(node) => {
                format!("node {node} has heard it: it waits for the run that works, or the next one")
            }
            None => asking::nobody_yet(&afar.repo),
        };
        if context.output.json() {
            return context.output.document(&serde_json::json!({ "heard_by": heard_by, "place": place }));
        }
        return context.output.line(place);
    }
    context.block_on(async {
        let (site, run) = of(context, issue).await?;
        if run.is_none() {
            repositories::check_open(issue, &site).await?;
        }
        let request = asking::request(&site.repo, &key, what);
        let done = carry_out(&site.state, &request, With::default())
            .await
            .map_err(|error| asking::not_done(&error))?;
        let Done::Kept(id) = done else {
            return Err(CommandError::failed("it could not be kept; say it again"));
        };
        let place = match &run {
            Some(dir) => format!("queued for run {}", dir.run_id),
            None => "waits for the next run".to_owned(),
        };
        if context.output.json() {
            let run = run.as_ref().map(|dir| dir.run_id);
            return context.output.document(&serde_json::json!({ "id": id, "run_id": run, "place": place }));
        }
        context.output.line(place)
    })?
}
