//! The argument schemas of tools. Schemas that others declare are checked and closed. Each is compiled once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::arguments;
use super::tool::Tool;
use crate::domain::message::ToolSpec;

/// Compiled argument schemas by tool name. Sessions share them, so a session does not compile what the one before had.
#[derive(Clone, Default)]
pub struct ArgumentSchemas(Arc<Mutex<HashMap<String, Compiled>>>);

struct Compiled {
    schema: Value,
    validator: Arc<Validator>,
    /// The tool that it belonged to last. Its address is not reused as long as this is kept.
    tool: Weak<dyn Tool>,
}

impl ArgumentSchemas {
    /// The compiled form of a tool's schema. The error is what is wrong with the schema.
    pub fn validator(&self, tool: &Arc<dyn Tool>) -> Result<Arc<Validator>, String> {
        let (name, schema) = (&tool.spec().name, tool.arguments_schema());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = known.get_mut(name) {
            let same = std::ptr::addr_eq(compiled.tool.as_ptr(), Arc::as_ptr(tool));
            if same || compiled.schema == *schema {
                compiled.tool = Arc::downgrade(tool);
                return Ok(Arc::clone(&compiled.validator));
            }
        }
        let built = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        let (validator, tool) = (Arc::new(built), Arc::downgrade(tool));
        let compiled = Compiled { schema: schema.clone(), validator: Arc::clone(&validator), tool };
        known.insert(name.clone(), compiled);
        Ok(validator)
    }
}

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
    // If the properties are elsewhere in the schema, closing the top level would exclude them.
    let elsewhere = ["$ref", "allOf", "anyOf", "oneOf", "if"];
    if !schema.contains_key("additionalProperties") && !elsewhere.iter().any(|key| schema.contains_key(*key))
    {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    let schema = Value::Object(schema);
    ends(&schema)?;
    jsonschema::validator_for(&schema).map_err(|error| format!("{} at {}", error, error.instance_path()))?;
    Ok(schema)
}

/// Whether a tool could be called so: the arguments fit its schema, and nothing is in them that it does not know.
pub fn takes(tool: &ToolSpec, arguments: &Map<String, Value>) -> bool {
    let closed = tool.parameters.as_object().and_then(|given| closed_schema(given).ok());
    let validator = closed.and_then(|schema| jsonschema::validator_for(&schema).ok());
    validator.is_some_and(|validator| arguments::check(&validator, &Value::Object(arguments.clone())).is_ok())
}

/// How deep subschemas are followed. A schema that refers to itself ends here.
const DEEPEST: usize = 8;
/// How many subschemas are visited. A few that refer to each other often become many.
const MOST_LOOKED_AT: usize = 10_000;
/// How many subschemas one value may be checked against, with references.
const MOST_FOR_A_VALUE: usize = 10_000;

/// Whether a check against the schema ends soon. It would not if subschemas for the same value refer to themselves, or
/// to each other again and again.
fn ends(root: &Value) -> Result<(), String> {
    fn cost(
        root: &Value,
        schema: &Value,
        within: &mut Vec<*const Value>,
        left: &mut usize,
    ) -> Result<(), String> {
        let Some(members) = schema.as_object() else { return Ok(()) };
        let place: *const Value = schema;
        if within.contains(&place) {
            return Err("it refers to itself for the same value".to_owned());
        }
        *left = left.checked_sub(1).ok_or("its references lead to too many subschemas")?;
        within.push(place);
        let referred = members.get("$ref").and_then(Value::as_str).and_then(|place| place.strip_prefix('#'));
        let referred = referred.and_then(|pointer| root.pointer(pointer));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| members.get(key)?.as_array());
        let single = ["not", "if", "then", "else"].into_iter().filter_map(|key| members.get(key));
        let depending = members.get("dependentSchemas").and_then(Value::as_object);
        let same = referred.into_iter().chain(lists.flatten()).chain(single);
        for subschema in same.chain(depending.into_iter().flat_map(Map::values)) {
            cost(root, subschema, within, left)?;
        }
        within.pop();
        Ok(())
    }
    fn each(root: &Value, schema: &Value, left: &mut usize) -> Result<(), String> {
        cost(root, schema, &mut Vec::new(), &mut MOST_FOR_A_VALUE.clone())?;
        *left = left.checked_sub(1).ok_or("it has too many subschemas")?;
        match schema {
            Value::Object(members) => members.values().try_for_each(|member| each(root, member, left)),
            Value::Array(members) => members.iter().try_for_each(|member| each(root, member, left)),
            _ => Ok(()),
        }
    }
    each(root, root, &mut 100_000)
}

