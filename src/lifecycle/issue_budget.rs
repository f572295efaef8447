//! The budget that all runs of an issue share: a run's share of it, and what people are told of it on the issue.

use std::fmt::Write as _;

use super::plan::Plan;
use super::run::Run;
use crate::domain::budget::{IssueBudget, IssueBudgetState};
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::money::Money;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::engine::journal::JournalError;
use crate::engine::shared_cap::{self, SharedCap};
use crate::engine::shared_cap_format::Spending;
use crate::issue::spending;
use crate::record::rendering;
use crate::record::run_facts;
use crate::record::summary_text;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::MappingRecord;

/// What people gave an issue beyond its budget.
#[derive(Debug, Default)]
pub struct IssueExtension {
    /// All of it.
    pub in_all: Money,
    /// What the run that is continued had not heard of.
    pub since: Money,
    /// Who gave last.
    pub by: Option<String>,
}

/// What people have given the issue of a run. A replay from the record has none.
pub(super) async fn given(run: &Run<'_>) -> Result<IssueExtension, JournalError> {
    if !run.context.counts_money() {
        return Ok(IssueExtension::default());
    }
    let unreadable = |refusal: Refusal| JournalError {
        path: run.journal.dir().path.display().to_string(),
        message: refusal.stop.message,
    };
    let spending = read(run.plan, run.context).await.map_err(unreadable)?;
    let in_all = spending.given();
    let before = run.lease.predecessor.as_ref().and_then(|before| before.facts.started.as_ref());
    let known = before.map_or(in_all, |before| before.issue_given);
    let newest = spending.extensions.into_values().max_by_key(|given| given.at);
    Ok(IssueExtension { in_all, since: in_all.saturating_sub(known), by: newest.map(|newest| newest.by) })
}

/// A run's share of its issue's budget; `None` = there is no such cap, or nothing is spent.
pub(super) fn share(run: &Run<'_>, given: Money) -> Option<SharedCap> {
    let config = &run.context.config;
    let cap = config.budgets.max_cost_per_issue.filter(|_| run.context.counts_money())?;
    Some(SharedCap::of_issue(
        run.context.money.store().clone(),
        (cap, config.budgets.soft_ratio),
        (run.context.repo.clone(), run.plan.issue.key.clone()),
        run.lease.run_id,
        given,
    ))
}

async fn read(plan: &Plan, context: &RepositoryContext) -> Result<Spending, Refusal> {
    spending::of(context, &plan.issue.key).await
}

/// Refuses a run of an issue whose budget is used up. What only has to be finished is finished: a run that died, or whose work
/// could not be published.
pub async fn check(plan: &Plan, context: &RepositoryContext) -> Result<(), Refusal> {
    let Some(cap) = context.config.budgets.max_cost_per_issue.filter(|_| context.counts_money()) else {
        return Ok(());
    };
    let Some((spent, cap)) = shared_cap::used_up(&read(plan, context).await?, cap) else { return Ok(()) };
    if let Some(last) = &plan.lease_record
        && !ended_by_itself(last, context).await
    {
        return Ok(());
    }
    let key = &plan.issue.key;
    let left = if spent < cap { ", and what is left does not cover another request" } else { "" };
    let message = format!("The budget of this issue is used up: {spent} of {cap} is spent{left}.");
    Err(Refusal::new(StopDetail::MaxCost, message).hint(format!("agentd extend {key} 5 gives it 5 USD more")))
}

async fn ended_by_itself(last: &MappingRecord, context: &RepositoryContext) -> bool {
    let dir = context.state.run(&context.repo, last.run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read(&dir).ok()).await;
    let end = read.ok().flatten().and_then(|facts| facts.end);
    end.is_some_and(|end| {
        use StopDetail::{GitError, GithubError, Interrupted, Shutdown};
        !matches!(end.detail, Interrupted | Shutdown | GithubError | GitError)
    })
}

/// Tells people on the issue where its budget stands, where the run heard that it is near or used up: one comment for each
/// cap, kept true until the run's end, and the label.
pub(super) async fn tell(run: &Run<'_>) {
    let facts = run.journal.facts();
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let Some(news) = facts.issue_budget.last() else { return };
    let attention = run.context.config.github.labels.attention.as_str();
    let repo = &run.context.repo;
    let told = if news.state == IssueBudgetState::Extended {
        // People were asked, and answered.
        if facts.issue_budget.iter().all(|news| news.state == IssueBudgetState::Extended) {
            return;
        }
        github.remove_label(repo, number, attention).await
    } else {
        let spending = match read(run.plan, run.context).await {
            Ok(spending) => spending,
            Err(refusal) => return tracing::warn!(%refusal, "the budget of the issue cannot be told"),
        };
        let what = format!("budget-{:.2}", news.cap.dollars());
        let marker = rendering::request_marker(&run.plan.issue.key, &what);
        let text = comment(run, &facts, news, &spending);
        let asked = async {
            github.ensure_comment(repo, number, &marker, &text).await?;
            github.add_labels(repo, number, &[attention]).await
        };
        asked.await
    };
    if let Err(error) = told {
        run.note_locked(&error);
        tracing::warn!(%error, "where the budget of the issue stands could not be told on it");
    }
}

fn comment(run: &Run<'_>, facts: &RunFacts, news: &IssueBudget, spending: &Spending) -> String {
    let key = &run.plan.issue.key;
    let (spent, cap) = (spending.total(), news.cap);
    let is_used_up = news.state == IssueBudgetState::UsedUp || spent >= cap;
    let mut text = match (is_used_up, spent < cap) {
        (true, true) => {
            "**The budget of this issue is used up**: what is left does not cover another request.".to_owned()
        }
        (true, false) => "**The budget of this issue is used up.**".to_owned(),
        (false, _) => "**The budget of this issue is nearly used up.**".to_owned(),
    };
    let _infallible =
        write!(text, " {spent} of {cap} (USD) is spent{}", if spent > Money::ZERO { ":\n" } else { "." });
    for (run_id, cost) in &spending.by_run {
        let _infallible = write!(text, "\n- run `{run_id}`: {cost}");
    }
    let counted: Money = spending.by_run.values().copied().sum();
    if spent > counted {
        let rest = spent.saturating_sub(counted);
        let _infallible =
            write!(text, "\n- requests under way, runs that died, and runs of other machines: {rest}");
    }
    if is_used_up {
        let branch = &run.lease.mapping.branch;
        let done = match &facts.committed {
            Some(committed) if !committed.change.is_empty() => {
                let files = summary_text::counted(committed.change.files.len(), "changed file");
                format!("What is done, {files}, is on the branch `{branch}`.")
            }
            _ => format!("The branch is `{branch}`; nothing is committed of this run."),
        };
        let _infallible = write!(text, "\n\n{done}");
        if let Some(url) = facts.outcome(Effect::PullRequest) {
            let _infallible = write!(text, " Pull request: {url}");
        }
        text.push_str("\n\nNo run starts on this issue until somebody gives it more.");
    } else if facts.flow_end.is_some() {
        let left = cap.saturating_sub(spent);
        let _infallible = write!(text, "\n\nThe run has ended; {left} is left for the next ones.");
    } else {
        text.push_str("\n\nThe run goes on until the budget is used up.");
    }
    let left = run.context.config.max_extension.saturating_sub(spending.given_by_comments());
    let _infallible = writeln!(
        text,
        " To give it 5 USD more, comment `/agentd extend 5` (comments may give {left} more in all), or on agentd's machine \
         `agentd extend {key} 5`. The work goes on where it stopped."
    );
    text
}
