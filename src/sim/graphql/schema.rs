//! The schema the simulator answers, read from `schema.graphql`, and the check of a request against it.

use std::collections::{BTreeMap, BTreeSet};

use super::syntax::{Document, Field, Literal, Operation, Place, Reader, Selection, SyntaxError, TypeRef};

/// The schema's text.
const TEXT: &str = include_str!("schema.graphql");

/// All types.
#[derive(Debug, Default)]
pub struct Schema {
    types: BTreeMap<String, Type>,
}

/// A type.
#[derive(Debug, Default)]
struct Type {
    kind: Kind,
    fields: BTreeMap<String, FieldType>,
    /// Object types behind an interface or a union; the values of an enum.
    members: BTreeSet<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[default]
    Scalar,
    Enum,
    Input,
    Object,
    Abstract,
}

/// A field of a type.
#[derive(Debug)]
pub struct FieldType {
    /// What it returns, or takes in an input.
    pub kind: TypeRef,
    /// Arguments by name.
    arguments: BTreeMap<String, Argument>,
}

#[derive(Debug)]
struct Argument {
    kind: TypeRef,
    default: Option<Literal>,
}

/// A request that the schema does not allow.
#[derive(Debug, Clone)]
pub struct Mistake {
    /// GitHub's words.
    pub message: String,
    /// GitHub's `extensions.code`.
    pub code: &'static str,
    /// Where in the text.
    pub place: Place,
    /// Keys leading there, beginning with the operation.
    pub path: Vec<String>,
}

impl Schema {
    /// Reads the built-in schema.
    pub fn load() -> Result<Self, SyntaxError> {
        let mut reader = Reader::new(TEXT)?;
        let mut schema = Self::default();
        for name in ["String", "Int", "Float", "Boolean", "ID"] {
            schema.types.insert(name.to_owned(), Type::default());
        }
        let mut interfaces: Vec<(String, String)> = Vec::new();
        while !reader.done() {
            let keyword = reader.name()?;
            let name = reader.name()?;
            let mut found = Type::default();
            match keyword.as_str() {
                "enum" => {
                    found.kind = Kind::Enum;
                    reader.expect('{')?;
                    while !reader.take('}') {
                        found.members.insert(reader.name()?);
                    }
                }
                "union" => {
                    found.kind = Kind::Abstract;
                    reader.expect('=')?;
                    found.members.insert(reader.name()?);
                    while reader.take('|') {
                        found.members.insert(reader.name()?);
                    }
                }
                "type" | "interface" | "input" => {
                    found.kind = match keyword.as_str() {
                        "type" => Kind::Object,
                        "input" => Kind::Input,
                        _ => Kind::Abstract,
                    };
                    if reader.word("implements") {
                        interfaces.push((reader.name()?, name.clone()));
                        while reader.take('&') {
                            interfaces.push((reader.name()?, name.clone()));
                        }
                    }
                    reader.expect('{')?;
                    while !reader.take('}') {
                        let (name, field) = field(&mut reader)?;
                        found.fields.insert(name, field);
                    }
                }
                _ => {}
            }
            schema.types.insert(name, found);
        }
        for (interface, object) in interfaces {
            if let Some(interface) = schema.types.get_mut(&interface) {
                interface.members.insert(object);
            }
        }
        Ok(schema)
    }

    /// A field of a type.
    pub fn field(&self, on: &str, name: &str) -> Option<&FieldType> {
        self.types.get(on)?.fields.get(name)
    }

    /// The default of an argument.
    pub fn default_of(&self, on: &str, field: &str, argument: &str) -> Option<&Literal> {
        self.field(on, field)?.arguments.get(argument)?.default.as_ref()
    }

    /// Whether an object of type `object` is one of type `on`.
    pub fn is(&self, object: &str, on: &str) -> bool {
        object == on
            || self.types.get(on).is_some_and(|on| on.kind == Kind::Abstract && on.members.contains(object))
    }

