//! A tool call on one line: the tool, what it is about, then its other arguments, each cut.

use std::fmt::Write as _;

use serde_json::Value;

use super::shell_words;
use super::untrusted::visible;

/// Most characters of one argument.
const LONGEST_ARGUMENT: usize = 60;
/// Most characters of a command line or a path.
const LONGEST_SUBJECT: usize = 160;
/// Fewest characters that are kept of a text of arguments for people who decide on them.
const SHORTEST_CUT: usize = 40;
/// The arguments that a call is about, first of all and without their name.
const SUBJECTS: [&str; 7] = ["argv", "command", "path", "url", "pattern", "query", "message"];

/// Arguments that are the work itself; what became of it is told elsewhere.
const WORK: [&str; 3] = ["content", "old", "new"];

/// The member of a pointer to arguments that has the short ones among them.
pub const SHORT: &str = "short";

/// What a record says of the arguments of a call: all of them, or where they are kept elsewhere, the short ones.
pub fn told_arguments(recorded: &Value) -> &Value {
    match recorded.get("$ref").and(recorded.get(SHORT)) {
        Some(short) if short.is_object() => short,
        _ => recorded,
    }
}

/// The call as people read it.
pub fn call_text(tool: &str, arguments: &Value) -> String {
    text_of(tool, arguments, &[])
}

/// The same without the arguments that hold the work itself.
pub fn short_call_text(tool: &str, arguments: &Value) -> String {
    text_of(tool, arguments, &WORK)
}

