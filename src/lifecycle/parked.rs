//! A run whose issue is parked at its end, and the run that goes on with it.

use chrono::TimeDelta;

use super::run::Run;
use crate::conversation::briefing::{fenced_alone, with_quotes_fenced};
use crate::conversation::parked::parked_format::{
    Over, Parked, ParkedAnswer, ParkedIssue, PostedComment, Taken, WaitsFor,
};
use crate::conversation::parked::{self, ParkedCell};
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::plan::{PlanApproved, PlanPosted, PlanVerdict, ProposedPlan, plan_of};
use crate::domain::question::{Answered, Question};
use crate::domain::run::{RunId, VisitRecord};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::taken::{GivenBack, TakenOver};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, plain};
use crate::engine::journal::JournalError;
use crate::github;
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

/// If this run continues a parked one: takes what the person answered, decided or did out of the issue's cell, and records it in the
/// journal; what was decided on a plan goes to the visit that proposed it. Gives the text for the next step: the answer to a question, or
/// what a person made of the work.
pub(super) async fn take_up(
    run: &Run<'_>,
    finished: &mut [VisitRecord],
) -> Result<Option<String>, JournalError> {
    if run.context.replay.is_some() {
        // The recorded briefing has the answer, and the recorded visits what was decided.
        return Ok(None);
    }
    let (own, before) = (run.lease.run_id, run.lease.predecessor.as_ref().map(|before| before.run_id));
    let resumed = run.plan.request.resume;
    let finishes = only_ends(run);
    let taken = cell(run)
        .update(move |issue| {
            let parked = issue.parked.as_mut()?;
            // Whichever run begins after a person gave the work back goes on with it.
            let given_back = matches!(parked.waits_for, WaitsFor::GiveBack(_));
            let goes_on = |run_id: RunId| Some(run_id) == before || Some(run_id) == resumed;
            // A run that was killed after it had taken it up is gone on with as well.
            let is_before = match &parked.over {
                None => given_back || goes_on(parked.run_id),
                // It may have died before it had taken over any work, so that the one before it is gone on with.
                Some(Over::TakenUp(run_id)) => goes_on(*run_id) || goes_on(parked.run_id),
                Some(Over::Ended(_)) => false,
            };
            if is_before && finishes {
                // It is waited for still: the run that is brought to its end was killed while it told people.
                return None;
            }
            // Whatever run begins, nothing else is waited for.
            let waits = parked.over.is_none() && parked.is_posted;
            if (is_before && parked.answer.is_some()) || waits {
                parked.over = Some(Over::TakenUp(own));
            }
            let answer = parked.answer.clone().filter(|_| is_before);
            if answer
                .as_ref()
                .is_some_and(|answer| answer.plan.is_some_and(|verdict| verdict != PlanVerdict::Rejected))
            {
                issue.rejected = 0;
            }
            (answer.is_some() || (waits && !is_before)).then(|| (parked.clone(), answer))
        })
        .await;
    let unreadable = |error: StoreError| JournalError::from(error);
    let Some((parked, answer)) = taken.map_err(unreadable)?.1 else { return Ok(None) };
    let Some(answer) = answer else {
        tell_dropped(run, &parked).await;
        return Ok(None);
    };
    // What people write may have a secret in it, which neither a model nor the record is told.
    let answer = ParkedAnswer { text: run.without_secrets(&answer.text), ..answer };
    run.journal.record(Event::Resumed { run_id: parked.run_id, by: answer.by.clone() })?;
    match &parked.waits_for {
        WaitsFor::Plan { plan, .. } => {
            decided(run, &parked, plan, &answer, finished)?;
            tell_answered(run, &parked, &answer).await;
            Ok(None)
        }
        WaitsFor::Answer { .. } => {
            let ParkedAnswer { text, by, permission, at, .. } = answer.clone();
            let answered = Answered { run_id: parked.run_id, text, by, permission, at };
            run.journal.record(Event::QuestionAnswered(answered.clone()))?;
            tell_answered(run, &parked, &answer).await;
            Ok(Some(told_answer(&answered)))
        }
        WaitsFor::GiveBack(taken) => given_back(run, &parked, taken, &answer, finished).map(Some),
    }
}

