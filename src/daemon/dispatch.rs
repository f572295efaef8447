//! From the daemon to the run pipeline: a request becomes a run in its repository, and a stop becomes a stop of that
//! run.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::outcome::RunSummary;
use super::snapshot;
use super::supervise::{
    Abandon, Approve, Approved, Beside, CleanUp, Deny, EndCalls, Extend, FindLeft, Gift, GiveBack,
    MoneyGiven, OthersRuns, RunHandle, Start, StartRequest, Take, TakeAsAsked, UnfinishedRun,
};
use crate::domain::event::RequestOptions;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::refusal::{EndedRun, Refusal};
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::domain::trace::SuspendedProposal;
use crate::engine::stop::StopHandle;
use crate::git::prune::{PruneOutcome, Pruned};
use crate::issue::approval::{self, LeftCalls, NewApproval, NotApproved};
use crate::issue::cut_off_runs;
use crate::issue::reference::IssueSource;
use crate::issue::spending;
use crate::lifecycle::earlier_request::EarlierRequest;
use crate::lifecycle::give_back;
use crate::lifecycle::lease;
use crate::lifecycle::pipeline::{self, Finished};
use crate::lifecycle::request;
use crate::lifecycle::run_observer::RunObserver;
use crate::lifecycle::{beside, taken};
use crate::record::summary_text;
use crate::repository::clean_up;
use crate::repository::context::RepositoryContext;
use crate::repository::managed;
use crate::repository::worktree_pool;

/// Opens a repository with the agent and the flags that a run was given.
pub type OpenWith = Arc<
    dyn Fn(Arc<RepositoryContext>, RequestOptions) -> BoxFuture<'static, Result<RepositoryContext, Stop>>
        + Send
        + Sync,
>;

/// Runs in these repositories; `watch` makes the listener of each run (progress, logs).
pub fn starts(
    repositories: Vec<RepositoryContext>,
    watch: impl Fn(&StartRequest) -> RunObserver + Send + Sync + 'static,
    open_with: OpenWith,
) -> Start {
    let repositories: BTreeMap<RepoName, Arc<RepositoryContext>> =
        repositories.into_iter().map(|repository| (repository.repo.clone(), Arc::new(repository))).collect();
    Arc::new(move |request: StartRequest| {
        let repository = repositories.get(&request.issue.repo).cloned();
        let watch = watch(&request).with_extender(&request.control.extender);
        let open_with = Arc::clone(&open_with);
        async move {
            match repository {
                Some(repository) => {
                    let ended = run_one(&request, &repository, &watch, &open_with).await;
                    // It may have taken a worktree of the pool. The next run does not wait for another one.
                    tokio::spawn(async move { worktree_pool::fill(&repository).await });
                    ended
                }
                None => {
                    let message = format!("{} is not among the configured repositories.", request.issue.repo);
                    let stop = Stop::new(StopDetail::ConfigInvalid, message);
                    stop.into()
                }
            }
        }
        .boxed()
    })
}

/// Finishes killed runs in these repositories.
pub fn abandons(repositories: &[RepositoryContext]) -> Abandon {
    let repositories: BTreeMap<RepoName, Arc<RepositoryContext>> = repositories
        .iter()
        .map(|repository| (repository.repo.clone(), Arc::new(repository.clone())))
        .collect();
    Arc::new(move |issue: snapshot::IssueRef| {
        let repository = repositories.get(&issue.repo).cloned();
        async move {
            match repository {
                Some(repository) => lease::abandon(&IssueKey::Number(issue.number), &repository).await,
                None => false,
            }
        }
        .boxed()
    })
}

/// Approves proposals of runs in these repositories.
pub fn approves(repositories: &[RepositoryContext]) -> Approve {
    let repositories: BTreeMap<RepoName, Arc<RepositoryContext>> = repositories
        .iter()
        .map(|repository| (repository.repo.clone(), Arc::new(repository.clone())))
        .collect();
    Arc::new(move |issue: snapshot::IssueRef, asked: NewApproval| {
        let repository = repositories.get(&issue.repo).cloned();
        async move {
            let Some(repository) = repository else {
                return Err("This repository is not among the configured ones.".to_owned());
            };
            let by = asked.approver.login.clone().unwrap_or_default();
            match approval::grant_of_issue(&IssueKey::Number(issue.number), asked, &repository).await {
                Ok((grant, proposal)) => Ok(format!(
                    "{by} approved `{}` (`{}`), for one use until {}.",
                    proposal.resource.name.replace('`', "'"),
                    summary_text::short_hash(&grant.proposal_hash),
                    grant.expires_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
                )),
                Err(refused) => Err(refusal(&refused)),
            }
        }
        .boxed()
    })
}

