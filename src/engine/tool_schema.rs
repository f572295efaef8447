//! Argument schemas of tools that others declare: checked, and closed.

use serde_json::{Map, Value, json};

/// A tool's argument schema as it is used: an object schema that compiles, closed at the top level unless it says otherwise
/// (S-020). The error is what is wrong with it.
pub fn closed_schema(given: &Map<String, Value>) -> Result<Value, String> {
    let mut schema = given.clone();
    match schema.get("type") {
        None => {
            schema.insert("type".to_owned(), json!("object"));
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(format!("/type is {other}, but arguments are an object")),
    }
    // Where the properties stand elsewhere in the schema, closing the top level would shut them out.
    let elsewhere = ["$ref", "allOf", "anyOf", "oneOf", "if"];
    if !schema.contains_key("additionalProperties") && !elsewhere.iter().any(|key| schema.contains_key(*key))
    {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    let schema = Value::Object(schema);
    jsonschema::validator_for(&schema).map_err(|error| format!("{} at {}", error, error.instance_path()))?;
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn s_020_a_schema_is_closed_at_the_top_unless_it_says_otherwise() {
        let closed = |value: Value| closed_schema(&object(value)).unwrap();
        assert_eq!(
            closed(json!({ "properties": {} })),
            json!({ "properties": {}, "type": "object", "additionalProperties": false })
        );
        let open = json!({ "type": "object", "additionalProperties": true });
        assert_eq!(closed(open.clone()), open);
        let composed = json!({ "type": "object", "anyOf": [{ "properties": { "a": {} } }] });
        assert_eq!(closed(composed.clone()), composed);
    }

    #[test]
    fn a_043_s_021_a_broken_schema_is_an_error() {
        for broken in [
            json!({ "type": 42 }),
            json!({ "type": "string" }),
            json!({ "type": "object", "properties": { "a": { "type": "strin" } } }),
            json!({ "type": "object", "required": "a" }),
            json!({ "type": "object", "properties": { "a": { "$ref": "https://example.invalid/x.json" } } }),
        ] {
            assert!(closed_schema(&object(broken.clone())).is_err(), "{broken}");
        }
    }
}
