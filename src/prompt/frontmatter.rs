//! The YAML block at the head of a prompt file: found, parsed and checked.

use serde_yaml_ng::Value;

use super::PromptError;

/// What the head of a prompt file says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Frontmatter {
    /// `stepId`.
    pub step_id: Option<String>,
    /// `c1`, `c2`, `c3` as far as written.
    pub levels: [Option<String>; 3],
    /// Variables that it lists (`uvVariables`, `uv`), without `uv-`.
    pub uv_variables: Vec<String>,
    /// Further placeholders that it lists (`customVariables`).
    pub custom_variables: Vec<String>,
    /// What is odd about it: (line, text).
    pub notes: Vec<(u32, String)>,
}

/// A prompt file in two parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts<'a> {
    /// The head; `None` = the file has none.
    pub head: Option<Frontmatter>,
    /// What is shown to the model.
    pub body: &'a str,
    /// 1-based line on which the body starts.
    pub body_line: u32,
}

const KNOWN: [&str; 15] = [
    "c1",
    "c2",
    "c3",
    "title",
    "description",
    "usage",
    "c3l_version",
    "options",
    "uv",
    "stepId",
    "name",
    "edition",
    "adaptation",
    "uvVariables",
    "customVariables",
];

/// Splits a file. A leading `---` opens a head only when what follows is a YAML map; a rule at the top of a text stays
/// text (T11). A head that is broken or never closed is an error with its line (T10).
pub fn split(text: &str) -> Result<Parts<'_>, PromptError> {
    let whole = Parts { head: None, body: text, body_line: 1 };
    let Some(after) = text.strip_prefix("---\n") else { return Ok(whole) };
    let looks_like_head = after
        .lines()
        .map(str::trim_end)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .is_some_and(|line| line == "---" || is_key_line(line));
    let Some((yaml, body, body_line)) = closed(after) else {
        if looks_like_head {
            return Err(PromptError::new(
                "PR-FILE-001",
                "the frontmatter is not closed; end it with a line \"---\"",
            )
            .on_line(1));
        }
        return Ok(whole);
    };
    let parsed: Result<Value, _> = serde_yaml_ng::from_str(yaml);
    let head = match parsed {
        Ok(Value::Mapping(map)) => read(&map, yaml),
        Ok(Value::Null) if looks_like_head => Frontmatter::default(),
        Ok(_) => return Ok(whole),
        Err(error) if looks_like_head => {
            let line = error.location().map_or(2, |place| u32::try_from(place.line()).unwrap_or(0) + 1);
            return Err(
                PromptError::new("PR-FILE-001", format!("the frontmatter is no YAML: {error}")).on_line(line)
            );
        }
        Err(_) => return Ok(whole),
    };
    Ok(Parts { head: Some(head), body, body_line })
}

/// The YAML text, the body behind the closing line, and the body's line number.
fn closed(after: &str) -> Option<(&str, &str, u32)> {
    let mut offset = 0;
    for (index, line) in after.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" {
            let line_number = u32::try_from(index).ok()? + 3;
            return Some((&after[..offset], &after[offset + line.len()..], line_number));
        }
        offset += line.len();
    }
    None
}

fn is_key_line(line: &str) -> bool {
    line.split_once(':').is_some_and(|(key, rest)| {
        !key.is_empty()
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'))
            && (rest.is_empty() || rest.starts_with(' '))
    })
}

fn read(map: &serde_yaml_ng::Mapping, yaml: &str) -> Frontmatter {
    let mut head = Frontmatter::default();
    let line_of = |key: &str| {
        yaml.lines()
            .position(|line| line.trim_start().starts_with(&format!("{key}:")))
            .map_or(1, |index| u32::try_from(index).unwrap_or(0) + 2)
    };
    for (key, value) in map {
        let Some(key) = key.as_str() else {
            head.notes.push((1, "a frontmatter key is no text; it is ignored".into()));
            continue;
        };
        match key {
            "stepId" => head.step_id = value.as_str().map(str::to_owned),
            "c1" => head.levels[0] = value.as_str().map(str::to_owned),
            "c2" => head.levels[1] = value.as_str().map(str::to_owned),
            "c3" => head.levels[2] = value.as_str().map(str::to_owned),
            "uvVariables" | "uv" => head.uv_variables.extend(names(value)),
            "customVariables" => head.custom_variables.extend(names(value)),
            "c3l_version" => {
                let version = match value {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => String::new(),
                };
                if version != "0.5" {
                    head.notes.push((
                        line_of(key),
                        format!(
                            "c3l_version \"{version}\" is not known; the file is read as version \"0.5\""
                        ),
                    ));
                }
            }
            known if KNOWN.contains(&known) => {}
            unknown => {
                head.notes.push((
                    line_of(unknown),
                    format!("frontmatter key \"{unknown}\" is not known; it is ignored"),
                ));
            }
        }
    }
    head
}

/// A list of names, or of one-key maps name → description; `uv-` is taken off.
fn names(value: &Value) -> Vec<String> {
    let Value::Sequence(items) = value else { return Vec::new() };
    items
        .iter()
        .flat_map(|item| match item {
            Value::String(name) => vec![name.as_str()],
            Value::Mapping(map) => map.keys().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        })
        .map(|name| name.strip_prefix("uv-").unwrap_or(name).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_list_variables_are_read() {
        let text = "---\nstepId: initial.a\nuvVariables:\n  - issue\n  - uv-other\ncustomVariables: [body]\n---\n\nHello\n";
        let parts = split(text).unwrap();
        let head = parts.head.unwrap();
        assert_eq!(head.uv_variables, ["issue", "other"]);
        assert_eq!(head.custom_variables, ["body"]);
        assert_eq!((parts.body, parts.body_line), ("\nHello\n", 8));
        let listed = split("---\nc1: a\nuv:\n  - name: what it is\n---\nx").unwrap().head.unwrap();
        assert_eq!(listed.uv_variables, ["name"]);
    }

    #[test]
    fn t10_a_broken_or_odd_head_is_told_with_its_line() {
        let error = split("---\ntitle: a\n  bad: [\n---\nbody").unwrap_err();
        assert_eq!(error.code, "PR-FILE-001");
        assert!(error.line.is_some_and(|line| (2..=5).contains(&line)), "{error:?}");
        let error = split("---\ntitle: a\nbody").unwrap_err();
        assert!(error.message.contains("not closed"));
        let odd = split("---\nc3l_version: \"0.6\"\ncolour: red\n---\nbody").unwrap().head.unwrap();
        assert_eq!(odd.notes.iter().map(|note| note.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn t11_a_rule_at_the_top_of_a_text_is_text() {
        for text in ["---\n\nFirst part\n\n---\n\nSecond", "---\nA sentence.\n", "---\n- a\n- b\n---\nrest"] {
            let parts = split(text).unwrap();
            assert_eq!((parts.head, parts.body), (None, text));
        }
    }
}