/// Decides against proposals of runs in these repositories.
pub fn denies(repositories: &[RepositoryContext]) -> Deny {
    let repositories = by_name(repositories);
    Arc::new(move |issue, decided_by| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found.map_err(|refusal| refusal.to_string())?;
            let denied = approval::deny_all_of_issue(&key, decided_by, &context).await;
            let denied = denied.map_err(|error| format!("What waits could not be decided on: {error}."))?;
            let name = |one: &SuspendedProposal| {
                let hash = summary_text::short_hash(&one.proposal_hash);
                format!("`{}` (`{hash}`)", one.resource.name.replace('`', "'"))
            };
            let names: Vec<String> = denied.iter().map(name).collect();
            Ok(Some(names.join(", ")).filter(|names| !names.is_empty()))
        }
        .boxed()
    })
}

/// Ends what follow-up runs in these repositories left to people.
pub fn ends_calls(repositories: &[RepositoryContext]) -> EndCalls {
    let repositories = by_name(repositories);
    Arc::new(move |issue| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found.map_err(|refusal| refusal.to_string())?;
            approval::end_with_pull_request(&key, &context).await.map_err(|error| error.to_string())
        }
        .boxed()
    })
}

/// Gives issues of these repositories more money.
pub fn extends(repositories: &[RepositoryContext]) -> Extend {
    let repositories: BTreeMap<RepoName, Arc<RepositoryContext>> =
        repositories.iter().map(|context| (context.repo.clone(), Arc::new(context.clone()))).collect();
    Arc::new(move |issue: snapshot::IssueRef, gift: Gift| {
        let repository = repositories.get(&issue.repo).cloned();
        async move {
            let Some(repository) = repository else {
                return Err("This repository is not among the configured ones.".to_owned());
            };
            let key = IssueKey::Number(issue.number);
            let given = spending::extend(&repository, &key, gift.asked, gift.extension).await;
            match given.map_err(|refusal| refusal.stop.message)? {
                Ok(spending) => Ok(MoneyGiven {
                    stands: spending::stands(&repository, &spending),
                    ended: spending::ended_by_cost(&repository, &key).await,
                }),
                Err(left) => Err(format!(
                    "Nothing was changed: comments may give this issue {left} (USD) more in all (`budgets.max_extension`). \
                     On agentd's machine, `agentd extend {key} USD` gives any sum."
                )),
            }
        }
        .boxed()
    })
}

/// The repository of an issue, or that it is not configured.
fn of(
    repositories: &BTreeMap<RepoName, Arc<RepositoryContext>>,
    issue: &snapshot::IssueRef,
) -> Result<(Arc<RepositoryContext>, IssueKey), Refusal> {
    let found = repositories.get(&issue.repo).cloned();
    let missing = || {
        let message = format!("{} is not among the configured repositories.", issue.repo);
        Refusal::new(StopDetail::ConfigInvalid, message)
    };
    Ok((found.ok_or_else(missing)?, IssueKey::Number(issue.number)))
}

fn by_name(repositories: &[RepositoryContext]) -> Arc<BTreeMap<RepoName, Arc<RepositoryContext>>> {
    Arc::new(repositories.iter().map(|one| (one.repo.clone(), Arc::new(one.clone()))).collect())
}

/// Finds runs of other processes in these repositories.
pub fn besides(repositories: &[RepositoryContext]) -> Beside {
    let repositories = by_name(repositories);
    Arc::new(move |issue, request| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found?;
            beside::look(&context, &key, request).await
        }
        .boxed()
    })
}

/// Takes work in these repositories over.
pub fn takes(repositories: &[RepositoryContext]) -> Take {
    let repositories = by_name(repositories);
    Arc::new(move |issue, over| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found?;
            taken::take(&context, &key, &over).await
        }
        .boxed()
    })
}

/// Does what was asked of runs in these repositories that ended otherwise.
pub fn takes_as_asked(repositories: &[RepositoryContext]) -> TakeAsAsked {
    let repositories = by_name(repositories);
    Arc::new(move |issue, asked| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found?;
            taken::take_as_asked(&context, &key, &asked).await
        }
        .boxed()
    })
}

