//! What the simulator answers, held against GitHub's own descriptions of its REST and GraphQL APIs.
//!
//! These are large and not ours, so they are not in this repository: `.ci/campaigns/shapes` fetches them and names their folder
//! in `AGENTD_GITHUB_SHAPES`. Then each answer that a test of this folder gets is checked as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use regex::Regex;
use serde_json::{Value, json};

use super::example;

/// The folder with `api.github.com.json` and `schema.graphql`.
const VARIABLE: &str = "AGENTD_GITHUB_SHAPES";
const SKIPPED: &str = "skipped: AGENTD_GITHUB_SHAPES names no folder with GitHub's descriptions; .ci/campaigns/shapes fetches them";
/// What GitHub answers and does not describe yet.
const NOT_DESCRIBED_YET: [&str; 1] = ["Issue.blockedBy: no such field"];
/// What GitHub answers otherwise than it describes: places of a comment whose lines are gone, or that is about a file, are null.
const NULL_ALL_THE_SAME: [&str; 4] = ["position", "original_position", "line", "original_line"];

#[expect(clippy::disallowed_methods, reason = "a variable of the test")]
fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

fn rest() -> Option<&'static Value> {
    static REST: OnceLock<Option<Value>> = OnceLock::new();
    let read = || {
        let path = folder()?.join("api.github.com.json");
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Some(serde_json::from_slice(&text).unwrap())
    };
    REST.get_or_init(read).as_ref()
}

/// Panics where an answer of the simulator is not as GitHub describes it.
pub fn check(method: &str, path: &str, status: u16, body: &Value) {
    let Some(described) = rest() else { return };
    // Each operation's validator is made once.
    static MADE: Mutex<BTreeMap<String, Option<jsonschema::Validator>>> = Mutex::new(BTreeMap::new());
    let Some((template, operation)) = operation(described, method, path) else { return };
    let key = format!("{method} {template} {status}");
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let validator = made.entry(key.clone()).or_insert_with(|| validator(described, operation, status));
    // A page of HTML is what a proxy says.
    let Some(validator) = validator.as_ref().filter(|_| !body.is_string()) else { return };
    let wrong: Vec<String> = validator
        .iter_errors(body)
        .filter(|error| !is_null_all_the_same(body, &error.instance_path().to_string()))
        .map(|error| {
            format!("{}: {}", error.instance_path(), error.to_string().chars().take(300).collect::<String>())
        })
        .collect();
    let wrong = wrong.join("\n");
    drop(made);
    assert!(wrong.is_empty(), "{key} ({path}) is not as GitHub describes it:\n{wrong}");
}

fn is_null_all_the_same(body: &Value, place: &str) -> bool {
    let name = place.rsplit('/').next().unwrap_or_default();
    NULL_ALL_THE_SAME.contains(&name) && body.pointer(place) == Some(&Value::Null)
}

/// The path that fits, and its operation. A name in it counts for more than a variable.
fn operation<'a>(described: &'a Value, method: &str, path: &str) -> Option<(&'a str, &'a Value)> {
    let path = path.split('?').next().unwrap_or_default();
    let asked: Vec<&str> = path.split('/').collect();
    let paths = described["paths"].as_object()?.iter();
    let fitting = paths.filter_map(|(template, item)| {
        let parts: Vec<&str> = template.split('/').collect();
        let fits = |(part, asked): (&&str, &&str)| part.starts_with('{') || part == asked;
        let variables = parts.iter().filter(|part| part.starts_with('{')).count();
        (parts.len() == asked.len() && parts.iter().zip(&asked).all(fits))
            .then_some((variables, template, item))
    });
    let (_, template, item) = fitting.min_by_key(|(variables, ..)| *variables)?;
    Some((template, item.get(method.to_lowercase())?))
}

