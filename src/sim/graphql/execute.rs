//! Executes an operation: fields in order, aliases, fragments, conditions, errors with their paths, and nulls that move
//! up.

use serde_json::{Map, Value, json};

use super::node::{Found, Node, Problem};
use super::schema::Schema;
use super::syntax::{Directive, Document, Field, Literal, Operation, Selection};
use crate::sim::call::Call;
use crate::sim::world::World;

struct Run<'a> {
    world: &'a mut World,
    call: &'a Call,
    schema: &'a Schema,
    document: &'a Document,
    variables: Map<String, Value>,
    errors: Vec<Value>,
}

/// Runs a checked operation and returns the body of the answer.
pub fn run(
    world: &mut World,
    call: &Call,
    schema: &Schema,
    document: &Document,
    operation: &Operation,
    variables: Map<String, Value>,
) -> Value {
    let root = if operation.kind == "mutation" { Node::Mutation } else { Node::Query };
    let mut run = Run { world, call, schema, document, variables, errors: Vec::new() };
    let data = run.object(&root, &operation.selections, &[]).unwrap_or(Value::Null);
    let mut body = json!({"data": data});
    if !run.errors.is_empty() {
        body["errors"] = Value::Array(run.errors);
    }
    body
}

/// A literal as a value, with variables put in; an absent variable is null.
pub fn literal(written: &Literal, variables: &Map<String, Value>) -> Value {
    match written {
        Literal::Variable(name) => variables.get(name).cloned().unwrap_or(Value::Null),
        Literal::Int(number) => json!(number),
        Literal::Float(number) => json!(number),
        Literal::Text(text) | Literal::Enum(text) => json!(text),
        Literal::Bool(value) => json!(value),
        Literal::Null => Value::Null,
        Literal::List(items) => items.iter().map(|item| literal(item, variables)).collect(),
        Literal::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (name.clone(), literal(value, variables))).collect(),
        ),
    }
}

impl Run<'_> {
    /// An object's answer; `None` = a required field is null, so the object is.
    fn object(&mut self, node: &Node, selections: &[Selection], path: &[Value]) -> Option<Value> {
        let mut fields: Vec<Field> = Vec::new();
        self.collect(node, selections, &mut fields);
        let mut answer = Map::new();
        for field in fields {
            let mut path = path.to_vec();
            path.push(json!(field.key));
            let value = self.field(node, &field, &path)?;
            answer.insert(field.key, value);
        }
        Some(Value::Object(answer))
    }

    /// The fields that apply to this object; the same key asked for twice is one field with both selections.
    fn collect(&self, node: &Node, selections: &[Selection], into: &mut Vec<Field>) {
        for selection in selections {
            match selection {
                Selection::Field(field) if self.applies(&field.directives) => {
                    match into.iter_mut().find(|other| other.key == field.key) {
                        Some(other) => other.selections.extend(field.selections.iter().cloned()),
                        None => into.push(field.clone()),
                    }
                }
                Selection::Inline { on, selections, directives, .. }
                    if self.applies(directives)
                        && on.as_ref().is_none_or(|on| self.schema.is(node.type_name(), on)) =>
                {
                    self.collect(node, selections, into);
                }
                Selection::Spread { name, directives, .. } if self.applies(directives) => {
                    if let Some(fragment) = self.document.fragments.get(name)
                        && self.schema.is(node.type_name(), &fragment.on)
                    {
                        self.collect(node, &fragment.selections, into);
                    }
                }
                _ => {}
            }
        }
    }

    fn applies(&self, directives: &[Directive]) -> bool {
        directives.iter().all(|directive| {
            let condition = directive.arguments.iter().find(|(name, _)| name == "if");
            let holds =
                condition.is_some_and(|(_, value)| literal(value, &self.variables) == Value::Bool(true));
            match directive.name.as_str() {
                "include" => holds,
                "skip" => !holds,
                _ => true,
            }
        })
    }

    fn field(&mut self, node: &Node, field: &Field, path: &[Value]) -> Option<Value> {
        if field.name == "__typename" {
            return Some(json!(node.type_name()));
        }
        let schema = self.schema;
        let kind = &schema.field(node.type_name(), &field.name)?.kind;
        let mut arguments = Map::new();
        for (name, written) in &field.arguments {
            arguments.insert(name.clone(), literal(written, &self.variables));
        }
        for name in ["followRenames", "dryRun", "includeArchived"] {
            if let Some(default) = schema.default_of(node.type_name(), &field.name, name) {
                arguments.entry(name).or_insert_with(|| literal(default, &Map::new()));
            }
        }
        let value = match super::objects::resolve(self.world, self.call, node, &field.name, &arguments) {
            Ok(Found::Leaf(value)) => value,
            Ok(Found::Nothing) => Value::Null,
            Ok(Found::Node(inner)) => self.object(&inner, &field.selections, path).unwrap_or(Value::Null),
            Ok(Found::Nodes(inner)) => {
                let mut items = Vec::new();
                for (place, node) in inner.iter().enumerate() {
                    let mut path = path.to_vec();
                    path.push(json!(place));
                    items.push(self.object(node, &field.selections, &path).unwrap_or(Value::Null));
                }
                Value::Array(items)
            }
            Err(problem) => {
                self.error(field, path, problem);
                Value::Null
            }
        };
        if value.is_null() && kind.is_required() { None } else { Some(value) }
    }

    fn error(&mut self, field: &Field, path: &[Value], problem: Problem) {
        self.errors.push(json!({
            "type": problem.kind,
            "path": path,
            "locations": [super::location(field.place)],
            "message": problem.message,
        }));
    }
}
