//! The arguments of a call: parsed, bound by the host, checked against the tool's schema (A-047…A-049, S-030, S-031).

use std::fmt;

use jsonschema::Validator;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::tool::BoundParameter;
use super::tool_schema::declared;
use crate::domain::issue::IssueKey;
use crate::domain::policy::PolicyPrincipal;
use crate::domain::violation;

/// Most problems named in one message.
const MOST_PROBLEMS: usize = 5;

/// For whom a session works, and where. Policies are asked about it, and bound parameters are set from it. What a scope
/// does not have is the empty word: a chat has no repository, issue, branch and worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// On whose behalf; `user_id` is its id.
    pub principal: PolicyPrincipal,
    /// `owner/name`.
    pub repo: String,
    /// The issue.
    pub issue: IssueKey,
    /// The issue's branch.
    pub branch: String,
    /// The worktree, relative to the main checkout.
    pub worktree: String,
}

impl BoundParameter {
    /// The parameter's name in argument schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserId => "user_id",
            Self::Repo => "repo",
            Self::Issue => "issue",
            Self::Branch => "branch",
            Self::Worktree => "worktree",
        }
    }

    /// What the host sets; `None` where the scope has no such thing (a chat has no issue).
    fn value(self, scope: &Scope) -> Option<Value> {
        let word = |word: &str| (!word.is_empty()).then(|| Value::from(word));
        match self {
            Self::UserId => Some(scope.principal.id.to_string().into()),
            Self::Repo => word(&scope.repo),
            Self::Issue => match &scope.issue {
                IssueKey::Number(number) => Some((*number).into()),
                IssueKey::Word(key) => word(key),
            },
            Self::Branch => word(&scope.branch),
            Self::Worktree => word(&scope.worktree),
        }
    }
}

