//! Where grants wait for their proposal. Each one is a file. Removing the file takes the grant, so that only one
//! process can use it.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::run_dir::StateDir;
use crate::domain::approval::{APPROVAL_SCHEMA, Approval};
use crate::domain::name::RepoName;
use crate::sys::files::{self, FileError};

/// The grants of one repository.
#[derive(Debug, Clone)]
pub struct Approvals {
    folder: PathBuf,
}

impl Approvals {
    /// Makes nothing yet.
    pub fn new(state: &StateDir, repo: &RepoName) -> Self {
        Self { folder: state.repo(repo).join("approvals") }
    }

    /// Keeps a grant; one for the same proposal is replaced. Blocks.
    pub fn put(&self, grant: &Approval) -> Result<(), FileError> {
        files::create_private_dir(&self.folder)?;
        let json = serde_json::to_vec_pretty(grant).unwrap_or_default();
        files::write_private(&self.file(&grant.proposal_hash), &json)
    }

    /// The grant for a proposal, still there. Blocks.
    pub fn find(&self, proposal_hash: &str) -> Option<Approval> {
        read(&self.file(proposal_hash))
    }

    /// Takes the grant for a proposal of `principal`, if one holds now. From here on it is used. An expired one is
    /// deleted; another principal's stays. Blocks.
    pub fn take(&self, proposal_hash: &str, principal: Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let path = self.file(proposal_hash);
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

    fn file(&self, proposal_hash: &str) -> PathBuf {
        // A hash is hexadecimal; anything else names no file of ours.
        let name: String = proposal_hash.chars().filter(char::is_ascii_alphanumeric).collect();
        self.folder.join(format!("{name}.json"))
    }
}

fn read(path: &Path) -> Option<Approval> {
    let grant: Approval = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (grant.schema_version == APPROVAL_SCHEMA).then_some(grant)
}