/// Whether the run only brings to its end what a killed one had done: its flow has ended for a person.
fn only_ends(run: &Run<'_>) -> bool {
    let before = run.lease.predecessor.as_ref();
    before.and_then(|before| before.facts.flow_end.as_ref()).is_some_and(|end| end.stop.parks())
}

/// What was decided on the plan of the run before: its visit says it from here on.
fn decided(
    run: &Run<'_>,
    parked: &Parked,
    plan: &ProposedPlan,
    answer: &ParkedAnswer,
    finished: &mut [VisitRecord],
) -> Result<(), JournalError> {
    let Some(verdict) = answer.plan else { return Ok(()) };
    if verdict == PlanVerdict::Rejected {
        let reason = fenced_alone("rejection", &answer.text, LONGEST_INCOMING);
        let words = format!(
            "Your plan was rejected. Make it again, and heed what the people of the issue say:\n\n{reason}"
        );
        plan.decide(finished, verdict, &words);
        return Ok(());
    }
    plan.decide(finished, verdict, &with_quotes_fenced(&answer.text));
    run.journal.record(Event::PlanApproved(Box::new(PlanApproved {
        run_id: parked.run_id,
        visit: plan.visit,
        sha256: sha256_hex(answer.text.as_bytes()),
        text: answer.text.clone(),
        edited: verdict == PlanVerdict::Edited,
        by: answer.by.clone(),
        permission: answer.permission,
        at: answer.at,
    })))
}

/// The comment that asked says who answered or decided what, and asks no more.
async fn tell_answered(run: &Run<'_>, parked: &Parked, answer: &ParkedAnswer) {
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let asked = parked.waits_for.key();
    let key = &run.plan.issue.key;
    let text = match (&parked.waits_for, answer.plan) {
        (WaitsFor::Answer { question, .. }, _) => parked::answered_text(question, answer, key),
        (WaitsFor::Plan { plan, .. }, Some(verdict)) => parked::decided_text(plan, verdict, answer, key),
        _ => return,
    };
    let text = run.without_secrets(&text);
    let marker = rendering::request_marker(key, &asked);
    if let Err(error) = github.ensure_comment(&run.context.repo, number, &marker, &text).await {
        run.note_locked(&error);
        tracing::warn!(%error, "who answered or decided could not be told on the issue");
    }
}

/// The comment that asked says that this run began without an answer, and asks no more.
async fn tell_dropped(run: &Run<'_>, parked: &Parked) {
    let why = format!("run {} began without an answer", run.lease.run_id);
    run.journal
        .warn("question_dropped", format!("What an earlier run asked is not waited for any more: {why}."));
    let (Some(github), Some(number)) = (&run.context.github, run.tracked_issue()) else { return };
    let of = (&run.context.repo, number);
    if let Err(error) = parked::ask_no_more(github, of, &parked.waits_for, &why).await {
        run.note_locked(&error);
        tracing::warn!(%error, "that nothing is waited for any more could not be told on the issue");
    }
}

/// The answer as the step that asked is told it.
fn told_answer(answered: &Answered) -> String {
    format!("The answer to your question:\n\n{}", fenced_alone("answer", &answered.text, LONGEST_INCOMING))
}

/// How what an earlier run asked begins, where another one is told.
const ANSWERED_BEFORE: &str = "An earlier run of this issue asked:";

/// The same for a run that did not ask.
pub(super) fn told_answered_before(question: &Question, answered: &Answered) -> String {
    format!(
        "{ANSWERED_BEFORE}\n\n{}\n\nThe answer was:\n\n{}",
        fenced_alone("question", &question.question, LONGEST_INCOMING),
        fenced_alone("answer", &answered.text, LONGEST_INCOMING)
    )
}

