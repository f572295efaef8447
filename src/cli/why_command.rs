//! `agentd why`: what becomes of an issue, then every rule with its answer.

use super::approvals_text;
use super::context::Context;
use super::daemon_command::{goes_on_when_approved, open_options, watched};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::known_daemon::KnownDaemon;
use super::repositories::{self, OpenOptions};
use crate::conversation::parked::ParkedCell;
use crate::daemon::status_format::RunningStatus;
use crate::daemon::{
    Explanation, LeftCalls, NodeAnswer, Outlook, Surroundings, WaitsForPerson, WorkedOnBy, gather,
};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::SuspendedProposal;
use crate::engine::shared_cap;
use crate::issue::approval::{self, Decision};
use crate::issue::spending;
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::store::run_dir::RunDir;
use crate::sys::shutdown::Shutdown;

/// `agentd why N`: what becomes of the issue, then every rule with its answer. Gives the exit code.
pub fn why(context: &Context, issue: &IssueArg, exit_status: bool) -> Result<u8, CommandError> {
    let (context, number) = (&context.for_issue(issue)?, issue.number);
    context.block_on(async {
        let shutdown = Shutdown::new();
        let site = repositories::one(context, &OpenOptions { fresh: false, ..open_options(&shutdown) }).await?;
        repositories::check_host(issue, &site)?;
        let config = &site.config;
        let client = site.github.clone().ok_or_else(|| CommandError::invalid("there are no credentials for GitHub"))?;
        let lease = site.state.store().look(&site.lease(&IssueKey::Number(number)));
        let now = site.clock.now();
        let (asks, of) = (context.clone(), site.clone());
        let known = tokio::task::spawn_blocking(move || KnownDaemon::of(&asks, &of, number)).await;
        let known = known.map_err(|panic| CommandError::failed(panic.to_string()))??;
        let status = &known.status;
        let here = |pid| {
            status.as_ref().is_some_and(|status| {
                let is = |run: &RunningStatus| run.repo == site.repo && run.issue == number;
                status.pid == pid && status.running.iter().any(is)
            })
        };
        let holder = lease
            .as_ref()
            .and_then(|lease| lease.holder.as_ref())
            .map(|holder| if here(holder.pid) { WorkedOnBy::Here } else { WorkedOnBy::Elsewhere(holder.to_string()) });
        let around = Surroundings {
            watched: watched(&site).await,
            labels: config.github.labels.clone(),
            min_permission: config.github.min_permission,
            holder,
            waits_for: waits_for(&site, number).await,
            money_used_up: money_used_up(&site, number).await,
            state_dir: site.state.path().to_owned(),
            now,
        };
        let facts = gather(&client, (&known.state, status.as_ref()), number, around).await.map_err(|error| CommandError::failed(error.to_string()))?;
        let mapping = lease.and_then(|lease| mapping_of(lease.record.as_ref()?));
        let pinned = mapping.as_ref().and_then(|mapping| mapping.unpushed.as_ref()).filter(|left| left.bundle.is_none());
        let last = last_run(&site, mapping.as_ref());
        let left = last.as_ref().map(|last| waiting_calls(&site, last)).unwrap_or_default();
        let left_calls = last.as_ref().map(|last| LeftCalls {
            run_id: last.dir.run_id,
            calls: &left,
            goes_on: !left.is_empty() && goes_on_when_approved(context, &last.dir.repo, &last.facts),
        });
        let explanation = Explanation::of(&facts, known.asked(&site.repo, number), left_calls);
        let outlook = &explanation.outlook;
        let code = u8::from(exit_status && outlook.todo().is_some());
        if context.output.json() {
            let rules: Vec<_> = explanation
                .rules
                .iter()
                .map(|verdict| serde_json::json!({ "rule": verdict.rule, "code": verdict.code, "answer": verdict.answer }))
                .collect();
            let last = last.as_ref().map(|last| {
                let stop = &last.stop;
                serde_json::json!({
                    "run_id": last.dir.run_id, "stop_reason": stop.reason(), "stop_detail": stop.detail, "message": stop.message,
                })
            });
            let approvals: Vec<_> = left.iter().map(|(one, decision)| approvals_text::document(one, decision)).collect();
            let mut told = serde_json::json!({
                "issue": number, "outlook": outlook.as_str(), "summary": outlook.to_string(), "do": outlook.todo(),
                "starts": explanation.starts(), "rules": rules, "last_run": last, "approvals": approvals,
                "pinned": pinned.map(|left| serde_json::json!({ "run_id": left.run_id, "node": left.node, "commit": left.commit })),
            });
            if !known.nodes.is_empty() {
                let nodes = known.nodes.iter();
                let nodes = nodes.map(|one| serde_json::json!({ "node": one.node, "code": one.code, "answer": one.answer }));
                told["nodes"] = nodes.collect();
            }
            return context.output.document(&told).map(|()| code);
        }
        tell_outlook(context, outlook)?;
        if let Some(last) = &last {
            context.output.line(format!("The last run, {}: {}\n", last.dir.run_id, last.stop.message))?;
        }
        if let Some(left) = pinned {
            let (run, commit) = (left.run_id, left.commit.short());
            let told = format!("Pinned: commits of run {run} that are not pushed ({commit}) are on the node {} alone.\n", left.node);
            context.output.line(told)?;
        }
        for (proposal, decision) in &left {
            approvals_text::show(context, proposal, decision)?;
            context.output.line("")?;
        }
        let rows: Vec<Vec<String>> = explanation
            .rules
            .iter()
            .map(|verdict| vec![verdict.rule.to_owned(), verdict.code.to_string(), verdict.answer.clone()])
            .collect();
        context.output.table(&["RULE", "CODE", "ANSWER"], &rows)?;
        tell_nodes(context, outlook, &known.nodes).map(|()| code)
    })?
}

