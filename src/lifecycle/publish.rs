//! Room 7, publish: push, pull request, comment, labels. Each effect is planned in the journal, found or created by a
//! stable key, then noted as done; trying again finds what is there.

use super::evidence;
use super::page::{self, Links};
use super::refusal::Refusal;
use super::report;
use super::run::Run;
use super::site::Site;
use crate::config::config_file::Publish;
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::outgoing;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::git::push::PushOutcome;
use crate::github::{self, LabelSpec, PullSpec};

/// What D66 and D29 let become public of a run's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The branch stays here.
    Local,
    /// The branch is pushed.
    Branch,
    /// And has a pull request: ready, or a draft.
    PullRequest,
}

/// Publishes what the run's end allows, then settles comment and labels. Gives the run's final stop: a refused push or
/// pull request turns a success into a failure (D33); comment and labels never do (C-10).
pub async fn publish(
    run: &Run<'_>,
    site: &Site,
    stop: Stop,
) -> Result<Stop, crate::engine::journal::JournalError> {
    let facts = run.facts()?;
    let mut links = Links { trigger_label: site.config.github.labels.trigger.clone(), ..Links::default() };
    let mut end = stop.clone();
    let reach = reach(run, &facts, &stop);
    if reach != Reach::Local
        && let Err(stop) = push(run, site, &facts).await?
    {
        end = worse(end, stop);
    }
    // A start refused with exit code 4 leaves no trace on GitHub (D31).
    if stop.detail.exit_code() == 4 {
        return Ok(end);
    }
    if reach == Reach::PullRequest && end.detail != StopDetail::GitError {
        links.draft_reason = draft_reason(run, &facts, &stop);
        match pull_request(run, site, &stop, &mut links).await? {
            Ok(()) => {}
            Err(stop) => end = worse(end, stop),
        }
    }
    settle_issue(run, site, &end, &links).await?;
    Ok(end)
}

/// A run that failed already keeps its own reason.
fn worse(end: Stop, stop: Stop) -> Stop {
    if end.success() { stop } else { end }
}

fn reach(run: &Run<'_>, facts: &RunFacts, stop: &Stop) -> Reach {
    let changed = facts.committed.as_ref().is_some_and(|committed| !committed.change.is_empty());
    if !changed || run.plan.publish == Publish::None {
        return Reach::Local;
    }
    let by_reason = match stop.reason() {
        StopReason::ObjectiveAchieved | StopReason::BudgetExceeded | StopReason::NoEvidence => {
            Reach::PullRequest
        }
        StopReason::HumanRequested => Reach::Branch,
        StopReason::SystemError => Reach::Local,
    };
    if by_reason == Reach::PullRequest && run.plan.publish == Publish::Branch {
        Reach::Branch
    } else {
        by_reason
    }
}

/// Why the pull request is a draft; `None` = it is ready (D14, D66, D83).
fn draft_reason(run: &Run<'_>, facts: &RunFacts, stop: &Stop) -> Option<String> {
    if !stop.success() {
        return Some(format!("the run ended with {} ({}).", stop.reason(), stop.detail));
    }
    if let Some(red) = facts.verification.iter().find(|command| !command.passed()) {
        return Some(format!("the verify command `{}` does not pass.", red.argv.join(" ")));
    }
    evidence::missing_requirement(run, facts)
        .map(|claim| format!("the required claim `{claim}` is not verified."))
}

type Tried<T> = Result<Result<T, Stop>, crate::engine::journal::JournalError>;

async fn push(run: &Run<'_>, site: &Site, facts: &RunFacts) -> Tried<()> {
    let Some(committed) = &facts.committed else { return Ok(Ok(())) };
    run.plan_effect(Effect::Push).await?;
    let branch = &run.lease.mapping.branch;
    let pushed = async {
        let Some(remote) = site.authorised_remote().await? else { return Ok(PushOutcome::UpToDate) };
        let there = site.checkout.remote_branch(&remote, branch).await?;
        Ok::<_, Refusal>(site.checkout.push(&remote, branch, &committed.head, there.as_ref()).await?)
    };
    let outcome = match pushed.await {
        Ok(outcome) => outcome,
        Err(refusal) => return failed(run, Effect::Push, StopDetail::GitError, refusal.stop.message).await,
    };
    match outcome {
        PushOutcome::Pushed | PushOutcome::UpToDate => {
            run.effect_done(Effect::Push, committed.head.as_str())?;
            Ok(Ok(()))
        }
        refused => {
            failed(run, Effect::Push, StopDetail::GitError, format!("The push was refused: {refused}.")).await
        }
    }
}

