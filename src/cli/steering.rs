//! `agentd attach · say`: a person beside a run that works.

use super::context::Context;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use super::runs;
use crate::conversation::inbox::Inboxes;
use crate::conversation::inbox::inbox_format::{Heard, Inbox};
use crate::domain::issue::IssueKey;
use crate::domain::remark::{Remark, RemarkId, RemarkKind};
use crate::domain::run_output::RunOutput;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::run_dir::RunDir;
use crate::sys::host::Host;

/// An issue's repository, and its run where one works.
async fn of(
    context: &Context,
    issue: &IssueArg,
) -> Result<(RepositoryContext, Option<RunDir>), CommandError> {
    let site = repositories::one(context, &OpenOptions::default()).await?;
    repositories::check_host(issue, &site)?;
    let lease = site.lease(&IssueKey::Number(issue.number));
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
        return Err(CommandError::invalid(format!("no run works on issue {}", issue.number)).hint(format!(
            "agentd why {} says what becomes of it; agentd runs log latest shows the last run",
            issue.number
        )));
    };
    runs::follow(context, &dir)?;
    let output =
        std::fs::read(dir.result()).ok().and_then(|text| serde_json::from_slice::<RunOutput>(&text).ok());
    let output = output.ok_or_else(|| CommandError::failed(format!("run {} left no result", dir.run_id)))?;
    Ok(output.stop_detail.exit_code())
}

/// Keeps what the local user says, and prints where it stands.
pub fn say(context: &Context, issue: &IssueArg, text: &str) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    if text.trim().is_empty() {
        return Err(CommandError::invalid("there is nothing to say")
            .hint("agentd say 42 \"keep the name of the function\""));
    }
    context.block_on(async {
        let (site, run) = of(context, issue).await?;
        let now = site.clock.now();
        let host = Host::current();
        let id = RemarkId::Said(u64::try_from(now.timestamp_micros()).unwrap_or_default());
        let remark = Remark {
            kind: RemarkKind::Said,
            id,
            node_id: None,
            number: issue.number,
            url: None,
            login: Some(format!("local:{}", host.uid)),
            bot: false,
            created: now,
            edited: None,
            editor: None,
            edited_by_bot: false,
            text: text.trim().to_owned(),
            minimized: false,
            thread: None,
            in_reply_to: None,
            review: None,
            state: None,
        };
        let heard = Heard::said(remark, now);
        let keep = move |inbox: &mut Inbox| drop(inbox.remarks.insert(id, heard.clone()));
        let cell = Inboxes::new(&site.state, &site.repo).of(issue.number);
        cell.update(keep).await.map_err(|error| CommandError::failed(error.to_string()))?;
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
