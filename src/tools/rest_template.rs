//! Templates of REST tools: `${parameters.x}` stands for an argument of the call.
//!
//! Substitution is a single pass: what an argument holds is never read as a template. Where a value goes decides how it is
//! written: percent-encoded in an address, as JSON in a JSON body, as it is elsewhere.

use serde_json::{Map, Value};

const OPEN: &str = "${parameters.";

/// A text with places for arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    /// A path into the arguments: `a.b`.
    Argument(String),
}

impl Template {
    /// Reads a text. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (path, after) =
                after.split_once('}').ok_or_else(|| format!("`{OPEN}` has no closing `}}`"))?;
            let plain = |name: &str| {
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
            };
            if !path.split('.').all(plain) {
                return Err(format!("`{OPEN}{path}}}` does not name an argument"));
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Argument(path.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The arguments it names, as paths.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Argument(path) => Some(path.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Whether a part that is sent as it is has these words.
    pub(super) fn has_text(&self, words: &str) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Text(text) if text.contains(words)))
    }

    /// The text before the first argument.
    pub(super) fn fixed_start(&self) -> &str {
        match self.0.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// The text, each value written by `write`; an absent argument is nothing.
    pub(super) fn fill(&self, arguments: &Value, write: fn(&str) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Argument(path) => {
                lookup(arguments, path).map(plain).map(|text| write(&text)).unwrap_or_default()
            }
        };
        self.0.iter().map(part).collect()
    }

    /// The path, where the template is one argument and nothing else.
    fn whole_argument(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Argument(path)] => Some(path),
            _ => None,
        }
    }
}

/// A JSON body with templates for its strings.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsonTemplate {
    Fixed(Value),
    Text(Template),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl JsonTemplate {
    /// Reads a JSON value whose strings are templates.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text)?),
            Value::Array(items) => Self::Array(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), Self::parse(value)?)))
                    .collect::<Result<_, String>>()?,
            ),
            other => Self::Fixed(other.clone()),
        })
    }

    /// The arguments it names.
    pub(super) fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Text(template) => template.arguments().collect(),
            Self::Array(items) => items.iter().flat_map(Self::arguments).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.arguments()).collect(),
        }
    }

    /// The body. A string that is one argument alone becomes that argument, of whatever type; `None` where it is absent:
    /// a member without value is left out.
    pub(super) fn fill(&self, arguments: &Value) -> Option<Value> {
        Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => match template.whole_argument() {
                Some(path) => return lookup(arguments, path).cloned(),
                None => Value::String(template.fill(arguments, str::to_owned)),
            },
            Self::Array(items) => {
                Value::Array(items.iter().map(|item| item.fill(arguments).unwrap_or(Value::Null)).collect())
            }
            Self::Object(members) => Value::Object(
                members
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), value.fill(arguments)?)))
                    .collect::<Map<_, _>>(),
            ),
        })
    }
}

fn lookup<'a>(arguments: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(arguments, |value, name| value.get(name))
}

/// A value as text: strings as they are, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::percent::percent_encoded;
    use serde_json::json;

    #[test]
    fn a_093_values_are_encoded_where_they_go_and_never_read_again() {
        let url =
            Template::parse("https://h/items/${parameters.id}?q=${parameters.filter.name}&n=${parameters.n}")
                .unwrap();
        let arguments =
            json!({ "id": "a/b?c#d", "filter": { "name": "x & ${parameters.id} ${HOME} é" }, "n": 3 });
        assert_eq!(
            url.fill(&arguments, percent_encoded),
            "https://h/items/a%2Fb%3Fc%23d?q=x%20%26%20%24%7Bparameters.id%7D%20%24%7BHOME%7D%20%C3%A9&n=3"
        );
        assert_eq!(url.fixed_start(), "https://h/items/");
        assert_eq!(url.arguments().collect::<Vec<_>>(), ["id", "filter.name", "n"]);
        assert_eq!(url.fill(&json!({}), percent_encoded), "https://h/items/?q=&n=");
    }

    #[test]
    fn a_json_body_keeps_types_and_leaves_out_what_is_absent() {
        let body = json!({ "title": "On ${parameters.what}", "n": "${parameters.n}", "tags": ["${parameters.tag}", "fixed"],
            "absent": "${parameters.absent}", "deep": { "all": "${parameters.object}" }, "two": 2 });
        let template = JsonTemplate::parse(&body).unwrap();
        let arguments = json!({ "what": "\"quotes\" & ${parameters.n}", "n": 3, "object": { "a": [1] } });
        let filled = json!({ "title": "On \"quotes\" & ${parameters.n}", "n": 3, "tags": [null, "fixed"],
            "deep": { "all": { "a": [1] } }, "two": 2 });
        assert_eq!(template.fill(&arguments).unwrap(), filled);
        assert_eq!(template.arguments(), ["what", "n", "tag", "absent", "object"]);
    }

    #[test]
    fn a_template_that_names_no_argument_is_an_error() {
        for broken in ["${parameters.x", "${parameters.}", "${parameters.a..b}", "${parameters.a b}"] {
            assert!(Template::parse(broken).is_err(), "{broken}");
        }
    }
}
