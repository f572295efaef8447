//! Where grants wait for their proposal: one file each, taken by removing it, so that only one process can use it. Decisions
//! against a proposal stand beside them, and stay.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::run_dir::StateDir;
use crate::domain::approval::{APPROVAL_SCHEMA, Approval, DENIAL_SCHEMA, Denial};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::sys::files::{self, FileError};

/// The grants of one repository.
#[derive(Debug, Clone)]
pub struct Approvals {
    folder: PathBuf,
    denials: PathBuf,
}

impl Approvals {
    /// Makes nothing yet.
    pub fn new(state: &StateDir, repo: &RepoName) -> Self {
        let repo = state.repo(repo);
        Self { folder: repo.join("approvals"), denials: repo.join("denials") }
    }

    /// Keeps a grant; one for the same proposal is replaced, and so is a decision against it. Blocks.
    pub fn put(&self, grant: &Approval) -> Result<(), FileError> {
        files::remove_file(&file(&self.denials, &grant.proposal_hash))?;
        files::create_private_dir(&self.folder)?;
        let json = serde_json::to_vec_pretty(grant).unwrap_or_default();
        files::write_private(&file(&self.folder, &grant.proposal_hash), &json)
    }

    /// Keeps a decision against a proposal; a grant for it is gone then. Blocks.
    pub fn deny(&self, denial: &Denial) -> Result<(), FileError> {
        files::remove_file(&file(&self.folder, &denial.proposal_hash))?;
        files::create_private_dir(&self.denials)?;
        let json = serde_json::to_vec_pretty(denial).unwrap_or_default();
        files::write_private(&file(&self.denials, &denial.proposal_hash), &json)
    }

    /// The decision against a proposal. Blocks.
    pub fn denial(&self, proposal_hash: &str) -> Option<Denial> {
        let json = std::fs::read(file(&self.denials, proposal_hash)).ok()?;
        let denial: Denial = serde_json::from_slice(&json).ok()?;
        (denial.schema_version == DENIAL_SCHEMA).then_some(denial)
    }

    /// The grants for what a run proposed that are still there. Blocks.
    pub fn of_run(&self, run: RunId) -> Vec<Approval> {
        let found = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        found.filter_map(|entry| read(&entry.path())).filter(|grant| grant.run_id == run).collect()
    }

    /// The grant for a proposal, still there. Blocks.
    pub fn find(&self, proposal_hash: &str) -> Option<Approval> {
        read(&file(&self.folder, proposal_hash))
    }

    /// Takes the grant for a proposal of `principal`, if one holds now. From here on it is used. An expired one is
    /// deleted; another principal's stays. Blocks.
    pub fn take(&self, proposal_hash: &str, principal: Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let path = file(&self.folder, proposal_hash);
        let grant = read(&path)?;
        if !grant.holds(principal, now) {
            if now >= grant.expires_at {
                let _gone = files::remove_file(&path);
            }
            return None;
        }
        // Whoever removes it has it.
        match files::remove_file(&path) {
            Ok(true) => Some(grant),
            _ => None,
        }
    }

    /// Keeps a grant that was taken and not used, unless there is a newer one. Blocks.
    pub fn give_back(&self, grant: &Approval) -> Result<(), FileError> {
        match self.find(&grant.proposal_hash) {
            Some(_) => Ok(()),
            None => self.put(grant),
        }
    }
}

fn file(folder: &Path, proposal_hash: &str) -> PathBuf {
    // A hash is hexadecimal; anything else names no file of ours.
    let name: String = proposal_hash.chars().filter(char::is_ascii_alphanumeric).collect();
    folder.join(format!("{name}.json"))
}

fn read(path: &Path) -> Option<Approval> {
    let grant: Approval = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (grant.schema_version == APPROVAL_SCHEMA).then_some(grant)
}
