//! Where approvals wait for their proposal: one cell for each proposal, changed on the revision that was read, so that only one process can
//! use one. Decisions against a proposal stand beside them, and stay.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::port::{Cell, CellChange, CommitOutcome, Store, StoreError};
use super::run_dir::StateDir;
use crate::domain::approval::{Approval, ApprovalsOfProposal, DENIAL_SCHEMA, Denial};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;

/// The approvals of one repository.
#[derive(Debug, Clone)]
pub struct Approvals {
    store: Arc<dyn Store>,
    repo: RepoName,
}

impl Approvals {
    /// Makes nothing yet.
    pub fn new(state: &StateDir, repo: &RepoName) -> Self {
        Self { store: Arc::clone(state.store()), repo: repo.clone() }
    }

    /// Keeps an approval; one of the same proposal for the same principal is replaced, and so is a decision against it. Blocks.
    pub fn put(&self, approval: &Approval) -> Result<(), StoreError> {
        self.store.put(&self.denial_cell(&approval.proposal_hash), None)?;
        self.change(&approval.proposal_hash, |all| all.give(approval.clone()))
    }

    /// Keeps a decision against a proposal; approvals of it are gone then. Blocks.
    pub fn deny(&self, denial: &Denial) -> Result<(), StoreError> {
        self.store.put(&self.cell(&denial.proposal_hash), None)?;
        let json = serde_json::to_string_pretty(denial).unwrap_or_default();
        self.store.put(&self.denial_cell(&denial.proposal_hash), Some(&json))
    }

    /// The approval that holds now for a proposal of `principal`, still there. Blocks.
    pub fn find(&self, proposal_hash: &str, principal: Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let (_, value) = self.store.get(&self.cell(proposal_hash)).ok()?;
        ApprovalsOfProposal::read(&value?).holding(principal, now).cloned()
    }

    /// A person's decision against a proposal. Blocks.
    pub fn denial(&self, proposal_hash: &str) -> Option<Denial> {
        self.kept_denial(proposal_hash).filter(|denial| denial.over.is_none())
    }

    /// Whether nobody decides any more on a proposal of a run. Blocks.
    pub fn is_over(&self, proposal_hash: &str, run: RunId) -> bool {
        self.kept_denial(proposal_hash).is_some_and(|denial| denial.over.is_some() && denial.run_id == run)
    }

    fn kept_denial(&self, proposal_hash: &str) -> Option<Denial> {
        let (_, value) = self.store.get(&self.denial_cell(proposal_hash)).ok()?;
        let denial: Denial = serde_json::from_str(&value?).ok()?;
        (denial.schema_version == DENIAL_SCHEMA).then_some(denial)
    }

    /// Takes the approval for a proposal of `principal`, if one holds now: from here on it is used. One that has expired is
    /// thrown away; someone else's stays. Blocks.
    pub fn take(&self, proposal_hash: &str, principal: Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let mut taken = None;
        self.change(proposal_hash, |all| taken = all.take(principal, now)).ok()?;
        taken
    }

    /// Keeps an approval that was taken and not used, unless there is a newer one. Blocks.
    pub fn give_back(&self, approval: &Approval) -> Result<(), StoreError> {
        self.change(&approval.proposal_hash, |all| all.give_back(approval.clone()))
    }

    /// Changes the approvals of a proposal as they are now: whoever was overtaken by another change begins anew with what that left.
    fn change(
        &self,
        proposal_hash: &str,
        mut change: impl FnMut(&mut ApprovalsOfProposal),
    ) -> Result<(), StoreError> {
        let cell = self.cell(proposal_hash);
        loop {
            let (after, value) = self.store.get(&cell)?;
            let mut all = value.as_deref().map(ApprovalsOfProposal::read).unwrap_or_default();
            let before = all.clone();
            change(&mut all);
            if all == before {
                return Ok(());
            }
            let changes = [CellChange { cell: cell.clone(), after, value: all.text() }];
            match self.store.commit(&changes)? {
                CommitOutcome::Done => return Ok(()),
                CommitOutcome::Overtaken => {}
            }
        }
    }

    fn denial_cell(&self, proposal_hash: &str) -> Cell {
        Cell::Denial { repo: self.repo.clone(), proposal_hash: proposal_hash.to_owned() }
    }

    fn cell(&self, proposal_hash: &str) -> Cell {
        Cell::Approval { repo: self.repo.clone(), proposal_hash: proposal_hash.to_owned() }
    }
}