/// Gives work in these repositories back.
pub fn give_backs(repositories: &[RepositoryContext]) -> GiveBack {
    let repositories = by_name(repositories);
    Arc::new(move |issue, giving| {
        let found = of(&repositories, &issue);
        async move {
            let (context, key) = found?;
            give_back::give_back(&context, &key, &giving, false).await
        }
        .boxed()
    })
}

/// Looks for approvals of what runs in these repositories left to a person.
pub fn approved(repositories: &[RepositoryContext]) -> Approved {
    let (repositories, left) = (by_name(repositories), Arc::<LeftCalls>::default());
    Arc::new(move |issue: snapshot::IssueRef, whose| {
        let (context, left) = (repositories.get(&issue.repo).cloned(), Arc::clone(&left));
        async move {
            match context {
                Some(context) => {
                    approval::is_granted(&IssueKey::Number(issue.number), &context, (&left, whose)).await
                }
                None => None,
            }
        }
        .boxed()
    })
}

/// Why nothing was approved, and what can be.
fn refusal(refused: &NotApproved) -> String {
    let none =
        matches!(refused, NotApproved::Unknown { .. } | NotApproved::TooShort { .. } | NotApproved::NoRun)
            && refused.waiting().is_empty();
    if none {
        return "Nothing was approved: nothing waits for an approval on this issue.".to_owned();
    }
    let mut text = format!("Nothing was approved: {refused}.");
    for (hash, name) in refused.waiting() {
        text.push_str(&format!(
            "\n- `/agentd approve {}` for `{}`",
            summary_text::short_hash(hash),
            name.replace('`', "'")
        ));
    }
    text
}

/// Cleans up merged worktrees in these repositories after the retention time, fills their pools, and maintains the clones
/// that agentd manages.
pub fn clean_ups(repositories: &[RepositoryContext]) -> CleanUp {
    let repositories: Arc<[RepositoryContext]> = repositories.to_vec().into();
    Arc::new(move || {
        let repositories = Arc::clone(&repositories);
        async move {
            for repository in repositories.iter() {
                let retention = repository.config.worktree.retention.0;
                match clean_up::clean_up(repository, retention, false, &taken::worktrees(repository).await).await {
                    Ok(pruned) => told(repository, &pruned),
                    Err(refusal) => {
                        tracing::warn!(repo = %repository.repo, %refusal, "merged worktrees were not looked for");
                    }
                }
                worktree_pool::fill(repository).await;
                if repository.managed
                    && let Err(error) = repository.checkout.maintain().await
                {
                    tracing::warn!(repo = %repository.repo, %error, "the clone's indexes were not written; it works without");
                }
            }
        }
        .boxed()
    })
}

/// The log of what went and what stays (I2).
fn told(repository: &RepositoryContext, pruned: &[Pruned]) {
    for one in pruned {
        match &one.outcome {
            PruneOutcome::Removed { files, bytes, kept_as } => {
                tracing::info!(repo = %repository.repo, worktree = one.name, files, bytes, kept_as, "a merged worktree was removed");
            }
            PruneOutcome::Kept { reason } => {
                tracing::debug!(repo = %repository.repo, worktree = one.name, reason, "a worktree stays");
            }
            PruneOutcome::WouldRemove => {}
        }
    }
}

/// What dead processes left in these repositories. It is looked at once, before the daemon starts; in a cluster by who polls a
/// repository, each time that it begins to.
pub async fn unfinished(repositories: &[RepositoryContext]) -> Vec<UnfinishedRun> {
    let mut found = Vec::new();
    for repository in repositories.iter().filter(|repository| repository.state.shared().is_none()) {
        found.extend(left_in(repository).await);
    }
    found
}

async fn left_in(repository: &RepositoryContext) -> Vec<UnfinishedRun> {
    let left = cut_off_runs::at_start(repository).await.into_iter().map(|left| UnfinishedRun {
        issue: snapshot::IssueRef { repo: repository.repo.clone(), number: left.number },
        begun: left.begun,
    });
    left.collect()
}

/// Looks for what dead processes left in one of these repositories.
pub fn finds_left(repositories: &[RepositoryContext]) -> FindLeft {
    let repositories = by_name(repositories);
    Arc::new(move |repo| {
        let found = repositories.get(&repo).cloned();
        async move {
            match found {
                Some(repository) => left_in(&repository).await,
                None => Vec::new(),
            }
        }
        .boxed()
    })
}

