//! Carries out what a person asks of an issue or its run: by the command itself where it may change what the nodes share, else by the node
//! that heard it as a message. Carried out again, a request changes nothing more.

use std::path::PathBuf;

use chrono::{DateTime, Utc};

use super::decisions::{self, Decided, NotDecided, Plans};
use super::stop_request::{self, StopRequest};
use crate::conversation::inbox::Inboxes;
use crate::conversation::inbox::inbox_format::{Heard, Inbox};
use crate::conversation::parked::ParkedCell;
use crate::domain::approval::{Approval, Denial};
use crate::domain::cluster::person_request::{PersonAsks, PersonRequest};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::worktree_of;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::remark::{Remark, RemarkId, RemarkKind};
use crate::domain::run::RunId;
use crate::domain::trace::SuspendedProposal;
use crate::engine::journal::JournalError;
use crate::engine::shared_cap;
use crate::engine::shared_cap_format::{Extension, Spending};
use crate::engine::shortage::SharedCapError;
use crate::issue::approval::{self, Decision, NewApproval, NotApproved};
use crate::record::run_facts;
use crate::repository::mapping_format::mapping_of;
use crate::store::port::{LeaseKey, StoreError};
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::host::Host;

/// What was done.
#[derive(Debug)]
pub enum Done {
    /// The run was asked to end.
    Asked,
    /// What the issue has cost, and what people gave it.
    Given(Spending),
    /// What was said waits to be told.
    Kept(RemarkId),
    /// A call may run once.
    Approved(Box<(Approval, SuspendedProposal)>),
    /// A call may not run.
    Denied(Box<(Denial, SuspendedProposal)>),
    /// What an issue waited for is decided.
    Decided,
    /// It was done before.
    Already,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum NotCarriedOut {
    /// The store failed: the same again may succeed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the issue has cost is not known at the moment.
    #[error(transparent)]
    Money(#[from] SharedCapError),
    /// A journal is not readable at the moment.
    #[error("{}: {}", .0.path, .0.message)]
    Journal(JournalError),
    /// There is no such call, or nothing can be decided on it.
    #[error(transparent)]
    NotApproved(#[from] NotApproved),
    /// Nothing was decided on what an issue waits for.
    #[error(transparent)]
    NotDecided(#[from] NotDecided),
    /// It cannot be done, now or later.
    #[error("{0}")]
    Refused(String),
    /// The run that is to end was cut off. Where another one goes on with it, that one is meant.
    #[error("the run was cut off")]
    CutOff,
    /// The work on it was cut off.
    #[error("it was not carried out to its end: {0}")]
    Panic(String),
}

impl From<Decided> for Done {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Now => Self::Decided,
            Decided::Before => Self::Already,
        }
    }
}

impl From<JournalError> for NotCarriedOut {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl NotCarriedOut {
    /// Whether the same may be done later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => !error.is_for_want_of_a_right(),
            Self::Money(_) | Self::Journal(_) | Self::CutOff | Self::Panic(_) => true,
            Self::NotApproved(NotApproved::Store(_)) => true,
            Self::NotDecided(NotDecided::Store(error)) => !error.is_for_want_of_a_right(),
            Self::NotDecided(NotDecided::GitHub(error)) => error.is_transient(),
            Self::NotDecided(NotDecided::Refused(_)) => false,
            Self::NotApproved(_) | Self::Refused(_) => false,
        }
    }
}

/// What some requests need beside the store.
#[derive(Debug, Default)]
pub struct With<'a> {
    /// What the run left about whose call is decided.
    pub left: Option<(RunDir, RunFacts)>,
    /// How plans are decided on.
    pub plans: Plans<'a>,
}

