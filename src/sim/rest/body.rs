//! Fields of a request's body.

use serde_json::{Map, Value};

use crate::sim::call::Reply;

/// The text of a body field; a wrong type is a 422.
pub fn text<'a>(body: &'a Map<String, Value>, resource: &str, name: &str) -> Result<Option<&'a str>, Reply> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Reply::invalid(resource, name, "invalid", Some("is not a string"))),
    }
}

/// The strings (or `name`s of objects) of an array field.
pub fn names(body: &Map<String, Value>, field: &str) -> Vec<String> {
    let entries = body.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| entry.as_str().or_else(|| entry.get("name").and_then(Value::as_str)))
        .map(str::to_owned)
        .collect()
}