/// Counts what other processes have under way in these repositories.
pub fn runs_of_others(repositories: &[RepositoryContext]) -> OthersRuns {
    let repositories = by_name(repositories);
    Arc::new(move |repo| {
        let found = repositories.get(&repo).cloned();
        async move {
            match found {
                Some(repository) => cut_off_runs::of_other_processes(&repository).await,
                None => 0,
            }
        }
        .boxed()
    })
}

async fn run_one(
    asked: &StartRequest,
    repository: &Arc<RepositoryContext>,
    watch: &RunObserver,
    open_with: &OpenWith,
) -> RunSummary {
    let request = request::RunRequest {
        issue: IssueSource::Number(asked.issue.number),
        source: asked.source,
        principal: asked.principal.clone(),
        permission: Some(asked.permission),
        asked: Some(asked.asked.clone()),
        origin: None,
        agent: None,
        publish: None,
        format: None,
        parameters: BTreeMap::new(),
        metadata: serde_json::Map::new(),
        answers: asked.answers,
        resume: asked.resume,
        follow_up: asked.follow_up.clone(),
        new_remarks: asked.remarks.clone(),
        check_reruns: asked.check_reruns.clone(),
        catches_up: asked.catches_up,
        completes: asked.completes,
        other_definition: asked.other_definition,
        dry_run: false,
    };
    if repository.managed
        && let Err(refusal) = managed::refresh(repository).await
    {
        return refusal.stop.into();
    }
    let key = IssueKey::Number(asked.issue.number);
    let earlier = EarlierRequest::of(&request, &key, repository).await;
    let opened = match earlier.options.agent.is_some() || !earlier.options.flags.is_empty() {
        true => match open_with(Arc::clone(repository), earlier.options.clone()).await {
            Ok(opened) => Arc::new(opened),
            Err(stop) => return stop.into(),
        },
        false => Arc::clone(repository),
    };
    let walking = pipeline::run(earlier.merged_into(request), &opened, watch);
    let passing_on = pass_on(&asked.control, watch.stop());
    tokio::select! {
        walked = walking => summary(walked),
        never = passing_on => match never {},
    }
}

/// Passes the daemon's stop requests on to the run, the weakest one first.
async fn pass_on(control: &RunHandle, stop: &StopHandle) -> std::convert::Infallible {
    tokio::select! {
        biased;
        () = control.shutdown.stopped() => {}
        () = control.shutdown.drained() => {
            stop.ask_before_next_visit(Stop::new(StopDetail::Shutdown, "Another node is to go on with the run."));
            control.shutdown.stopped().await;
        }
    }
    stop.ask(control.why());
    control.shutdown.aborted().await;
    stop.abort(Stop::new(StopDetail::UserAbort, "The run was told to end at once."));
    std::future::pending().await
}

fn summary(walked: Finished) -> RunSummary {
    if let Some(refusal) = walked.refusal {
        if let Some(ended) = refusal.ended {
            let EndedRun { run_id, stop, written_back } = *ended;
            return RunSummary { run_id: Some(run_id), written_back, ..stop.into() };
        }
        if let Some(technical) = &refusal.technical {
            tracing::info!(detail = refusal.stop.detail.as_str(), technical, "a start was refused");
        }
        let mut message = refusal.stop.message.clone();
        for hint in &refusal.hints {
            message.push_str("\n- ");
            message.push_str(hint);
        }
        let stop = Stop::new(refusal.stop.detail, message);
        return RunSummary { other_definition: refusal.other_definition, ..stop.into() };
    }
    let output = walked.output;
    let began_nothing =
        output.stop_detail.reason() == StopReason::SystemError && output.budgets.steps_used == 0;
    let failed_before_work = began_nothing || walked.untold;
    let message = output.error.map_or(output.summary, |error| error.message);
    RunSummary {
        run_id: Some(RunId(output.run_id)),
        stop: Stop::new(output.stop_detail, message),
        pull_request: output.artifacts.pr_url,
        given: walked.given,
        written_back: walked.written_back,
        failed_before_work,
        unpublished: walked.unpublished,
        flow_ended_at: walked.flow_ended_at,
        other_definition: None,
    }
}
