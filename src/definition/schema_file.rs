//! JSON Schemas of step outputs: selected, references inlined, conditions left alone. An object is as open
//! as its schema says: fields that it does not name pass, and are kept.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::shape::nearest;
use super::source::{Files, Unreadable, below};

/// Deepest nesting of a resolved schema.
const DEEPEST: usize = 50;

/// A schema that cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Stable code.
    pub code: &'static str,
    /// What is wrong and where.
    pub message: String,
    /// What to do.
    pub fix: String,
}

fn error(code: &'static str, message: impl Into<String>, fix: impl Into<String>) -> SchemaError {
    SchemaError { code, message: message.into(), fix: fix.into() }
}

/// The folder of an agent's schemas.
pub struct SchemaFolder<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// The same, for people.
    pub shown: &'a str,
    /// Where files are read.
    pub files: &'a Files,
}

impl SchemaFolder<'_> {
    /// The self-contained schema that `selector` names in `file`.
    pub fn resolve(&self, file: &str, selector: &str) -> Result<Value, SchemaError> {
        let root = self.root(file)?;
        let found = select(&root, selector, file)?;
        let mut stack = Vec::new();
        let mut schema = self.inline(found, file, &root, &mut stack)?;
        modernise(&mut schema);
        Ok(schema)
    }

    fn root(&self, file: &str) -> Result<Value, SchemaError> {
        let path = below(self.folder, file).ok_or_else(|| {
            error(
                "FAILED_SCHEMA_RESOLUTION",
                format!("the schema file \"{file}\" leads out of {}", self.shown),
                "name a file of the agent's schemas folder",
            )
        })?;
        let shown = format!("{}/{file}", self.shown);
        match self.files.json(&path, &shown) {
            Ok(source) => Ok(source.value.clone()),
            Err(Unreadable::Absent) => Err(error(
                "FAILED_SCHEMA_RESOLUTION",
                format!("the schema file {shown} does not exist"),
                "create it or correct outputSchemaRef.file",
            )),
            Err(Unreadable::Failed(why)) => {
                Err(error("FAILED_SCHEMA_RESOLUTION", format!("{shown} cannot be read: {why}"), ""))
            }
            Err(Unreadable::NotJson(place, why)) => Err(error(
                "FAILED_SCHEMA_RESOLUTION",
                format!("{shown}:{}:{} is no JSON: {why}", place.line, place.column),
                "correct the file",
            )),
        }
    }

    fn inline(
        &self,
        schema: &Value,
        file: &str,
        root: &Value,
        stack: &mut Vec<String>,
    ) -> Result<Value, SchemaError> {
        if stack.len() > DEEPEST {
            return Err(error(
                "SCHEMA_CIRCULAR_REFERENCE",
                format!("{}/{file}: references nest deeper than {DEEPEST}", self.shown),
                "flatten the schema",
            ));
        }
        match schema {
            Value::Object(object) => {
                let mut resolved = Map::new();
                if let Some(reference) = object.get("$ref").and_then(Value::as_str)
                    && let Value::Object(target) = self.reference(reference, file, root, stack)?
                {
                    resolved = target;
                }
                for (key, value) in object {
                    if matches!(
                        key.as_str(),
                        "$ref" | "$schema" | "$id" | "$defs" | "definitions" | "$comment"
                    ) {
                        continue;
                    }
                    let value = if is_data(key) {
                        value.clone()
                    } else if holds_named_schemas(key) {
                        self.named(value, file, root, stack)?
                    } else {
                        self.inline(value, file, root, stack)?
                    };
                    resolved.insert(key.clone(), value);
                }
                merge_all_of(&mut resolved);
                Ok(Value::Object(resolved))
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.inline(item, file, root, stack))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            plain => Ok(plain.clone()),
        }
    }

    /// A map from names to schemas: the names are no keywords.
    fn named(
        &self,
        value: &Value,
        file: &str,
        root: &Value,
        stack: &mut Vec<String>,
    ) -> Result<Value, SchemaError> {
        let Value::Object(map) = value else { return Ok(value.clone()) };
        let mut resolved = Map::new();
        for (name, schema) in map {
            resolved.insert(name.clone(), self.inline(schema, file, root, stack)?);
        }
        Ok(Value::Object(resolved))
    }

    fn reference(
        &self,
        reference: &str,
        file: &str,
        root: &Value,
        stack: &mut Vec<String>,
    ) -> Result<Value, SchemaError> {
        let (other, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let other_root;
        let (target_file, target_root) = if other.is_empty() {
            (file.to_owned(), root)
        } else {
            let name = Path::new(file).parent().map_or_else(|| other.into(), |folder| folder.join(other));
            let name = name.to_string_lossy().trim_start_matches("./").to_owned();
            other_root = self.root(&name)?;
            (name, &other_root)
        };
        let key = format!("{target_file}#{pointer}");
        if stack.contains(&key) {
            return Err(error(
                "SCHEMA_CIRCULAR_REFERENCE",
                format!("{}/{key} refers to itself (through {})", self.shown, stack.join(" → ")),
                "a step's output cannot nest without end; write the levels out",
            ));
        }
        let found = if pointer.is_empty() {
            target_root
        } else {
            select(target_root, &format!("#{pointer}"), &target_file)?
        };
        stack.push(key);
        let resolved = self.inline(found, &target_file, target_root, stack);
        stack.pop();
        resolved
    }
}