/// Reads argument text strictly: one JSON object, no repair, no repeated member. An empty text is the empty object,
/// because providers send it for a call without arguments.
pub fn parse(raw: &str) -> Result<Map<String, Value>, String> {
    if raw.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str::<Strict>(raw) {
        Ok(Strict(Value::Object(arguments))) => Ok(arguments),
        Ok(Strict(other)) => Err(format!("expected a JSON object, found {}", kind_of(&other))),
        Err(error) => Err(format!("not valid JSON: {error}")),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Sets the host's values where the schema declares the parameter, and where the model wrote one that the schema does
/// not name but may accept. Gives the names for which the model had another value.
pub fn bind(
    arguments: &mut Map<String, Value>,
    bound: &[BoundParameter],
    schema: &Value,
    scope: &Scope,
) -> Vec<&'static str> {
    let mut overridden = Vec::new();
    for parameter in bound {
        let name = parameter.name();
        let declared = declared(schema, name);
        if declared.is_none() && !arguments.contains_key(name) {
            continue;
        }
        let Some(mut value) = parameter.value(scope) else { continue };
        if declared.is_some_and(|declared| declared["type"] == "string")
            && let Value::Number(number) = &value
        {
            value = number.to_string().into();
        }
        let before = arguments.insert(name.to_owned(), value.clone());
        if before.is_some_and(|before| before != value) {
            overridden.push(name);
        }
    }
    overridden
}

/// Checks a value against a schema. Each problem is `pointer: what is expected`, without the value (A-049).
pub fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    let mut problems: Vec<String> = validator
        .iter_errors(value)
        .take(MOST_PROBLEMS + 1)
        .map(|error| {
            let pointer = error.instance_path().to_string();
            let place = if pointer.is_empty() { "/".to_owned() } else { pointer };
            format!("{place}: {}", violation::told(&error, "value"))
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    if problems.len() > MOST_PROBLEMS {
        problems.truncate(MOST_PROBLEMS);
        problems.push("and more".to_owned());
    }
    Err(problems.join("; "))
}

/// A JSON value in which no object names a member twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, Strict>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the member \"{name}\" stands twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        Scope {
            principal: PolicyPrincipal {
                id: uuid::Uuid::nil(),
                login: None,
                source: crate::domain::run::PrincipalSource::Local,
                permission: None,
            },
            repo: "o/n".into(),
            issue: IssueKey::Number(7),
            branch: "feature/issue-7".into(),
            worktree: ".worktrees/issue-7".into(),
        }
    }

    #[test]
    fn a_047_only_one_whole_json_object_passes() {
        assert_eq!(parse("").unwrap(), Map::new());
        assert_eq!(
            Value::Object(parse(r#"{"a":[1,2.5,null,{"b":"c"}]}"#).unwrap()),
            json!({"a":[1,2.5,null,{"b":"c"}]})
        );
        for bad in
            [r#"{"a":"#, "[]", "null", "{} {}", r#"{"a":1,"a":2}"#, r#"{"x":{"a":1,"a":2}}"#, "{'a':1}"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn s_031_the_host_s_value_wins_where_the_schema_names_the_parameter() {
        let schema = json!({ "properties": { "user_id": {}, "issue": { "type": "string" } } });
        let mut arguments = parse(r#"{"user_id":"evil","x":1}"#).unwrap();
        let all = [BoundParameter::UserId, BoundParameter::Issue, BoundParameter::Branch];
        assert_eq!(bind(&mut arguments, &all, &schema, &scope()), ["user_id"]);
        assert_eq!(
            Value::Object(arguments),
            json!({ "user_id": uuid::Uuid::nil().to_string(), "x": 1, "issue": "7" })
        );
    }

    #[test]
    fn s_031_the_host_s_value_wins_wherever_the_schema_declares_or_lets_through_the_parameter() {
        let owner = json!({ "type": "object", "properties": { "user_id": { "type": "string" } } });
        let host = uuid::Uuid::nil().to_string();
        let bound = |schema: &Value, written: &str| {
            let mut arguments = parse(written).unwrap();
            let overridden = bind(&mut arguments, &[BoundParameter::UserId], schema, &scope());
            (arguments.get("user_id").cloned(), overridden)
        };
        let declaring = [
            json!({ "$ref": "#/$defs/A", "$defs": { "A": owner } }),
            json!({ "allOf": [{ "anyOf": [{}, { "oneOf": [owner] }] }] }),
            json!({ "if": {}, "then": owner }),
        ];
        for schema in declaring {
            assert_eq!(bound(&schema, "{}"), (Some(json!(host)), vec![]), "{schema}");
            let evil = bound(&schema, r#"{"user_id":"evil"}"#);
            assert_eq!(evil, (Some(json!(host)), vec!["user_id"]), "{schema}");
        }
        let open = [
            json!({ "patternProperties": { "_id$": {} } }),
            json!({ "additionalProperties": true }),
            // A member of a member is not the parameter, and a schema may refer to itself.
            json!({ "$ref": "#", "properties": { "of": owner } }),
        ];
        for schema in open {
            assert_eq!(bound(&schema, "{}"), (None, vec![]), "{schema}");
            let evil = bound(&schema, r#"{"user_id":"evil"}"#);
            assert_eq!(evil, (Some(json!(host)), vec!["user_id"]), "{schema}");
        }
    }

    #[test]
    fn s_030_a_value_that_is_right_already_is_no_override() {
        let schema = json!({ "properties": { "issue": { "type": "integer" } } });
        let mut arguments = parse(r#"{"issue":7}"#).unwrap();
        assert!(bind(&mut arguments, &[BoundParameter::Issue], &schema, &scope()).is_empty());
    }

    #[test]
    fn a_049_a_problem_names_place_and_expectation_and_not_the_value() {
        let schema =
            json!({ "type": "object", "required": ["path"], "properties": { "n": { "type": "integer" } } });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let problem = check(&validator, &json!({ "n": "sekrit" })).unwrap_err();
        assert!(problem.contains("/n: "), "{problem}");
        assert!(problem.contains("integer"), "{problem}");
        assert!(problem.contains("\"path\""), "{problem}");
        assert!(!problem.contains("sekrit"), "{problem}");
    }
}