/// Whether a text is that.
pub(super) fn is_answered_before(text: &str) -> bool {
    text.starts_with(ANSWERED_BEFORE)
}

/// Work that a person gave back is the run's from here on. Gives what the run is told of it.
fn given_back(
    run: &Run<'_>,
    parked: &Parked,
    taken: &Taken,
    answer: &ParkedAnswer,
    finished: &mut [VisitRecord],
) -> Result<String, JournalError> {
    let given = taken.given.as_ref();
    let back = GivenBack {
        run_id: parked.run_id,
        by: answer.by.clone(),
        permission: answer.permission,
        at: answer.at,
        text: answer.text.clone(),
        from: taken.head.clone(),
        to: given.map_or_else(|| taken.head.clone(), |given| given.head.clone()),
        changed: given.map(|given| given.changed.clone()).unwrap_or_default(),
    };
    let told = told_given_back(&back, taken.before.as_ref());
    if let Some(WaitsFor::Plan { plan, .. }) = &taken.before {
        // What was planned before somebody else worked on it is planned anew, and approved as any plan.
        let words = "Your plan was not decided on: a person took the work over meanwhile. Make it again for the files as they \
                     are now.";
        plan.decide(finished, PlanVerdict::Rejected, words);
    }
    run.journal.record(Event::GivenBack(Box::new(back)))?;
    Ok(told)
}

/// What a person made of the work, for a model.
fn told_given_back(back: &GivenBack, before: Option<&WaitsFor>) -> String {
    let (by, permission) = (&back.by, back.permission.map_or("", |permission| permission.as_str()));
    let mut text = format!(
        "A person took this work over and gives it back: {by} (trusted). What they changed is in the files here, and counts.\n"
    );
    if let Some(WaitsFor::Answer { question, .. }) = before {
        let asked = fence("your question", &plain(&question.question, LONGEST_INCOMING));
        text.push_str(&format!("\nYou had asked something, which was not answered otherwise:\n\n{asked}\n"));
    }
    if !back.text.is_empty() {
        let source = format!(
            "give-back of {by} (trusted{}{permission})",
            if permission.is_empty() { "" } else { ", " }
        );
        text.push_str(&format!(
            "\nWhat they say:\n\n{}\n",
            fenced_alone(&source, &back.text, LONGEST_INCOMING)
        ));
    }
    let changed = match back.changed.is_empty() {
        true => "No file was changed.".to_owned(),
        false => fence("changes", &plain(&back.changed.join("\n"), LONGEST_INCOMING)),
    };
    text.push_str(&format!("\nWhat they changed:\n\n{changed}"));
    text
}

/// Whether the run goes on with work that a person gave back, where this one left it: then the files are as that person wants
/// them, whatever was kept of them before.
pub(super) async fn is_given_back(run: &Run<'_>, before: RunId) -> bool {
    let Ok(issue) = cell(run).read().await else { return false };
    issue.parked.as_ref().is_some_and(|parked| {
        let given = matches!(&parked.waits_for, WaitsFor::GiveBack(taken) if taken.given.is_some());
        given && parked.run_id == before
    })
}

