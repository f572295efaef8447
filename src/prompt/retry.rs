//! Retry prompts: `{{name}}`, `{{#if}}…{{else}}…{{/if}}` and `{{#each}}…{{/each}}` over what a validator found.

use std::collections::BTreeSet;

use serde_json::Value;

use super::PromptError;

/// Renders a retry prompt's body with the parameters of a failed check. Values go in verbatim and are not scanned
/// again; a name without value is nothing. A block that is not closed is an error.
pub fn render(body: &str, params: &Value) -> Result<String, PromptError> {
    let tokens = tokens(body);
    let mut position = 0;
    let mut text = String::with_capacity(body.len() + 256);
    block(&tokens, &mut position, &[params], Some(&mut text), None)?;
    Ok(text)
}

/// The names whose values a retry prompt's body shows, but for those in an `{{#each}}`: an item may bring them.
pub fn names(body: &str) -> BTreeSet<&str> {
    let mut depth = 0_usize;
    let mut names = BTreeSet::new();
    for token in tokens(body) {
        match token {
            Token::Each(_) => depth += 1,
            Token::End("each") => depth = depth.saturating_sub(1),
            Token::Value(name) if depth == 0 => {
                names.insert(name);
            }
            _ => {}
        }
    }
    names
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    Text(&'a str),
    Value(&'a str),
    If(&'a str),
    Each(&'a str),
    Else,
    End(&'a str),
}

fn tokens(body: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start + 2..].find("}}") else { break };
        let word = rest[start + 2..start + 2 + length].trim();
        let token = match word.split_once(char::is_whitespace) {
            Some(("#if", name)) => Some(Token::If(name.trim())),
            Some(("#each", name)) => Some(Token::Each(name.trim())),
            None if word == "else" => Some(Token::Else),
            None => match word.strip_prefix('/') {
                Some(name @ ("if" | "each")) => Some(Token::End(name)),
                _ if is_path(word) => Some(Token::Value(word)),
                _ => None,
            },
            _ => None,
        };
        let end = start + 2 + length + 2;
        match token {
            Some(token) => {
                // A block tag alone on its line takes the line with it.
                let alone = !matches!(token, Token::Value(_))
                    && (start == 0 || rest[..start].ends_with('\n'))
                    && rest[end..].starts_with('\n');
                tokens.push(Token::Text(&rest[..start]));
                tokens.push(token);
                rest = &rest[end + usize::from(alone)..];
            }
            None => {
                tokens.push(Token::Text(&rest[..end]));
                rest = &rest[end..];
            }
        }
    }
    tokens.push(Token::Text(rest));
    tokens
}

fn is_path(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@'))
}

/// Renders up to the block's end; `out` is `None` where the block is skipped. Gives the token that ended it.
fn block<'a>(
    tokens: &[Token<'a>],
    position: &mut usize,
    scopes: &[&Value],
    mut out: Option<&mut String>,
    inside: Option<&'a str>,
) -> Result<Option<Token<'a>>, PromptError> {
    while let Some(token) = tokens.get(*position).copied() {
        *position += 1;
        match token {
            Token::Text(text) => {
                if let Some(out) = out.as_deref_mut() {
                    out.push_str(text);
                }
            }
            Token::Value(name) => {
                if let (Some(out), Some(value)) = (out.as_deref_mut(), look_up(name, scopes)) {
                    out.push_str(&crate::domain::step_context::value_text(value));
                }
            }
            Token::If(name) => {
                let holds = look_up(name, scopes).is_some_and(truthy);
                let shown = if holds { out.as_deref_mut() } else { None };
                if block(tokens, position, scopes, shown, Some("if"))? == Some(Token::Else) {
                    let shown = if holds { None } else { out.as_deref_mut() };
                    block(tokens, position, scopes, shown, Some("if"))?;
                }
            }
            Token::Each(name) => {
                let items = look_up(name, scopes).and_then(Value::as_array).cloned().unwrap_or_default();
                let start = *position;
                if items.is_empty() || out.is_none() {
                    block(tokens, position, scopes, None, Some("each"))?;
                }
                for item in &items {
                    let Some(out) = out.as_deref_mut() else { break };
                    *position = start;
                    let mut inner = scopes.to_vec();
                    inner.push(item);
                    block(tokens, position, &inner, Some(out), Some("each"))?;
                }
            }
            Token::Else if inside == Some("if") => return Ok(Some(token)),
            Token::End(name) if inside == Some(name) => return Ok(Some(token)),
            Token::Else | Token::End(_) => {
                return Err(PromptError::new(
                    "PR-FILE-001",
                    "a retry prompt closes a block that is not open",
                ));
            }
        }
    }
    match inside {
        Some(name) => Err(PromptError::new(
            "PR-FILE-001",
            format!("a retry prompt opens {{{{#{name}}}}} and does not close it"),
        )),
        None => Ok(None),
    }
}

fn look_up<'v>(name: &str, scopes: &[&'v Value]) -> Option<&'v Value> {
    if name == "this" {
        return scopes.last().copied();
    }
    if let Some(path) = name.strip_prefix("this.") {
        return walk(scopes.last()?, path);
    }
    scopes.iter().rev().find_map(|scope| walk(scope, name))
}

fn walk<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_show_what_a_check_found() {
        let body =
            "{{#if files}}\nFiles:\n{{#each files}}\n- {{this}}\n{{/each}}\n{{else}}\nnone\n{{/if}}\nend";
        let some = render(body, &json!({"files": ["a {{x}}", "b"]})).unwrap();
        assert_eq!(some, "Files:\n- a {{x}}\n- b\nend");
        assert_eq!(render(body, &json!({"files": []})).unwrap(), "none\nend");
        let rows =
            "{{#each errors}}{{this.file}}:{{this.line}} {{#if this.rule}}({{this.rule}}){{/if}};{{/each}}";
        let errors = json!({"errors": [{"file": "a", "line": 3, "rule": "r"}, {"file": "b"}]});
        assert_eq!(render(rows, &errors).unwrap(), "a:3 (r);b: ;");
    }

    #[test]
    fn what_is_unknown_is_nothing_and_what_is_open_is_an_error() {
        assert_eq!(render("[{{gone}}] {{ not a path }}", &json!({})).unwrap(), "[] {{ not a path }}");
        assert!(render("{{#if a}} x", &json!({})).is_err());
        assert!(render("x {{/if}}", &json!({})).is_err());
    }
}
