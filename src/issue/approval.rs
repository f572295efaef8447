//! A person's decision on what a run proposed: found by its hash, granted once and for a while, or denied. Nothing is
//! executed (P-037).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::domain::approval::{APPROVAL_SCHEMA, Approval, DENIAL_SCHEMA, Denial};
use crate::domain::event::LeaseTaken;
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run::{Principal, RunId};
use crate::domain::stop::Stop;
use crate::domain::trace::SuspendedProposal;
use crate::record::run_facts;
use crate::record::summary_text;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::approvals::Approvals;
use crate::store::port::StoreError;
use crate::store::run_dir::{RunDir, StateDir};

/// Why nobody is waited for any more, where what a follow-up run is about is over.
pub const PULL_REQUEST_OVER: &str = "the pull request was merged or closed";
/// How long an approval holds that says nothing else.
pub const HOLDS: Duration = Duration::from_secs(24 * 3600);
/// Fewest digits of a hash that name a proposal.
const LEAST_DIGITS: usize = 8;
/// Runs whose calls are remembered at a time.
const MOST_KNOWN: usize = 1000;

/// Why nothing was approved.
#[derive(Debug, thiserror::Error)]
pub enum NotApproved {
    /// Nothing of this hash waits.
    #[error("run {run} has no proposal \"{asked}\" that waits for approval")]
    Unknown {
        /// The run that was looked at.
        run: String,
        /// What was asked for.
        asked: String,
        /// What does wait: hash and name.
        waiting: Vec<(String, String)>,
    },
    /// The digits fit more than one.
    #[error("{count} proposals begin with \"{asked}\"")]
    Several {
        /// How many.
        count: usize,
        /// What was asked for.
        asked: String,
        /// All that waits: hash and name.
        waiting: Vec<(String, String)>,
    },
    /// Too few digits to be sure that it is the one that was read.
    #[error("a proposal is named by at least {LEAST_DIGITS} digits of its hash")]
    TooShort {
        /// What does wait: hash and name.
        waiting: Vec<(String, String)>,
    },
    /// The issue has no run.
    #[error("no run of this issue is known here")]
    NoRun,
    /// The time is out of range.
    #[error("that is too long for an approval")]
    TooLong,
    /// It cannot be read.
    #[error("the run cannot be read: {0}")]
    Unreadable(String),
    /// It cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotApproved {
    /// What waits for an approval: hash and name.
    pub fn waiting(&self) -> &[(String, String)] {
        match self {
            Self::Unknown { waiting, .. } | Self::Several { waiting, .. } | Self::TooShort { waiting } => {
                waiting
            }
            _ => &[],
        }
    }
}

/// Who approves what.
#[derive(Debug, Clone)]
pub struct NewApproval {
    /// The hash of the proposal, or its first digits.
    pub proposal: String,
    /// Who approves.
    pub approver: Principal,
    /// For how long.
    pub holds: Duration,
}

/// What a person decided on a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing yet.
    Open,
    /// It may run; the grant was not used yet.
    Approved(Approval),
    /// It may not.
    Denied(Denial),
}

impl Decision {
    /// When it was made; `None` = it was not.
    pub fn at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Open => None,
            Self::Approved(grant) => Some(grant.granted_at),
            Self::Denied(denial) => Some(denial.decided_at),
        }
    }
}

/// What a run left to a person, each proposal with what was decided on it since. Nothing, where the run reached its objective
/// all the same, and nothing that is over. Blocks.
pub fn waiting<'a>(
    state: &StateDir,
    dir: &RunDir,
    facts: &'a RunFacts,
    now: DateTime<Utc>,
) -> Vec<(&'a SuspendedProposal, Decision)> {
    if facts.end.as_ref().is_some_and(Stop::success) {
        return Vec::new();
    }
    let Some(whose) = principal(facts) else { return Vec::new() };
    let decided = |hash: &str| decision(state, &dir.repo, (hash, whose), now);
    let book = Approvals::new(state, &dir.repo);
    let left = summary_text::pending(facts).into_iter();
    let left = left.filter(|one| !book.is_over(&one.proposal_hash, dir.run_id));
    left.map(|one| (one, decided(&one.proposal_hash))).collect()
}

/// For whom a run works.
fn principal(facts: &RunFacts) -> Option<Uuid> {
    facts.lease.as_ref().map(|lease| lease.principal.id)
}

/// What was decided on a proposal of a run that works for a principal: what is approved for somebody else's run lets nothing of this one
/// run. Blocks.
pub fn decision(
    state: &StateDir,
    repo: &RepoName,
    (hash, principal): (&str, Uuid),
    now: DateTime<Utc>,
) -> Decision {
    let book = Approvals::new(state, repo);
    match (book.find(hash, principal, now), book.denial(hash)) {
        (Some(grant), _) => Decision::Approved(grant),
        (None, Some(denial)) => Decision::Denied(denial),
        (None, None) => Decision::Open,
    }
}