/// Parks the issue of a run that ends for a person: for what it waits is on disk before people are told, and they are told
/// once. Gives how the run ends. One whose question cannot be posted needs guidance.
pub(super) async fn park(run: &Run<'_>, stop: &Stop) -> Result<Stop, JournalError> {
    if !stop.parks() || run.context.replay.is_some() {
        return Ok(stop.clone());
    }
    if stop.is_taken() {
        return hand_over(run, stop).await;
    }
    let Some(news) = news(run, stop) else { return Ok(stop.clone()) };
    let (own, before) = (run.lease.run_id, run.lease.predecessor.as_ref().map(|before| before.run_id));
    let table = run.context.config.questions.clone();
    let now = run.context.clock.now();
    let asked = run.plan.request.asked.as_ref().and_then(|asked| asked.by.clone());
    let deadline = TimeDelta::from_std(table.timeout.0).ok().and_then(|time| now.checked_add_signed(time));
    let (is_new, state) = (before.is_none(), run.context.state.state_name());
    let trigger = &run.context.config.github.labels.trigger;
    let unlabelled = !run.plan.issue.labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    let note = move |issue: &mut ParkedIssue| {
        // What a killed run had begun to post keeps its number, and so does a plan that is waited for still.
        let known = issue.parked.take().filter(|parked| {
            let begun = parked.run_id == own || Some(parked.run_id) == before;
            let waits = match &parked.over {
                None => true,
                Some(Over::TakenUp(run_id)) => *run_id == own && parked.answer.is_none(),
                Some(Over::Ended(_)) => false,
            };
            begun && waits
        });
        if is_new {
            issue.rejected = 0;
        }
        let mut answer = None;
        let waits_for = match (&news, known.map(|parked| (parked.waits_for, parked.answer))) {
            (News::Question(question), Some((WaitsFor::Answer { question: before, number }, decided))) => {
                // What people decided on it since stands, whichever run told them of it.
                answer = decided.filter(|_| *question == before);
                WaitsFor::Answer { question: question.clone(), number }
            }
            (News::Plan(plan), Some((WaitsFor::Plan { plan: before, number, void_told }, decided)))
                if *plan == before =>
            {
                answer = decided;
                WaitsFor::Plan { plan: before, number, void_told }
            }
            (News::Question(question), _) => {
                issue.questions += 1;
                WaitsFor::Answer { question: question.clone(), number: issue.questions }
            }
            (News::Plan(plan), _) => {
                issue.plans += 1;
                WaitsFor::Plan { plan: plan.clone(), number: issue.plans, void_told: None }
            }
        };
        let parked = Parked {
            run_id: own,
            waits_for,
            since: now,
            deadline,
            asked: asked.clone(),
            comment: None,
            is_posted: false,
            shown_by: Some(state.clone()),
            unlabelled,
            reminded: false,
            answer,
            over: None,
        };
        issue.parked = Some(parked.clone());
        parked
    };
    let (_, parked) = cell(run).update(note).await?;
    let posted = match post(run, &parked).await {
        // A plan is approved on its issue and nowhere else.
        Ok(None) if stop.detail == StopDetail::PlanPending => Err("it has none on GitHub".to_owned()),
        Ok(comment) => Ok(comment),
        Err(error) => Err(error.to_string()),
    };
    let comment = match posted {
        Ok(comment) => comment,
        Err(error) => {
            let message = format!("{} It could not be asked on the issue: {error}.", stop.message);
            cell(run).update(|issue| issue.parked = None).await?;
            return Ok(Stop::new(StopDetail::GuidanceNeeded, message));
        }
    };
    let url = comment.as_ref().and_then(|comment| comment.url.clone());
    let posted = move |issue: &mut ParkedIssue| {
        if let Some(parked) = &mut issue.parked {
            (parked.comment, parked.is_posted) = (comment.clone(), true);
        }
    };
    cell(run).update(posted).await?;
    if let WaitsFor::Plan { plan, .. } = &parked.waits_for {
        let (visit, step_id, sha256) = (plan.visit, plan.step_id.clone(), plan.sha256.clone());
        run.journal.record(Event::PlanPosted(PlanPosted { visit, step_id, sha256, url: url.clone() }))?;
    }
    run.journal.record(Event::Parked { code: parked.waits_for.code().to_owned(), url })?;
    Ok(stop.clone())
}

