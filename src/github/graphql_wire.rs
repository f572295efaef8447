//! GraphQL's envelope as GitHub sends it: data and errors side by side.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct AnswerWire {
    #[serde(default)]
    pub data: Value,
    #[serde(default)]
    pub errors: Vec<ErrorWire>,
}

/// One error of an answer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ErrorWire {
    /// GitHub's own member, beside what the specification of GraphQL knows.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub path: Option<Vec<Value>>,
}
