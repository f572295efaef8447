//! Stage publish: push, pull request, closure, comment, labels.
//!
//! Takes a judged run. Leaves on GitHub what its end allows, and the final stop reason. Each effect is planned in the
//! journal, found or created by a stable key, and then noted as done: after a crash the next run finds what is there.

mod answers;

use super::budget_extension;
use super::closure;
use super::commit::{fold, others, review};
use super::instance::briefing;
use super::issue_budget;
use super::judge::{self, Judged};
use super::merged;
use super::parked;
use super::run::Run;
use super::shared_work;
use super::shown_progress;
use super::stage::{StageError, Worked, Workspace};
use crate::config::config_file::Publish;
use crate::conversation::briefing::rules::changed_rules;
use crate::conversation::briefing::template;
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::issue_state::IssueState;
use crate::domain::name::CommitId;
use crate::domain::outgoing;
use crate::domain::refusal::Refusal;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::push::PushOutcome;
use crate::git::worktree::Worktree;
use crate::github::{self, ErrorKind, PullSpec};
use crate::issue::cut_off_runs::UNCHANGED_LABELS;
use crate::issue::{shown_lease, status_comment};
use crate::record::rendering::{self, Links};
use crate::record::summary_text;

/// No event of GitHub has this id.
const NO_LABELLING: u64 = 0;

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

/// A run whose work is out, as far as its end allows.
pub struct Published<'a> {
    worked: Worked<'a>,
}

impl<'a> Published<'a> {
    /// The run, with its final stop reason.
    pub fn into_worked(self) -> Worked<'a> {
        self.worked
    }
}

/// Publishes what the end of the run allows, and then writes comment and labels. A refused push or pull request turns a
/// success into a failure (D33); comment and labels never do (C-10).
pub async fn publish<'a>(judged: Judged<'a>) -> Result<Published<'a>, JournalError> {
    let mut worked = judged.into_worked();
    worked.stop = publish_all(&worked).await?;
    Ok(Published { worked })
}

async fn publish_all(worked: &Worked<'_>) -> Result<Stop, JournalError> {
    let Worked { run, stop, workspace } = worked;
    let facts = run.journal.facts();
    let trigger_label = run.context.config.github.labels.trigger.clone();
    let mut links = Links { trigger_label, ..Links::default() };
    let over = pull_request_over(run, stop).await;
    let stop = over.as_ref().unwrap_or(stop);
    let mut end = stop.clone();
    let reach = if over.is_some() { Reach::Local } else { reach(run, &facts, stop) };
    warn_of_rules(run, &facts);
    let mut pushed = reach != Reach::Local;
    if pushed
        && let Some(workspace) = workspace
        && let Err(error) = push(run, workspace, &facts).await
    {
        end = worse(run, end, error.stop()?);
        pushed = false;
    }
    if let Some(workspace) = workspace {
        shared_work::leave(run, workspace).await;
    }
    answers::prove(run, (workspace.as_ref(), pushed), &end).await?;
    // A run that could not begin has nothing to answer. The issue says since the lease that it works, and no longer.
    if stop.detail.exit_code() == 4 {
        write_back(run, &end, &links).await?;
        return Ok(end);
    }
    if reach == Reach::PullRequest && pushed {
        links.draft_reason = draft_reason(run, &facts, stop);
        links.closes_issue = closure::closes_by_merge(run, &facts);
        if let Err(error) = pull_request(run, stop, &mut links).await {
            end = worse(run, end, error.stop()?);
        }
    }
    answers::tell(run, &end).await?;
    if end.success()
        && let Some(asked) = closure::of(run, &facts, &end)
        && let Err(error) = closure::carry_out(run, &facts, &asked).await
    {
        end = worse(run, end, error.stop()?);
    }
    let end = parked::park(run, &end).await?;
    write_back(run, &end, &links).await?;
    Ok(end)
}

/// Rules that the branch changes did not count for this run, and will count for the next one after a merge.
fn warn_of_rules(run: &Run<'_>, facts: &RunFacts) {
    let Some(committed) = &facts.committed else { return };
    let changed = changed_rules(&committed.change.files, &run.context.config.conversation.rules);
    if !changed.is_empty() {
        let text = format!(
            "This branch changes the rules by which agentd works here: {}. The run worked by those of the base branch.",
            changed.join(", ")
        );
        run.journal.warn("rules_changed", text);
    }
}

/// The repository's form of pull requests, filled with what the last report says.
async fn frame(run: &Run<'_>, output: &RunOutput) -> Option<String> {
    let template = briefing::recorded(run).await?.pull_request_template?;
    let report = output.final_report.content_json.as_ref();
    let said = report.and_then(|report| report.get("pull_request_body")?.as_str()).unwrap_or_default();
    Some(template::filled(&template, said))
}