/// Parks the issue for the person who takes the work over. There is nobody to be asked: the status comment says who has it.
async fn hand_over(run: &Run<'_>, stop: &Stop) -> Result<Stop, JournalError> {
    let branch = run.lease.mapping.branch.clone();
    let tip = run.context.checkout.local_branch(&branch).await;
    let (Some(TakenOver { by, .. }), Ok(Some(head))) = (taken_by(run), tip) else {
        let message = format!("{} Where the branch {branch} stands cannot be told.", stop.message);
        return Ok(Stop::new(StopDetail::GitError, message));
    };
    let taken =
        Taken { by, branch, head, left: None, is_done: false, before: None, giving_back: None, given: None };
    let parked =
        Parked::taken(run.lease.run_id, taken, run.context.clock.now(), run.context.state.state_name());
    let code = parked.waits_for.code().to_owned();
    let keep = move |issue: &mut ParkedIssue| {
        issue.asked = None;
        issue.parked = Some(parked.clone());
    };
    cell(run).update(keep).await?;
    run.journal.record(Event::Parked { code, url: None })?;
    Ok(stop.clone())
}

/// Who takes the work over: from this run, or from the killed run whose end this one brings about.
pub(super) fn taken_by(run: &Run<'_>) -> Option<TakenOver> {
    let before = run.lease.predecessor.as_ref();
    run.journal.facts().taken.clone().or_else(|| before?.facts.taken.clone())
}

/// Notes that people were told who has the work.
pub(super) async fn note_shown(run: &Run<'_>) {
    let shown = |issue: &mut ParkedIssue| {
        if issue.taken().is_some() {
            issue.parked.iter_mut().for_each(|parked| parked.is_posted = true);
        }
    };
    if let Err(error) = cell(run).update(shown).await {
        tracing::warn!(%error, "that people know who has the work could not be noted");
    }
}

/// For what people are asked.
enum News {
    Question(Question),
    Plan(ProposedPlan),
}

/// What the agent asked or planned: this run's, or that of the killed run whose end this one brings about.
fn news(run: &Run<'_>, stop: &Stop) -> Option<News> {
    let (own, before) = (run.journal.facts(), run.lease.predecessor.as_ref());
    if stop.detail == StopDetail::PlanPending {
        let last = own.visits.last().or_else(|| before?.facts.visits.last())?;
        return Some(News::Plan(ProposedPlan::new(last, run.without_secrets(&plan_of(&last.output)?))));
    }
    let asked = own.question.clone().or_else(|| before?.facts.question.clone());
    asked.filter(|_| stop.detail == StopDetail::QuestionPending).map(News::Question)
}

/// The comment that asks, found or made, and whoever is asked assigned. `None` = there is no place for it.
async fn post(run: &Run<'_>, parked: &Parked) -> Result<Option<PostedComment>, github::Error> {
    let (Some(github), Some(issue)) = (&run.context.github, run.tracked_issue()) else { return Ok(None) };
    let (key, config, repo) = (&run.plan.issue.key, &run.context.config, &run.context.repo);
    let text = match &parked.waits_for {
        WaitsFor::Plan { plan, .. } => parked::plan_text(parked, plan, &config.plan, key),
        WaitsFor::Answer { .. } => parked::question_text(parked, &config.questions, key),
        WaitsFor::GiveBack(_) => return Ok(None),
    };
    let marker = parked.waits_for.key();
    let marker = rendering::request_marker(key, &marker);
    let found = match &parked.waits_for {
        // People may have edited a plan that is there already: it stays theirs.
        WaitsFor::Plan { .. } => github.find_comment(repo, issue, &marker).await?,
        WaitsFor::Answer { .. } | WaitsFor::GiveBack(_) => None,
    };
    let comment = match found {
        Some(found) => found,
        None => github.ensure_comment(repo, issue, &marker, &run.without_secrets(&text)).await?.0,
    };
    if let Some(login) = parked.asked.as_ref().filter(|_| config.questions.assign)
        && let Err(error) = github.assign(repo, issue, login).await
    {
        run.journal.warn("not_assigned", format!("{login} could not be assigned to the issue: {error}."));
    }
    let at = comment.created_at.unwrap_or(parked.since);
    Ok(Some(PostedComment { id: comment.id, url: comment.url, at }))
}
