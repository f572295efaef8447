//! Slack's limits on a `slack-block-kit` report: count and length, checked before the report is accepted (D53).

use serde_json::{Map, Value};

/// Blocks of one message.
const MOST_BLOCKS: usize = 50;
/// Elements of an `actions` block.
const MOST_ACTIONS: usize = 25;
/// Elements of a `context` block.
const MOST_CONTEXT: usize = 10;
/// Fields of a `section` block.
const MOST_FIELDS: usize = 10;
/// Characters: text of a section, of a field, of a header, a block's id, a button's label, an image's address and title.
const SECTION_TEXT: usize = 3000;
const FIELD_TEXT: usize = 2000;
const HEADER_TEXT: usize = 150;
const BLOCK_ID: usize = 255;
const BUTTON_TEXT: usize = 75;
const IMAGE_URL: usize = 3000;
const IMAGE_TEXT: usize = 2000;

/// Checks `{blocks: [...]}`; every problem names its JSON pointer.
pub fn check(report: &Map<String, Value>) -> Result<(), String> {
    let Some(blocks) = report.get("blocks").and_then(Value::as_array) else {
        return Err("/blocks: an array of blocks is required".to_owned());
    };
    let mut problems = Vec::new();
    if blocks.is_empty() || blocks.len() > MOST_BLOCKS {
        problems.push(format!("/blocks: 1 to {MOST_BLOCKS} blocks, found {}", blocks.len()));
    }
    for (index, block) in blocks.iter().enumerate() {
        block_problems(&format!("/blocks/{index}"), block, &mut problems);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn block_problems(at: &str, block: &Value, problems: &mut Vec<String>) {
    let Some(kind) = block["type"].as_str() else {
        problems.push(format!("{at}/type: a block type is required"));
        return;
    };
    length(at, "/block_id", block, 1, BLOCK_ID, problems);
    match kind {
        "section" => {
            let fields = list(at, "fields", block, MOST_FIELDS, problems);
            if block.get("text").is_none() && fields.is_empty() {
                problems.push(format!("{at}: a section has text or fields"));
            }
            if block.get("text").is_some() {
                text(at, "/text", block, SECTION_TEXT, problems);
            }
            for (index, field) in fields.iter().enumerate() {
                text(&format!("{at}/fields/{index}"), "", field, FIELD_TEXT, problems);
            }
        }
        "header" => text(at, "/text", block, HEADER_TEXT, problems),
        "context" => {
            let elements = list(at, "elements", block, MOST_CONTEXT, problems);
            if elements.is_empty() {
                problems.push(format!("{at}/elements: at least one element"));
            }
        }
        "actions" => {
            for (index, element) in list(at, "elements", block, MOST_ACTIONS, problems).iter().enumerate() {
                if element["type"] == "button" {
                    text(&format!("{at}/elements/{index}"), "/text", element, BUTTON_TEXT, problems);
                }
            }
        }
        "image" => {
            length(at, "/image_url", block, 1, IMAGE_URL, problems);
            length(at, "/alt_text", block, 1, IMAGE_TEXT, problems);
            if block.get("alt_text").is_none() {
                problems.push(format!("{at}/alt_text: an image has a text in its place"));
            }
        }
        _ => {}
    }
}

/// The array under `key`, checked for its size; empty where there is none.
fn list<'v>(at: &str, key: &str, block: &'v Value, most: usize, problems: &mut Vec<String>) -> &'v [Value] {
    let items = block.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if items.len() > most {
        problems.push(format!("{at}/{key}: at most {most}, found {}", items.len()));
    }
    items
}

/// A text object (`{type, text}`) at `pointer` of `value`.
fn text(at: &str, pointer: &str, value: &Value, longest: usize, problems: &mut Vec<String>) {
    let object = value.pointer(pointer);
    let kind = object.and_then(|object| object["type"].as_str());
    if !matches!(kind, Some("mrkdwn" | "plain_text")) {
        problems.push(format!("{at}{pointer}: a text object of type mrkdwn or plain_text is required"));
        return;
    }
    let inside = format!("{pointer}/text");
    match value.pointer(&inside) {
        Some(Value::String(_)) => length(at, &inside, value, 1, longest, problems),
        _ => problems.push(format!("{at}{inside}: a string is required")),
    }
}

/// Length in characters of the string at `pointer`, where there is one.
fn length(at: &str, pointer: &str, value: &Value, least: usize, most: usize, problems: &mut Vec<String>) {
    let Some(found) = value.pointer(pointer).and_then(Value::as_str) else { return };
    let count = found.chars().count();
    if count < least || count > most {
        problems.push(format!("{at}{pointer}: {least} to {most} characters, found {count}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(report: Value) -> String {
        match report {
            Value::Object(report) => check(&report).err().unwrap_or_default(),
            _ => unreachable!(),
        }
    }

    #[test]
    fn d53_blocks_within_the_limits_pass() {
        assert_eq!(
            problems(json!({ "blocks": [
                { "type": "header", "text": { "type": "plain_text", "text": "Done" } },
                { "type": "section", "text": { "type": "mrkdwn", "text": "*fixed*" } },
                { "type": "divider" },
            ]})),
            ""
        );
    }

    #[test]
    fn d53_counts_and_lengths_beyond_slack_s_limits_are_named_with_their_place() {
        assert!(problems(json!({})).starts_with("/blocks: "));
        assert!(problems(json!({ "blocks": vec![json!({ "type": "divider" }); 51] })).contains("found 51"));
        let long = "x".repeat(151);
        let header =
            json!({ "blocks": [{ "type": "header", "text": { "type": "plain_text", "text": long } }] });
        assert!(problems(header).contains("/blocks/0/text/text: 1 to 150 characters, found 151"));
        let section = json!({ "blocks": [{ "type": "section" }] });
        assert!(problems(section).contains("/blocks/0: a section has text or fields"));
    }
}
