//! `agents new NAME`: a small gated agent that works as it is, to be changed.

use std::path::{Path, PathBuf};

use crate::sys::files::{FileError, create_dir, write_new};

/// The files of a new agent: (path below the agent's folder, text); `AGENT_NAME` stands for the name.
const FILES: [(&str, &str); 7] = [
    ("agent.json", include_str!("../../templates/agent/agent.json")),
    ("steps_registry.json", include_str!("../../templates/agent/steps_registry.json")),
    ("schemas/steps.schema.json", include_str!("../../templates/agent/schemas/steps.schema.json")),
    ("prompts/system.md", include_str!("../../templates/agent/prompts/system.md")),
    (
        "prompts/steps/initial/work/f_default.md",
        include_str!("../../templates/agent/prompts/steps/initial/work/f_default.md"),
    ),
    (
        "prompts/steps/continuation/work/f_default.md",
        include_str!("../../templates/agent/prompts/steps/continuation/work/f_default.md"),
    ),
    (
        "prompts/steps/closure/work/f_default.md",
        include_str!("../../templates/agent/prompts/steps/closure/work/f_default.md"),
    ),
];

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

/// Writes the agent to `.agent/NAME` of the project and gives the files written. Never overwrites. Blocks on disk.
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
    for (path, text) in FILES {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            create_dir(parent)?;
        }
        if !write_new(&path, text.replace("AGENT_NAME", name).as_bytes())? {
            return Err(ScaffoldError::Exists(path));
        }
        written.push(path);
    }
    Ok(written)
}