/// The schema that a selector names: pointer, else `definitions`, else `$defs`, else top-level key.
fn select<'v>(root: &'v Value, selector: &str, file: &str) -> Result<&'v Value, SchemaError> {
    if selector.starts_with("##") || selector.starts_with("//") || selector.trim().is_empty() {
        return Err(error(
            "MALFORMED_SCHEMA_IDENTIFIER",
            format!("\"{selector}\" names no schema"),
            "write a definition's name, or a pointer that begins with \"#/\"",
        ));
    }
    let found = if let Some(pointer) = selector.strip_prefix('#') {
        root.pointer(pointer).filter(|_| pointer.starts_with('/') || pointer.is_empty())
    } else {
        ["definitions", "$defs"]
            .iter()
            .find_map(|group| root.get(*group)?.get(selector))
            .or_else(|| root.get(selector))
    };
    found.filter(|schema| schema.is_object()).ok_or_else(|| {
        let names: Vec<&str> = root
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| value.is_object() && !key.starts_with('$'))
            .map(|(key, _)| key.as_str())
            .take(12)
            .collect();
        error(
            "SCHEMA_POINTER_ERROR",
            format!("{file} has no schema \"{selector}\""),
            format!("it has: {}", names.join(", ")),
        )
    })
}

/// Keywords whose values are data, not schemas.
fn is_data(key: &str) -> bool {
    matches!(key, "enum" | "const" | "default" | "examples" | "required" | "type" | "description" | "title")
}

/// Keywords whose values are maps from names to schemas.
fn holds_named_schemas(key: &str) -> bool {
    matches!(key, "properties" | "patternProperties" | "dependentSchemas" | "dependencies")
}

/// Keywords of JSON Schema that are in a resolved schema.
const KEYWORDS: [&str; 51] = [
    "type",
    "enum",
    "const",
    "default",
    "examples",
    "required",
    "description",
    "title",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "deprecated",
    "readOnly",
    "writeOnly",
    "definitions",
];

/// Words of a resolved schema that are no keywords, so that nothing heeds them; each once, with the keyword that is meant.
pub fn unknown_keywords(schema: &Value) -> BTreeMap<String, Option<&'static str>> {
    let mut found = BTreeMap::new();
    each_member(schema, &mut |key, _| {
        let is_known = KEYWORDS.contains(&key) || key.starts_with('$') || key.starts_with("x-");
        if !is_known {
            found.insert(key.to_owned(), nearest(key, KEYWORDS.into_iter()));
        }
        is_known
    });
    found
}

/// Formats that are checked.
const FORMATS: [&str; 17] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

/// Formats of a resolved schema that are not checked; each once, with the format that is meant.
pub fn unknown_formats(schema: &Value) -> BTreeMap<String, Option<&'static str>> {
    let mut found = BTreeMap::new();
    each_member(schema, &mut |key, value| {
        if let ("format", Some(format)) = (key, value.as_str())
            && !FORMATS.contains(&format)
        {
            found.insert(format.to_owned(), nearest(format, FORMATS.into_iter()));
        }
        true
    });
    found
}

