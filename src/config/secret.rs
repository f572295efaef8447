//! Literal secrets in configuration files. They are found by the name of the key or by the shape of the value (S-046).

use std::sync::LazyLock;

use crate::domain::redaction::Redactor;

/// Keys that hold nothing but secrets, wherever they stand.
const SECRET_KEYS: [&str; 5] = ["api_key", "token", "private_key", "webhook_secret", "nkey"];

/// Header names whose whole value is a credential.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];

/// Last words of the names of variables and parameters whose values are secrets.
const SECRET_WORDS: [&str; 9] =
    ["key", "apikey", "token", "secret", "password", "passwd", "passphrase", "credential", "credentials"];

/// Words before `KEY` that make it a name of no secret.
const OPEN_KEYS: [&str; 6] = ["sort", "public", "primary", "foreign", "partition", "cache"];

/// Knows the shapes of keys, and no value.
static SHAPES: LazyLock<Option<Redactor>> = LazyLock::new(|| Redactor::new([0; 32], Vec::new(), &[]).ok());

/// Whether `value`, standing at `path` (keys and indexes from the root), is a secret that should be a placeholder. An
/// empty value is not one. Neither is the value of a variable, because the file has only the placeholder.
pub(super) fn is_literal_secret(path: &[&str], value: &str) -> bool {
    // Credentials in a server's address are refused there, with what to write instead: a variable in it would be refused, too.
    if value.is_empty() || matches!(path, ["cluster", "urls", ..]) && has_user(value) {
        return false;
    }
    let bare = !value.contains("${");
    let last = path.last().copied().unwrap_or_default();
    let table = path.len().checked_sub(2).map(|at| path[at]);
    let header = table == Some("headers");
    (bare && SECRET_KEYS.contains(&last))
        || (bare && header && SECRET_HEADERS.contains(&last.to_ascii_lowercase().as_str()))
        || (bare && table == Some("env") && names_secret(last))
        || has_secret_parameter(value)
        || has_key_shape(&without_placeholders(value))
}

fn has_user(value: &str) -> bool {
    url::Url::parse(value).is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
}

/// Whether a variable's or a parameter's name says that its value is secret.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.rsplit(['_', '-', '.']);
    match words.next() {
        Some("key") => words.next().is_none_or(|before| !OPEN_KEYS.contains(&before)),
        Some(last) => SECRET_WORDS.contains(&last),
        None => false,
    }
}

/// Whether a URL has a secret among its parameters.
fn has_secret_parameter(value: &str) -> bool {
    let query = value.split_once("://").and_then(|(_, rest)| rest.split_once('?'));
    query.is_some_and(|(_, query)| {
        let query = query.split('#').next().unwrap_or_default();
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.any(|(name, value)| !value.is_empty() && !value.contains("${") && names_secret(name))
    })
}

fn has_key_shape(text: &str) -> bool {
    // A text that cannot be checked counts as a secret, as in the redactor.
    SHAPES.as_ref().is_some_and(|shapes| shapes.redact(text).map_or(true, |redacted| redacted != text))
}

/// The text without its `${…}`, which may stand where a secret would.
fn without_placeholders(text: &str) -> String {
    let mut rest = text;
    let mut literal = String::new();
    while let Some((before, from)) = rest.split_once("${") {
        literal.push_str(before);
        rest = from.split_once('}').map_or("", |(_, after)| after);
    }
    literal + rest
}

/// A variable's name to suggest for a secret at `path`: `providers.anthropic.api_key` → `ANTHROPIC_API_KEY`.
pub(super) fn suggested_variable(path: &[&str]) -> String {
    let names: Vec<&str> = path.iter().copied().filter(|part| !part.starts_with('[')).collect();
    let tail = &names[names.len().saturating_sub(2)..];
    let name = tail.join("_").to_ascii_uppercase();
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if clean.starts_with(|c: char| c.is_ascii_digit()) { format!("_{clean}") } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_046_secrets_are_known_by_key_and_by_shape() {
        assert!(SHAPES.is_some());
        let secret = |path: &str, value: &str| is_literal_secret(&path.split('.').collect::<Vec<_>>(), value);
        assert!(secret("providers.x.api_key", "hello"));
        assert!(!secret("providers.x.api_key", "${X}"));
        assert!(!secret("providers.x.api_key", ""));
        assert!(secret("mcp.servers.x.headers.Authorization", "hello"));
        assert!(!secret("mcp.servers.x.headers.Authorization", "Bearer ${TOKEN}"));
        assert!(secret("mcp.servers.x.env.ANY", "ghp_0123456789abcdef0123456789abcdef0123"));
        assert!(secret("mcp.servers.x.url", "https://user:pass@host/"));
        assert!(!secret("mcp.servers.x.url", "https://${USER}:${PASS}@host/"));
        assert!(!secret("mcp.servers.x.env.SORT_KEY", "name"));
        for name in ["API_KEY", "KEY", "DB_PASSWORD", "GITHUB_TOKEN", "client_secret", "STRIPE_KEY"] {
            let key = format!("mcp.servers.x.env.{name}");
            assert!(secret(&key, "hunter2") && !secret(&key, "${X}") && !secret(&key, ""), "{name}");
        }
        for name in ["KEYBOARD", "MAX_TOKENS", "PUBLIC_KEY", "TOKEN_URL", "SECRETARY"] {
            assert!(!secret(&format!("mcp.servers.x.env.{name}"), "plain"), "{name}");
        }
        assert!(secret("mcp.servers.x.url", "https://h/mcp?a=1&api_key=hunter2"));
        assert!(secret("mcp.servers.x.url", "https://h/mcp?token=hunter2#x"));
        assert!(!secret("mcp.servers.x.url", "https://h/mcp?api_key=${KEY}&max_tokens=7&key="));
        assert!(!secret("github.api_url", "https://api.github.com:443/@me"));
        assert!(!secret("cluster.urls.[]", "tls://user:hunter2hunter2@nats1.example.org:4222"));
        assert!(secret("cluster.urls.[]", "ghp_0123456789abcdef0123456789abcdef0123"));
    }

    #[test]
    fn the_suggested_variable_is_the_keys_own_name() {
        assert_eq!(suggested_variable(&["providers", "open-ai", "api_key"]), "OPEN_AI_API_KEY");
        assert_eq!(suggested_variable(&["github", "token"]), "GITHUB_TOKEN");
    }
}