async fn pull_request(run: &Run<'_>, site: &Site, stop: &Stop, links: &mut Links) -> Tried<()> {
    let Some(github) = &site.github else { return Ok(Ok(())) };
    run.plan_effect(Effect::PullRequest).await?;
    let (output, facts) = run.output(stop)?;
    let body = page::pull_request(&output, &facts, links).map_err(|error| run.defect(&error.to_string()))?;
    let spec = PullSpec {
        head: run.lease.mapping.branch.clone(),
        base: run.lease.mapping.origin.branch.clone(),
        title: outgoing::title(&run.plan.issue.title),
        body,
        draft: links.draft_reason.is_some(),
    };
    match github.settle_pull(&site.repo, &spec).await {
        Ok((pull, _)) => {
            links.pull_request = Some(pull.url.clone());
            run.effect_done(Effect::PullRequest, &pull.url)?;
            Ok(Ok(()))
        }
        Err(error) => {
            tracing::warn!(%error, technical = error.technical(), "the pull request could not be settled");
            failed(run, Effect::PullRequest, StopDetail::GithubError, error.to_string()).await
        }
    }
}

async fn failed<T>(run: &Run<'_>, effect: Effect, detail: StopDetail, message: String) -> Tried<T> {
    run.effect_failed(effect, &message)?;
    Ok(Err(Stop::new(detail, message)))
}

/// The status comment and the labels; best effort (C-10).
async fn settle_issue(
    run: &Run<'_>,
    site: &Site,
    stop: &Stop,
    links: &Links,
) -> Result<(), crate::engine::journal::JournalError> {
    let (Some(github), Some(number)) = (&site.github, run.tracked_issue()) else { return Ok(()) };
    let (output, facts) = run.output(stop)?;
    run.plan_effect(Effect::Comment).await?;
    match comment(run, github, site, number, &output, &facts, links).await {
        Ok(url) => run.effect_done(Effect::Comment, &url)?,
        Err(message) => run.effect_failed(Effect::Comment, &message)?,
    }
    run.plan_effect(Effect::Labels).await?;
    match end_labels(run, github, site, number, stop).await {
        Ok(set) => run.effect_done(Effect::Labels, &set)?,
        Err(error) => run.effect_failed(Effect::Labels, &error.to_string())?,
    }
    Ok(())
}

async fn comment(
    run: &Run<'_>,
    github: &github::Client,
    site: &Site,
    number: u64,
    output: &RunOutput,
    facts: &RunFacts,
    links: &Links,
) -> Result<String, String> {
    let text = page::status_comment(output, facts, links).map_err(|error| error.to_string())?;
    let (comment, _) = github
        .settle_comment(&site.repo, number, &report::marker(&run.plan.issue.key), &text)
        .await
        .map_err(|error| error.to_string())?;
    Ok(comment.url.unwrap_or_else(|| format!("comment {}", comment.id)))
}

/// The label that says that the issue is being worked on; the others of a state go (D6).
pub async fn running_label(run: &Run<'_>, site: &Site) {
    let (Some(github), Some(number)) = (&site.github, run.tracked_issue()) else { return };
    let labels = &site.config.github.labels;
    let others = [&labels.queued, &labels.done, &labels.failed, &labels.attention, &labels.no_evidence];
    if let Err(error) =
        set_state(github, site, run, number, &labels.running, &others.map(String::as_str)).await
    {
        tracing::warn!(%error, "the label \"{}\" could not be set", labels.running);
    }
}

/// One of done, failed, attention, no-evidence; trigger, queued and running go (D6).
async fn end_labels(
    run: &Run<'_>,
    github: &github::Client,
    site: &Site,
    number: u64,
    stop: &Stop,
) -> Result<String, github::Error> {
    let labels = &site.config.github.labels;
    let state = match stop.reason() {
        StopReason::ObjectiveAchieved => &labels.done,
        StopReason::NoEvidence => &labels.no_evidence,
        StopReason::HumanRequested => &labels.attention,
        StopReason::BudgetExceeded | StopReason::SystemError => &labels.failed,
    };
    let all = [
        &labels.trigger,
        &labels.queued,
        &labels.running,
        &labels.done,
        &labels.failed,
        &labels.attention,
        &labels.no_evidence,
    ];
    let others: Vec<&str> = all.into_iter().filter(|label| *label != state).map(String::as_str).collect();
    set_state(github, site, run, number, state, &others).await?;
    Ok(state.clone())
}

async fn set_state(
    github: &github::Client,
    site: &Site,
    run: &Run<'_>,
    number: u64,
    state: &str,
    others: &[&str],
) -> Result<(), github::Error> {
    let spec = LabelSpec { name: state, color: label_color(site, state), description: "Set by agentd" };
    github.ensure_label(&site.repo, spec).await?;
    github.add_labels(&site.repo, number, &[state]).await?;
    let on = &run.plan.issue.labels;
    for other in others {
        // What the run put on itself is not in the issue as it was read.
        let ours = *other == site.config.github.labels.running;
        if ours || on.iter().any(|label| label.eq_ignore_ascii_case(other)) {
            github.remove_label(&site.repo, number, other).await?;
        }
    }
    Ok(())
}

fn label_color(site: &Site, label: &str) -> &'static str {
    let labels = &site.config.github.labels;
    match label {
        _ if label == labels.done => "1a7f37",
        _ if label == labels.failed => "cf222e",
        _ if label == labels.attention => "bf8700",
        _ if label == labels.no_evidence => "8250df",
        _ => "0969da",
    }
}
