//! The layers of configuration: where they are looked for, and how a file is read with the line of every value.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::env::Env;
use super::error::ConfigError;
use super::known_keys::join;
use super::placeholder::{ENV_FILE, Scope};
use super::source_format::Source;
use super::{known_keys, secret};

/// Name of a layer's file.
pub const FILE_NAME: &str = "agentd.toml";

/// The format that this agentd reads: any minor version of this major one.
const MAJOR: &str = "1";

/// A layer that was found and is right by itself.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The file.
    pub path: PathBuf,
    /// What stands in it.
    pub(super) table: Table,
    /// 1-based line of each key and array element, by path.
    pub(super) lines: BTreeMap<String, usize>,
    /// Where its placeholders are looked up.
    pub(super) scope: Scope,
}

impl Layer {
    /// Reads a file: TOML, known keys only, a supported version, no literal secrets. All errors are reported together.
    ///
    /// # Errors
    /// What does not hold, with file and line.
    pub fn read(path: &Path, env: &Env) -> Result<Self, ConfigError> {
        let text =
            text_of(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(path, &text, Scope::of_file(path, env)?)
    }

    /// Reads the file of a repository that is not trusted: it has a size limit, and no `.agentd.env` is read beside it.
    pub(super) fn of_clone(path: &Path, most: u64, env: &Env) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        std::io::Read::read_to_string(&mut std::io::Read::take(file, most + 1), &mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > most {
            let message = format!("it has more than {most} bytes");
            return Err(unreadable(std::io::Error::other(message)));
        }
        Self::parse(path, &text, Scope::of_process(env))
    }

    fn parse(path: &Path, text: &str, scope: Scope) -> Result<Self, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let syntax = |error: toml::de::Error| ConfigError::Syntax {
            at: Source::File { path: path.to_owned(), line: line_at(text, error.span().unwrap_or(0..0)) },
            message: error.message().to_owned(),
        };
        let spanned = DeTable::parse(text).map_err(syntax)?;
        let table: Table = toml::from_str(text).map_err(syntax)?;
        let mut lines = BTreeMap::new();
        note_table(spanned.get_ref(), "", text, &mut lines);
        let layer = Self { path: path.to_owned(), table, lines, scope };
        layer.check()?;
        Ok(layer)
    }

    /// Source of the value at `path`, or of the nearest table around it.
    pub(super) fn source(&self, path: &str) -> Source {
        Source::File { path: self.path.clone(), line: self.lines.get(path).copied().unwrap_or(1) }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let mut found = Vec::new();
        if let Some(version) = self.table.get("version").and_then(Value::as_str)
            && !is_supported(version)
        {
            // Another major version may have other keys, so no other error is reported.
            return Err(ConfigError::Version { at: self.source("version"), found: version.to_owned() });
        }
        let unknown = known_keys::unknown(&self.table);
        for (key, value) in &self.table {
            self.check_secrets(value, key, &mut vec![key], &mut found);
        }
        // What a secret below an unknown key should be is not known either.
        found.retain(|error| match error {
            ConfigError::LiteralSecret { key, .. } => {
                let below = |known: &known_keys::Unknown| key.strip_prefix(&known.key);
                !unknown.iter().filter_map(below).any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            }
            _ => true,
        });
        let unknown = unknown.into_iter().map(|unknown| ConfigError::UnknownKey {
            at: self.source(&unknown.key),
            key: unknown.key,
            nearest: unknown.nearest,
            known: unknown.known,
        });
        ConfigError::all(unknown.chain(found).collect())
    }

