//! What the last look at a repository's leases found: `ended-runs` in the folder of the leases.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::run::RunId;

/// Version of [`EndedRuns`]; of another one nothing is known.
pub(super) const ENDED_RUNS_SCHEMA: &str = "agentd.ended_runs.v1";

/// The leases whose last run came to an end of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedRuns {
    /// [`ENDED_RUNS_SCHEMA`].
    pub schema_version: String,
    /// By the lease's file: the run, and the mark of the two files that said so.
    pub ended: BTreeMap<String, (RunId, String)>,
}
