//! `agentd why`: what becomes of an issue, then every rule with its answer.

use std::sync::Arc;

use super::approvals_text;
use super::context::Context;
use super::daemon_command::{goes_on_when_approved, open_options, watched};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::known_daemon::KnownDaemon;
use super::repositories::{self, OpenOptions};
use crate::conversation::parked::ParkedCell;
use crate::conversation::parked::parked_format::{Parked, WaitsFor};
use crate::daemon::state_format::ParkedLabel;
use crate::daemon::status_format::RunningStatus;
use crate::daemon::{
    Explanation, Left, LeftCalls, NodeAnswer, Outlook, Surroundings, WaitsForPerson, WorkedOnBy, gather,
    rule_of_end,
};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::SuspendedProposal;
use crate::engine::shared_cap;
use crate::engine::shortage;
use crate::issue::approval::{self, Decision};
use crate::issue::shown_lease::{self, Tracked};
use crate::issue::spending;
use crate::lifecycle::lease::recovery;
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::store::run_dir::RunDir;
use crate::sys::holder_format::Holder;
use crate::sys::shutdown::Shutdown;

/// `agentd why N`: what becomes of the issue, then every rule with its answer. Gives the exit code.
pub fn why(context: &Context, issue: &IssueArg, exit_status: bool) -> Result<u8, CommandError> {
    let (context, key) = (&context.for_issue(issue)?, &issue.key);
    context.block_on(async {
        let shutdown = Shutdown::new();
        let needs_github = key.number().is_some();
        let options = OpenOptions { fresh: false, needs_github, ..open_options(&shutdown) };
        let mut site = repositories::one(context, &options).await?;
        repositories::check_host(issue, &site)?;
        // A person waits: where GitHub does not answer for some seconds, that is the answer.
        site.github = site.github.map(|client| client.in_passing());
        let lease = site.state.store().look(&site.lease(key));
        let mapping = lease.as_ref().and_then(|lease| mapping_of(lease.record.as_ref()?));
        let pinned = mapping
            .as_ref()
            .and_then(|mapping| mapping.unpushed.as_ref())
            .filter(|left| left.bundle.is_none());
        let last = last_run(&site, mapping.as_ref());
        let left = last.as_ref().map(|last| waiting_calls(&site, last)).unwrap_or_default();
        let left_calls = last.as_ref().map(|last| LeftCalls {
            run_id: last.dir.run_id,
            calls: &left,
            goes_on: !left.is_empty() && goes_on_when_approved(context, &last.dir.repo, &last.facts),
        });
        let ended_by = last.as_ref().and_then(LastRun::rule);
        let left_over = Left { calls: left_calls, decided: None, ended_by };
        let holder = lease.and_then(|lease| lease.holder);
        let (explanation, nodes) = match key.number() {
            Some(number) => {
                explained(context, &site, (number, mapping.as_ref()), (holder, left_over)).await?
            }
            None => {
                let parked = parked(&site, (key, mapping.as_ref())).await;
                let decided = parked.as_ref().and_then(|parked| decided(parked, key));
                let waits = parked.as_ref().and_then(|parked| waits_for(parked, key));
                let holder = holder.map(|holder| holder.to_string());
                let left = Left { decided, ..left_over };
                (Explanation::of_file(key, holder.as_deref(), waits.as_ref(), left), Vec::new())
            }
        };
        let outlook = &explanation.outlook;
        let code = u8::from(exit_status && outlook.todo().is_some());
        if context.output.json() {
            let mut told = document(key, &explanation, last.as_ref(), &left);
            told["pinned"] = serde_json::json!(pinned.map(|left| {
                serde_json::json!({ "run_id": left.run_id, "node": left.node, "commit": left.commit })
            }));
            if !nodes.is_empty() {
                let nodes = nodes.iter();
                let nodes = nodes.map(
                    |one| serde_json::json!({ "node": one.node, "code": one.code, "answer": one.answer }),
                );
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
            let told = format!(
                "Pinned: commits of run {run} that are not pushed ({commit}) are on the node {} alone.\n",
                left.node
            );
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
        tell_nodes(context, outlook, &nodes).map(|()| code)
    })?
}

/// What becomes of an issue of the tracker, and in a cluster what each node says to it.
async fn explained(
    context: &Context,
    site: &RepositoryContext,
    (number, mapping): (u64, Option<&MappingRecord>),
    (holder, left): (Option<Holder>, Left<'_>),
) -> Result<(Explanation, Vec<NodeAnswer>), CommandError> {
    let (config, key) = (&site.config, IssueKey::Number(number));
    let client =
        site.github.as_ref().ok_or_else(|| CommandError::invalid("there are no credentials for GitHub"))?;
    let (asks, of) = (context.clone(), site.clone());
    let known = tokio::task::spawn_blocking(move || KnownDaemon::of(&asks, &of, number)).await;
    let known = known.map_err(|panic| CommandError::failed(panic.to_string()))??;
    let status = &known.status;
    if let Some(silence) = status.as_ref().and_then(|status| status.silence(site.clock.now())) {
        context.output.note(silence);
    }
    let failing = status.iter().flat_map(|status| &status.repositories).find(|of| of.repo == site.repo);
    if let Some(since) = failing.and_then(|of| of.failing_since) {
        let since = since.format("%Y-%m-%dT%H:%M:%SZ");
        context
            .output
            .note(format!("the daemon has not heard of {} since {since}; asking GitHub now", site.repo));
    }
    let is = |run: &RunningStatus| run.repo == site.repo && run.issue == number;
    let ours = status.as_ref().filter(|status| status.running.iter().any(is)).map(|status| status.pid);
    let holder = match (holder, ours) {
        (Some(holder), ours) if ours == Some(holder.pid) => Some(WorkedOnBy::Here),
        (Some(holder), _) => Some(WorkedOnBy::Elsewhere(holder.to_string())),
        // It prepares: the issue is not taken yet.
        (None, Some(_)) if site.state.shared().is_none() => Some(WorkedOnBy::Here),
        (None, _) => {
            worked_on_elsewhere(site, &key).await.map(|holder| WorkedOnBy::Elsewhere(holder.to_string()))
        }
    };
    let parked = parked(site, (&key, mapping)).await;
    let around = Surroundings {
        watched: watched(site).await,
        labels: config.github.labels.clone(),
        min_permission: config.github.min_permission,
        holder,
        waits_for: parked.as_ref().and_then(|parked| waits_for(parked, &key)),
        money_used_up: money_used_up(site, number).await,
        day_money: day_money(site).await,
        state_dir: site.state.path().to_owned(),
        now: site.clock.now(),
    };
    let facts = gather(client, (&known.state, status.as_ref()), number, around).await;
    let decided = parked.as_ref().and_then(|parked| decided(parked, &key));
    // What a run asked is gone on with whoever made it; work that somebody took, where the daemon parked it.
    let asked = parked.as_ref().is_some_and(|one| !matches!(one.parked.waits_for, WaitsFor::GiveBack(_)));
    let is_daemons = asked || facts.parked.as_ref().is_some_and(ParkedLabel::waits_for_person);
    let goes_on = is_daemons && known.goes_on_in(&site.repo);
    let decided = decided.map(|outlook| match goes_on {
        true => {
            Outlook::Waits("what it waited for is decided; the daemon goes on at its next look".to_owned())
        }
        false => outlook,
    });
    let explanation = Explanation::of(&facts, known.asked(&site.repo, number), Left { decided, ..left });
    Ok((explanation, known.nodes))
}

/// Who works on the issue with another checkout; where that cannot be read, nobody is known to.
async fn worked_on_elsewhere(site: &RepositoryContext, key: &IssueKey) -> Option<Holder> {
    let issue = Tracked { key, number: key.number() };
    let found = shown_lease::working_elsewhere(issue, site).await;
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "whether another host works on the issue is not known");
        None
    })
}

