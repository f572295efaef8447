//! Whether a value is one that a parameter may have.

use regex::Regex;
use serde_json::Value;

use crate::domain::flow::{Parameter, ParameterKind};
use crate::domain::step_context::value_text;

/// Whether a value, as text, fits a parameter's type and limits; else why not.
pub(super) fn fits(parameter: &Parameter, text: &str) -> Result<(), String> {
    let limits = &parameter.limits;
    let json: Option<Value> = serde_json::from_str(text).ok();
    let (value, size) = match parameter.kind {
        ParameterKind::String => (Value::String(text.to_owned()), text.chars().count() as f64),
        ParameterKind::Number => match json {
            Some(Value::Number(number)) => (Value::Number(number.clone()), number.as_f64().unwrap_or(0.0)),
            _ => return Err("is no number".into()),
        },
        ParameterKind::Boolean => match json {
            Some(Value::Bool(value)) => (Value::Bool(value), 0.0),
            _ => return Err("is neither true nor false".into()),
        },
        ParameterKind::Array => match json {
            Some(Value::Array(items)) => {
                let size = items.len() as f64;
                (Value::Array(items), size)
            }
            _ => return Err("is no JSON array".into()),
        },
    };
    if parameter.kind != ParameterKind::Boolean {
        if let Some(min) = limits.min.filter(|min| size < *min) {
            return Err(format!("is below the minimum {min}"));
        }
        if let Some(max) = limits.max.filter(|max| size > *max) {
            return Err(format!("is above the maximum {max}"));
        }
    }
    if !limits.allowed.is_empty() && !limits.allowed.contains(&value) {
        let allowed = limits.allowed.iter().map(value_text).collect::<Vec<_>>().join(", ");
        return Err(format!("is none of {allowed}"));
    }
    if let Some(pattern) = limits.pattern.as_ref().and_then(|pattern| Regex::new(pattern).ok())
        && !pattern.is_match(text)
    {
        return Err(format!("does not match {pattern}"));
    }
    Ok(())
}
