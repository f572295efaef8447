//! The published JSON Schemas: equal to the types, closed, and named in the changelog when they change.

use std::io::Write as _;
use std::path::Path;

use agentd::daemon::cluster::shared_formats::SHARED_FORMATS;
use agentd::definition::{FORMAT_SCHEMAS, format_schema};
use agentd::domain::canonical::sha256_hex;
use agentd::domain::issue::ObjectiveSource;
use agentd::domain::report::{FinalReport, ReportFormat};
use agentd::domain::run::{Principal, PrincipalSource};
use agentd::domain::run_output::{Objective, RunOutput};
use agentd::domain::schemas::{RECORD_SCHEMAS, record_schema};
use agentd::domain::stop::{Stop, StopDetail};
use serde_json::{Value, json};

fn committed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.v1.json"));
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A change of a type changes its schema. Then: a new version for a break, the file from target/schemas, and a line in
/// the changelog, in one commit.
#[test]
fn p_034_a_schema_changes_only_with_its_file_and_a_line_in_the_changelog() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let changelog = std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let mut wrong = Vec::new();
    let formats = FORMAT_SCHEMAS.iter().map(|name| (*name, format_schema(name).unwrap()));
    let records = RECORD_SCHEMAS.iter().map(|name| (*name, record_schema(name).unwrap()));
    let config = [("config", agentd::config::schema().clone())];
    let shared = SHARED_FORMATS.iter().map(|format| (format.name, format.schema()));
    for (name, schema) in records.chain(formats).chain(config).chain(shared) {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let line = format!("`{name}.v1` `{}`", &sha256_hex(text.as_bytes())[..12]);
        if committed(name) != text {
            let folder = root.join("target/schemas");
            std::fs::create_dir_all(&folder).unwrap();
            let mut file = std::fs::File::create(folder.join(format!("{name}.v1.json"))).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            wrong.push(format!(
                "schemas/{name}.v1.json is not what its types say; see target/schemas/{name}.v1.json"
            ));
        }
        if !changelog.contains(&line) {
            wrong.push(format!("CHANGELOG.md has no {line}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Objects with named members that take other members too.
fn open_objects(at: &str, schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| open_objects(at, item, found)),
        Value::Object(members) => {
            let closed = |keyword: &str| members.get(keyword) == Some(&json!(false));
            if closed("unevaluatedProperties") {
                return;
            }
            if members.get("properties").is_some_and(Value::is_object) && !closed("additionalProperties") {
                found.push(at.to_owned());
            }
            for (name, value) in members {
                open_objects(&format!("{at}/{name}"), value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn p_018_every_object_of_the_records_is_closed_but_metadata() {
    let mut open = Vec::new();
    for name in RECORD_SCHEMAS {
        open_objects(name, &record_schema(name).unwrap(), &mut open);
    }
    assert_eq!(open, ["run-record/$defs/RunRecordMetadata"]);
}

#[test]
fn x_006_every_end_of_a_run_validates_against_the_published_schema() {
    let schema: Value = serde_json::from_str(&committed("run-output")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let report = FinalReport {
        format: ReportFormat::Markdown,
        content: Some("text".into()),
        content_json: None,
        metadata: None,
        ts: 1,
    };
    let objective =
        Objective { title: "Fix it".into(), body: String::new(), source: ObjectiveSource::Cli, issue: None };
    let principal = Principal::new(PrincipalSource::Local, "1000@host", Some("me".into()));
    for detail in StopDetail::ALL {
        let stop = Stop::new(*detail, "words");
        let output =
            RunOutput::of(uuid::Uuid::nil(), objective.clone(), principal.clone(), &stop, report.clone(), 1);
        let mut json = serde_json::to_value(&output).unwrap();
        let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{detail}");
        json["colour"] = json!("red");
        assert!(!validator.is_valid(&json), "the object is closed");
    }
}

#[test]
fn a_policy_that_agentd_takes_fits_the_published_schema() {
    let schema: Value = serde_json::from_str(&committed("policy")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy.md")).unwrap();
    let shown = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap().to_owned();
    let started = agentd::definition::policy_file::PolicySource { name: "p".into(), text: shown.clone() };
    agentd::definition::policy_file::read_policies(&[started]).unwrap();
    let mut policy: Value = toml::from_str(&shown).unwrap();
    let errors: Vec<String> = validator.iter_errors(&policy).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    for (key, value) in
        [("color", json!("red")), ("effect", json!("maybe")), ("when", json!({ "paths": "x" }))]
    {
        let before = policy["rule"][0].clone();
        policy["rule"][0][key] = value;
        assert!(!validator.is_valid(&policy), "{key}");
        policy["rule"][0] = before;
    }
}

/// Editors that check against the published schemas take what agentd takes.
#[test]
fn d49_definitions_in_the_newest_form_fit_the_published_schemas() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["templates/init/resolver", "tests/data/agents/f0/.agent/f0"] {
        for (name, file) in [("agent", "agent.json"), ("steps-registry", "steps_registry.json")] {
            let schema: Value = serde_json::from_str(&committed(name)).unwrap();
            let validator = jsonschema::validator_for(&schema).unwrap();
            let text = std::fs::read_to_string(root.join(folder).join(file)).unwrap();
            let mut definition: Value = serde_json::from_str(&text).unwrap();
            let errors: Vec<String> =
                validator.iter_errors(&definition).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{folder}/{file}");
            definition["version"] = json!(7);
            assert!(!validator.is_valid(&definition), "{folder}/{file}");
        }
    }
}
