//! What can be wrong with a configuration: each message says what, where, and what to do next.

use std::path::PathBuf;

use super::source_format::Source;

/// A configuration that cannot be used; always exit code 4.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file of `--config` is not there.
    #[error("--config {}: no such file", path.display())]
    Missing {
        /// As given, made absolute.
        path: PathBuf,
    },
    /// A layer cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A layer is not TOML.
    #[error("{at}: not valid TOML: {message}")]
    Syntax {
        /// File and line.
        at: Source,
        /// From the parser.
        message: String,
    },
    /// A line of an `.agentd.env` is not `NAME=value`.
    #[error("{at}: not a line of the form NAME=value")]
    EnvSyntax {
        /// File and line.
        at: Source,
    },
    /// A key that agentd does not know.
    #[error("{at}: unknown key `{key}`{}", match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; known here: {}", known.join(", ")),
    })]
    UnknownKey {
        /// File and line.
        at: Source,
        /// Full path of the key.
        key: String,
        /// The known key of that table that is most like it.
        nearest: Option<String>,
        /// The known keys of that table, where none is like it.
        known: Vec<String>,
    },
    /// A value of the wrong type or out of its range.
    #[error("{at}: `{key}`: {message}")]
    Invalid {
        /// File and line, flag or variable.
        at: Source,
        /// Full path of the key.
        key: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A layer of another major version.
    #[error("{at}: version \"{found}\" is not supported; this agentd reads version 1.x")]
    Version {
        /// File and line.
        at: Source,
        /// As written.
        found: String,
    },
    /// A text that may not be empty.
    #[error("{at}: `{key}` is empty; write what it is, or leave it out")]
    Empty {
        /// The key.
        key: String,
        /// File and line.
        at: String,
    },
    /// A placeholder without a value.
    #[error(
        "{at}: `{key}` needs the variable {variable}, which is {}; set it in {env_file} or in the environment",
        if *empty { "empty" } else { "not set" }
    )]
    MissingVariable {
        /// Name of the variable.
        variable: String,
        /// The key whose value names it.
        key: String,
        /// The layer that holds the key, with the line.
        at: String,
        /// Where a value is looked up first.
        env_file: String,
        /// Whether it is set to nothing, where something is needed.
        empty: bool,
    },
    /// `${…}` that does not hold a variable's name.
    #[error(
        "{at}: `{key}`: ${{{found}}} is not a placeholder; write ${{NAME}}, or $${{ for the characters themselves"
    )]
    BadPlaceholder {
        /// What stands between the braces.
        found: String,
        /// The key.
        key: String,
        /// The layer, with the line.
        at: String,
    },
    /// `${…` without its end.
    #[error(
        "{at}: `{key}`: the placeholder ${{{found} has no closing brace; write ${{NAME}}, or $${{ for the characters themselves"
    )]
    OpenPlaceholder {
        /// What stands behind the opening brace.
        found: String,
        /// The key.
        key: String,
        /// The layer, with the line.
        at: String,
    },
    /// A secret written into a file (S-046).
    #[error(
        "{at}: `{key}` holds a literal secret; write \"${{{suggested}}}\" and put the value into {env_file} or the environment"
    )]
    LiteralSecret {
        /// File and line.
        at: Source,
        /// The key.
        key: String,
        /// A variable's name to use.
        suggested: String,
        /// The file for it.
        env_file: String,
    },
    /// Several at once; never empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Self>),
}

impl ConfigError {
    /// `Ok` if nothing was found, else the one or the several.
    pub(super) fn all(mut found: Vec<Self>) -> Result<(), Self> {
        match found.len() {
            0 => Ok(()),
            1 => Err(found.remove(0)),
            _ => Err(Self::Several(found)),
        }
    }
}
