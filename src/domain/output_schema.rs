//! The shape of a step's output, how it is found in a reply, and how it is checked (D5).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::violation;
use super::words::words;

/// Shape of a step's output: always a JSON Schema, and the field list of the oldest form where the registry has one.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSchema {
    /// Self-contained JSON Schema of an object: references inlined.
    pub json: Value,
    /// The oldest form, which has defaults.
    pub fields: Option<OutputSchema>,
    /// Where it was read: `schemas/issue.schema.json#initial.issue`.
    pub source: String,
}

/// `outputSchema` in its oldest form.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema {
    /// Step id (`$namespace`).
    pub namespace: String,
    /// In file order.
    pub fields: Vec<OutputField>,
}

/// One field of the oldest form.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputField {
    /// Key.
    pub name: String,
    /// Type; never converted.
    pub kind: FieldKind,
    /// Absent = true.
    pub required: bool,
    /// For the model.
    pub description: Option<String>,
    /// Value of an optional field that is missing.
    pub default: Option<Value>,
}

words! {
    /// Type of a field.
    pub enum FieldKind {
        /// Text.
        String = "string",
        /// A number.
        Number = "number",
        /// `true` or `false`.
        Boolean = "boolean",
        /// An object.
        Object = "object",
        /// An array.
        Array = "array",
    }
}

impl FieldKind {
    /// Whether the value is of the type.
    pub fn fits(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
        }
    }
}

impl OutputSchema {
    /// As JSON Schema. Further fields are ignored unless `strict`.
    pub fn to_json_schema(&self, strict: bool) -> Value {
        let mut properties = Map::new();
        for field in &self.fields {
            let mut schema = Map::new();
            schema.insert("type".into(), field.kind.as_str().into());
            if let Some(description) = &field.description {
                schema.insert("description".into(), description.as_str().into());
            }
            if let Some(default) = &field.default {
                schema.insert("default".into(), default.clone());
            }
            properties.insert(field.name.clone(), Value::Object(schema));
        }
        let required: Vec<&str> =
            self.fields.iter().filter(|field| field.required).map(|field| field.name.as_str()).collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": !strict})
    }

    /// Puts the defaults of missing optional fields in.
    pub fn fill_defaults(&self, output: &mut Map<String, Value>) {
        for field in &self.fields {
            if let (false, Some(default)) = (field.required, &field.default)
                && !output.contains_key(&field.name)
            {
                output.insert(field.name.clone(), default.clone());
            }
        }
    }
}

/// Which strategy found the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtractionStrategy {
    /// A fenced `json` block.
    FencedJson,
    /// The whole reply is JSON.
    WholeReply,
    /// Lines `key: value` of the schema's fields.
    KeyValueLines,
}

/// An output found in a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Extracted {
    /// The output, not yet validated.
    pub data: Map<String, Value>,
    /// How it was found.
    pub strategy: ExtractionStrategy,
}

/// No output was found; what each strategy met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ExtractionFailed: {}", .0.join("; "))]
pub struct ExtractionFailed(pub Vec<String>);

/// Finds a step's output in a reply: fenced `json` block, whole reply, `key: value` lines, or nothing. No effects.
/// `schema`: the JSON Schema that names the fields; `null` names none.
pub fn extract(reply: &str, schema: &Value) -> Result<Extracted, ExtractionFailed> {
    let mut misses = Vec::new();
    let blocks = fenced_json(reply);
    if blocks.is_empty() {
        misses.push("no ```json block".to_owned());
    }
    for block in blocks {
        match serde_json::from_str(&block) {
            Ok(Value::Object(data)) => {
                return Ok(Extracted { data, strategy: ExtractionStrategy::FencedJson });
            }
            Ok(_) => misses.push("the ```json block is no object".into()),
            Err(error) => misses.push(format!("the ```json block is broken: {error}")),
        }
    }
    match serde_json::from_str(unfenced(reply.trim_start_matches('\u{feff}').trim())) {
        Ok(Value::Object(data)) => return Ok(Extracted { data, strategy: ExtractionStrategy::WholeReply }),
        Ok(_) => misses.push("the reply as a whole is no object".into()),
        Err(_) => misses.push("the reply as a whole is no JSON".into()),
    }
    let data = key_value_lines(reply, schema);
    if data.is_empty() {
        misses.push("no line \"key: value\" names a field of the schema".into());
        return Err(ExtractionFailed(misses));
    }
    Ok(Extracted { data, strategy: ExtractionStrategy::KeyValueLines })
}

/// A reply that is one block without a tag is that block.
fn unfenced(reply: &str) -> &str {
    reply.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")).map_or(reply, str::trim)
}

fn fenced_json(reply: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = reply.lines();
    while let Some(line) = lines.next() {
        if !line.trim().strip_prefix("```").is_some_and(|tag| tag.trim().eq_ignore_ascii_case("json")) {
            continue;
        }
        // An unclosed block ends with the reply.
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        blocks.push(body.join("\n"));
    }
    blocks
}

