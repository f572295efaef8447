//! A prompt template: parsed once, rendered in one pass; inserted values are never looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::PromptError;
use super::frontmatter::{self, Frontmatter};
use crate::domain::canonical::sha256_hex;

/// A parsed prompt file.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// The file's head.
    pub head: Frontmatter,
    /// SHA-256 of the file's bytes.
    pub sha256: String,
    /// The id that git gives the file's bytes, by which a history finds them.
    pub blob: String,
    /// Line of the file at which the body begins.
    first_line: u32,
    body: String,
    slots: Vec<Slot>,
}

/// A placeholder in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// What goes in.
    pub what: Placeholder,
    /// 1-based line of the file.
    pub line: u32,
    range: Range<usize>,
}

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    /// `{uv-name}`, or `{{uv-name}}` of older files.
    Uv(String),
    /// `{input_text}`: what is given on standard input.
    InputText,
    /// `{input_text_file}`: path of the input file.
    InputTextFile,
    /// `{destination_path}`: where the result goes.
    DestinationPath,
    /// `{schema_file}`: path of the output's schema.
    SchemaFile,
    /// `{name}` of a name that the head lists under `customVariables`.
    Custom(String),
}

/// Values for placeholders. A value that is absent is not the same as one that is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values {
    /// Shared, as each visit's values begin with the run's.
    uv: BTreeMap<Arc<str>, Arc<str>>,
    /// `{input_text}`.
    pub input_text: Option<String>,
    /// `{input_text_file}`.
    pub input_text_file: Option<String>,
    /// `{destination_path}`.
    pub destination_path: Option<String>,
    /// `{schema_file}`.
    pub schema_file: Option<String>,
    /// `{name}`, for names of `customVariables`; absent ones become nothing.
    pub custom: BTreeMap<String, String>,
}

impl Values {
    /// Sets a variable, named with or without `uv-`. The first value wins; false = there was one already (T17).
    pub fn set(&mut self, name: &str, value: impl Into<Arc<str>>) -> bool {
        let name = name.strip_prefix("uv-").unwrap_or(name);
        if self.uv.contains_key(name) {
            return false;
        }
        self.uv.insert(name.into(), value.into());
        true
    }

    /// The variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.uv.get(name.strip_prefix("uv-").unwrap_or(name)).map(|value| &**value)
    }

    /// Names of the variables that have a value.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.uv.keys().map(|name| &**name)
    }
}

impl<N: AsRef<str>, V: Into<Arc<str>>> FromIterator<(N, V)> for Values {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut values = Self::default();
        for (name, value) in pairs {
            values.set(name.as_ref(), value);
        }
        values
    }
}

impl Template {
    /// Parses a file's text: byte order mark and CRLF are taken out, the head is split off, placeholders are found.
    /// A file without text for the model is an error (T09).
    pub fn parse(text: &str) -> Result<Self, PromptError> {
        let sha256 = sha256_hex(text.as_bytes());
        // Hashing bytes in memory does not fail; without an id the path alone names the template.
        let blob = git2::Oid::hash_object(git2::ObjectType::Blob, text.as_bytes());
        let blob = blob.map(|id| id.to_string()).unwrap_or_default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        let parts = frontmatter::split(&text)?;
        if parts.body.trim().is_empty() {
            return Err(PromptError::new(
                "PR-C3L-004",
                "the prompt is empty; write what the model is to do below the frontmatter",
            )
            .on_line(parts.body_line));
        }
        let head = parts.head.unwrap_or_default();
        let body = parts.body.to_owned();
        let slots = find_slots(&body, parts.body_line, &head.custom_variables)?;
        Ok(Self { head, sha256, blob, first_line: parts.body_line, body, slots })
    }

    /// Names in double braces that are no placeholders and reach the model as they stand, with their lines: other engines
    /// have variables of that form.
    pub fn literal_names(&self) -> Vec<(&str, u32)> {
        let mut found = Vec::new();
        for (start, _) in self.body.match_indices("{{") {
            let Some(length) = self.body[start + 2..].find("}}") else { continue };
            let name = self.body[start + 2..start + 2 + length].trim();
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            // Expressions of workflows begin with a dollar.
            let foreign = self.body[..start].ends_with('$')
                || self.slots.iter().any(|slot| slot.range.contains(&start));
            if is_name && !foreign {
                let line =
                    self.first_line + u32::try_from(self.body[..start].matches('\n').count()).unwrap_or(0);
                found.push((name, line));
            }
        }
        found
    }