/// The calls that runs left to people, by their hashes: the journal of a run that has ended is read once, since that of another node's comes
/// over the network.
#[derive(Debug, Default)]
pub struct LeftCalls(Mutex<BTreeMap<RunId, Arc<LeftOfRun>>>);

/// Of one run.
#[derive(Debug)]
struct LeftOfRun {
    /// For whom it worked.
    principal: Option<Uuid>,
    hashes: Vec<String>,
}

impl LeftCalls {
    /// Blocks.
    fn of(&self, dir: &RunDir) -> Option<Arc<LeftOfRun>> {
        if let Some(known) = self.known().get(&dir.run_id) {
            return Some(Arc::clone(known));
        }
        let facts = run_facts::read_anywhere(dir).ok()??;
        let hashes = match facts.end.as_ref().is_some_and(Stop::success) {
            true => Vec::new(),
            false => summary_text::pending(&facts).into_iter().map(|one| one.proposal_hash.clone()).collect(),
        };
        let left = Arc::new(LeftOfRun { principal: principal(&facts), hashes });
        if facts.end.is_some() {
            let mut known = self.known();
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(dir.run_id, Arc::clone(&left));
        }
        Some(left)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<LeftOfRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something that the newest run of an issue left to a person is approved for whom it works, and the approval is still there;
/// false = all of it was decided against, `None` = a decision is still awaited, or the run works for somebody else than `whose`.
pub async fn is_granted(
    key: &IssueKey,
    context: &RepositoryContext,
    (left, whose): (&Arc<LeftCalls>, Uuid),
) -> Option<bool> {
    let (lease, left) = (context.lease(key), Arc::clone(left));
    let (state, repo, now) = (context.state.clone(), context.repo.clone(), context.clock.now());
    let work = tokio::task::spawn_blocking(move || {
        let record = state.store().look(&lease).and_then(|content| content.record);
        let dir = state.run(&repo, record.as_ref().and_then(mapping_of)?.run_id);
        let book = Approvals::new(&state, &repo);
        let left = left.of(&dir)?;
        if left.principal != Some(whose) {
            return None;
        }
        if left.hashes.iter().any(|hash| book.find(hash, whose, now).is_some()) {
            return Some(true);
        }
        let denied = !left.hashes.is_empty() && left.hashes.iter().all(|hash| book.denial(hash).is_some());
        denied.then_some(false)
    });
    work.await.ok().flatten()
}

/// Grants what a run proposed and the policy left to a person. Blocks.
pub fn grant(
    state: &StateDir,
    dir: &RunDir,
    facts: &RunFacts,
    approval: &NewApproval,
    now: DateTime<Utc>,
) -> Result<(Approval, SuspendedProposal), NotApproved> {
    let (lease, proposal) = named(state, dir, facts, &approval.proposal)?;
    let holds = TimeDelta::from_std(approval.holds).map_err(|_| NotApproved::TooLong)?;
    let grant = Approval {
        schema_version: APPROVAL_SCHEMA.to_owned(),
        proposal_hash: proposal.proposal_hash.clone(),
        resource: proposal.resource.clone(),
        repo: dir.repo.clone(),
        issue: lease.issue.key.clone(),
        run_id: dir.run_id,
        principal: lease.principal.clone(),
        approver: approval.approver.clone(),
        granted_at: now,
        expires_at: now.checked_add_signed(holds).ok_or(NotApproved::TooLong)?,
        files: proposal.files.clone(),
    };
    Approvals::new(state, &dir.repo).put(&grant)?;
    Ok((grant, proposal.clone()))
}

/// Decides against what a run proposed. Blocks.
pub fn deny(
    state: &StateDir,
    dir: &RunDir,
    facts: &RunFacts,
    (proposal, decided_by): (&str, Principal),
    now: DateTime<Utc>,
) -> Result<(Denial, SuspendedProposal), NotApproved> {
    let (lease, proposal) = named(state, dir, facts, proposal)?;
    let denial = denial((dir, lease), proposal, decided_by, now);
    Approvals::new(state, &dir.repo).deny(&denial)?;
    Ok((denial, proposal.clone()))
}

fn denial(
    (dir, lease): (&RunDir, &LeaseTaken),
    proposal: &SuspendedProposal,
    decided_by: Principal,
    now: DateTime<Utc>,
) -> Denial {
    Denial {
        schema_version: DENIAL_SCHEMA.to_owned(),
        proposal_hash: proposal.proposal_hash.clone(),
        resource: proposal.resource.clone(),
        repo: dir.repo.clone(),
        issue: lease.issue.key.clone(),
        run_id: dir.run_id,
        decided_by,
        decided_at: now,
        over: None,
    }
}

/// The one proposal of a run whose hash begins so, and the run's lease. Blocks.
///
/// # Errors
/// It left nothing whose hash begins so, or several.
pub fn named<'a>(
    state: &StateDir,
    dir: &RunDir,
    facts: &'a RunFacts,
    asked: &str,
) -> Result<(&'a LeaseTaken, &'a SuspendedProposal), NotApproved> {
    let asked = asked.trim().to_ascii_lowercase();
    let book = Approvals::new(state, &dir.repo);
    let mut pending = summary_text::pending(facts);
    pending.retain(|one| !book.is_over(&one.proposal_hash, dir.run_id));
    let waiting = || {
        pending.iter().map(|one| (one.proposal_hash.clone(), one.resource.name.clone())).collect::<Vec<_>>()
    };
    let unknown =
        || NotApproved::Unknown { run: dir.run_id.to_string(), asked: asked.clone(), waiting: waiting() };
    let of_hash: Vec<_> = pending.iter().filter(|one| one.proposal_hash.starts_with(&asked)).collect();
    match (&facts.lease, of_hash.as_slice()) {
        (Some(_), [_, ..]) if asked.len() < LEAST_DIGITS => Err(NotApproved::TooShort { waiting: waiting() }),
        (Some(lease), [one]) => Ok((lease, **one)),
        (Some(_), [_, _, ..]) => {
            Err(NotApproved::Several { count: of_hash.len(), asked: asked.clone(), waiting: waiting() })
        }
        _ => Err(unknown()),
    }
}

/// The same for the newest run of an issue, as somebody asks who knows the issue only.
pub async fn grant_of_issue(
    key: &IssueKey,
    approval: NewApproval,
    context: &RepositoryContext,
) -> Result<(Approval, SuspendedProposal), NotApproved> {
    let now = context.clock.now();
    of_newest_run(key, context, move |state, dir, facts| grant(state, dir, facts, &approval, now)).await
}

/// Decides against all that the newest run of an issue left to a person and nobody has decided on. Gives what that was.
pub async fn deny_all_of_issue(
    key: &IssueKey,
    decided_by: Principal,
    context: &RepositoryContext,
) -> Result<Vec<SuspendedProposal>, NotApproved> {
    let now = context.clock.now();
    let denied = of_newest_run(key, context, move |state, dir, facts| {
        let waiting = waiting(state, dir, facts, now).into_iter();
        let open = waiting.filter(|(_, decision)| *decision == Decision::Open);
        open.map(|(one, _)| Ok(deny(state, dir, facts, (&one.proposal_hash, decided_by.clone()), now)?.1))
            .collect()
    });
    match denied.await {
        Err(NotApproved::NoRun) => Ok(Vec::new()),
        denied => denied,
    }
}

/// What the newest run of an issue left to a person is over with the pull request that it followed up: nobody decides on it any more. Gives
/// that run; `None` = it is no follow-up run, or left nothing.
pub async fn end_with_pull_request(
    key: &IssueKey,
    context: &RepositoryContext,
) -> Result<Option<RunId>, NotApproved> {
    let now = context.clock.now();
    let ended = of_newest_run(key, context, move |state, dir, facts| {
        let Some(lease) = facts.lease.as_ref().filter(|lease| lease.follow_up) else { return Ok(None) };
        let left: Vec<SuspendedProposal> =
            waiting(state, dir, facts, now).into_iter().map(|(one, _)| one.clone()).collect();
        let book = Approvals::new(state, &dir.repo);
        for one in &left {
            let over = Some(PULL_REQUEST_OVER.to_owned());
            book.deny(&Denial { over, ..denial((dir, lease), one, lease.principal.clone(), now) })?;
        }
        Ok((!left.is_empty()).then_some(dir.run_id))
    });
    match ended.await {
        Err(NotApproved::NoRun) => Ok(None),
        ended => ended,
    }
}

/// Does something about the newest run of an issue.
async fn of_newest_run<T: Send + 'static>(
    key: &IssueKey,
    context: &RepositoryContext,
    work: impl FnOnce(&StateDir, &RunDir, &RunFacts) -> Result<T, NotApproved> + Send + 'static,
) -> Result<T, NotApproved> {
    let (lease, state, repo) = (context.lease(key), context.state.clone(), context.repo.clone());
    let done = tokio::task::spawn_blocking(move || {
        let last =
            state.store().look(&lease).and_then(|content| content.record).as_ref().and_then(mapping_of);
        let dir = state.run(&repo, last.ok_or(NotApproved::NoRun)?.run_id);
        let facts = run_facts::read_anywhere(&dir);
        let facts =
            facts.map_err(|error| NotApproved::Unreadable(error.to_string()))?.ok_or(NotApproved::NoRun)?;
        work(&state, &dir, &facts)
    });
    done.await.unwrap_or_else(|panic| Err(NotApproved::Unreadable(panic.to_string())))
}
