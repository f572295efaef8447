//! Where approvals wait for their proposal: one cell each, taken by emptying it, so that only one process can use it.
//! Decisions against a proposal stand beside them, and stay.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::port::{Cell, CellChange, CommitOutcome, Revision, Store, StoreError};
use super::run_dir::StateDir;
use crate::domain::approval::{APPROVAL_SCHEMA, Approval, DENIAL_SCHEMA, Denial};
use crate::domain::name::RepoName;

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

    /// Keeps an approval; one for the same proposal is replaced, and so is a decision against it. Blocks.
    pub fn put(&self, approval: &Approval) -> Result<(), StoreError> {
        self.store.put(&self.denial_cell(&approval.proposal_hash), None)?;
        self.store.put(&self.cell(&approval.proposal_hash), Some(&text(approval)))
    }

    /// Keeps a decision against a proposal; an approval of it is gone then. Blocks.
    pub fn deny(&self, denial: &Denial) -> Result<(), StoreError> {
        self.store.put(&self.cell(&denial.proposal_hash), None)?;
        let json = serde_json::to_string_pretty(denial).unwrap_or_default();
        self.store.put(&self.denial_cell(&denial.proposal_hash), Some(&json))
    }

    /// The approval of a proposal, still there. Blocks.
    pub fn find(&self, proposal_hash: &str) -> Option<Approval> {
        read(self.store.get(&self.cell(proposal_hash)).ok()?.1)
    }

    /// The decision against a proposal. Blocks.
    pub fn denial(&self, proposal_hash: &str) -> Option<Denial> {
        let (_, value) = self.store.get(&self.denial_cell(proposal_hash)).ok()?;
        let denial: Denial = serde_json::from_str(&value?).ok()?;
        (denial.schema_version == DENIAL_SCHEMA).then_some(denial)
    }

    /// Takes the approval for a proposal of `principal`, if one holds now: from here on it is used. One that has expired is
    /// thrown away; someone else's stays. Blocks.
    pub fn take(&self, proposal_hash: &str, principal: Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let (after, value) = self.store.get(&self.cell(proposal_hash)).ok()?;
        let approval = read(value)?;
        let holds = approval.holds(principal, now);
        if !holds && now < approval.expires_at {
            return None;
        }
        // Whoever empties it has it.
        let emptied = self.change(proposal_hash, after, None);
        (holds && matches!(emptied, Ok(CommitOutcome::Done))).then_some(approval)
    }

    /// Keeps an approval that was taken and not used, unless there is a newer one. Blocks.
    pub fn give_back(&self, approval: &Approval) -> Result<(), StoreError> {
        let (after, value) = self.store.get(&self.cell(&approval.proposal_hash))?;
        if read(value).is_some() {
            return Ok(());
        }
        // Overtaken: a newer one came this moment.
        self.change(&approval.proposal_hash, after, Some(text(approval))).map(|_| ())
    }

    fn change(
        &self,
        proposal_hash: &str,
        after: Revision,
        value: Option<String>,
    ) -> Result<CommitOutcome, StoreError> {
        self.store.commit(&[CellChange { cell: self.cell(proposal_hash), after, value }])
    }

    fn denial_cell(&self, proposal_hash: &str) -> Cell {
        Cell::Denial { repo: self.repo.clone(), proposal_hash: proposal_hash.to_owned() }
    }

    fn cell(&self, proposal_hash: &str) -> Cell {
        Cell::Approval { repo: self.repo.clone(), proposal_hash: proposal_hash.to_owned() }
    }
}

fn text(approval: &Approval) -> String {
    serde_json::to_string_pretty(approval).unwrap_or_default()
}

fn read(value: Option<String>) -> Option<Approval> {
    let approval: Approval = serde_json::from_str(&value?).ok()?;
    (approval.schema_version == APPROVAL_SCHEMA).then_some(approval)
}
