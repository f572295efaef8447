//! JSON Schemas of our records, generated from their types and committed under `schemas/` (P-034, X-006).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::cluster::run_row::{RUN_ROW_SCHEMA, RunRow};
use super::evidence::EvidenceRecord;
use super::ledger_entry::AccountingEntry;
use super::policy::{PolicyInput, PolicyResult};
use super::run_output::RunOutput;
use super::run_record::RunRecord;

/// Our records by the name that `agentd config schema NAME` takes; the file is `schemas/<name>.v1.json`.
pub const RECORD_SCHEMAS: [&str; 7] =
    ["run-output", "run-record", "policy-input", "policy-result", "evidence", "accounting", "run-row"];

/// The JSON Schema (2020-12) of one of our records; `None` for a name that is not one.
pub fn record_schema(name: &str) -> Option<Value> {
    let version = |id: &str| Some(id.to_owned());
    Some(match name {
        "run-output" => schema_of::<RunOutput>(name, version(super::run_output::RUN_OUTPUT_SCHEMA)),
        "run-record" => schema_of::<RunRecord>(name, version(super::run_record::RUN_RECORD_SCHEMA)),
        "policy-input" => schema_of::<PolicyInput>(name, version(super::policy::POLICY_INPUT_SCHEMA)),
        "policy-result" => schema_of::<PolicyResult>(name, None),
        "evidence" => schema_of::<EvidenceRecord>(name, None),
        "accounting" => schema_of::<AccountingEntry>(name, None),
        "run-row" => schema_of::<RunRow>(name, version(RUN_ROW_SCHEMA)),
        _ => return None,
    })
}

/// The JSON Schema of a type, closed where it names its members and nothing says that it is open.
pub fn schema_of<T: JsonSchema>(name: &str, version: Option<String>) -> Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value();
    close(&mut schema);
    without_codes(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        members.insert("title".into(), json!(format!("agentd {name}, version 1")));
    }
    if let Some(version) = version {
        for key in ["schema_version", "schemaVersion", "schema"] {
            if let Some(property) = schema.pointer_mut(&format!("/properties/{key}")) {
                property["const"] = json!(version);
                break;
            }
        }
    }
    schema
}

/// Takes the codes of clauses and decisions off the descriptions: who reads a schema need not know our documents.
pub fn without_codes(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(without_codes),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                match value {
                    Value::String(text) if name == "description" => *text = without_codes_in(text),
                    other => without_codes(other),
                }
            }
        }
        _ => {}
    }
}

fn without_codes_in(text: &str) -> String {
    let (mut rest, mut kept) = (text, String::with_capacity(text.len()));
    while let Some((before, after)) = rest.split_once('(') {
        rest = match after.split_once(')') {
            Some((inside, beyond)) if inside.split([',', '…']).all(is_code) => {
                kept.push_str(before.trim_end());
                beyond
            }
            _ => {
                kept.push_str(before);
                kept.push('(');
                after
            }
        };
    }
    kept + rest
}

/// Whether a word is a code such as `X-006` or `D45`.
fn is_code(word: &str) -> bool {
    let word = word.trim();
    let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase()).trim_start_matches('-');
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.len() - digits.len() <= 2
        && !digits.is_empty()
        && digits.bytes().all(|c| c.is_ascii_digit())
}

/// Closes every object with named members, except those that say they are open.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Object(members) => {
            let has_members = members.get("properties").is_some_and(Value::is_object);
            let named = has_members && !members.contains_key("additionalProperties");
            // An object with variants has its members in two places. Only this keyword covers both.
            let variants = members.contains_key("oneOf");
            if named {
                let keyword = if variants { "unevaluatedProperties" } else { "additionalProperties" };
                members.insert(keyword.into(), json!(false));
            }
            for (name, value) in members.iter_mut() {
                match value {
                    Value::Array(options) if has_members && variants && name == "oneOf" => {
                        for option in options.iter_mut().filter_map(Value::as_object_mut) {
                            option.values_mut().for_each(close);
                        }
                    }
                    other => close(other),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_no_codes_and_keep_their_words() {
        for (text, kept) in [
            ("What it is\n(X-006).", "What it is."),
            ("Kept (A-061…A-065, D72) for all (of them).", "Kept for all (of them)."),
            ("UTC (ISO 8601), 2 (two", "UTC (ISO 8601), 2 (two"),
            ("A key (SHA256) and (D45", "A key (SHA256) and (D45"),
        ] {
            assert_eq!(without_codes_in(text), kept);
        }
    }
}
