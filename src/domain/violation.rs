//! What a violation of a JSON Schema says to people and to models.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;

/// Says what is expected, with `value` in place of the value. The library names two or three of the values that are
/// allowed; whoever has to write one needs all of them.
pub fn told(error: &ValidationError<'_>, value: &str) -> String {
    match error.kind() {
        ValidationErrorKind::Enum { options } => match options.as_array() {
            Some(options) => {
                let options: Vec<String> = options.iter().map(ToString::to_string).collect();
                format!("{value} is not one of {}", options.join(", "))
            }
            None => error.masked_with(value).to_string(),
        },
        _ => error.masked_with(value).to_string(),
    }
}

/// The same with the value itself.
pub fn told_with_value(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Enum { .. } => told(error, &error.instance().to_string()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_a_value_may_be_is_named() {
        let schema = json!({ "enum": ["a", "b", "c", "d", "e"] });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let value = json!("z");
        let error = validator.iter_errors(&value).next().unwrap();
        assert_eq!(told(&error, "the value"), r#"the value is not one of "a", "b", "c", "d", "e""#);
        assert_eq!(told_with_value(&error), r#""z" is not one of "a", "b", "c", "d", "e""#);
        let validator = jsonschema::validator_for(&json!({ "type": "integer" })).unwrap();
        let error = validator.iter_errors(&value).next().unwrap();
        assert_eq!(told(&error, "the value"), r#"the value is not of type "integer""#);
        assert_eq!(told_with_value(&error), r#""z" is not of type "integer""#);
    }
}
