//! `agents migrate`: rewrites an agent's files in the newest form; a second time it finds nothing to do.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::generations::{Newest, OlderForm, newest_agent, newest_registry_of};
use super::source::{Files, JsonSource, Unreadable, below};
use crate::sys::files::{FileError, leads_out, rewrite};

/// One file that is not in the newest form.
#[derive(Debug, Clone, PartialEq)]
pub struct Migration {
    /// The file.
    pub path: PathBuf,
    /// Its text in the newest form.
    pub text: String,
    /// What changes, with pointers into the old file.
    pub changes: Vec<OlderForm>,
}

/// A file cannot be migrated, because it cannot be read or a part of it would be lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {place}: {why}")]
pub struct Unmigratable {
    /// The code that the check of the file has.
    pub code: &'static str,
    /// File, and line and column where there is one.
    pub place: String,
    /// What is wrong and what to do.
    pub why: String,
}

/// Codes of a file that is absent, that cannot be read, and whose content is wrong.
type Codes = [&'static str; 3];

/// What would change in the agent's folder. Blocks on disk; writes nothing.
pub fn plan(project: &Path, folder: &Path) -> Result<Vec<Migration>, Unmigratable> {
    let mut migrations = Vec::new();
    let path = folder.join("agent.json");
    let agent = read(project, folder, &path, ["AC-LOAD-001", "AC-LOAD-002", "AC-VALID-001"])?;
    let newest = newest_agent(&agent.value);
    let named = newest
        .value
        .pointer("/runner/flow/prompts/registry")
        .and_then(serde_json::Value::as_str)
        .unwrap_or("steps_registry.json");
    let Some(registry) = below(folder, named) else {
        let place = agent.shown.clone();
        let why = format!("the registry \"{named}\" leads out of the agent's folder; name a file below it");
        return Err(Unmigratable { code: "SR-LOAD-003", place, why });
    };
    let source = read(project, folder, &registry, ["SR-LOAD-003", "SR-LOAD-001", "SR-VALID-004"])?;
    push(&mut migrations, path, newest);
    push(&mut migrations, registry, newest_registry_of(&agent.value, &source.value));
    Ok(migrations)
}

/// Writes what [`plan`] gave: each file whole and at once.
pub fn apply(migrations: &[Migration]) -> Result<(), FileError> {
    migrations.iter().try_for_each(|migration| rewrite(&migration.path, migration.text.as_bytes()))
}

/// Reads a file that may be rewritten: one that really lies in the agent's folder. Another one may be somebody else's.
fn read(project: &Path, folder: &Path, path: &Path, codes: Codes) -> Result<Rc<JsonSource>, Unmigratable> {
    let shown = path.strip_prefix(project).unwrap_or(path).display().to_string();
    let [absent, unreadable, wrong] = codes;
    let refused = |code, place, why: String| Unmigratable { code, place, why };
    if let Some(real) = leads_out(folder, path) {
        let why = format!(
            "a link leads out of the agent's folder, to {}; put the file itself there",
            real.display()
        );
        return Err(refused(unreadable, shown, why));
    }
    let source = Files::of(project).json(path, &shown).map_err(|error| match error {
        Unreadable::Absent => refused(absent, shown.clone(), "does not exist".into()),
        Unreadable::Failed(why) => refused(unreadable, shown.clone(), format!("cannot be read: {why}")),
        Unreadable::NotJson(at, why) => {
            let place = format!("{shown}:{}:{}", at.line, at.column);
            refused(unreadable, place, format!("is no JSON; correct it first: {why}"))
        }
    })?;
    let lost = |pointers: &[String], why: &str| {
        let Some(pointer) = pointers.first() else { return Ok(()) };
        let at = source.positions.of(pointer);
        Err(refused(wrong, format!("{shown}:{}:{}", at.line, at.column), format!("{why} (at {pointer})")))
    };
    lost(&source.positions.duplicates, "the key is written twice in one object; keep one of the two")?;
    lost(&source.positions.inexact, "the number is too large to be kept as it is written; write it as text")?;
    Ok(source)
}

fn push(migrations: &mut Vec<Migration>, path: PathBuf, newest: Newest) {
    if !newest.changes.is_empty() {
        let text = format!("{:#}\n", newest.value);
        migrations.push(Migration { path, text, changes: newest.changes });
    }
}