    /// Everything in an operation that the schema does not allow.
    pub fn check(&self, document: &Document, operation: &Operation) -> Vec<Mistake> {
        let mut check =
            Check { schema: self, document, operation, mistakes: Vec::new(), used: BTreeSet::new() };
        let root = if operation.kind == "mutation" { "Mutation" } else { "Query" };
        let path = vec![match &operation.name {
            Some(name) => format!("{} {name}", operation.kind),
            None => operation.kind.clone(),
        }];
        check.selections(root, &operation.selections, &path, 0);
        for variable in &operation.variables {
            if !check.used.contains(&variable.name) {
                let of = operation.name.clone().unwrap_or_else(|| format!("anonymous {}", operation.kind));
                let message = format!("Variable ${} is declared by {of} but not used", variable.name);
                check.say(message, "variableNotUsed", variable.place, &path);
            }
            if !self.types.contains_key(variable.kind.name()) {
                let message =
                    format!("{} isn't a defined input type (on ${})", variable.kind.name(), variable.name);
                check.say(message, "variableRequiresValidType", variable.place, &path);
            }
        }
        check.mistakes
    }
}

fn field(reader: &mut Reader) -> Result<(String, FieldType), SyntaxError> {
    let name = reader.name()?;
    let mut arguments = BTreeMap::new();
    if reader.take('(') {
        while !reader.take(')') {
            let name = reader.name()?;
            reader.expect(':')?;
            let kind = reader.type_ref()?;
            let default = if reader.take('=') { Some(reader.literal()?) } else { None };
            arguments.insert(name, Argument { kind, default });
        }
    }
    reader.expect(':')?;
    Ok((name, FieldType { kind: reader.type_ref()?, arguments }))
}

struct Check<'a> {
    schema: &'a Schema,
    document: &'a Document,
    operation: &'a Operation,
    mistakes: Vec<Mistake>,
    used: BTreeSet<String>,
}

