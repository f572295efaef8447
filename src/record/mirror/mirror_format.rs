//! What was last read of a cluster, kept for the time when its store cannot be reached: `cluster/NAME/` in the state directory.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::cluster::run_row::RunRow;

/// Version of [`KnownSince`].
pub const KNOWN_SCHEMA: &str = "agentd.cluster_known.v1";

/// Something of the cluster as it was at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownSince<T> {
    /// [`KNOWN_SCHEMA`].
    pub schema_version: String,
    /// When it was read, by the store's clock.
    pub as_of: DateTime<Utc>,
    /// What was read.
    pub items: Vec<T>,
}

/// A run's row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownRow {
    /// When its node wrote it, by the store's clock.
    pub as_of: DateTime<Utc>,
    /// The row.
    pub row: RunRow,
}

/// What a node said of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownStatus {
    /// The node.
    pub node: String,
    /// Whether its session lived then.
    pub lives: bool,
    /// When it said so, by the store's clock.
    pub as_of: DateTime<Utc>,
    /// Its status document.
    pub status: Value,
}
