//! A commit of several cells that is decided, and may not be in all their files yet: `cells.redo` in the state directory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Version of [`Redo`].
pub(super) const REDO_SCHEMA: &str = "agentd.redo.v1";

/// What is still to be written, if the process that began to died.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Redo {
    /// [`REDO_SCHEMA`].
    pub schema_version: String,
    /// File and content, in order; `null` = the file goes.
    pub files: Vec<(PathBuf, Option<String>)>,
}
