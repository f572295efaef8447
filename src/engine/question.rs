//! The protocol tool with which an agent asks people: the visit ends with it, and the run.

use serde_json::{Map, Value, json};

use crate::domain::message::ToolSpec;
use crate::domain::question::Question;
use crate::domain::untrusted::is_blank;

/// Name of the protocol tool.
pub const ASK: &str = "agent__ask";
/// Answers to choose from, at most.
const MOST_OPTIONS: usize = 9;
/// Characters of a question, and of an option.
const LONGEST: usize = 4_000;

/// How the protocol tool is offered.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: ASK.to_owned(),
        description: "Asks the people of the issue something that only they can decide. Your work ends here and is kept; \
                      this step goes on with their answer, which may take days. Ask one question, with all that is needed to \
                      answer it, and only where guessing would be worse."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "question": { "type": "string", "minLength": 1, "maxLength": LONGEST },
                "options": {
                    "type": "array", "maxItems": MOST_OPTIONS,
                    "items": { "type": "string", "minLength": 1, "maxLength": LONGEST },
                    "description": "Answers to choose from",
                },
                "default": { "type": "string", "description": "What to take if nobody answers; one of the options, if there are any" },
            },
            "required": ["question"],
            "additionalProperties": false,
        }),
    }
}

/// The question of a call, or what is wrong with its arguments, for the model.
pub fn read(arguments: &Map<String, Value>, visit: u32, step_id: &str) -> Result<Question, String> {
    let text = |name: &str| -> Result<Option<String>, String> {
        match arguments.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= LONGEST => {
                Ok(Some(text.trim().to_owned()).filter(|text| !is_blank(text)))
            }
            Some(_) => Err(format!("/{name}: a text of at most {LONGEST} characters")),
        }
    };
    let question = text("question")?.ok_or("/question: a text is required")?;
    let options = match arguments.get("options") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(options)) if options.len() <= MOST_OPTIONS => {
            let option = |option: &Value| {
                let text = option.as_str().map(str::trim).filter(|text| !is_blank(text));
                text.filter(|text| text.chars().count() <= LONGEST).map(str::to_owned)
            };
            let read: Option<Vec<String>> = options.iter().map(option).collect();
            read.ok_or(format!("/options: texts of at most {LONGEST} characters"))?
        }
        Some(_) => return Err(format!("/options: at most {MOST_OPTIONS} texts")),
    };
    let asked = Question { visit, step_id: step_id.to_owned(), question, options, default: None };
    let default = match text("default")? {
        Some(default) if !asked.options.is_empty() => {
            let chosen = asked.chosen(&default).ok_or("/default: one of the options")?;
            Some(chosen.to_owned())
        }
        other => other,
    };
    Ok(Question { default, ..asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_with_its_options_and_a_default_among_them() {
        let read = |arguments: Value| read(arguments.as_object().unwrap(), 2, "s");
        let asked = read(json!({ "question": " Which? ", "options": ["a", "b"], "default": "2" })).unwrap();
        assert_eq!(
            (asked.question.as_str(), asked.default.as_deref(), asked.visit),
            ("Which?", Some("b"), 2)
        );
        for wrong in [
            json!({}),
            json!({ "question": " " }),
            json!({ "question": "\u{200b} \u{202e}" }),
            json!({ "question": "?", "options": ["\u{202e}"] }),
            json!({ "question": 1 }),
            json!({ "question": "?", "options": "a" }),
            json!({ "question": "?", "options": [""] }),
            json!({ "question": "?", "options": ["a"], "default": "c" }),
            json!({ "question": "?", "options": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
