//! Files against the JSON Schema of their format: violations with places, and keys that the format does not know.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use schemars::JsonSchema;
use serde_json::Value;

use super::diagnostic::Severity;
use super::position::child;
use super::source::Findings;
use crate::domain::schemas::without_codes;
use crate::domain::violation;

/// The JSON Schema of a file format, generated from its type.
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    without_codes(&mut schema);
    schema
}

/// A file format: its JSON Schema, generated from its type, and the check compiled from it.
#[derive(Debug)]
pub struct Format {
    schema: Value,
    compiled: Result<jsonschema::Validator, String>,
}

impl Format {
    /// The format of a type. Costs milliseconds: make it once.
    pub fn of<T: JsonSchema>() -> Self {
        let schema = schema_of::<T>();
        let compiled = jsonschema::validator_for(&schema).map_err(|error| error.to_string());
        Self { schema, compiled }
    }
}

/// Codes of one format.
#[derive(Debug, Clone, Copy)]
pub struct Codes {
    /// A required key is missing at the top or under `runner`.
    pub missing: &'static str,
    /// Any other violation.
    pub invalid: &'static str,
    /// An unknown key.
    pub unknown: &'static str,
}

/// Adds every violation as a schema error and every unknown key as a warning. True = no violation.
pub fn check(format: &Format, value: &Value, codes: Codes, findings: &mut Findings<'_>) -> bool {
    check_at(format, value, "", codes, findings)
}

/// As [`check`], for a value that stands at the pointer `at` of the file.
pub fn check_at(format: &Format, value: &Value, at: &str, codes: Codes, findings: &mut Findings<'_>) -> bool {
    let mut clean = true;
    match &format.compiled {
        Ok(validator) => {
            for error in validator.iter_errors(value) {
                clean = false;
                for error in meant(&error) {
                    tell(error, at, codes, findings);
                }
            }
        }
        Err(error) => {
            clean = false;
            findings.schema_error(
                codes.invalid,
                at,
                format!("the format's own schema is broken: {error}"),
                "",
            );
        }
    }
    unknown_keys(&format.schema, &format.schema, value, at, codes, findings);
    clean
}

/// The useful errors of a value that fits none of several shapes: those of the nearest shape. A shape of another type
/// (`null`, for a key that may be absent) does not count.
fn meant<'e>(error: &'e ValidationError<'e>) -> Vec<&'e ValidationError<'e>> {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        error.kind()
    else {
        return vec![error];
    };
    let another_type = |inner: &ValidationError<'_>| {
        inner.kind().keyword() == "type" && inner.instance_path() == error.instance_path()
    };
    let nearest = context
        .iter()
        .filter(|errors| !errors.is_empty() && !errors.iter().any(another_type))
        .min_by_key(|errors| errors.len());
    match nearest {
        Some(errors) => errors.iter().flat_map(meant).collect(),
        None => vec![error],
    }
}

fn tell(error: &ValidationError<'_>, at: &str, codes: Codes, findings: &mut Findings<'_>) {
    let required = error.kind().keyword() == "required";
    let pointer = format!("{at}{}", error.instance_path());
    let shallow = pointer.matches('/').count() <= 1;
    let code = if required && shallow { codes.missing } else { codes.invalid };
    let fix = match error.kind().keyword() {
        "required" => "add the key",
        "enum" => "write one of the values it may have",
        "type" => "write a value of that type",
        _ => "correct the value",
    };
    findings.schema_error(code, &pointer, violation::told(error, "the value"), fix);
}

fn unknown_keys(
    root: &Value,
    schema: &Value,
    value: &Value,
    pointer: &str,
    codes: Codes,
    findings: &mut Findings<'_>,
) {
    let schema = plain(root, schema, value);
    match value {
        Value::Object(object) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let further = schema.get("additionalProperties");
            for (key, value) in object {
                let at = child(pointer, key);
                if let Some(known) = properties.and_then(|properties| properties.get(key)) {
                    unknown_keys(root, known, value, &at, codes, findings);
                } else if let Some(further) = further {
                    unknown_keys(root, further, value, &at, codes, findings);
                } else if let Some(properties) = properties {
                    let nearest = nearest(key, properties.keys().map(String::as_str));
                    let fix = match nearest {
                        Some(near) => format!("did you mean \"{near}\"? Otherwise remove it"),
                        None => "remove it".to_owned(),
                    };
                    findings.add(Severity::Warning, codes.unknown, &at, unknown(key, value), fix);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                unknown_keys(root, schema, item, &child(pointer, &index.to_string()), codes, findings);
            }
        }
        _ => {}
    }
}

/// What is said of a key that is not known. What stands in it is named, because it is ignored with it.
pub fn unknown(key: &str, value: &Value) -> String {
    let inner: Vec<&str> = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    match inner.as_slice() {
        [] => format!("key \"{key}\" is not known; it is ignored"),
        inner => {
            format!("key \"{key}\" is not known; it is ignored, with what stands in it: {}", inner.join(", "))
        }
    }
}

/// The schema behind a reference, or of several shapes the one that is meant for such a value.
fn plain<'s>(root: &'s Value, schema: &'s Value, value: &Value) -> &'s Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#')) {
        return root.pointer(name).map_or(schema, |schema| plain(root, schema, value));
    }
    let parts = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    let fits = |schema: &&Value| match value {
        Value::Object(_) => {
            schema.get("properties").is_some() || schema.get("additionalProperties").is_some()
        }
        Value::Array(_) => schema.get("items").is_some(),
        _ => true,
    };
    parts.and_then(|parts| parts.iter().map(|part| plain(root, part, value)).find(fits)).unwrap_or(schema)
}

/// The known word nearest to a mistyped one.
pub fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    known
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score > 0.84)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
