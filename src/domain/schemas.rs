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
