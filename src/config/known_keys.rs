//! Which keys exist. Unknown keys are found by the schema of the file and reported with the nearest known key.

use std::sync::LazyLock;

use serde_json::Value as Json;
use toml::{Table, Value};

use super::config_file::ConfigFile;
use crate::domain::schemas::without_codes;

/// JSON Schema of `agentd.toml`, without references.
static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let mut settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<ConfigFile>().to_value();
    without_codes(&mut schema);
    schema
});

/// The JSON Schema of `agentd.toml` (`agentd config schema config`), generated from the types that read it.
pub fn schema() -> &'static Json {
    &SCHEMA
}

/// Path of `name` in the table at `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A key that the schema does not have.
pub(super) struct Unknown {
    pub key: String,
    pub nearest: Option<String>,
    /// All keys of its table, where none is near.
    pub known: Vec<String>,
}

/// Every unknown key of a layer, in the file's order.
pub(super) fn unknown(table: &Table) -> Vec<Unknown> {
    let mut found = Vec::new();
    walk_table(table, &SCHEMA, "", &mut found);
    found
}

fn walk_table(table: &Table, schema: &Json, path: &str, found: &mut Vec<Unknown>) {
    for (name, value) in table {
        let key = join(path, name);
        match member(schema, name) {
            Some(schema) => walk(value, schema, &key, found),
            None => {
                let nearest = nearest(schema, name).map(|near| join(path, &near));
                let known = if nearest.is_none() { members(schema) } else { Vec::new() };
                found.push(Unknown { key, nearest, known });
            }
        }
    }
}

fn walk(value: &Value, schema: &Json, path: &str, found: &mut Vec<Unknown>) {
    // What is optional is `anyOf [itself, null]`.
    let schema = alternatives(schema).next().unwrap_or(schema);
    match value {
        Value::Table(table) if is_object(schema) => walk_table(table, schema, path, found),
        Value::Array(array) => {
            if let Some(items) = schema.get("items") {
                for (index, value) in array.iter().enumerate() {
                    walk(value, items, &format!("{path}[{index}]"), found);
                }
            }
        }
        // Another type than expected is told when the value is read.
        _ => {}
    }
}

fn alternatives(schema: &Json) -> impl Iterator<Item = &Json> {
    schema.get("anyOf").and_then(Json::as_array).into_iter().flatten()
}

fn is_object(schema: &Json) -> bool {
    schema.get("properties").is_some() || schema.get("additionalProperties").is_some_and(Json::is_object)
}

fn member<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

fn members(schema: &Json) -> Vec<String> {
    schema["properties"].as_object().map(|known| known.keys().cloned().collect()).unwrap_or_default()
}

fn nearest(schema: &Json, name: &str) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    properties
        .keys()
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.clone())
}
