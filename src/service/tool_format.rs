//! Tools and their results as hosts see them: function definitions, and one object for every end of a call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error_text::ErrorClass;

/// A tool as a function definition (S-018).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionTool {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function.
    pub function: FunctionDefinition,
}

/// Name, description and parameters of a function (S-019).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// `<server>__<tool>`, at most 64 characters.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of an object, closed (S-020).
    pub parameters: Value,
}

/// How a call ended (S-023, S-024); it is never an error of the host's language (S-025).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ToolCallResult {
    /// It ran.
    Success {
        /// What it gave: the object or list where its text is JSON, else the text.
        result: Value,
    },
    /// It did not run, or failed.
    Error {
        /// What went wrong; for a denial the policy's reason.
        error: String,
        /// `ToolNotFound`, `ResourceNotFound`, `UnauthorizedAccess`, `Validation`, `PolicyDenied`, `Timeout`,
        /// `ToolExecutionError`, or the class that the tool itself gave.
        error_type: String,
        /// For people.
        message: String,
    },
}

impl ToolCallResult {
    /// Whether the tool ran and succeeded.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success { .. })
    }

    /// Fixed words for the user about an error (S-032); `None` for a success. The fields are for the host.
    pub fn user_text(&self) -> Option<&'static str> {
        match self {
            Self::Success { .. } => None,
            Self::Error { error_type, .. } => Some(ErrorClass::of_tool(error_type).text()),
        }
    }

    /// An error of a class; where nothing else is said to people, it is told as it is.
    pub fn error(error_type: &str, error: impl Into<String>, message: impl Into<String>) -> Self {
        let (error, message) = (error.into(), message.into());
        let message = if message.trim().is_empty() { error.clone() } else { message };
        Self::Error { error, error_type: error_type.to_owned(), message }
    }
}
