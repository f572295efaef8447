//! What a person decides on an issue that waits for people: the answer to its question, or what becomes of its plan. By a command, or as a
//! message that a node heard; comments and reactions are read where they stand. Decided again by the same request, nothing changes.

use chrono::{DateTime, TimeDelta, Utc};

use crate::conversation::parked::parked_format::{Parked, ParkedAnswer, ParkedIssue, WaitsFor};
use crate::conversation::parked::{ParkedCell, plan_in, plan_shown};
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::plan::{PlanVerdict, ProposedPlan};
use crate::domain::run::RunId;
use crate::github::{self, Client};
use crate::store::port::StoreError;

/// How plans are decided on.
#[derive(Debug, Default, Clone, Copy)]
pub struct Plans<'a> {
    /// Where a plan's comment is read; `None` = none is approved.
    pub github: Option<&'a Client>,
    /// So many in a row may be rejected.
    pub most_rejected: u32,
}

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum NotDecided {
    /// The store failed: the same again may succeed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// GitHub did not say what a plan reads like.
    #[error(transparent)]
    GitHub(#[from] github::Error),
    /// It cannot be decided, now or later.
    #[error("{0}")]
    Refused(String),
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// What was asked for.
    Now,
    /// The same, by this very request, before.
    Before,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Put {
    Done,
    /// By this very request.
    Already,
    /// Somebody else was first.
    Late,
    /// Nothing is waited for any more, or something else is.
    Over,
    /// The plan was rejected often enough.
    TooOften,
}

/// What somebody says, as it is kept.
pub(super) fn said(text: String, by: String, at: DateTime<Utc>) -> ParkedAnswer {
    ParkedAnswer { text, by, permission: None, at, plan: None }
}

/// Answers the question of a run, in words or by an option's number.
pub(super) async fn answer(
    cell: &ParkedCell,
    (key, run_id): (&IssueKey, RunId),
    answer: ParkedAnswer,
) -> Result<Decided, NotDecided> {
    let put = move |issue: &mut ParkedIssue| {
        let Some(parked) = of_run(issue, run_id) else { return Put::Over };
        let WaitsFor::Answer { question, .. } = &parked.waits_for else { return Put::Over };
        let text = question.answer_in(&answer.text);
        put(parked, ParkedAnswer { text, ..answer.clone() })
    };
    match cell.update(put).await?.1 {
        Put::Done => Ok(Decided::Now),
        Put::Already => Ok(Decided::Before),
        Put::Late => Err(NotDecided::Refused(format!("the question of issue {key} is answered already"))),
        Put::Over | Put::TooOften => {
            Err(NotDecided::Refused(format!("nothing waits for an answer on issue {key}")))
        }
    }
}

/// Has the plan of a run made again.
pub(super) async fn reject_plan(
    cell: &ParkedCell,
    (key, run_id): (&IssueKey, RunId),
    why: ParkedAnswer,
    plans: &Plans<'_>,
) -> Result<Decided, NotDecided> {
    let most = plans.most_rejected;
    let rejects = ParkedAnswer { plan: Some(PlanVerdict::Rejected), ..why };
    decide(cell, (key, run_id), rejects, most).await
}

/// Approves the plan of a run, as its comment reads and read when it was approved.
pub(super) async fn approve_plan(
    cell: &ParkedCell,
    (repo, key, run_id, sha256): (&RepoName, &IssueKey, RunId, &str),
    (by, at): (String, DateTime<Utc>),
    plans: &Plans<'_>,
) -> Result<Decided, NotDecided> {
    let mut known = cell.read().await?;
    let parked = of_run(&mut known, run_id).cloned();
    let Some((parked, plan)) = parked.and_then(|parked| match &parked.waits_for {
        WaitsFor::Plan { plan, .. } if plan.sha256 == sha256 => Some((parked.clone(), plan.clone())),
        _ => None,
    }) else {
        return Err(nothing_waits(key));
    };
    if parked.answer.as_ref().is_some_and(|known| (known.at, &known.by) == (at, &by)) {
        return Ok(Decided::Before);
    }
    let (text, verdict) = as_it_reads(repo, key, (&parked, &plan), at, plans).await?;
    let approves = ParkedAnswer { text, by, permission: None, at, plan: Some(verdict) };
    decide(cell, (key, run_id), approves, u32::MAX).await
}

/// The plan in its comment, and whether people changed it before it was approved.
async fn as_it_reads(
    repo: &RepoName,
    key: &IssueKey,
    (parked, plan): (&Parked, &ProposedPlan),
    at: DateTime<Utc>,
    plans: &Plans<'_>,
) -> Result<(String, PlanVerdict), NotDecided> {
    let refused = |why: &str| Err(NotDecided::Refused(why.to_owned()));
    let (Some(github), Some(told)) = (plans.github, &parked.comment) else {
        return refused("the plan's comment cannot be read without GitHub");
    };
    let Some(comment) = github.comment(repo, told.id).await? else {
        return refused("the plan's comment is gone, so nobody can see what would be approved");
    };
    let text = plan_in(&comment.body);
    if text.is_empty() {
        return refused("the plan's comment has no text any more");
    }
    let is_same = text == plan_shown(plan, key);
    let edited = comment.updated_at.filter(|edited| Some(*edited) > comment.created_at || !is_same);
    // GitHub's times are whole seconds, and no clock may be ahead of its own.
    let at = github.now().map_or(at, |now| now.min(at));
    if edited.is_some_and(|edited| edited >= at - TimeDelta::seconds(1)) {
        return refused(
            "the plan was edited in the second of its approval or later; read it again and approve it then",
        );
    }
    Ok(match is_same {
        true => (plan.text.clone(), PlanVerdict::Approved),
        false => (text, PlanVerdict::Edited),
    })
}

async fn decide(
    cell: &ParkedCell,
    (key, run_id): (&IssueKey, RunId),
    answer: ParkedAnswer,
    most_rejected: u32,
) -> Result<Decided, NotDecided> {
    let rejects = answer.plan == Some(PlanVerdict::Rejected);
    let put = move |issue: &mut ParkedIssue| {
        let is_too_often = rejects && issue.rejected >= most_rejected;
        let Some(parked) = of_run(issue, run_id) else { return Put::Over };
        if !matches!(parked.waits_for, WaitsFor::Plan { .. }) {
            return Put::Over;
        }
        if is_too_often && parked.answer.is_none() {
            return Put::TooOften;
        }
        let put = put(parked, answer.clone());
        issue.rejected += u32::from(rejects && put == Put::Done);
        put
    };
    match cell.update(put).await?.1 {
        Put::Done => Ok(Decided::Now),
        Put::Already => Ok(Decided::Before),
        Put::Late => Err(NotDecided::Refused(format!("the plan of issue {key} was decided on meanwhile"))),
        Put::Over => Err(nothing_waits(key)),
        Put::TooOften => Err(NotDecided::Refused(format!(
            "the plan of issue {key} was rejected {most_rejected} times already and is not made again"
        ))),
    }
}

fn nothing_waits(key: &IssueKey) -> NotDecided {
    NotDecided::Refused(format!("nothing waits for an approval on issue {key}"))
}

/// What an issue waits for, or waited for, where it is this run that ended for it.
fn of_run(issue: &mut ParkedIssue, run_id: RunId) -> Option<&mut Parked> {
    issue.parked.as_mut().filter(|parked| parked.run_id == run_id && parked.is_posted)
}

fn put(parked: &mut Parked, given: ParkedAnswer) -> Put {
    match &parked.answer {
        Some(known) if (known.at, &known.by) == (given.at, &given.by) => Put::Already,
        Some(_) => Put::Late,
        None if parked.over.is_some() => Put::Over,
        None => {
            parked.answer = Some(given);
            Put::Done
        }
    }
}