fn validator(described: &Value, operation: &Value, status: u16) -> Option<jsonschema::Validator> {
    let response = resolved(described, operation["responses"].get(status.to_string())?);
    let schema = response["content"]["application/json"].get("schema")?;
    let mut components = BTreeMap::new();
    collect(described, schema, &mut components);
    let whole = json!({
        "allOf": [with_null(schema.clone())],
        "components": { "schemas": components },
    });
    Some(jsonschema::draft4::options().build(&whole).unwrap())
}

fn resolved<'a>(described: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(place) => described.pointer(&place[1..]).unwrap(),
        None => value,
    }
}

/// Every schema that one leads to.
fn collect(described: &Value, schema: &Value, found: &mut BTreeMap<String, Value>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(|place| place.as_str()?.rsplit('/').next())
                && !found.contains_key(name)
            {
                let next = &described["components"]["schemas"][name];
                found.insert(name.to_owned(), with_null(next.clone()));
                collect(described, next, found);
            }
            map.values().for_each(|value| collect(described, value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(described, value, found)),
        _ => {}
    }
}

/// OpenAPI's `nullable` in the words of JSON Schema.
fn with_null(schema: Value) -> Value {
    match schema {
        Value::Object(map) => {
            let nullable = map.get("nullable") == Some(&Value::Bool(true));
            let inner: serde_json::Map<String, Value> = map
                .into_iter()
                .filter(|(key, _)| key != "nullable")
                .map(|(key, value)| (key, with_null(value)))
                .collect();
            match nullable {
                true => json!({ "anyOf": [{ "type": "null" }, inner] }),
                false => Value::Object(inner),
            }
        }
        Value::Array(list) => Value::Array(list.into_iter().map(with_null).collect()),
        other => other,
    }
}

/// A type of the simulator's schema, without its own order.
#[derive(Debug, Default)]
struct Shape {
    kind: String,
    /// Fields with type and arguments, each with its type.
    fields: BTreeMap<String, (String, BTreeMap<String, String>)>,
    /// Values of an enum, members of a union, interfaces of a type.
    names: BTreeSet<String>,
}

impl Shape {
    /// What stands here otherwise than in GitHub's. GitHub's may have more, but for arguments that it wants.
    fn differs(&self, theirs: &Self) -> Vec<String> {
        let mut wrong: Vec<String> =
            self.names.difference(&theirs.names).map(|name| format!(": no {name}")).collect();
        for (field, (kind, arguments)) in &self.fields {
            let Some((described, wanted)) = theirs.fields.get(field) else {
                wrong.push(format!(".{field}: no such field"));
                continue;
            };
            if described != kind {
                wrong.push(format!(".{field}: {kind} here, {described} there"));
            }
            for (argument, kind) in arguments {
                if wanted.get(argument) != Some(kind) {
                    wrong
                        .push(format!(".{field}({argument}): {kind} here, {:?} there", wanted.get(argument)));
                }
            }
            let missing =
                wanted.iter().filter(|(name, kind)| kind.ends_with('!') && !arguments.contains_key(*name));
            wrong.extend(missing.map(|(name, _)| format!(".{field}({name}): wanted there")));
        }
        wrong
    }
}

