//! What a state directory and a store had in common when cells were moved last: `moved-cells.json` in the state directory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of [`CommonCells`].
pub const COMMON_SCHEMA: &str = "agentd.moved_cells.v1";

/// The cells that were the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonCells {
    /// [`COMMON_SCHEMA`].
    pub schema_version: String,
    /// SHA-256 of each, by its place in the state directory.
    pub cells: BTreeMap<String, String>,
}
