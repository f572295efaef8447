//! A person's approval of a run's proposal. It is found by its hash, granted once, and expires. Nothing is executed
//! (P-037).

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::approval::{APPROVAL_SCHEMA, Approval};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::worktree_of;
use crate::domain::run::Principal;
use crate::domain::trace::SuspendedProposal;
use crate::record::run_facts;
use crate::record::summary_text;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::store::approvals::Approvals;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::files::FileError;
use crate::sys::lock;

/// How long an approval holds that says nothing else.
pub const HOLDS: Duration = Duration::from_secs(24 * 3600);
/// Fewest digits of a hash that name a proposal.
const LEAST_DIGITS: usize = 8;

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
    File(#[from] FileError),
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

/// Grants what a run proposed and the policy left to a person. Blocks.
pub fn grant(
    state: &StateDir,
    dir: &RunDir,
    facts: &RunFacts,
    approval: &NewApproval,
    now: DateTime<Utc>,
) -> Result<(Approval, SuspendedProposal), NotApproved> {
    let asked = approval.proposal.trim().to_ascii_lowercase();
    let pending = summary_text::pending(facts);
    let waiting = || {
        pending.iter().map(|one| (one.proposal_hash.clone(), one.resource.name.clone())).collect::<Vec<_>>()
    };
    let unknown =
        || NotApproved::Unknown { run: dir.run_id.to_string(), asked: asked.clone(), waiting: waiting() };
    let of_hash: Vec<_> = pending.iter().filter(|one| one.proposal_hash.starts_with(&asked)).collect();
    let (lease, proposal) = match (&facts.lease, of_hash.as_slice()) {
        (Some(_), [_, ..]) if asked.len() < LEAST_DIGITS => {
            return Err(NotApproved::TooShort { waiting: waiting() });
        }
        (Some(lease), [one]) => (lease, **one),
        (Some(_), [_, _, ..]) => {
            return Err(NotApproved::Several { count: of_hash.len(), asked, waiting: waiting() });
        }
        _ => return Err(unknown()),
    };
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
    };
    Approvals::new(state, &dir.repo).put(&grant)?;
    Ok((grant, proposal.clone()))
}

/// The same for the newest run of an issue, for somebody who knows only the issue.
pub async fn grant_of_issue(
    key: &IssueKey,
    approval: NewApproval,
    context: &RepositoryContext,
) -> Result<(Approval, SuspendedProposal), NotApproved> {
    let lease_file = context.checkout.lease_file(&worktree_of(key)).as_path().to_owned();
    let (state, repo, now) = (context.state.clone(), context.repo.clone(), context.clock.now());
    let work = tokio::task::spawn_blocking(move || {
        let last = lock::peek(&lease_file).and_then(|content| content.record).as_ref().and_then(mapping_of);
        let dir = state.run(&repo, last.ok_or(NotApproved::NoRun)?.run_id);
        let facts = run_facts::read(&dir).map_err(|error| NotApproved::Unreadable(error.to_string()))?;
        grant(&state, &dir, &facts, &approval, now)
    });
    work.await.unwrap_or_else(|panic| Err(NotApproved::Unreadable(panic.to_string())))
}
