//! `${VAR}` placeholders: resolved late, from the layer's `.agentd.env` and then from the process environment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use secrecy::SecretString;

use super::env::Env;
use super::error::ConfigError;
use super::source_format::Source;

/// Name of the file beside a layer that holds its variables.
pub const ENV_FILE: &str = ".agentd.env";

/// Where the placeholders of one layer are looked up, which is never the file of another layer.
#[derive(Clone)]
pub struct Scope {
    env_file: String,
    variables: Arc<BTreeMap<String, String>>,
    env: Env,
}

impl std::fmt::Debug for Scope {
    // Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("env_file", &self.env_file).finish_non_exhaustive()
    }
}

impl Scope {
    /// The scope of a layer's file: reads the `.agentd.env` beside it, if there is one.
    pub(super) fn of_file(file: &Path, env: &Env) -> Result<Self, ConfigError> {
        let path = file.with_file_name(ENV_FILE);
        let variables = match std::fs::read_to_string(&path) {
            Ok(text) => parse_env_file(&text)
                .map_err(|line| ConfigError::EnvSyntax { at: Source::File { path: path.clone(), line } })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        Ok(Self { env_file: path.display().to_string(), variables: Arc::new(variables), env: env.clone() })
    }

    /// The scope of what stands in no file: flags and defaults.
    pub(super) fn of_process(env: &Env) -> Self {
        Self { env_file: format!("a layer's {ENV_FILE}"), variables: Arc::default(), env: env.clone() }
    }

    /// Variables of the layer's own file, for the redactor.
    pub(super) fn file_values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn lookup(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).or_else(|| self.env.get(name))
    }
}

/// A text with placeholders that is resolved only when it is used. It is shown with its placeholders.
#[derive(Debug, Clone)]
pub struct Placeholder {
    text: String,
    key: String,
    at: String,
    scope: Scope,
    keeps_parameters: bool,
}

impl Placeholder {
    /// `text` as it stands at `key`; `source` says where in the layer of `scope`.
    pub(super) fn new(text: &str, key: &str, source: &Source, scope: &Scope) -> Self {
        // In REST tools `${parameters.x}` belongs to the call.
        let keeps_parameters = key.starts_with("rest.tools.");
        let at = source.to_string();
        Self { text: text.to_owned(), key: key.to_owned(), at, scope: scope.clone(), keeps_parameters }
    }

    /// As written, placeholders and all.
    pub fn raw(&self) -> &str {
        &self.text
    }

    /// The key it stands at.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The text with every placeholder replaced. Inserted text is not expanded again.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`] naming variable, key and layer.
    pub fn resolve(&self) -> Result<String, ConfigError> {
        let mut resolved = String::with_capacity(self.text.len());
        let mut rest = self.text.as_str();
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            // `$${` stands for the characters `${`.
            if let Some(before) = before.strip_suffix('$') {
                resolved.push_str(before);
                resolved.push_str("${");
                rest = &from[2..];
                continue;
            }
            resolved.push_str(before);
            let (key, at) = (self.key.clone(), self.at.clone());
            let shown = |found: &str| found.chars().take(40).collect();
            let Some(end) = from.find('}') else {
                return Err(ConfigError::OpenPlaceholder { found: shown(&from[2..]), key, at });
            };
            let name = &from[2..end];
            if self.keeps_parameters && name.starts_with("parameters.") {
                resolved.push_str(&from[..=end]);
            } else if is_variable_name(name) {
                resolved.push_str(self.scope.lookup(name).ok_or_else(|| self.missing(name, false))?);
            } else {
                return Err(ConfigError::BadPlaceholder { found: shown(name), key, at });
            }
            rest = &from[end + 1..];
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    /// Like [`Self::resolve`], for a secret: an empty value counts as not set. A variable of a server's environment may be written
    /// as empty.
    ///
    /// # Errors
    /// [`ConfigError::MissingVariable`], [`ConfigError::Empty`].
    pub fn secret(&self) -> Result<SecretString, ConfigError> {
        let value = self.resolve()?;
        if !value.trim().is_empty() || (self.text.is_empty() && self.key.contains(".env.")) {
            return Ok(SecretString::from(value));
        }
        Err(match variables_of(&self.text).first() {
            Some(variable) => self.missing(variable, true),
            None => ConfigError::Empty { key: self.key.clone(), at: self.at.clone() },
        })
    }

    fn missing(&self, variable: &str, empty: bool) -> ConfigError {
        ConfigError::MissingVariable {
            variable: variable.to_owned(),
            key: self.key.clone(),
            at: self.at.clone(),
            env_file: self.scope.env_file.clone(),
            empty,
        }
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Names of the variables that a text names, in order.
pub(super) fn variables_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let escaped = rest[..at].ends_with('$');
        let from = &rest[at + 2..];
        let Some(end) = from.find('}') else { break };
        if !escaped && is_variable_name(&from[..end]) {
            names.push(from[..end].to_owned());
        }
        rest = &from[end..];
    }
    names
}

/// Whether the placeholders of a key are resolved only when it is used.
pub(super) fn is_deferred(key: &str) -> bool {
    ["providers.", "mcp.servers.", "rest.tools.", "sandbox.endpoints.", "chat.users["]
        .iter()
        .any(|prefix| key.starts_with(prefix))
        || ["github.token", "github.app.private_key", "daemon.webhook_secret", "daemon.token", "cluster.nkey"]
            .contains(&key)
}

/// `NAME=value` lines; `#` comments, blank lines, a leading `export` and quotes around the value are allowed.
/// Gives the 1-based number of the first line that is something else.
fn parse_env_file(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let mut variables = BTreeMap::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or(index + 1)?;
        let (name, value) = (name.trim(), value.trim());
        if !is_variable_name(name) {
            return Err(index + 1);
        }
        variables.insert(name.to_owned(), env_value(value).to_owned());
    }
    Ok(variables)
}

