//! The last known good policy and definitions of a repository, so that a process survives an error in the files.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::definition::Loaded;
use crate::domain::refusal::Refusal;
use crate::engine::policy::Policy;

/// The last known good versions. A run keeps what it starts with; the next run starts with these.
#[derive(Default)]
pub struct LastKnownGood {
    policy: Mutex<Option<Policy>>,
    definitions: Mutex<BTreeMap<String, Loaded>>,
}

impl std::fmt::Debug for LastKnownGood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastKnownGood").finish_non_exhaustive()
    }
}

impl LastKnownGood {
    /// The policy that was just read, which is kept for later. If it could not be read, the one before.
    pub fn policy(&self, read: Result<Policy, Refusal>) -> Result<Policy, Refusal> {
        let mut kept = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, &*kept) {
            (Ok(policy), _) => {
                *kept = Some(policy.clone());
                Ok(policy)
            }
            (Err(refusal), Some(last)) => {
                tracing::warn!(%refusal, "the policy on disk cannot be used; the last good one is");
                Ok(last.clone())
            }
            (Err(refusal), None) => Err(refusal),
        }
    }

    /// The same for the definition of an agent.
    pub fn definition(&self, agent: &str, read: Result<Loaded, Refusal>) -> Result<Loaded, Refusal> {
        let mut kept = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, kept.get(agent)) {
            (Ok(loaded), _) => {
                kept.insert(agent.to_owned(), loaded.clone());
                Ok(loaded)
            }
            (Err(refusal), Some(last)) => {
                tracing::warn!(agent, %refusal, "the definition on disk cannot be used; the last good one is");
                Ok(last.clone())
            }
            (Err(refusal), None) => Err(refusal),
        }
    }
}