/// Carries a request out.
///
/// # Errors
/// Nothing was done; with a store that fails, it may have been.
pub async fn carry_out(
    state: &StateDir,
    request: &PersonRequest,
    with: With<'_>,
) -> Result<Done, NotCarriedOut> {
    let With { left, plans } = with;
    let PersonRequest { id, repository, issue, by, at, what } = request.clone();
    let login = by.login(&Host::current().name);
    let parked = ParkedCell::new(state, &repository, &issue);
    match what {
        PersonAsks::Answer { run_id, text } => {
            let answer = decisions::said(text, login, at);
            Ok(decisions::answer(&parked, (&issue, run_id), answer).await?.into())
        }
        PersonAsks::ApprovePlan { run_id, sha256 } => {
            let plan = (&repository, &issue, run_id, sha256.as_str());
            Ok(decisions::approve_plan(&parked, plan, (login, at), &plans).await?.into())
        }
        PersonAsks::RejectPlan { run_id, text } => {
            let why = decisions::said(text, login, at);
            Ok(decisions::reject_plan(&parked, (&issue, run_id), why, &plans).await?.into())
        }
        PersonAsks::Stop { run_id, at_once } => {
            let asked = if at_once { StopRequest::AtOnce } else { StopRequest::LastReport };
            let dir = state.run(&repository, run_id);
            blocking(move || Ok(stop_request::ask(&dir, &asked).map(|()| Done::Asked)?)).await
        }
        PersonAsks::Extend { amount } => {
            let extension = Extension { by: login, amount, at, by_comment: false };
            let store = state.store().clone();
            let given = move || {
                let of = (&repository, &issue);
                let given = shared_cap::extend_issue(&store, of, (&id.to_string(), &extension), Money::ZERO)?;
                given.map(Done::Given).map_err(|_| NotCarriedOut::Refused("nothing may be given".to_owned()))
            };
            blocking(given).await
        }
        PersonAsks::Say { text } => {
            // As good as unique: two people who speak in the same moment are both heard.
            let id = RemarkId::Said(id.as_u64_pair().0);
            let number = issue.number().unwrap_or_default();
            let heard = Heard::said(said((id, number), login, &text, at), at);
            let keep = move |inbox: &mut Inbox| {
                inbox.remarks.entry(id).or_insert_with(|| heard.clone());
            };
            Inboxes::new(state, &repository).of(issue).update(keep).await?;
            Ok(Done::Kept(id))
        }
        PersonAsks::Approve { proposal, holds_ms, .. } => {
            let (dir, facts) = left.ok_or(NotApproved::NoRun)?;
            let holds = std::time::Duration::from_millis(holds_ms);
            let approval = NewApproval { proposal, approver: by.principal(), holds };
            let state = state.clone();
            let grant = move || Ok(approval::grant(&state, &dir, &facts, &approval, at)?);
            Ok(Done::Approved(Box::new(blocking(grant).await?)))
        }
        PersonAsks::Deny { proposal, .. } => {
            let (dir, facts) = left.ok_or(NotApproved::NoRun)?;
            let state = state.clone();
            let deny = move || Ok(approval::deny(&state, &dir, &facts, (&proposal, by.principal()), at)?);
            Ok(Done::Denied(Box::new(blocking(deny).await?)))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotCarriedOut> + Send + 'static,
) -> Result<T, NotCarriedOut> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| Err(NotCarriedOut::Panic(panic.to_string())))
}

fn said((id, number): (RemarkId, u64), login: String, text: &str, at: DateTime<Utc>) -> Remark {
    Remark {
        kind: RemarkKind::Said,
        id,
        node_id: None,
        number,
        url: None,
        login: Some(login),
        bot: false,
        created: at,
        edited: None,
        editor: None,
        edited_by_bot: false,
        text: text.trim().to_owned(),
        minimized: false,
        thread: None,
        in_reply_to: None,
        review: None,
        state: None,
    }
}

/// Carries out a request that came as a message. What it says is data: it is looked at first, and also whether it still fits what it
/// is about. Heard a second time, by another node too, it changes nothing.
///
/// # Errors
/// Nothing was done; with a store that fails, it may have been.
pub async fn hear(
    state: &StateDir,
    request: &PersonRequest,
    plans: Plans<'_>,
    now: DateTime<Utc>,
) -> Result<Done, NotCarriedOut> {
    if let Some(fault) = request.fault(now) {
        return Err(NotCarriedOut::Refused(fault));
    }
    let (own, asked) = (state.clone(), request.clone());
    match &request.what {
        PersonAsks::Extend { .. }
        | PersonAsks::Say { .. }
        | PersonAsks::Answer { .. }
        | PersonAsks::ApprovePlan { .. }
        | PersonAsks::RejectPlan { .. } => carry_out(state, request, With { left: None, plans }).await,
        PersonAsks::Stop { at_once, .. } => {
            let run_id = blocking(move || at_work(&own, &asked)).await?;
            let what = PersonAsks::Stop { run_id, at_once: *at_once };
            carry_out(state, &PersonRequest { what, ..request.clone() }, With::default()).await
        }
        PersonAsks::Approve { .. } | PersonAsks::Deny { .. } => {
            match blocking(move || undecided(&own, &asked, now)).await? {
                Some(left) => carry_out(state, request, With { left: Some(left), plans }).await,
                None => Ok(Done::Already),
            }
        }
    }
}