/// What an object schema declares for a member of the object, whichever of its subschemas for the same object does it.
pub(super) fn declared<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    fn within<'s>(
        root: &'s Value,
        schema: &'s Value,
        name: &str,
        depth: usize,
        left: &mut usize,
    ) -> Option<&'s Value> {
        *left = left.checked_sub(1)?;
        if let Some(found) = schema.get("properties").and_then(|properties| properties.get(name)) {
            return Some(found);
        }
        if depth == 0 {
            return None;
        }
        // The check of the schema has refused references that cannot be followed here.
        let referred = schema.get("$ref").and_then(Value::as_str).and_then(|place| place.strip_prefix('#'));
        let referred = referred.and_then(|pointer| root.pointer(pointer));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
        let branches = ["then", "else"].into_iter().filter_map(|key| schema.get(key));
        let mut same = referred.into_iter().chain(lists.flatten()).chain(branches);
        same.find_map(|subschema| within(root, subschema, name, depth - 1, left))
    }
    within(schema, schema, name, DEEPEST, &mut MOST_LOOKED_AT.clone())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::message::ToolSpec;
    use crate::domain::policy::Risk;
    use crate::engine::tool::{CallLimits, Permit, ToolCalled, ToolOutput};

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
    fn a_schema_that_multiplies_itself_is_refused_and_one_that_describes_a_tree_is_not() {
        let mut defs = Map::new();
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            defs.insert(format!("d{level}"), json!({ "allOf": [next.clone(), next] }));
        }
        defs.insert("d40".to_owned(), json!({ "properties": { "x": {} } }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        assert!(closed_schema(&object(schema.clone())).unwrap_err().contains("too many subschemas"));
        assert_eq!(declared(&schema, "user_id"), None);
        let many: Vec<Value> = (0..1000).map(|_| json!({ "$ref": "#" })).collect();
        assert_eq!(declared(&json!({ "anyOf": many }), "user_id"), None);
        let tree = json!({ "properties": { "child": { "$ref": "#" }, "name": { "type": "string" } } });
        closed_schema(&object(tree)).unwrap();
    }

    /// A tool that is nothing but its schema.
    struct Named(ToolSpec);

    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn source(&self) -> &str {
            "test"
        }

        fn risk(&self) -> Risk {
            Risk::Read
        }

        fn call<'a>(&'a self, _permit: Permit, _arguments: &'a Value, _limits: CallLimits) -> ToolCalled<'a> {
            Box::pin(async { Ok(ToolOutput::text("")) })
        }
    }

    fn tool(parameters: Value) -> Arc<dyn Tool> {
        Arc::new(Named(ToolSpec { name: "t".into(), description: String::new(), parameters }))
    }

    #[test]
    fn a_schema_is_compiled_anew_only_when_it_is_another() {
        let schemas = ArgumentSchemas::default();
        let one = tool(json!({ "type": "object" }));
        let first = schemas.validator(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &schemas.clone().validator(&one).unwrap()));
        assert!(Arc::ptr_eq(&first, &schemas.validator(&tool(json!({ "type": "object" }))).unwrap()));
        assert!(schemas.validator(&tool(json!({ "type": "array" }))).unwrap().is_valid(&json!([])));
        assert!(schemas.validator(&one).unwrap().is_valid(&json!({})));
        assert!(schemas.validator(&tool(json!({ "type": 1 }))).is_err());
    }

    #[test]
    fn a_043_s_021_a_broken_schema_is_an_error() {
        for broken in [
            json!({ "type": 42 }),
            json!({ "type": "string" }),
            json!({ "type": "object", "properties": { "a": { "type": "strin" } } }),
            json!({ "type": "object", "required": "a" }),
            json!({ "type": "object", "properties": { "a": { "$ref": "https://example.invalid/x.json" } } }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
            json!({ "properties": { "a": { "type": "string", "pattern": "(((a{999}){999}){999})" } } }),
        ] {
            assert!(closed_schema(&object(broken.clone())).is_err(), "{broken}");
        }
    }
}