/// Reads a schema in its own language, without what is said for people.
fn shapes(text: &str) -> BTreeMap<String, Shape> {
    let said = Regex::new(r#"(?s)""".*?"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*|directive @[^\n]*"#).unwrap();
    // A text is a value, but for what is said of a thing.
    let without = |found: &regex::Captures<'_>| match found[0].strip_prefix('"') {
        Some(rest) if !rest.starts_with("\"\"") => "0",
        _ => "",
    };
    let text = said.replace_all(text, without);
    let remarked = Regex::new(r"@\w+(\([^)]*\))?").unwrap();
    let text = remarked.replace_all(&text, "");
    let token = Regex::new(r"[A-Za-z_][A-Za-z_0-9]*|-?[0-9]+|[!\[\](){}:=|&]").unwrap();
    let tokens: Vec<&str> = token.find_iter(&text).map(|found| found.as_str()).collect();
    let (mut found, mut at) = (BTreeMap::new(), 0);
    while at < tokens.len() {
        let (kind, name) = (tokens[at].to_owned(), tokens[at + 1].to_owned());
        at += 2;
        let mut shape = Shape { kind, ..Shape::default() };
        match shape.kind.as_str() {
            "scalar" => {}
            "union" => {
                while at < tokens.len() && ["=", "|"].contains(&tokens[at]) {
                    shape.names.insert(tokens[at + 1].to_owned());
                    at += 2;
                }
            }
            _ => {
                while tokens[at] != "{" {
                    if !["implements", "&"].contains(&tokens[at]) {
                        shape.names.insert(tokens[at].to_owned());
                    }
                    at += 1;
                }
                at += 1;
                while tokens[at] != "}" {
                    let member = tokens[at].to_owned();
                    at += 1;
                    if shape.kind == "enum" {
                        shape.names.insert(member);
                        continue;
                    }
                    let mut arguments = BTreeMap::new();
                    if tokens[at] == "(" {
                        at += 1;
                        while tokens[at] != ")" {
                            let argument = tokens[at].to_owned();
                            at += 1;
                            arguments.insert(argument, kind_at(&tokens, &mut at));
                        }
                        at += 1;
                    }
                    let kind = kind_at(&tokens, &mut at);
                    shape.fields.insert(member, (kind, arguments));
                }
                at += 1;
            }
        }
        found.insert(name, shape);
    }
    found
}

/// `: [Type!]! = default`, without the default.
fn kind_at(tokens: &[&str], at: &mut usize) -> String {
    assert_eq!(tokens[*at], ":", "{:?}", &tokens[at.saturating_sub(5)..*at]);
    *at += 1;
    let mut kind = String::new();
    let mut open = 0;
    loop {
        match tokens[*at] {
            "[" => open += 1,
            "]" => open -= 1,
            _ => {}
        }
        kind.push_str(tokens[*at]);
        *at += 1;
        if open == 0 && tokens[*at] != "!" {
            break;
        }
        if open == 0 {
            kind.push('!');
            *at += 1;
            break;
        }
    }
    if tokens[*at] == "=" {
        *at += 1;
        skip_value(tokens, at);
    }
    kind
}

fn skip_value(tokens: &[&str], at: &mut usize) {
    let mut open = 0;
    loop {
        match tokens[*at] {
            "{" | "[" => open += 1,
            "}" | "]" => open -= 1,
            _ => {}
        }
        *at += 1;
        if open == 0 {
            break;
        }
    }
}

#[test]
fn every_type_of_the_simulators_graphql_is_githubs() {
    let Some(published) =
        folder().map(|folder| std::fs::read_to_string(folder.join("schema.graphql")).unwrap())
    else {
        eprintln!("{SKIPPED}");
        return;
    };
    let (theirs, own) = (shapes(&published), shapes(include_str!("../../../src/sim/graphql/schema.graphql")));
    assert!(own.len() > 50 && theirs.len() > 1_000, "{} {}", own.len(), theirs.len());
    let mut wrong = Vec::new();
    for (name, shape) in &own {
        match theirs.get(name) {
            Some(described) => {
                wrong.extend(shape.differs(described).into_iter().map(|what| format!("{name}{what}")));
            }
            None => wrong.push(format!("{name}: no such type")),
        }
    }
    wrong.retain(|what| !NOT_DESCRIBED_YET.contains(&what.as_str()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_githubs_is_found() {
    if rest().is_none() {
        eprintln!(
            "skipped: {VARIABLE} names no folder with GitHub's descriptions; .ci/campaigns/shapes fetches them"
        );
        return;
    }
    let sim = example().await;
    let path = "/repos/octo/greeter/issues/1";
    let (status, mut issue) = super::Caller::new(&sim).get(path).await;
    issue["comments"] = json!("three");
    let found = std::panic::catch_unwind(|| check("GET", path, status, &issue)).is_err();
    assert!(found, "{issue}");
}
