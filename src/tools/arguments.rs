//! Arguments of a call, read by name after the schema was checked (S-051).

use serde_json::Value;

use crate::engine::tool::ToolError;

/// The arguments of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a>(pub &'a Value);

impl<'a> Arguments<'a> {
    /// A text that must be there.
    pub(super) fn text(self, name: &str) -> Result<&'a str, ToolError> {
        self.optional_text(name)?.ok_or_else(|| invalid(format!("\"{name}\" is missing")))
    }

    /// A text that may be absent.
    pub(super) fn optional_text(self, name: &str) -> Result<Option<&'a str>, ToolError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(format!("\"{name}\" must be a string"))),
        }
    }

    /// A whole number from 1 that may be absent.
    pub(super) fn count(self, name: &str) -> Result<Option<u64>, ToolError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count @ 1..) => Ok(Some(count)),
                _ => Err(invalid(format!("\"{name}\" must be a whole number from 1"))),
            },
        }
    }

    /// A switch, off when absent.
    pub(super) fn flag(self, name: &str) -> Result<bool, ToolError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(_) => Err(invalid(format!("\"{name}\" must be true or false"))),
        }
    }

    /// A list of texts that must be there.
    pub(super) fn texts(self, name: &str) -> Result<Vec<&'a str>, ToolError> {
        let wrong = || invalid(format!("\"{name}\" must be a list of strings"));
        let list = self.0.get(name).and_then(Value::as_array).ok_or_else(wrong)?;
        list.iter().map(|item| item.as_str().ok_or_else(wrong)).collect()
    }
}

/// Arguments that cannot be used, for the model.
pub(super) fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::ForModel { error_type: "Validation".into(), message: message.into() }
}