fn text_of(tool: &str, arguments: &Value, without: &[&str]) -> String {
    let mut parts = vec![one_line(tool, LONGEST_SUBJECT)];
    match told_arguments(arguments) {
        Value::Object(members) => {
            let subject = SUBJECTS.into_iter().find(|name| members.contains_key(*name));
            parts.extend(subject.and_then(|name| members.get(name)).map(subject_text));
            let others = members
                .iter()
                .filter(|(name, _)| Some(name.as_str()) != subject && !without.contains(&name.as_str()));
            parts.extend(others.map(|(name, value)| format!("{name}={}", argument_text(value))));
        }
        Value::Null => {}
        other => parts.push(argument_text(other)),
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

fn subject_text(value: &Value) -> String {
    let words: Option<Vec<&str>> = value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect());
    match (value, words) {
        (_, Some(words)) => one_line(&shell_words::line(&words), LONGEST_SUBJECT),
        (Value::String(text), None) => one_line(text, LONGEST_SUBJECT),
        _ => argument_text(value),
    }
}

fn argument_text(value: &Value) -> String {
    match value {
        Value::String(text) if text.lines().count() > 1 => format!("({} lines)", text.lines().count()),
        Value::String(text) => one_line(&shell_words::quoted(text.trim_end()), LONGEST_ARGUMENT),
        other => one_line(&other.to_string(), LONGEST_ARGUMENT),
    }
}

/// The JSON text of arguments for people who decide on them, with the longest texts in it cut until it has at most `longest`
/// characters, so that no long argument hides the others. Also whether anything was cut.
pub fn shown_arguments(json: &str, longest: usize) -> (String, bool) {
    let fits = |text: &str| text.chars().count() <= longest;
    let whole = escaped(json);
    if fits(&whole) {
        return (whole, false);
    }
    if let Ok(arguments) = serde_json::from_str::<Value>(json) {
        let mut each = longest;
        while each >= SHORTEST_CUT {
            let shown = escaped(&with_texts_of(&arguments, each).to_string());
            if fits(&shown) {
                return (shown, true);
            }
            each = each * 3 / 4;
        }
    }
    (whole.chars().take(longest).chain(" … (cut)".chars()).collect(), true)
}

/// A JSON text in which nothing is hidden: what a screen does not show, or what turns the order of letters, stands there as an escape.
pub fn escaped(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        let itself = c.to_string();
        if c == ' ' || c.is_ascii_graphic() || visible(&itself) == itself {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _infallible = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// The same value; a text in it that is longer than `longest` characters says how many more there are.
fn with_texts_of(value: &Value, longest: usize) -> Value {
    match value {
        Value::String(text) => {
            let more = text.chars().count().saturating_sub(longest);
            if more == 0 {
                return value.clone();
            }
            let kept: String = text.chars().take(longest).collect();
            Value::String(format!("{kept} … ({more} more characters)"))
        }
        Value::Array(all) => all.iter().map(|one| with_texts_of(one, longest)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, one)| (name.clone(), with_texts_of(one, longest))).collect()
        }
        _ => value.clone(),
    }
}

/// A text on one line, cut where it is longer.
pub fn one_line(text: &str, longest: usize) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_hidden_from_who_decides_on_arguments() {
        let json = "{\"argv\":[\"rm\u{202e}gpj.\u{200b}x\u{e0041}\",\"ä 1\"]}";
        let shown = escaped(json);
        assert_eq!(shown, "{\"argv\":[\"rm\\u202egpj.\\u200bx\\udb40\\udc41\",\"ä 1\"]}");
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&shown), read(json));
        assert_eq!(shown_arguments(json, 200), (shown, false));
    }

    #[test]
    fn a_call_says_first_what_it_is_about() {
        for (tool, arguments, told) in [
            ("read_file", json!({ "from_line": 7, "path": "a b.rs" }), "read_file a b.rs from_line=7"),
            ("run_command", json!({ "argv": ["sh", "-c", "exit 3"] }), "run_command sh -c 'exit 3'"),
            ("write_file", json!({ "content": "a\nb\n", "path": "x" }), "write_file x content=(2 lines)"),
            ("list_files", json!({}), "list_files"),
            ("odd", json!("{\"broken"), "odd '{\"broken'"),
        ] {
            assert_eq!(call_text(tool, &arguments), told);
        }
        let write = json!({ "content": "a\nb\n", "path": "x" });
        assert_eq!(short_call_text("write_file", &write), "write_file x");
        let long = call_text("note", &json!({ "text": "x".repeat(100) }));
        assert!(
            long.ends_with('…') && long.chars().count() == "note text=".len() + LONGEST_ARGUMENT,
            "{long}"
        );
    }

    #[test]
    fn a_long_argument_hides_no_other_from_those_who_decide() {
        let short = r#"{"content":"a","path":"x"}"#;
        assert_eq!(shown_arguments(short, 2_000), (short.to_owned(), false));
        let long = |content: String| json!({ "content": content, "path": "deploy/key.pem" }).to_string();
        let (shown, cut) = shown_arguments(&long("\n\"é".repeat(5_000)), 2_000);
        assert!(cut && shown.chars().count() <= 2_000, "{}", shown.len());
        assert!(shown.ends_with(r#" more characters)","path":"deploy/key.pem"}"#), "{shown}");
        let argv = json!({ "argv": ["sh", "-c", "x".repeat(9_000), "--force"] }).to_string();
        let (shown, _) = shown_arguments(&argv, 2_000);
        assert!(shown.contains(r#"["sh","-c","xxxx"#) && shown.ends_with(r#","--force"]}"#), "{shown}");
        // Many arguments, or none that can be read.
        let many: serde_json::Map<String, Value> =
            (0..1_000).map(|n| (format!("k{n}"), Value::from(n))).collect();
        for odd in [Value::Object(many).to_string(), "{\"broken".repeat(1_000)] {
            let (shown, cut) = shown_arguments(&odd, 2_000);
            assert!(cut && shown.ends_with(" … (cut)") && shown.starts_with(&odd[..2_000]), "{shown}");
        }
    }

    #[test]
    fn s_050_a_call_steers_no_terminal() {
        let told = call_text("read_file", &json!({ "path": "a\u{1b}[31m\nb" }));
        assert!(!told.contains('\u{1b}') && !told.contains('\n'), "{told:?}");
    }
}
