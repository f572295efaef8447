//! The simulated GraphQL API: parsed, checked against a schema, and executed over the same state as REST.

mod execute;
mod mutations;
mod node;
mod objects;
mod remarks;
mod rollup;
mod schema;
mod syntax;

use serde_json::{Map, Value, json};

use super::call::{Call, Outcome, Reply};
use super::world::World;
use schema::Schema;
use syntax::{Operation, Place};

/// `POST /graphql`.
pub fn answer(world: &mut World, call: &Call) -> Outcome {
    call.takes_query(world, &[])?;
    if call.token.is_none() {
        return Err(Reply::error(401, "This endpoint requires you to be authenticated."));
    }
    let body = call.takes_body(world, &["query", "variables", "operationName"])?;
    let Some(text) = body.get("query").and_then(Value::as_str) else {
        world.violation("POST /graphql: the body has no `query`".to_owned());
        return Ok(refusal(vec![
            json!({"message": "A query attribute must be specified and must be a string."}),
        ]));
    };
    let document = match syntax::parse(text) {
        Ok(document) => document,
        Err(error) => {
            world.violation(format!("POST /graphql: {} at line {}", error.message, error.place.line));
            let error = json!({"message": error.message, "locations": [location(error.place)]});
            return Ok(refusal(vec![error]));
        }
    };
    let wanted = body.get("operationName").and_then(Value::as_str);
    let operation = match (document.operations.as_slice(), wanted) {
        ([only], None) => only,
        (operations, Some(name)) => match operations.iter().find(|one| one.name.as_deref() == Some(name)) {
            Some(operation) => operation,
            None => return Ok(refusal(vec![json!({"message": format!("No operation named \"{name}\"")})])),
        },
        _ => return Ok(refusal(vec![json!({"message": "An operation name is required"})])),
    };
    let schema = Schema::load().map_err(|error| {
        Reply::error(
            500,
            &format!("the simulator's schema is broken, line {}: {}", error.place.line, error.message),
        )
    })?;
    let mistakes = schema.check(&document, operation);
    if !mistakes.is_empty() {
        for mistake in &mistakes {
            world.violation(format!("POST /graphql, {}: {}", mistake.path.join("."), mistake.message));
        }
        let errors = mistakes.iter().map(|mistake| {
            json!({
                "path": mistake.path,
                "extensions": {"code": mistake.code},
                "locations": [location(mistake.place)],
                "message": mistake.message,
            })
        });
        return Ok(refusal(errors.collect()));
    }
    let given = body.get("variables").and_then(Value::as_object).cloned().unwrap_or_default();
    let variables = match variables(operation, given) {
        Ok(variables) => variables,
        Err(errors) => {
            for error in &errors {
                world.violation(format!("POST /graphql: {}", error["message"].as_str().unwrap_or_default()));
            }
            return Ok(refusal(errors));
        }
    };
    Ok(Reply::ok(execute::run(world, call, &schema, &document, operation, variables)))
}

fn refusal(errors: Vec<Value>) -> Reply {
    Reply::ok(json!({"errors": errors}))
}

fn location(place: Place) -> Value {
    json!({"line": place.line, "column": place.column})
}

/// The values of an operation's variables: as given, else their defaults.
fn variables(operation: &Operation, mut given: Map<String, Value>) -> Result<Map<String, Value>, Vec<Value>> {
    let mut errors = Vec::new();
    let mut values = Map::new();
    for variable in &operation.variables {
        let value = given.remove(&variable.name);
        let value = match (&value, &variable.default) {
            (None, Some(default)) => Some(execute::literal(default, &Map::new())),
            _ => value,
        };
        let problem = match &value {
            None | Some(Value::Null) if variable.kind.is_required() => Some("Expected value to not be null"),
            Some(value) if !value.is_null() && !has_type(value, variable.kind.optional()) => {
                Some("Could not coerce value")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            errors.push(json!({
                "extensions": {"value": value, "problems": [{"path": [], "explanation": problem}]},
                "locations": [location(variable.place)],
                "message": format!("Variable ${} of type {} was provided invalid value", variable.name, variable.kind),
            }));
        }
        if let Some(value) = value {
            values.insert(variable.name.clone(), value);
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

fn has_type(value: &Value, kind: &syntax::TypeRef) -> bool {
    match kind {
        syntax::TypeRef::Required(inner) => !value.is_null() && has_type(value, inner),
        syntax::TypeRef::List(inner) => {
            value.as_array().is_none_or(|items| items.iter().all(|one| has_type(one, inner)))
        }
        syntax::TypeRef::Named(name) => match name.as_str() {
            "Int" => value.is_i64() || value.is_u64(),
            "Float" => value.is_number(),
            "Boolean" => value.is_boolean(),
            "String" => value.is_string(),
            "ID" => value.is_string() || value.is_u64(),
            _ => true,
        },
    }
}