/// In a cluster, where no run works on the issue: what each node says to one.
fn tell_nodes(context: &Context, outlook: &Outlook, nodes: &[NodeAnswer]) -> Result<(), CommandError> {
    if nodes.is_empty() || matches!(outlook, Outlook::Runs(_)) {
        return Ok(());
    }
    let rows = nodes.iter().map(|one| vec![one.node.clone(), one.code.to_owned(), one.answer.clone()]);
    context.output.line("")?;
    context.output.table(&["NODE", "CODE", "ANSWER"], &rows.collect::<Vec<_>>())
}

/// For what an issue waits that a person has to do.
async fn waits_for(site: &RepositoryContext, number: u64) -> Option<WaitsForPerson> {
    let cell = ParkedCell::new(&site.state, &site.repo, &IssueKey::Number(number));
    let issue = cell.read().await.ok()?;
    let parked = issue.now().filter(|parked| parked.answer.is_none())?;
    Some(WaitsForPerson::of(parked, number))
}

/// What is spent of an issue's budget and how much that is, where it is used up.
async fn money_used_up(site: &RepositoryContext, number: u64) -> Option<(Money, Money)> {
    let spending = spending::of(site, &IssueKey::Number(number)).await.ok()?;
    shared_cap::used_up(&spending, site.config.budgets.max_cost_per_issue?)
}

/// An issue's last run, which was no success.
struct LastRun {
    dir: RunDir,
    facts: RunFacts,
    stop: Stop,
}

/// The issue's last run and how it ended, from its lease; a success needs no word.
fn last_run(site: &RepositoryContext, mapping: Option<&MappingRecord>) -> Option<LastRun> {
    let mapping = mapping?;
    let dir = site.state.run(&site.repo, mapping.run_id);
    let facts = run_facts::read(&dir).ok()?;
    let stop = facts.end.clone().filter(|stop| !stop.success())?;
    Some(LastRun { dir, facts, stop })
}

/// What the last run left to a person.
fn waiting_calls<'a>(site: &RepositoryContext, last: &'a LastRun) -> Vec<(&'a SuspendedProposal, Decision)> {
    match last.stop.detail {
        StopDetail::ApprovalPending => {
            approval::waiting(&site.state, &last.dir, &last.facts, site.clock.now())
        }
        _ => Vec::new(),
    }
}

/// On one line where it fits; else what to do stands on its own, in one piece.
fn tell_outlook(context: &Context, outlook: &Outlook) -> Result<(), CommandError> {
    let line = context.output.with_flags(&outlook.to_string()).into_owned();
    let fits = context.output.width().is_none_or(|width| line.chars().count() <= width);
    match (outlook, fits) {
        (Outlook::NeedsYou(what, todo), false) => {
            context.output.entry("Needs you:", &format!("{what}."))?;
            context.output.whole_line(&format!("Do: {}\n", context.output.with_flags(todo)))
        }
        _ => context.output.line(format!("{line}\n")),
    }
}