impl Check<'_> {
    fn say(&mut self, message: String, code: &'static str, place: Place, path: &[String]) {
        self.mistakes.push(Mistake { message, code, place, path: path.to_vec() });
    }

    fn selections(&mut self, on: &str, selections: &[Selection], path: &[String], depth: usize) {
        if depth > 30 {
            return;
        }
        for selection in selections {
            match selection {
                Selection::Field(field) => self.field(on, field, path, depth),
                Selection::Inline { on: inner, selections, place, directives } => {
                    for directive in directives {
                        self.values(&directive.arguments);
                    }
                    let inner = inner.as_deref().unwrap_or(on);
                    self.fragment(on, inner, *place, path);
                    self.selections(inner, selections, path, depth + 1);
                }
                Selection::Spread { name, place, directives } => {
                    for directive in directives {
                        self.values(&directive.arguments);
                    }
                    let document = self.document;
                    match document.fragments.get(name) {
                        Some(fragment) => {
                            self.fragment(on, &fragment.on, *place, path);
                            self.selections(&fragment.on, &fragment.selections, path, depth + 1);
                        }
                        None => {
                            let message = format!("Fragment {name} was used, but not defined");
                            self.say(message, "useAndDefineFragment", *place, path);
                        }
                    }
                }
            }
        }
    }

    /// A fragment's type must exist and be able to meet the type around it.
    fn fragment(&mut self, around: &str, inner: &str, place: Place, path: &[String]) {
        let schema = self.schema;
        let Some(found) = schema.types.get(inner) else {
            let message = format!("No such type {inner}, so it can't be a fragment condition");
            return self.say(message, "undefinedType", place, path);
        };
        let objects = |name: &str| -> BTreeSet<String> {
            match schema.types.get(name) {
                Some(found) if found.kind == Kind::Abstract => found.members.clone(),
                _ => BTreeSet::from([name.to_owned()]),
            }
        };
        if found.kind != Kind::Object && found.kind != Kind::Abstract
            || objects(around).is_disjoint(&objects(inner))
        {
            let message = format!("Fragment on {inner} can't be spread inside {around}");
            self.say(message, "cannotSpreadFragment", place, path);
        }
    }

    fn field(&mut self, on: &str, field: &Field, path: &[String], depth: usize) {
        let mut path = path.to_vec();
        path.push(field.key.clone());
        for directive in &field.directives {
            self.values(&directive.arguments);
        }
        if field.name == "__typename" {
            return;
        }
        let schema = self.schema;
        let Some(known) = schema.field(on, &field.name) else {
            let message = format!("Field '{}' doesn't exist on type '{on}'", field.name);
            return self.say(message, "undefinedField", field.place, &path);
        };
        for (name, value) in &field.arguments {
            match known.arguments.get(name) {
                Some(argument) => self.value(&argument.kind, value, name, field, &path),
                None => {
                    let message = format!("Field '{}' doesn't accept argument '{name}'", field.name);
                    self.say(message, "argumentNotAccepted", field.place, &path);
                }
            }
        }
        for (name, argument) in &known.arguments {
            let given = field.arguments.iter().any(|(given, _)| given == name);
            if argument.kind.is_required() && argument.default.is_none() && !given {
                let message = format!("Field '{}' is missing required arguments: {name}", field.name);
                self.say(message, "missingRequiredArguments", field.place, &path);
            }
        }
        let inner = known.kind.name();
        let composite =
            schema.types.get(inner).is_some_and(|found| matches!(found.kind, Kind::Object | Kind::Abstract));
        if composite && field.selections.is_empty() {
            let message = format!(
                "Field must have selections (field '{0}' returns {inner} but has no selections. Did you mean '{0} {{ ... }}'?)",
                field.name
            );
            self.say(message, "selectionMismatch", field.place, &path);
        } else if !composite && !field.selections.is_empty() {
            let message =
                format!("Selections can't be made on scalars (field '{}' returns {inner})", field.name);
            self.say(message, "selectionMismatch", field.place, &path);
            return;
        }
        self.selections(inner, &field.selections, &path, depth + 1);
    }

    fn values(&mut self, arguments: &[(String, Literal)]) {
        for (_, value) in arguments {
            if let Literal::Variable(name) = value {
                self.used.insert(name.clone());
            }
        }
    }

    fn value(&mut self, kind: &TypeRef, value: &Literal, argument: &str, field: &Field, path: &[String]) {
        let schema = self.schema;
        if let Literal::Variable(name) = value {
            self.used.insert(name.clone());
            let operation = self.operation;
            match operation.variables.iter().find(|variable| variable.name == *name) {
                None => {
                    let of =
                        operation.name.clone().unwrap_or_else(|| format!("anonymous {}", operation.kind));
                    let message = format!("Variable ${name} is used by {of} but not declared");
                    self.say(message, "variableNotDefined", field.place, path);
                }
                Some(variable) => {
                    let fits = variable.kind == *kind
                        || variable.kind.optional() == kind
                        || (variable.default.is_some() && variable.kind == *kind.optional());
                    if !fits {
                        let message = format!(
                            "Type mismatch on variable ${name} and argument {argument} ({} / {kind})",
                            variable.kind
                        );
                        self.say(message, "variableMismatch", field.place, path);
                    }
                }
            }
            return;
        }
        let fits = match (kind.optional(), value) {
            (_, Literal::Null) => !kind.is_required(),
            (TypeRef::List(inner), Literal::List(items)) => {
                items.iter().for_each(|item| self.value(inner, item, argument, field, path));
                true
            }
            (TypeRef::List(inner), one) => {
                self.value(inner, one, argument, field, path);
                true
            }
            (TypeRef::Named(name), value) => match (schema.types.get(name), value) {
                (Some(found), Literal::Enum(word)) if found.kind == Kind::Enum => {
                    found.members.contains(word)
                }
                (Some(found), Literal::Object(given)) if found.kind == Kind::Input => {
                    for (name, value) in given {
                        match found.fields.get(name) {
                            Some(field_type) => self.value(&field_type.kind, value, name, field, path),
                            None => {
                                let message = format!("InputObject doesn't accept argument '{name}'");
                                self.say(message, "argumentNotAccepted", field.place, path);
                            }
                        }
                    }
                    found.fields.iter().all(|(name, field)| {
                        !field.kind.is_required() || given.iter().any(|(given, _)| given == name)
                    })
                }
                (Some(found), _) if found.kind != Kind::Scalar => false,
                _ => matches!(
                    (name.as_str(), value),
                    ("Int", Literal::Int(_))
                        | ("Float", Literal::Int(_) | Literal::Float(_))
                        | ("Boolean", Literal::Bool(_))
                        | ("ID", Literal::Text(_) | Literal::Int(_))
                        | ("String" | "DateTime" | "Date" | "URI" | "GitObjectID", Literal::Text(_))
                ),
            },
            _ => false,
        };
        if !fits {
            let message = format!(
                "Argument '{argument}' on Field '{}' has an invalid value. Expected type '{kind}'.",
                field.name
            );
            self.say(message, "argumentLiteralsIncompatible", field.place, path);
        }
    }
}