/// The newest run of an issue, as its lease knows it, whoever has it. Blocks.
pub fn newest_run(state: &StateDir, repo: &RepoName, issue: &IssueKey) -> Option<RunId> {
    // Nodes tell issues apart by the name of the file alone.
    let lease =
        LeaseKey::Issue { repo: repo.clone(), file: PathBuf::from(format!("{}.json", worktree_of(issue))) };
    let record = state.store().look(&lease)?.record?;
    Some(mapping_of(&record)?.run_id)
}

/// The run that is to end: the one that was named, or the one that goes on with it.
fn at_work(state: &StateDir, request: &PersonRequest) -> Result<RunId, NotCarriedOut> {
    let PersonAsks::Stop { run_id, .. } = request.what else {
        return Err(NotCarriedOut::Refused("no run is to end".to_owned()));
    };
    let facts_of = |run_id| {
        let facts = run_facts::read_anywhere(&state.run(&request.repository, run_id))?;
        facts.ok_or_else(|| {
            NotCarriedOut::Refused(format!("there is no run {run_id} of {}", request.repository))
        })
    };
    let over = |run_id| NotCarriedOut::Refused(format!("run {run_id} has ended already"));
    let facts = facts_of(run_id)?;
    if facts.lease.as_ref().is_some_and(|lease| lease.issue.key != request.issue) {
        return Err(NotCarriedOut::Refused(format!("run {run_id} is none of issue {}", request.issue)));
    }
    let Some(end) = &facts.end else { return Ok(run_id) };
    if !end.detail.is_gone_on_with() {
        return Err(over(run_id));
    }
    let newest = newest_run(state, &request.repository, &request.issue).ok_or_else(|| over(run_id))?;
    if newest == run_id {
        return Err(NotCarriedOut::CutOff);
    }
    let mut at = facts_of(newest)?;
    if at.end.is_some() {
        let cut_off = at.end.as_ref().is_some_and(|end| end.detail.is_gone_on_with());
        return Err(if cut_off { NotCarriedOut::CutOff } else { over(run_id) });
    }
    loop {
        let before = at.lease.as_ref().and_then(|lease| lease.previous_run);
        match before {
            Some(before) if before == run_id => return Ok(newest),
            Some(before) => at = facts_of(before)?,
            None => return Err(over(run_id)),
        }
        if at.end.as_ref().is_some_and(|end| !end.detail.is_gone_on_with()) {
            return Err(over(run_id));
        }
    }
}

/// What the newest run of an issue left to people, where nobody decided otherwise on the call since the person looked at it; `None` = the
/// request's decision stands already.
fn undecided(
    state: &StateDir,
    request: &PersonRequest,
    now: DateTime<Utc>,
) -> Result<Option<(RunDir, RunFacts)>, NotCarriedOut> {
    let (PersonAsks::Approve { run_id, proposal, instead_of, .. }
    | PersonAsks::Deny { run_id, proposal, instead_of }) = &request.what
    else {
        return Err(NotCarriedOut::Refused("nothing is to be decided".to_owned()));
    };
    let newest = newest_run(state, &request.repository, &request.issue).ok_or(NotApproved::NoRun)?;
    if newest != *run_id {
        let words = format!("run {run_id} is not the newest one of issue {} any more", request.issue);
        return Err(NotCarriedOut::Refused(words));
    }
    let dir = state.run(&request.repository, newest);
    let facts = run_facts::read_anywhere(&dir)?.ok_or(NotApproved::NoRun)?;
    let (lease, call) = approval::named(state, &dir, &facts, proposal)?;
    let of = (call.proposal_hash.as_str(), lease.principal.id);
    let (approves, at, by) = match approval::decision(state, &request.repository, of, now) {
        Decision::Open => return Ok(Some((dir, facts))),
        Decision::Approved(grant) => (true, grant.granted_at, grant.approver),
        Decision::Denied(denial) => (false, denial.decided_at, denial.decided_by),
    };
    let asks = matches!(request.what, PersonAsks::Approve { .. });
    if (approves, at) == (asks, request.at) && by == request.by.principal() {
        return Ok(None);
    }
    match *instead_of == Some(at) {
        true => Ok(Some((dir, facts))),
        false => {
            let who = by.login.unwrap_or_else(|| "somebody".to_owned());
            let done = if approves { "approved" } else { "denied" };
            Err(NotCarriedOut::Refused(format!("{who} has {done} the call meanwhile")))
        }
    }
}