/// Every member of a schema and of the schemas in it. What is below one is looked at where `look` says so.
fn each_member(schema: &Value, look: &mut impl FnMut(&str, &Value) -> bool) {
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        match schema {
            Value::Object(object) => {
                for (key, value) in object.iter().filter(|(key, value)| look(key, value)) {
                    if holds_named_schemas(key) {
                        open.extend(value.as_object().into_iter().flat_map(Map::values));
                    } else if !is_data(key) {
                        open.push(value);
                    }
                }
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

const CONDITIONAL: [&str; 7] = ["if", "then", "else", "not", "anyOf", "oneOf", "allOf"];

/// Folds plain parts of `allOf` into the schema: the base first, later properties over it, `required` united.
/// Parts with conditions of their own stay parts.
fn merge_all_of(schema: &mut Map<String, Value>) {
    let Some(Value::Array(parts)) = schema.shift_remove("allOf") else { return };
    let (plain, kept): (Vec<Value>, Vec<Value>) = parts.into_iter().partition(|part| {
        part.as_object().is_some_and(|part| !CONDITIONAL.iter().any(|key| part.contains_key(*key)))
    });
    let own = std::mem::take(schema);
    for part in plain.into_iter().chain([Value::Object(own)]) {
        let Value::Object(part) = part else { continue };
        for (key, value) in part {
            match (key.as_str(), schema.get_mut(&key), value) {
                ("properties", Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                ("required", Some(Value::Array(known)), Value::Array(more)) => {
                    for name in more {
                        if !known.contains(&name) {
                            known.push(name);
                        }
                    }
                }
                // What the schema itself says goes before what its base says.
                (_, _, value) => {
                    schema.insert(key, value);
                }
            }
        }
    }
    if !kept.is_empty() {
        schema.insert("allOf".into(), Value::Array(kept));
    }
}

/// Writes the two keywords that changed after draft-07 in the newer way, so that one draft fits all.
fn modernise(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("items").is_some_and(Value::is_array) {
                let items = object.shift_remove("items").unwrap_or(Value::Null);
                object.insert("prefixItems".into(), items);
                if let Some(rest) = object.shift_remove("additionalItems") {
                    object.insert("items".into(), rest);
                }
            }
            if let Some(Value::Object(dependencies)) = object.shift_remove("dependencies") {
                for (name, value) in dependencies {
                    let key = if value.is_array() { "dependentRequired" } else { "dependentSchemas" };
                    if let Some(map) =
                        object.entry(key).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
                    {
                        map.insert(name, value);
                    }
                }
            }
            for (key, value) in object.iter_mut() {
                if holds_named_schemas(key) {
                    value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(modernise);
                } else if !is_data(key) {
                    modernise(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(modernise),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::output_schema::{OutputValidator, StepSchema};

    fn with<T>(files: &[(&str, Value)], then: impl FnOnce(&SchemaFolder<'_>) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            put(&folder.path().join(name), &value.to_string());
        }
        then(&SchemaFolder { folder: folder.path(), shown: "schemas", files: &Files::of(folder.path()) })
    }

    #[expect(clippy::disallowed_methods, reason = "a fixture in a temporary folder")]
    fn put(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
    }

    fn errors(schema: &Value, output: &Value) -> usize {
        let schema = StepSchema { json: schema.clone(), fields: None, source: String::new() };
        OutputValidator::new(&schema).unwrap().validate(&mut output.as_object().unwrap().clone()).len()
    }

    #[test]
    fn p15_a_selector_is_a_pointer_a_definition_or_a_key() {
        let file = json!({
            "definitions": {"a": {"title": "a"}}, "$defs": {"b": {"title": "b"}}, "c.d": {"title": "c"}
        });
        with(&[("s.json", file)], |folder| {
            for (selector, title) in [("a", "a"), ("b", "b"), ("c.d", "c"), ("#/$defs/b", "b")] {
                assert_eq!(folder.resolve("s.json", selector).unwrap()["title"], json!(title), "{selector}");
            }
            for (selector, code) in [
                ("##/x", "MALFORMED_SCHEMA_IDENTIFIER"),
                ("//x", "MALFORMED_SCHEMA_IDENTIFIER"),
                ("nowhere", "SCHEMA_POINTER_ERROR"),
                ("#/$defs/z", "SCHEMA_POINTER_ERROR"),
            ] {
                assert_eq!(folder.resolve("s.json", selector).unwrap_err().code, code, "{selector}");
            }
            assert_eq!(folder.resolve("t.json", "a").unwrap_err().code, "FAILED_SCHEMA_RESOLUTION");
            assert_eq!(folder.resolve("../s.json", "a").unwrap_err().code, "FAILED_SCHEMA_RESOLUTION");
        });
    }

    #[test]
    fn a_word_that_is_no_keyword_is_found_wherever_it_stands_and_a_fields_name_is_none() {
        let schema = json!({"type": "object", "requierd": ["a"], "properties": {
            "requierd": {"type": "string", "minLenght": 3}, "kind": {"enum": [{"odd": 1}], "default": {"odd": 1}}},
            "anyOf": [{"mood": "good"}], "x-ours": 1, "$comment": "so"});
        let found = unknown_keywords(&schema);
        let expected = [("minLenght", Some("minLength")), ("mood", None), ("requierd", Some("required"))];
        assert_eq!(found, expected.map(|(word, meant)| (word.to_owned(), meant)).into());
    }

    #[test]
    fn a_format_that_is_not_checked_is_found_and_a_field_of_that_name_is_none() {
        let schema = json!({"properties": {
            "format": {"type": "string", "format": "emial"}, "due": {"format": "date"},
            "all": {"items": {"format": "color"}}, "so": {"const": {"format": "x"}}}});
        let expected = [("color", None), ("emial", Some("email"))];
        let found = unknown_formats(&schema);
        assert_eq!(found, expected.map(|(word, meant)| (word.to_owned(), meant)).into());
        for format in FORMATS {
            let strict = jsonschema::options()
                .should_validate_formats(true)
                .should_ignore_unknown_formats(false)
                .build(&json!({ "format": format }));
            assert!(strict.is_ok(), "{format} is known to the library");
        }
    }

    #[test]
    fn p16_one_reference_twice_resolves_and_a_true_recursion_is_told() {
        let file = json!({
            "$defs": {
                "point": {"type": "object", "properties": {"x": {"type": "number"}}},
                "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
            },
            "pair": {"type": "object", "properties": {
                "from": {"$ref": "#/$defs/point", "description": "start"},
                "to": {"$ref": "other.json#/$defs/end"}}},
            "list": {"$ref": "#/$defs/node"}
        });
        let other = json!({"$defs": {"end": {"$ref": "s.json#/$defs/point"}}});
        with(&[("s.json", file), ("other.json", other)], |folder| {
            let pair = folder.resolve("s.json", "pair").unwrap();
            assert_eq!(
                pair["properties"]["from"],
                json!({"type": "object", "properties": {"x": {"type": "number"}}, "description": "start"})
            );
            assert_eq!(pair["properties"]["to"]["properties"], pair["properties"]["from"]["properties"]);
            let error = folder.resolve("s.json", "list").unwrap_err();
            assert_eq!(error.code, "SCHEMA_CIRCULAR_REFERENCE");
            assert!(error.message.contains("s.json#/$defs/node"), "{error:?}");
        });
    }

    #[test]
    fn p17_conditions_stay_effective_and_further_fields_pass() {
        let file = json!({"step": {
            "type": "object",
            "required": ["verdict"],
            "properties": {
                "verdict": {"enum": ["done", "more"]},
                "anchor": {"type": "object", "properties": {"file": {"type": ["string", "null"]}}}
            },
            "allOf": [{
                "if": {"properties": {"verdict": {"const": "more"}}, "required": ["verdict"]},
                "then": {"required": ["anchor"], "properties": {"anchor": {"anyOf": [
                    {"properties": {"file": {"type": "string", "minLength": 1}}, "required": ["file"]}]}}}
            }]
        }});
        with(&[("s.json", file)], |folder| {
            let schema = folder.resolve("s.json", "step").unwrap();
            assert_eq!(errors(&schema, &json!({"verdict": "done"})), 0);
            assert!(errors(&schema, &json!({"verdict": "more"})) > 0, "the condition still bites");
            assert_eq!(errors(&schema, &json!({"verdict": "more", "anchor": {"file": "a.rs"}})), 0);
            assert_eq!(errors(&schema, &json!({"verdict": "done", "other": 1})), 0, "the object is open");
        });
    }

    #[test]
    fn a_base_in_all_of_is_merged_and_later_properties_win() {
        let file = json!({
            "$defs": {"base": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "action": {"enum": ["next", "wait"]}}}},
            "step": {"allOf": [{"$ref": "#/$defs/base"}], "required": ["more"], "properties": {
                "action": {"enum": ["next"]}, "more": {"type": "array", "items": {"properties": {"a": {}}}}}}
        });
        with(&[("s.json", file)], |folder| {
            let schema = folder.resolve("s.json", "step").unwrap();
            assert_eq!(schema["required"], json!(["id", "more"]));
            assert_eq!(schema["properties"]["action"]["enum"], json!(["next"]));
            assert!(schema.get("allOf").is_none());
        });
    }
}
