//! breakdown's configuration of a prompt root: `{agent}-{c1}-app.yml` and `{agent}-{c1}-user.yml`.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_yaml_ng::Value;

use super::PromptError;
use super::address::PromptAddress;
use crate::sys::files::leads_out;

/// Folder of the configuration files, relative to the project's root.
pub const CONFIG_FOLDER: &str = ".agent/climpt/config";

/// Keys of an app file that mean something here.
const APP_KEYS: [&str; 3] = ["working_dir", "app_prompt.base_dir", "app_schema.base_dir"];
/// Keys of a user file that mean something here.
const USER_KEYS: [&str; 3] =
    ["params.two.directiveType.pattern", "params.two.layerType.pattern", "options.destination.prefix"];

/// Where the prompts of an agent's `c1` are, and which addresses it allows.
#[derive(Debug, Clone)]
pub struct PromptRoot {
    /// Folder of the prompts.
    pub folder: PathBuf,
    /// The same, relative to the project's root, for people.
    pub shown: String,
    /// Folder of breakdown's schema files, relative to the project's root.
    pub schema_folder: Option<String>,
    /// Put before `{destination_path}`.
    pub destination_prefix: Option<String>,
    /// Configuration files read: (path relative to the project's root, bytes).
    pub files: Vec<(String, Vec<u8>)>,
    /// Keys that mean nothing here: (file, line, text).
    pub notes: Vec<(String, u32, String)>,
    c2_pattern: Option<Regex>,
    c3_pattern: Option<Regex>,
    user_file: String,
}

impl PromptRoot {
    /// Reads the configuration of an agent's `c1`; without files the root is `prompts/{c1}` in the agent's folder.
    /// Blocks on disk.
    pub fn read(project: &Path, agent_folder: &Path, agent: &str, c1: &str) -> Result<Self, PromptError> {
        let shown_agent =
            agent_folder.strip_prefix(project).unwrap_or(agent_folder).to_string_lossy().into_owned();
        let user_file = format!("{CONFIG_FOLDER}/{agent}-{c1}-user.yml");
        let mut root = Self {
            folder: agent_folder.join("prompts").join(c1),
            shown: join_shown(&shown_agent, &format!("prompts/{c1}")),
            schema_folder: None,
            destination_prefix: None,
            files: Vec::new(),
            notes: Vec::new(),
            c2_pattern: None,
            c3_pattern: None,
            user_file: user_file.clone(),
        };
        let app_file = format!("{CONFIG_FOLDER}/{agent}-{c1}-app.yml");
        if let Some(app) = root.yaml(project, &app_file)? {
            root.apply_app(project, &shown_agent, c1, &app, &app_file)?;
        }
        if let Some(user) = root.yaml(project, &user_file)? {
            root.note_unknown(&user, "", &USER_KEYS, &user_file);
            root.c2_pattern = pattern(&user, "directiveType", &user_file)?;
            root.c3_pattern = pattern(&user, "layerType", &user_file)?;
            root.destination_prefix = text_at(&user, "options.destination.prefix", &user_file)?;
        }
        Ok(root)
    }

    /// Refuses an address whose `c2` or `c3` the user file's patterns do not allow.
    pub fn allows(&self, address: &PromptAddress) -> Result<(), PromptError> {
        for (what, key, part, pattern) in [
            ("c2", "directiveType", &address.c2, &self.c2_pattern),
            ("c3", "layerType", &address.c3, &self.c3_pattern),
        ] {
            if let Some(pattern) = pattern
                && !pattern.is_match(part)
            {
                return Err(PromptError::new(
                    "PR-C3L-002",
                    format!(
                        "{what} \"{part}\" does not match params.two.{key}.pattern \"{}\"; widen the pattern or change the address",
                        pattern.as_str()
                    ),
                )
                .in_file(&self.user_file));
            }
        }
        Ok(())
    }