    /// Every placeholder, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Names of the variables it uses, without `uv-`.
    pub fn uv_variables(&self) -> BTreeSet<&str> {
        self.slots
            .iter()
            .filter_map(|slot| match &slot.what {
                Placeholder::Uv(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The same, to be kept.
    pub fn variable_names(&self) -> BTreeSet<String> {
        self.uv_variables().into_iter().map(str::to_owned).collect()
    }

    /// Whether it uses the placeholder.
    pub fn uses(&self, what: &Placeholder) -> bool {
        self.slots.iter().any(|slot| slot.what == *what)
    }

    /// The text without its head, placeholders as written.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Puts the values in, verbatim, in one pass. Every placeholder without a value is told in one error.
    pub fn render(&self, values: &Values) -> Result<String, PromptError> {
        let mut missing: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        let mut line = None;
        let mut text = String::with_capacity(self.body.len() + 256);
        let mut end = 0;
        for slot in &self.slots {
            text.push_str(&self.body[end..slot.range.start]);
            end = slot.range.end;
            match slot.what.value(values) {
                Ok(value) => text.push_str(value),
                Err((code, what)) => {
                    line.get_or_insert(slot.line);
                    let names = missing.entry(code).or_default();
                    if !names.contains(&what) {
                        names.push(what);
                    }
                }
            }
        }
        text.push_str(&self.body[end..]);
        if let Some((code, _)) = missing.first_key_value() {
            let names = missing.values().flatten().cloned().collect::<Vec<_>>().join(", ");
            let message = format!("the prompt uses {names}, but no value was given");
            return Err(PromptError { code, file: None, line, message });
        }
        Ok(text)
    }

    /// Puts in what is known and leaves every other placeholder as it is written: how system prompts are made.
    pub fn render_known(&self, values: &Values) -> String {
        let mut text = String::with_capacity(self.body.len() + 256);
        let mut end = 0;
        for slot in &self.slots {
            text.push_str(&self.body[end..slot.range.start]);
            end = slot.range.end;
            match (&slot.what, slot.what.value(values)) {
                (Placeholder::Uv(_), Ok(value)) => text.push_str(value),
                _ => text.push_str(&self.body[slot.range.clone()]),
            }
        }
        text.push_str(&self.body[end..]);
        text
    }
}

impl Placeholder {
    fn value<'v>(&self, values: &'v Values) -> Result<&'v str, (&'static str, String)> {
        let given = |value: &'v Option<String>, code, name: &str| {
            value.as_deref().ok_or_else(|| (code, format!("{{{name}}}")))
        };
        match self {
            Self::Uv(name) => values.get(name).ok_or_else(|| ("PR-RESOLVE-005", format!("{{uv-{name}}}"))),
            Self::InputText => given(&values.input_text, "PR-RESOLVE-004", "input_text"),
            Self::InputTextFile => given(&values.input_text_file, "PR-RESOLVE-005", "input_text_file"),
            Self::DestinationPath => given(&values.destination_path, "PR-RESOLVE-005", "destination_path"),
            Self::SchemaFile => given(&values.schema_file, "PR-RESOLVE-005", "schema_file"),
            Self::Custom(name) => Ok(values.custom.get(name).map_or("", String::as_str)),
        }
    }

    fn from_word(word: &str, custom: &[String]) -> Option<Self> {
        Some(match word {
            "input_text" => Self::InputText,
            "input_text_file" => Self::InputTextFile,
            "destination_path" => Self::DestinationPath,
            "schema_file" => Self::SchemaFile,
            name if custom.iter().any(|known| known == name) => Self::Custom(name.to_owned()),
            _ => return None,
        })
    }
}

/// Whether a variable may have this name: an ASCII letter, then letters, digits, `_` and `-`.
pub fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Names that are placeholders of their own and cannot be variables.
pub const RESERVED: [&str; 4] = ["input_text", "input_text_file", "destination_path", "schema_file"];

fn find_slots(body: &str, first_line: u32, custom: &[String]) -> Result<Vec<Slot>, PromptError> {
    let mut slots = Vec::new();
    let mut line = first_line;
    let mut counted = 0;
    let mut from = 0;
    while let Some(found) = body[from..].find('{') {
        let start = from + found;
        from = start + 1;
        let double = body[start..].starts_with("{{");
        let inner_start = start + if double { 2 } else { 1 };
        let Some(length) = body[inner_start..].find(['{', '}', '\n']) else { continue };
        let inner_end = inner_start + length;
        let close = if double { "}}" } else { "}" };
        if !body[inner_end..].starts_with(close) {
            continue;
        }
        let word = body[inner_start..inner_end].trim();
        line += u32::try_from(body[counted..start].matches('\n').count()).unwrap_or(0);
        counted = start;
        let what = match word.strip_prefix("uv-") {
            Some(name) if is_variable_name(name) && !RESERVED.contains(&name) => {
                Some(Placeholder::Uv(name.to_owned()))
            }
            Some(name) if name_like(name) => return Err(bad_name(name).on_line(line)),
            Some(_) => None,
            None => Placeholder::from_word(word, custom),
        };
        if let Some(what) = what {
            let end = inner_end + close.len();
            slots.push(Slot { what, line, range: start..end });
            from = end;
        }
    }
    Ok(slots)
}

/// Whether a text was meant as a name; `{uv-*}` and the like stay text.
fn name_like(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn bad_name(name: &str) -> PromptError {
    let why = if RESERVED.contains(&name) {
        format!("is reserved; write {{{name}}}")
    } else {
        "must begin with an ASCII letter and hold only letters, digits, \"_\" and \"-\"".to_owned()
    };
    PromptError::new("PR-C3L-002", format!("the variable name \"{name}\" {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, pairs: &[(&str, &str)]) -> Result<String, PromptError> {
        Template::parse(text).and_then(|template| template.render(&pairs.iter().copied().collect()))
    }

    #[test]
    fn p_026_a_template_has_the_id_that_git_gives_its_bytes() {
        assert_eq!(Template::parse("Do it.\n").unwrap().blob, "39ab459f5bc246370ea19b438c8b59bd4bc92adf");
    }

    #[test]
    fn t01_a_variable_is_put_in() {
        assert_eq!(render("Fix #{uv-issue}.", &[("issue", "42")]).unwrap(), "Fix #42.");
        assert_eq!(render("{\"issue\":{uv-issue}}", &[("uv-issue", "42")]).unwrap(), "{\"issue\":42}");
        assert_eq!(render("{ uv-issue }", &[("issue", "42")]).unwrap(), "42", "spaces inside are allowed");
    }

    #[test]
    fn t03_every_missing_value_is_named_in_one_error() {
        let error = render("a\n{uv-x} {uv-y} {uv-x}", &[]).unwrap_err();
        assert_eq!((error.code, error.line), ("PR-RESOLVE-005", Some(2)));
        assert!(error.message.contains("{uv-x}, {uv-y}"), "{error}");
        assert_eq!(render("[{uv-x}]", &[("x", "")]).unwrap(), "[]", "empty is not absent");
    }

    #[test]
    fn t04_t05_values_go_in_verbatim_and_are_never_scanned_again() {
        let long = "é".repeat(100_000);
        for value in
            ["a & b; c | d <e>", "{uv-other} {input_text} {{uv-x}}", "$& $1 \\n", "🎉\n\"quoted\"", &long]
        {
            assert_eq!(render("[{uv-x}]", &[("x", value)]).unwrap(), format!("[{value}]"));
        }
    }

    #[test]
    fn t09_a_prompt_without_text_is_an_error() {
        for text in ["", " \n\t\n", "---\ntitle: x\n---\n \n", "\u{feff}"] {
            assert_eq!(Template::parse(text).unwrap_err().code, "PR-C3L-004", "{text:?}");
        }
    }

    #[test]
    fn t13_double_braces_are_the_same_placeholder() {
        assert_eq!(render("{{uv-x}} {{{uv-x}}}", &[("x", "1")]).unwrap(), "1 {1}");
    }

    #[test]
    fn what_is_no_placeholder_stays_as_it_is() {
        let text = "{ \"a\": {} } {{#if x}} {uv-*} {unknown} {uv-} {input_texts} {";
        assert_eq!(render(text, &[]).unwrap(), text);
    }

    #[test]
    fn a_bad_variable_name_is_told_with_its_line() {
        for name in ["1st", "名前", "input_text", "a.b"] {
            let error = Template::parse(&format!("x\n\n{{uv-{name}}}")).unwrap_err();
            assert_eq!((error.code, error.line), ("PR-C3L-002", Some(3)), "{name}");
        }
    }

    #[test]
    fn t12_input_text_must_be_given_where_it_is_used() {
        let template = Template::parse("Do: {input_text}").unwrap();
        assert_eq!(template.render(&Values::default()).unwrap_err().code, "PR-RESOLVE-004");
        let values = Values { input_text: Some("{uv-x}".into()), ..Values::default() };
        assert_eq!(template.render(&values).unwrap(), "Do: {uv-x}");
        let template = Template::parse("To {destination_path}").unwrap();
        assert_eq!(template.render(&Values::default()).unwrap_err().code, "PR-RESOLVE-005");
    }

    #[test]
    fn p14_byte_order_mark_and_crlf_are_taken_out() {
        let template = Template::parse("\u{feff}---\r\ntitle: x\r\n---\r\nHello\r\n{uv-x}\r\n").unwrap();
        assert_eq!(template.body(), "Hello\n{uv-x}\n");
        assert_eq!(template.slots()[0].line, 5);
    }

    #[test]
    fn a_custom_variable_is_a_placeholder_only_where_the_head_lists_it() {
        let text = "---\ncustomVariables: [issue_content]\n---\n[{issue_content}] {other}";
        let template = Template::parse(text).unwrap();
        assert_eq!(template.render(&Values::default()).unwrap(), "[] {other}");
    }

    #[test]
    fn a_system_prompt_keeps_what_it_does_not_know() {
        let template = Template::parse("I am {uv-agent_name}; {uv-issue} {input_text}").unwrap();
        let values = [("agent_name", "r")].into_iter().collect();
        assert_eq!(template.render_known(&values), "I am r; {uv-issue} {input_text}");
    }
}