/// The answer as JSON.
fn document(
    key: &IssueKey,
    explanation: &Explanation,
    last: Option<&LastRun>,
    left: &[(&SuspendedProposal, Decision)],
) -> serde_json::Value {
    let outlook = &explanation.outlook;
    let rules: Vec<_> = explanation
        .rules
        .iter()
        .map(|verdict| {
            serde_json::json!({ "rule": verdict.rule, "code": verdict.code, "answer": verdict.answer })
        })
        .collect();
    let last = last.map(|last| {
        let stop = &last.stop;
        serde_json::json!({
            "run_id": last.dir.run_id, "stop_reason": stop.reason(), "stop_detail": stop.detail, "message": stop.message,
        })
    });
    let approvals: Vec<_> =
        left.iter().map(|(one, decision)| approvals_text::document(one, decision)).collect();
    serde_json::json!({
        "issue": key, "outlook": outlook.as_str(), "summary": outlook.to_string(), "do": outlook.todo(),
        "starts": explanation.starts(), "rules": rules, "last_run": last, "approvals": approvals,
    })
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

/// For what an issue waits, or waited and no run has gone on with it.
struct ParkedSeen {
    parked: Parked,
    /// The node with the worktree in which a person has the work, where that is another one: they give it back there.
    on_node: Option<String>,
}

async fn parked(
    site: &RepositoryContext,
    (key, mapping): (&IssueKey, Option<&MappingRecord>),
) -> Option<ParkedSeen> {
    let issue = ParkedCell::new(&site.state, &site.repo, key).read().await.ok()?;
    let parked = issue.now().cloned()?;
    let is_in_worktree = issue.in_hands().is_some_and(|(_, taken)| taken.is_in_worktree());
    let on_node = if is_in_worktree { recovery::node_elsewhere(site, mapping).await } else { None };
    Some(ParkedSeen { parked, on_node })
}

/// Without agentd's name: what is called there has that node's flags, and not these.
fn give_back_on(node: &str, key: &IssueKey) -> String {
    format!("on the node {node}: give-back {key}")
}

/// What a person has to do before it goes on.
fn waits_for(ParkedSeen { parked, on_node }: &ParkedSeen, key: &IssueKey) -> Option<WaitsForPerson> {
    let waits = parked.answer.is_none().then(|| WaitsForPerson::of(parked, key))?;
    Some(match on_node {
        Some(node) => WaitsForPerson { remedy: give_back_on(node, key), ..waits },
        None => waits,
    })
}

/// How somebody goes on with what is decided.
fn decided(ParkedSeen { parked, on_node }: &ParkedSeen, key: &IssueKey) -> Option<Outlook> {
    parked.answer.as_ref()?;
    let what = match parked.waits_for {
        WaitsFor::GiveBack(_) => "the work was given back, and no run has gone on with it",
        WaitsFor::Answer { .. } | WaitsFor::Plan { .. } => {
            "what it waited for is decided, and no run has gone on with it"
        }
    };
    let todo = match on_node {
        Some(node) => give_back_on(node, key),
        None => parked.goes_on_by(key),
    };
    Some(Outlook::NeedsYou(what.to_owned(), todo))
}

/// What is spent of an issue's budget and how much that is, where it is used up.
async fn money_used_up(site: &RepositoryContext, number: u64) -> Option<(Money, Money)> {
    let spending = spending::of(site, &IssueKey::Number(number)).await.ok()?;
    shared_cap::used_up(&spending, site.config.budgets.max_cost_per_issue?)
}

/// How the money of the day stands, where some of it is set aside.
async fn day_money(site: &RepositoryContext) -> Option<String> {
    let (cap, now) = (site.config.budgets.max_cost_per_day?, site.clock.now());
    let store = Arc::clone(site.state.store());
    let read = tokio::task::spawn_blocking(move || shared_cap::day_spending(&store, now));
    shortage::set_aside_in_words(&read.await.ok()?.ok()?, cap)
}

/// An issue's last run, which was no success.
struct LastRun {
    dir: RunDir,
    facts: RunFacts,
    stop: Stop,
}

impl LastRun {
    /// The rule that speaks of what ended it, where one does.
    fn rule(&self) -> Option<&'static str> {
        rule_of_end(self.stop.clone(), self.facts.is_unpublished_for_now(&self.stop))
    }
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
