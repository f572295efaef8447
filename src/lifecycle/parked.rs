//! A run whose issue is parked at its end, and the run that goes on with it.

use chrono::TimeDelta;

use super::run::Run;
use crate::conversation::parked::parked_format::{Answer, Over, Parked, ParkedIssue as Kept, Told, WaitsFor};
use crate::conversation::parked::{self, ParkedCell};
use crate::domain::event::Event;
use crate::domain::question::{Answered, Question};
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, incoming};
use crate::engine::journal::JournalError;
use crate::record::rendering;
use crate::store::port::StoreError;

fn cell(run: &Run<'_>) -> ParkedCell {
    ParkedCell::new(&run.context.state, &run.context.repo, &run.plan.issue.key)
}

/// Whether the agent may ask people: a run of its issue has a question left. A replay asks as the recorded run could.
pub(super) async fn may_ask(run: &Run<'_>) -> bool {
    if let Some(recorded) = &run.context.replay {
        return recorded.may_ask();
    }
    let most = run.context.config.questions.max;
    most > 0 && cell(run).read().await.is_ok_and(|issue| issue.questions < most)
}

/// Takes up what lets the run go on, where it goes on with a parked one. It is the run's from here on, and in its journal.
pub(super) async fn take_up(run: &Run<'_>) -> Result<Option<Answered>, JournalError> {
    if run.context.replay.is_some() {
        // The recorded briefing has the answer.
        return Ok(None);
    }
    let (own, before) = (run.lease.run_id, run.lease.predecessor.as_ref().map(|before| before.run_id));
    let resumed = run.plan.request.resume;
    let taken = cell(run)
        .update(move |issue| {
            let parked = issue.parked.as_mut()?;
            let goes_on = |run_id: RunId| Some(run_id) == before || Some(run_id) == resumed;
            // A run that was killed after it had taken it up is gone on with as well.
            let is_before = match &parked.over {
                None => goes_on(parked.run_id),
                Some(Over::TakenUp(run_id)) => goes_on(*run_id),
                Some(Over::Ended(_)) => false,
            };
            // Whatever run begins, nothing else is waited for.
            if (is_before && parked.answer.is_some()) || (parked.over.is_none() && parked.is_posted) {
                parked.over = Some(Over::TakenUp(own));
            }
            let answer = parked.answer.clone().filter(|_| is_before)?;
            Some((parked.clone(), answer))
        })
        .await;
    let unreadable = |error: StoreError| JournalError::from(error);
    let Some((parked, answer)) = taken.map_err(unreadable)?.1 else { return Ok(None) };
    let Answer { text, by, permission, at } = answer.clone();
    let answered = Answered { run_id: parked.run_id, text, by, permission, at };
    run.journal.record(Event::Resumed { run_id: parked.run_id, by: answered.by.clone() })?;
    run.journal.record(Event::QuestionAnswered(answered.clone()))?;
    tell_answered(run, &parked, &answer).await;
    Ok(Some(answered))
}

/// The comment that asked says who answered what.
async fn tell_answered(run: &Run<'_>, parked: &Parked, answer: &Answer) {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let WaitsFor::Answer { question, number: asked } = &parked.waits_for else { return };
    let key = &run.plan.issue.key;
    let text = run.without_secrets(&parked::answered_text(question, answer, key));
    let marker = rendering::request_marker(key, &format!("question-{asked}"));
    if let Err(error) = github.ensure_comment(&run.context.repo, number, &marker, &text).await {
        tracing::warn!(%error, "who answered a question could not be told on the issue");
    }
}

/// The answer as the step that asked is told it; `None` = there is none.
pub(super) fn told(answered: Option<&Answered>) -> Option<String> {
    answered.map(|answered| fence("answer", &incoming(&answered.text, LONGEST_INCOMING)))
}

/// Parks the issue of a run that ends for a person: for what it waits is on disk before people are told, and they are told
/// once. Gives how the run ends. One whose question cannot be posted needs guidance.
pub(super) async fn park(run: &Run<'_>, stop: &Stop) -> Result<Stop, JournalError> {
    if !stop.parks() || run.context.replay.is_some() {
        return Ok(stop.clone());
    }
    let Some(question) = question(run) else { return Ok(stop.clone()) };
    let (own, before) = (run.lease.run_id, run.lease.predecessor.as_ref().map(|before| before.run_id));
    let table = run.context.config.questions.clone();
    let now = run.context.clock.now();
    let asked = run.plan.request.asked.as_ref().and_then(|asked| asked.by.clone());
    let deadline = TimeDelta::from_std(table.timeout.0).ok().and_then(|time| now.checked_add_signed(time));
    let note = move |issue: &mut Kept| {
        // What a killed run had begun to post keeps its number.
        let known = issue.parked.take().filter(|parked| {
            let begun = parked.run_id == own || Some(parked.run_id) == before;
            begun && parked.over.is_none()
        });
        let number = match known.map(|parked| parked.waits_for) {
            Some(WaitsFor::Answer { number, .. }) => number,
            _ => {
                issue.questions += 1;
                issue.questions
            }
        };
        let parked = Parked {
            run_id: own,
            waits_for: WaitsFor::Answer { question: question.clone(), number },
            since: now,
            deadline,
            asked: asked.clone(),
            comment: None,
            is_posted: false,
            reminded: false,
            answer: None,
            over: None,
        };
        issue.parked = Some(parked.clone());
        (parked, number)
    };
    let (_, (parked, number)) = cell(run).update(note).await?;
    let comment = match post(run, &parked, number).await {
        Ok(comment) => comment,
        Err(error) => {
            let message = format!("{} It could not be asked on the issue: {error}.", stop.message);
            cell(run).update(|issue| issue.parked = None).await?;
            return Ok(Stop::new(StopDetail::GuidanceNeeded, message));
        }
    };
    let url = comment.as_ref().and_then(|comment| comment.url.clone());
    let posted = move |issue: &mut Kept| {
        if let Some(parked) = &mut issue.parked {
            (parked.comment, parked.is_posted) = (comment.clone(), true);
        }
    };
    cell(run).update(posted).await?;
    run.journal.record(Event::Parked { code: parked.waits_for.code().to_owned(), url })?;
    Ok(stop.clone())
}

/// What the agent asked: this run's, or that of the killed run whose end this one brings about.
fn question(run: &Run<'_>) -> Option<Question> {
    let own = run.journal.facts().question.clone();
    own.or_else(|| run.lease.predecessor.as_ref()?.facts.question.clone())
}

/// The comment that asks, found or made, and whoever is asked assigned. `None` = there is no place for it.
async fn post(run: &Run<'_>, parked: &Parked, number: u32) -> Result<Option<Told>, crate::github::Error> {
    let (Some(github), Some(issue)) = (&run.context.github, run.tracked_issue()) else { return Ok(None) };
    let (key, table, repo) = (&run.plan.issue.key, &run.context.config.questions, &run.context.repo);
    let text = run.without_secrets(&parked::question_text(parked, table, key));
    let marker = rendering::request_marker(key, &format!("question-{number}"));
    let (comment, _) = github.ensure_comment(repo, issue, &marker, &text).await?;
    if let Some(login) = parked.asked.as_ref().filter(|_| table.assign)
        && let Err(error) = github.assign(repo, issue, login).await
    {
        run.journal.warn("not_assigned", format!("{login} could not be assigned to the issue: {error}."));
    }
    let at = comment.created_at.unwrap_or(parked.since);
    Ok(Some(Told { id: comment.id, url: comment.url, at }))
}
