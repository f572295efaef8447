//! `agents migrate`: rewrites an agent's files in the newest form; a second time it finds nothing to do.

use std::path::{Path, PathBuf};

use super::generations::{Change, Newest, legacy_entry, name_entry, newest_agent, newest_registry};
use crate::sys::files::{FileError, write_public};

/// One file that is not in the newest form.
#[derive(Debug, Clone, PartialEq)]
pub struct Migration {
    /// The file.
    pub path: PathBuf,
    /// Its text in the newest form.
    pub text: String,
    /// What changes, with pointers into the old file.
    pub changes: Vec<Change>,
}

/// Why a file cannot be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// It cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("{path}:{line}:{column}: is no JSON; correct it first: {reason}", line = .source.line(), column = .source.column(), reason = .source)]
    NotJson {
        /// The file.
        path: String,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// What would change in the agent's folder. Blocks on disk; writes nothing.
pub fn plan(folder: &Path) -> Result<Vec<Migration>, MigrationError> {
    let mut migrations = Vec::new();
    let agent = read(&folder.join("agent.json"))?;
    let newest = newest_agent(&agent);
    let registry = newest
        .value
        .pointer("/runner/flow/prompts/registry")
        .and_then(serde_json::Value::as_str)
        .unwrap_or("steps_registry.json");
    let registry = folder.join(registry);
    push(&mut migrations, folder.join("agent.json"), newest);
    if registry.is_file() {
        let mut newest = newest_registry(&read(&registry)?);
        if let Some(word) = legacy_entry(&agent) {
            name_entry(&mut newest, &word);
        }
        push(&mut migrations, registry, newest);
    }
    Ok(migrations)
}

/// Writes what [`plan`] gave: each file whole and at once.
pub fn apply(migrations: &[Migration]) -> Result<(), MigrationError> {
    for migration in migrations {
        write_public(&migration.path, migration.text.as_bytes())?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<serde_json::Value, MigrationError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| MigrationError::Read { path: shown.clone(), source })?;
    serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(&text))
        .map_err(|source| MigrationError::NotJson { path: shown, source })
}

fn push(migrations: &mut Vec<Migration>, path: PathBuf, newest: Newest) {
    if !newest.changes.is_empty() {
        let text = format!("{:#}\n", newest.value);
        migrations.push(Migration { path, text, changes: newest.changes });
    }
}