    fn apply_app(
        &mut self,
        project: &Path,
        shown_agent: &str,
        c1: &str,
        app: &Value,
        file: &str,
    ) -> Result<(), PromptError> {
        self.note_unknown(app, "", &APP_KEYS, file);
        let working = text_at(app, "working_dir", file)?.unwrap_or_else(|| shown_agent.to_owned());
        let base = text_at(app, "app_prompt.base_dir", file)?.unwrap_or_else(|| format!("prompts/{c1}"));
        self.shown = join_shown(&working, &base);
        let outside = |what: &str| {
            PromptError::new(
                "PR-C3L-002",
                format!("{what} leads out of the project; write a path below it, without \"..\""),
            )
            .in_file(file)
        };
        self.folder = inside(project, &self.shown).ok_or_else(|| outside("app_prompt.base_dir"))?;
        if let Some(base) = text_at(app, "app_schema.base_dir", file)? {
            let shown = join_shown(&working, &base);
            inside(project, &shown).ok_or_else(|| outside("app_schema.base_dir"))?;
            self.schema_folder = Some(shown);
        }
        Ok(())
    }

    fn yaml(&mut self, project: &Path, file: &str) -> Result<Option<Value>, PromptError> {
        let path = project.join(file);
        if let Some(real) = leads_out(project, &path) {
            let message = format!(
                "a link leads out of the repository, to {}; put the file itself there",
                real.display()
            );
            return Err(PromptError::new("PR-C3L-002", message).in_file(file));
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(PromptError::new("PR-FILE-001", format!("cannot be read: {error}")).in_file(file));
            }
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = serde_yaml_ng::from_str(text.trim_start_matches('\u{feff}')).map_err(
            |error: serde_yaml_ng::Error| {
                let line = error.location().map_or(1, |place| u32::try_from(place.line()).unwrap_or(1));
                PromptError::new("PR-FILE-001", format!("is no YAML: {error}")).in_file(file).on_line(line)
            },
        )?;
        self.files.push((file.to_owned(), bytes));
        Ok(Some(value))
    }

    /// Notes keys that are neither known nor lead to known ones; `within` is the path of the value, with a dot behind it.
    fn note_unknown(&mut self, value: &Value, within: &str, known: &[&str], file: &str) {
        for (key, value) in value.as_mapping().into_iter().flatten() {
            let Some(key) = key.as_str() else { continue };
            let path = format!("{within}{key}");
            let below = format!("{path}.");
            if known.iter().any(|known| known.starts_with(&below)) {
                self.note_unknown(value, &below, known, file);
            } else if !known.contains(&path.as_str()) {
                self.notes.push((file.to_owned(), 1, format!("key \"{path}\" is not known; it is ignored")));
            }
        }
    }
}

fn pattern(user: &Value, key: &str, file: &str) -> Result<Option<Regex>, PromptError> {
    let Some(text) = text_at(user, &format!("params.two.{key}.pattern"), file)? else { return Ok(None) };
    Regex::new(&text).map(Some).map_err(|error| {
        PromptError::new("PR-FILE-001", format!("params.two.{key}.pattern is no regular expression: {error}"))
            .in_file(file)
    })
}

/// The text at a dot path; `None` = there is nothing. Anything else than a text is an error.
fn text_at(value: &Value, path: &str, file: &str) -> Result<Option<String>, PromptError> {
    let mut place = value;
    for key in path.split('.') {
        match place.get(key) {
            Some(inner) => place = inner,
            None if place.is_null() || place.is_mapping() => return Ok(None),
            None => break,
        }
    }
    match place {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
            Err(PromptError::new("PR-FILE-001", format!("{path} is no text; write it in quotes"))
                .in_file(file))
        }
    }
}

fn join_shown(folder: &str, path: &str) -> String {
    let folder = folder.trim_start_matches("./").trim_end_matches('/');
    if folder.is_empty() || folder == "." { path.to_owned() } else { format!("{folder}/{path}") }
}

/// The folder below the project, unless the path is absolute or climbs out.
fn inside(project: &Path, path: &str) -> Option<PathBuf> {
    let plain = Path::new(path)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
    plain.then(|| project.join(path))
}
