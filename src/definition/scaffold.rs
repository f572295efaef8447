//! `agents new NAME`: a small gated agent that works as it is, to be changed.

use std::path::{Path, PathBuf};

use super::format_schema;
use crate::sys::files::{FileError, create_dir, write_new};

macro_rules! template {
    ($path:literal) => {
        ($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/init/resolver/", $path)))
    };
}

/// The agent that `agentd init` writes and that every new agent starts from: (path below the agent's folder, text).
pub const RESOLVER: [(&str, &str); 8] = [
    template!("agent.json"),
    template!("steps_registry.json"),
    template!("schemas/issue.schema.json"),
    template!("prompts/system.md"),
    template!("prompts/steps/initial/issue/f_default.md"),
    template!("prompts/steps/continuation/issue/f_default.md"),
    template!("prompts/steps/verification/issue/f_default.md"),
    template!("prompts/steps/closure/issue/f_default.md"),
];

/// The schemas that the `$schema` lines of [`RESOLVER`] name, for editors: (path below `.agent`, text).
pub fn editor_schemas() -> Vec<(String, String)> {
    let schemas = super::FORMAT_SCHEMAS.iter().filter_map(|name| Some((name, format_schema(name)?)));
    schemas.map(|(name, schema)| (schema_path(name), format!("{schema:#}\n"))).collect()
}

/// Where below `.agent` the schema of that name stands.
pub fn schema_path(name: &str) -> String {
    format!("schemas/{name}.v1.json")
}

/// Why there is no new agent.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The name breaks the rule.
    #[error(
        "AC-VALID-001: \"{0}\" is no name for an agent; begin with a small letter, then small letters, digits and \"-\""
    )]
    Name(String),
    /// There is something already.
    #[error("{0} exists already; choose another name or remove it")]
    Exists(PathBuf),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] FileError),
}

/// Writes the agent to `.agent/NAME` of the project, with the schemas for editors where they are not there yet, and gives the files written. Never overwrites. Blocks on disk.
pub fn new_agent(project: &Path, name: &str) -> Result<Vec<PathBuf>, ScaffoldError> {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    // The folder of the prompt configuration is no agent's.
    if !plain || name == "climpt" {
        return Err(ScaffoldError::Name(name.to_owned()));
    }
    let folder = project.join(".agent").join(name);
    if folder.exists() {
        return Err(ScaffoldError::Exists(folder));
    }
    let mut written = Vec::new();
    let quoted = format!("\"{name}\"");
    for (path, text) in RESOLVER {
        let text = text.replace("\"resolver\"", &quoted).replace("\"Resolver\"", &quoted);
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            create_dir(parent)?;
        }
        if !write_new(&path, text.as_bytes())? {
            return Err(ScaffoldError::Exists(path));
        }
        written.push(path);
    }
    for (path, text) in editor_schemas() {
        let path = project.join(".agent").join(path);
        if let Some(parent) = path.parent() {
            create_dir(parent)?;
        }
        if write_new(&path, text.as_bytes())? {
            written.push(path);
        }
    }
    Ok(written)
}
