//! `runner.verdict` as it is written.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// `runner.verdict`, and each condition of a composite.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct VerdictFile {
    /// Name of the completion type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its settings.
    #[serde(default)]
    pub config: Map<String, Value>,
}