/// A run that failed already, or was ended at once, keeps that reason.
fn worse(run: &Run<'_>, end: Stop, stop: Stop) -> Stop {
    run.end_whatever_comes(&end).unwrap_or(stop)
}

fn reach(run: &Run<'_>, facts: &RunFacts, stop: &Stop) -> Reach {
    let changed = facts.committed.as_ref().is_some_and(|committed| !committed.change.is_empty());
    if !changed || run.plan.publish == Publish::None || stop.detail == StopDetail::BranchMoved {
        return Reach::Local;
    }
    let by_reason = match stop.reason() {
        StopReason::ObjectiveAchieved | StopReason::BudgetExceeded | StopReason::NoEvidence => {
            Reach::PullRequest
        }
        // Who works here has it already.
        StopReason::HumanRequested
            if stop.is_taken() && !parked::taken_by(run).is_some_and(|over| over.pushes) =>
        {
            Reach::Local
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

/// The end of a run whose pull request a person has merged or closed meanwhile: nothing is brought there any more, and no other one
/// is opened in its place, except for what was brought onto the origin as it is after the merge.
async fn pull_request_over(run: &Run<'_>, stop: &Stop) -> Option<Stop> {
    if stop.reason() == StopReason::SystemError || stop.detail == StopDetail::BranchMoved || stop.is_taken() {
        return None;
    }
    // What a labelled run asks people is not lost.
    if run.goes_on_after_merge() || (stop.parks() && !run.is_follow_up()) {
        return None;
    }
    let pull = merged::pull_over(run).await?;
    let what = if pull.merged { "merged" } else { "closed" };
    let text = format!(
        "The pull request {} was {what} while the run worked on it. Nothing was pushed; the work is on the branch {} here, and the \
         next run goes on with it.",
        pull.url, run.lease.mapping.branch
    );
    Some(Stop::new(StopDetail::UserStop, text))
}

/// Why the pull request is a draft; `None` = it is ready (D14, D66, D83).
fn draft_reason(run: &Run<'_>, facts: &RunFacts, stop: &Stop) -> Option<String> {
    if stop.detail == StopDetail::VerifyFailed {
        return Some("its verify commands do not pass.".to_owned());
    }
    if !stop.success() {
        return Some(format!("the run ended with {} ({}).", stop.reason(), stop.detail));
    }
    judge::missing_requirement(run, facts)
        .map(|claim| format!("the required claim `{claim}` is not verified."))
}

/// Why there was no push where everything was aborted.
const NOT_PUSHED: &str = "The run was aborted before its work was pushed.";

async fn push(run: &Run<'_>, workspace: &Workspace, facts: &RunFacts) -> Result<(), StageError> {
    let Some(committed) = &facts.committed else { return Ok(()) };
    run.journal.plan_effect(Effect::Push).await?;
    let branch = &run.lease.mapping.branch;
    let pushed = async {
        let Some(remote) = run.context.authorised_remote().await? else {
            return Ok((PushOutcome::UpToDate, None));
        };
        let there = others::seen_there(run, &remote).await?;
        if let Some(stop) =
            review::of_push((run, &workspace.worktree), (&committed.head, there.as_ref())).await?
        {
            return Err(Refusal::new(stop.detail, stop.message));
        }
        let pushed = run.context.checkout.push(&remote, branch, &committed.head, there.as_ref()).await;
        let pushed = pushed.map_err(|error| {
            // A token that is over, a right that was taken away, an archived repository: what is done waits until that is mended.
            let is_refused = matches!(
                error,
                GitError::Auth { .. } | GitError::RemoteNotFound { .. } | GitError::RemoteMoved { .. }
            );
            let refusal = Refusal::from(error);
            Refusal { transient: refusal.transient || is_refused, ..refusal }
        });
        Ok((pushed?, there))
    };
    let (outcome, there) = match pushed.await {
        Ok(pushed) => pushed,
        Err(refusal) if refusal.stop.detail == StopDetail::PolicyDenied => {
            return Err(failed(run, Effect::Push, refusal.stop));
        }
        // Git was cancelled with everything else: that is why.
        Err(refusal) => {
            let stop = match run.aborted() {
                Some(abort) => Stop { message: NOT_PUSHED.to_owned(), ..abort },
                None if refusal.transient => return Err(failed_for_now(run, Effect::Push, refusal.stop)),
                None => Stop::new(StopDetail::GitError, refusal.stop.message),
            };
            return Err(failed(run, Effect::Push, stop));
        }
    };
    match outcome {
        PushOutcome::Pushed | PushOutcome::UpToDate => {
            run.journal.effect_done(Effect::Push, committed.head.as_str())?;
            Ok(())
        }
        // Between the last look and the push.
        PushOutcome::NotFastForward { .. } | PushOutcome::Stale { actual: Some(_) } => {
            let why = format!("The push to {branch} was refused: {outcome}");
            let stop = others::displaced(run, &committed.head, &why).await;
            Err(failed(run, Effect::Push, stop))
        }
        PushOutcome::Refused { detail, of_content: true } => {
            Err(unfit(run, &workspace.worktree, (there.as_ref(), &detail)).await)
        }
        refused => {
            let message = format!("The push was refused: {refused}.");
            Err(failed(run, Effect::Push, Stop::new(StopDetail::GitError, message)))
        }
    }
}

/// The end of a run whose work the remote refused for what it holds. The same commits would be refused again: they become edits, which the
/// next run changes and commits anew.
async fn unfit(run: &Run<'_>, worktree: &Worktree, (there, said): (Option<&CommitId>, &str)) -> StageError {
    let told = run
        .without_secrets(&format!("The remote refused what the work holds: {}.", said.trim_end_matches('.')));
    let by_hand = |why: &str| {
        let text = format!(
            "{told} {why}: take what is refused out of the commits of {} by hand, in {} on agentd's machine, and run again.",
            worktree.branch(),
            worktree.display()
        );
        failed(run, Effect::Push, Stop::new(StopDetail::GitError, text))
    };
    match fold::refused(run, worktree, there).await {
        Ok(Some(kept)) => {
            let text = format!(
                "{told} Nothing was pushed. The files are as they were, in {}, and not committed any more; the commits are kept on {kept}.",
                worktree.display()
            );
            let stop = Stop::new(StopDetail::GitError, text);
            run.journal.effect_refused(Effect::Push, &stop.message).map_or_else(Into::into, |()| stop.into())
        }
        Ok(None) => by_hand("Commits of others are among those that are not pushed"),
        Err(error) => by_hand(&format!("The commits could not be made edits again ({error})")),
    }
}

async fn pull_request(run: &Run<'_>, stop: &Stop, links: &mut Links) -> Result<(), StageError> {
    let Some(github) = &run.context.github else { return Ok(()) };
    let (output, facts) = run.output(stop);
    let Some(committed) = &facts.committed else { return Ok(()) };
    run.journal.plan_effect(Effect::PullRequest).await?;
    links.frame = frame(run, &output).await;
    let body = rendering::pull_request(&output, &facts, links)
        .map_err(|error| run.journal.defect(&error.to_string()))?;
    let body = run.without_secrets(&body);
    let spec = PullSpec {
        head: run.lease.mapping.branch.clone(),
        commit: committed.head.clone(),
        base: run.lease.mapping.origin.branch.clone(),
        title: run.without_secrets(&outgoing::title(&run.plan.issue.title)),
        body,
        draft: links.draft_reason.is_some(),
    };
    match github.ensure_pull(&run.context.repo, &spec).await {
        Ok((pull, _)) => {
            links.pull_request = Some(pull.url.clone());
            run.journal.effect_done(Effect::PullRequest, &pull.url)?;
            Ok(())
        }
        // Somebody brought the branch there by hand meanwhile.
        Err(error) if error.kind == ErrorKind::NoCommits => {
            let text = format!(
                "All of {} is in {} already: there is no pull request to open.",
                spec.head, spec.base
            );
            run.journal.effect_failed(Effect::PullRequest, &text, false)?;
            run.journal.warn("already_merged", text);
            Ok(())
        }
        Err(error) => {
            tracing::info!(technical = error.technical(), "the pull request could not be settled");
            let stop = Stop::new(StopDetail::GithubError, error.to_string());
            let is_refused = matches!(
                error.kind,
                ErrorKind::Unauthorized | ErrorKind::Forbidden { .. } | ErrorKind::NotFound
            );
            Err(match error.is_transient() || is_refused {
                true => failed_for_now(run, Effect::PullRequest, stop),
                false => failed(run, Effect::PullRequest, stop),
            })
        }
    }
}

fn failed(run: &Run<'_>, effect: Effect, stop: Stop) -> StageError {
    run.journal.effect_failed(effect, &stop.message, false).map_or_else(Into::into, |()| stop.into())
}

/// What failed because another service cannot be reached now.
fn failed_for_now(run: &Run<'_>, effect: Effect, stop: Stop) -> StageError {
    run.journal.effect_failed(effect, &stop.message, true).map_or_else(Into::into, |()| stop.into())
}

/// The status comment and the labels; best effort (C-10).
async fn write_back(run: &Run<'_>, stop: &Stop, links: &Links) -> Result<(), JournalError> {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return Ok(()) };
    let (output, facts) = run.output(stop);
    let may_end = shown_progress::may_end(run).await;
    run.journal.plan_effect(Effect::Comment).await?;
    let written = match may_end {
        true => comment(run, github, number, &output, &facts, links).await,
        false => Ok("nothing: people deleted it again".to_owned()),
    };
    match written {
        Ok(url) => run.journal.effect_done(Effect::Comment, &url)?,
        Err(message) => run.journal.effect_failed(Effect::Comment, &message, false)?,
    }
    let marker = rendering::request_marker(&run.plan.issue.key, "approval");
    // What a run that reached its objective was denied on the way waits for nobody.
    if !stop.success() && !summary_text::pending(&facts).is_empty() {
        let text = run.without_secrets(&rendering::approval_comment(&output, &facts));
        let asked = github.ensure_comment(&run.context.repo, number, &marker, &text).await;
        if let Err(error) = asked {
            run.note_locked(&error);
            run.journal.warn(
                "approval_not_asked",
                format!("The approval could not be asked for on the issue: {error}."),
            );
        }
    } else if let Ok(Some(_)) = github.find_comment(&run.context.repo, number, &marker).await {
        let text = rendering::approval_over(&run.lease.run_id.to_string());
        if let Err(error) = github.ensure_comment(&run.context.repo, number, &marker, &text).await {
            run.note_locked(&error);
        }
    }
    budget_extension::over(run, stop).await;
    issue_budget::tell(run).await;
    if is_a_daemons_to_say(run, stop) {
        return Ok(());
    }
    run.journal.plan_effect(Effect::Labels).await?;
    match end_labels(github, run, number, stop).await {
        Ok(set) => run.journal.effect_done(Effect::Labels, set)?,
        Err(error) => {
            run.note_locked(&error);
            run.journal.effect_failed(Effect::Labels, &error.to_string(), error.is_transient())?;
        }
    }
    if stop.is_taken() {
        parked::note_shown(run).await;
    }
    Ok(())
}

async fn comment(
    run: &Run<'_>,
    github: &github::Client,
    number: u64,
    output: &RunOutput,
    facts: &RunFacts,
    links: &Links,
) -> Result<String, String> {
    let text = rendering::status_comment(output, facts, links).map_err(|error| error.to_string())?;
    let mut text = run.without_secrets(&text);
    if output.stop_detail.parks() {
        text.push_str(&shown_lease::parked_line(&run.context.state));
    }
    let of = (&run.context.repo, number);
    let (comment, _) =
        status_comment::ensure(github, run.context.state.store(), of, &text).await.map_err(|error| {
            run.note_locked(&error);
            if !error.is_locked() {
                let text = format!("The issue's status comment could not be written: {error}.");
                run.journal.warn("comment_not_written", text);
            }
            error.to_string()
        })?;
    Ok(comment.url.unwrap_or_else(|| format!("comment {}", comment.id)))
}

/// Sets the label for a working run and removes the labels of the other states (D6).
pub async fn running_label(run: &Run<'_>) {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let current = &run.plan.issue.labels;
    let labelled = github
        .ensure_labels(
            &run.context.repo,
            number,
            current,
            IssueState::Running,
            &run.context.config.github.labels,
        )
        .await;
    if let Err(error) = labelled {
        run.note_locked(&error);
        tracing::warn!(%error, "the label of a running issue could not be set");
    }
}

/// Whether the daemon that began the run writes its labels: of one that could not write its files it alone knows whether there is no
/// room. Then it waits for some, and the run is gone on with.
fn is_a_daemons_to_say(run: &Run<'_>, stop: &Stop) -> bool {
    stop.detail == StopDetail::OutputWriteFailed && !run.plan.request.is_by_hand()
}

/// One of done, failed, attention, no-evidence; trigger first, then queued and running go (D6). A trigger that was put on again while
/// the run worked stays. A run that a shutdown stopped keeps its labels, because the next daemon continues it.
async fn end_labels(
    github: &github::Client,
    run: &Run<'_>,
    number: u64,
    stop: &Stop,
) -> Result<&'static str, github::Error> {
    let (repo, labels) = (&run.context.repo, &run.context.config.github.labels);
    let (state, current) = match IssueState::after(stop.detail) {
        Some(state) => (state, github.issue(repo, number).await?.issue.labels),
        // Nobody goes on by itself with what a person began and stopped on an issue without the trigger: they do.
        None if stop.detail == StopDetail::Shutdown && run.plan.request.is_by_hand() => {
            let current = github.issue(repo, number).await?.issue.labels;
            if current.iter().any(|label| label.eq_ignore_ascii_case(&labels.trigger)) {
                return Ok(UNCHANGED_LABELS);
            }
            (IssueState::Attention, current)
        }
        None => return Ok(UNCHANGED_LABELS),
    };
    // A follow-up run answers no labelling: a trigger that is on now was put on while it worked.
    let answers = run.plan.request.answers.or(run.is_follow_up().then_some(NO_LABELLING));
    github.ensure_end_labels(repo, number, current, (state, answers), labels).await?;
    Ok(state.key())
}