/// The top-level fields that the schema names. A value is read by the field's type and stays text where it does not
/// fit.
fn key_value_lines(reply: &str, schema: &Value) -> Map<String, Value> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Map::new();
    };
    let mut data = Map::new();
    for line in reply.lines() {
        let line = line.trim().trim_start_matches(['-', '*']).trim_start();
        let Some((key, text)) = line.split_once(':') else { continue };
        let key = key.trim().trim_matches(['*', '`', '"']);
        let Some(field) = properties.get(key) else { continue };
        let text = text.trim().trim_start_matches("**").trim();
        if text.is_empty() || data.contains_key(key) {
            continue;
        }
        let textual = field.get("type").and_then(Value::as_str) == Some("string");
        let value = match serde_json::from_str::<Value>(text) {
            Ok(value) if !textual || value.is_string() => value,
            _ => Value::String(text.to_owned()),
        };
        data.insert(key.to_owned(), value);
    }
    data
}

/// One reason why an output does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputError {
    /// JSON pointer into the output; empty = the output itself.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.pointer.is_empty() { "the output" } else { &self.pointer };
        write!(f, "{place}: {}", self.message)
    }
}

/// Checks outputs against one step's schema; compiled once, used for every visit.
#[derive(Debug)]
pub struct OutputValidator {
    compiled: jsonschema::Validator,
    fields: Option<OutputSchema>,
}

/// The schema itself is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct BrokenSchema {
    /// JSON pointer into the schema.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

/// Compiles the schema of an output. What is no such `format` does not fit; a format that the library does not know takes all.
///
/// # Errors
/// It is no JSON Schema.
pub fn compiled(schema: &Value) -> Result<jsonschema::Validator, jsonschema::ValidationError<'static>> {
    jsonschema::options().should_validate_formats(true).build(schema)
}

impl OutputValidator {
    /// Compiles a step's schema.
    pub fn new(schema: &StepSchema) -> Result<Self, BrokenSchema> {
        let compiled = compiled(&schema.json).map_err(|error| BrokenSchema {
            pointer: error.instance_path().to_string(),
            message: error.to_string(),
        })?;
        Ok(Self { compiled, fields: schema.fields.clone() })
    }

    /// Fills in the defaults of the oldest form, then checks. An output without errors is valid; nothing is converted.
    pub fn validate(&self, output: &mut Map<String, Value>) -> Vec<OutputError> {
        if let Some(fields) = &self.fields {
            fields.fill_defaults(output);
        }
        let instance = Value::Object(std::mem::take(output));
        let errors = self
            .compiled
            .iter_errors(&instance)
            .map(|error| OutputError {
                pointer: error.instance_path().to_string(),
                message: violation::told_with_value(&error),
            })
            .collect();
        if let Value::Object(back) = instance {
            *output = back;
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> StepSchema {
        let field = |name: &str, kind, required, default| OutputField {
            name: name.into(),
            kind,
            required,
            description: None,
            default,
        };
        let fields = OutputSchema {
            namespace: "measure".into(),
            fields: vec![
                field("height", FieldKind::Number, true, None),
                field("unit", FieldKind::String, false, Some(json!("cm"))),
                field("tags", FieldKind::Array, false, None),
            ],
        };
        StepSchema { json: fields.to_json_schema(false), fields: Some(fields), source: "test".into() }
    }

    #[test]
    fn the_four_strategies_are_tried_in_the_seeds_order() {
        let both = "{\"height\": 1}\n```json\n{\"height\": 2}\n```";
        let found = extract(both, &schema().json).unwrap();
        assert_eq!(
            (found.data["height"].clone(), found.strategy),
            (json!(2), ExtractionStrategy::FencedJson)
        );
        let whole = extract(" {\"height\": 1} ", &schema().json).unwrap();
        assert_eq!(whole.strategy, ExtractionStrategy::WholeReply);
        let lines = extract("Measured.\n- **height**: 3\nunit: 12\nother: x", &schema().json).unwrap();
        assert_eq!(lines.strategy, ExtractionStrategy::KeyValueLines);
        assert_eq!(Value::Object(lines.data), json!({"height": 3, "unit": "12"}));
        let failed = extract("nothing here", &schema().json).unwrap_err();
        assert_eq!(failed.0.len(), 3, "{failed}");
    }

    #[test]
    fn a_broken_block_falls_to_the_next_one() {
        let found =
            extract("```json\n{\"height\": \n```\n```json\n{\"height\": 2}\n```", &schema().json).unwrap();
        assert_eq!(found.data["height"], json!(2));
    }

    #[test]
    fn required_types_and_defaults_are_held_without_conversion() {
        let validator = OutputValidator::new(&schema()).unwrap();
        let check = |value: Value| {
            let Value::Object(mut output) = value else { panic!("an object") };
            (validator.validate(&mut output), output)
        };
        let (errors, output) = check(json!({"height": 2, "extra": 1}));
        assert!(errors.is_empty(), "further fields are ignored: {errors:?}");
        assert_eq!(output["unit"], json!("cm"));
        assert!(!output.contains_key("tags"));
        let (errors, _) = check(json!({"height": "2"}));
        assert_eq!(errors[0].pointer, "/height");
        let (errors, _) = check(json!({}));
        assert_eq!(errors.len(), 1);
        let strict = StepSchema { json: schema().fields.unwrap().to_json_schema(true), ..schema() };
        let Value::Object(mut output) = json!({"height": 2, "extra": 1}) else { panic!("an object") };
        assert_eq!(OutputValidator::new(&strict).unwrap().validate(&mut output).len(), 1);
    }
}