    fn check_secrets<'a>(
        &self,
        value: &'a Value,
        key: &str,
        path: &mut Vec<&'a str>,
        found: &mut Vec<ConfigError>,
    ) {
        match value {
            Value::String(text) if secret::is_literal_secret(path, text) => {
                found.push(ConfigError::LiteralSecret {
                    at: self.source(key),
                    key: key.to_owned(),
                    suggested: secret::suggested_variable(path),
                    env_file: self.path.with_file_name(ENV_FILE).display().to_string(),
                });
            }
            Value::Table(table) => {
                for (name, value) in table {
                    path.push(name);
                    self.check_secrets(value, &join(key, name), path, found);
                    path.pop();
                }
            }
            Value::Array(array) => {
                for (index, value) in array.iter().enumerate() {
                    path.push("[]");
                    self.check_secrets(value, &format!("{key}[{index}]"), path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// The text of a file. It is kept, because a pipe gives its text only once and the layers are read more than once.
fn text_of(path: &Path) -> std::io::Result<String> {
    static PIPES: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
    let meta = path.metadata()?;
    if meta.is_file() || meta.is_dir() {
        return std::fs::read_to_string(path);
    }
    let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = pipes.get(path) {
        return Ok(text.clone());
    }
    let text = std::fs::read_to_string(path)?;
    pipes.insert(path.to_owned(), text.clone());
    Ok(text)
}

/// Whether anything of this name exists. A layer that cannot be read is an error and not an absent layer.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn is_supported(version: &str) -> bool {
    let mut parts = version.trim().split('.');
    parts.next() == Some(MAJOR) && parts.all(|part| part.parse::<u32>().is_ok())
}

fn line_at(text: &str, span: Range<usize>) -> usize {
    text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count() + 1
}

fn note_table(table: &DeTable<'_>, path: &str, text: &str, lines: &mut BTreeMap<String, usize>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        lines.insert(path.clone(), line_at(text, key.span()));
        note_value(value, &path, text, lines);
    }
}

fn note_value(value: &Spanned<DeValue<'_>>, path: &str, text: &str, lines: &mut BTreeMap<String, usize>) {
    match value.get_ref() {
        DeValue::Table(table) => note_table(table, path, text, lines),
        DeValue::Array(array) => note_array(array, path, text, lines),
        _ => {}
    }
}

fn note_array(array: &DeArray<'_>, path: &str, text: &str, lines: &mut BTreeMap<String, usize>) {
    for (index, value) in array.iter().enumerate() {
        let path = format!("{path}[{index}]");
        lines.insert(path.clone(), line_at(text, value.span()));
        note_value(value, &path, text, lines);
    }
}

/// Where layers are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// `--config`.
    pub explicit: Option<&'a Path>,
    /// The working directory; for a run the repository's main checkout, never a worktree.
    pub base: &'a Path,
    /// The working directory of the command, if that is not `base`. Its file is the next layer.
    pub beneath: Option<&'a Path>,
    /// The agent's directory.
    pub agent_dir: Option<&'a Path>,
    /// Environment, for the program's own directory and the XDG directory.
    pub env: &'a Env,
}

/// The file of a directory that is worked in.
pub(super) fn own(dir: &Path) -> Option<PathBuf> {
    [dir.join(FILE_NAME), dir.join(".agent").join(FILE_NAME)].into_iter().find(|path| is_there(path))
}

/// Files of the layers that exist, highest first. Only `--config` has to exist.
///
/// # Errors
/// [`ConfigError::Missing`].
pub(super) fn find(places: Places<'_>) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = Vec::new();
    if let Some(explicit) = places.explicit {
        let path = places.env.working_dir().join(explicit);
        if !is_there(&path) {
            return Err(ConfigError::Missing { path });
        }
        files.push(path);
    }
    files.extend(own(places.base));
    files.extend(places.beneath.and_then(own));
    let below = [
        places.agent_dir.map(Path::to_path_buf),
        places.env.program().and_then(Path::parent).map(Path::to_path_buf),
        places.env.config_home().map(|home| home.join("agentd")),
        Some(PathBuf::from("/etc/agentd")),
    ];
    files.extend(below.into_iter().flatten().map(|dir| dir.join(FILE_NAME)).filter(|path| is_there(path)));
    // A file that is found in two places (the agent's directory is the working directory) counts once, at the higher
    // one.
    let mut seen = Vec::new();
    files.retain(|path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let new = !seen.contains(&real);
        seen.push(real);
        new
    });
    Ok(files)
}