/// A value without its quotes, and without a comment behind it.
fn env_value(value: &str) -> &str {
    let Some(quote) = value.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let comment = value.match_indices('#').find(|(at, _)| value[..*at].ends_with([' ', '\t']));
        return comment.map_or(value, |(at, _)| value[..at].trim_end());
    };
    let inner = &value[1..];
    match inner.split_once(quote) {
        Some((inner, rest))
            if rest.is_empty() || rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#') =>
        {
            inner
        }
        _ => inner.strip_suffix(quote).unwrap_or(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let env = Env::new("/w", [("A", "env-a"), ("B", "env-b"), ("EMPTY", ""), ("NESTED", "${A}")]);
        Scope {
            env_file: "/w/.agentd.env".into(),
            variables: Arc::new(parse_env_file("# c\nexport A='file-a'\n\nD = \"x=y\"\n").unwrap()),
            env,
        }
    }

    fn placeholder(text: &str, key: &str) -> Placeholder {
        let source = Source::File { path: "/w/agentd.toml".into(), line: 3 };
        Placeholder::new(text, key, &source, &scope())
    }

    #[test]
    fn a_091_the_layers_own_file_wins_over_the_environment() {
        let at = |text: &str| placeholder(text, "k").resolve().unwrap();
        assert_eq!(at("${A}-${B}-${D}"), "file-a-env-b-x=y");
        assert_eq!(at("no placeholder, $5 and {x}"), "no placeholder, $5 and {x}");
        assert_eq!(at("$${A}"), "${A}");
        assert_eq!(at("${NESTED}"), "${A}", "inserted text is not looked at again");
    }

    #[test]
    fn a_092_an_unresolved_placeholder_names_variable_key_and_layer_and_no_other_value() {
        let error = placeholder("${A}${NOPE}", "providers.x.api_key").resolve().unwrap_err();
        let text = error.to_string();
        for part in ["NOPE", "providers.x.api_key", "/w/agentd.toml:3", "/w/.agentd.env"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("file-a"), "{text}");
    }

    #[test]
    fn s_046_a_secret_that_is_empty_is_not_set() {
        let error = placeholder("${EMPTY}", "github.token").secret().unwrap_err().to_string();
        assert!(error.contains("EMPTY") && error.contains("empty"), "{error}");
    }

    #[test]
    fn a_093_parameters_of_rest_tools_are_left_for_the_call() {
        let url = placeholder("https://h/${parameters.id}?k=${B}", "rest.tools.x.url");
        assert_eq!(url.resolve().unwrap(), "https://h/${parameters.id}?k=env-b");
        assert!(placeholder("${parameters.id}", "mcp.servers.x.url").resolve().is_err());
    }

    #[test]
    fn an_env_file_names_the_line_that_is_not_one() {
        assert_eq!(parse_env_file("A=1\nnonsense\n"), Err(2));
        assert_eq!(parse_env_file("1A=1\n"), Err(1));
    }

    #[test]
    fn a_comment_behind_a_value_is_no_part_of_it() {
        for (written, value) in [
            ("x", "x"),
            ("x # note", "x"),
            ("x#y", "x#y"),
            ("\"x\" # a \"note\"", "x"),
            ("'x # y'", "x # y"),
            ("\"a\"b\"", "a\"b"),
            ("'it", "'it"),
            ("# note", "# note"),
        ] {
            assert_eq!(env_value(written), value, "{written}");
        }
    }
}
