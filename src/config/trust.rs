//! What a repository may decide with its own file when agentd manages the clone. The file is not trusted, so it may
//! only narrow what the operator's files say (D85). What it may not decide is kept with its line and the reason.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use toml::Value;

use super::duration::Span;
use super::env::Env;
use super::error::ConfigError;
use super::layer::{FILE_NAME, Layer};
use super::sandbox_file::SandboxMode;
use super::settings::{CloneFile, Config};
use super::source_format::{RefusedKey, Source};
use super::tree::{Tree, at, leaves_of};
use crate::domain::name::RepoName;

/// Largest file of a clone that is read, in bytes.
const LARGEST_FILE: u64 = 256 * 1024;

/// Limits of which a lower one counts.
const LOWER: [&str; 16] = [
    "budgets.max_steps",
    "budgets.max_wall_time",
    "budgets.max_cost",
    "budgets.max_cost_per_day",
    "budgets.max_cost_per_issue",
    "budgets.max_extension",
    "session.max_turns",
    "session.max_tool_calls_per_turn",
    "session.max_retries",
    "session.max_output_tokens",
    "sandbox.max_processes",
    "sandbox.max_memory_mib",
    "sandbox.max_file_mib",
    "sandbox.max_open_files",
    "verify.timeout",
    "worktree.setup_timeout",
];

/// What becomes of a key.
enum Judged {
    /// It says what holds anyway, or only how the file is to be read.
    Nothing,
    Counts(Value),
    Refused(&'static str),
}

impl Config {
    /// This configuration for a clone that agentd manages, narrowed by the clone's own file, if there is one.
    #[must_use]
    pub fn in_clone(&self, clone: &Path, repo: &RepoName, env: &Env) -> Self {
        let refused_whole = |path: PathBuf, why: String| {
            let source = Source::File { path, line: 1 };
            let refused = vec![RefusedKey { key: "*".to_owned(), source, why }];
            self.without_file(repo, env, CloneFile { refused, ..CloneFile::default() })
        };
        let path = match own_file(clone) {
            Ok(None) => return self.without_file(repo, env, CloneFile::default()),
            Ok(Some(path)) => path,
            Err((path, why)) => return refused_whole(path, why),
        };
        // A broken file of one repository stops neither the others nor its own runs. It is ignored.
        let layer = match Layer::of_clone(&path, LARGEST_FILE, env) {
            Ok(layer) => layer,
            Err(error) => return refused_whole(path, error.to_string()),
        };
        match self.narrowed(&layer, clone, repo, env) {
            Ok(config) => config,
            Err(error) => refused_whole(path, error.to_string()),
        }
    }

    /// What the file of the clone decided; `None` = the repository is not a managed clone.
    pub fn clone_file(&self) -> Option<&CloneFile> {
        self.clone_file.as_deref()
    }

    /// Where a relative path of `key` starts: at the main checkout. For a managed clone it starts at the folder of the
    /// operator's file that names it, because the files in the clone are not the operator's.
    pub fn paths_start(&self, key: &str, checkout: &Path) -> PathBuf {
        if self.clone_file.is_none() {
            return checkout.to_owned();
        }
        let Source::File { path, .. } = self.tree.source(key) else { return self.base.clone() };
        let folder = path.parent().unwrap_or(&self.base);
        // `.agent/agentd.toml` speaks for the folder around it.
        match (folder.file_name(), folder.parent()) {
            (Some(name), Some(around)) if name == ".agent" => around.to_owned(),
            _ => folder.to_owned(),
        }
    }

    /// As it is for a clone whose own file decides nothing.
    fn without_file(&self, repo: &RepoName, env: &Env, file: CloneFile) -> Self {
        // It was read from the same tree before, with the others.
        let config = self.with_tree(self.tree.clone(), repo, env).unwrap_or_else(|_| self.clone());
        config.with_clone(file)
    }

    /// As a tree of values says. The other repositories are left out: fifty configurations with fifty repositories each would take
    /// megabytes.
    fn with_tree(&self, mut tree: Tree, repo: &RepoName, env: &Env) -> Result<Self, ConfigError> {
        if let Some(own) = self.repositories.iter().position(|entry| entry.name.as_ref() == Some(repo)) {
            let whole = tree.clone();
            tree.replace_entry("repositories", None, &whole, own);
        }
        Self::from_tree(tree, Arc::clone(&self.layers), self.base.clone(), env)
    }

    fn with_clone(self, file: CloneFile) -> Self {
        Self { clone_file: Some(Arc::new(file)), ..self }
    }

    fn narrowed(&self, layer: &Layer, clone: &Path, repo: &RepoName, env: &Env) -> Result<Self, ConfigError> {
        let mut tree = self.tree.clone();
        let mut file = CloneFile::default();
        for (key, value) in leaves_of(&layer.table) {
            let key = of_list(key);
            let judged = match key.as_str() {
                "version" => Judged::Nothing,
                _ if self.says_anyway(&key, layer) => Judged::Nothing,
                // A placeholder would hand the operator's variables to the repository.
                _ if value.to_string().contains("${") => {
                    Judged::Refused("a placeholder would give it a variable of the operator's")
                }
                "verify.commands" => self.verify(value, &mut file),
                "policy.files" => policy_files(value, clone, &mut file),
                _ if key.starts_with("repositories[") => self.entry(&key, value, layer, repo),
                _ => self.judge(&key, value),
            };
            match judged {
                Judged::Nothing => {}
                Judged::Counts(value) if key.starts_with("repositories[") => {
                    set_agent(&mut tree, repo, value);
                }
                Judged::Counts(value) => tree.set(&key, value, layer.source(&key)),
                Judged::Refused(why) if file.refused.iter().all(|known| known.key != key) => {
                    file.refused.push(RefusedKey { source: layer.source(&key), key, why: why.to_owned() });
                }
                Judged::Refused(_) => {}
            }
        }
        Ok(self.with_tree(tree, repo, env)?.with_clone(file))
    }

    /// Whether a key of the file says what holds without it.
    fn says_anyway(&self, key: &str, layer: &Layer) -> bool {
        let theirs = at(&layer.table, key);
        theirs.is_some() && theirs == self.tree.at(key)
    }

    fn judge(&self, key: &str, value: &Value) -> Judged {
        if LOWER.contains(&key) {
            return match self.is_lower(key, value) {
                true => Judged::Counts(value.clone()),
                false => Judged::Refused("only a lower limit than the operator's counts"),
            };
        }
        match (key, value.as_str()) {
            ("sandbox.mode", Some(mode)) if is_stricter(mode, self.sandbox.mode) => {
                Judged::Counts(value.clone())
            }
            ("sandbox.mode", _) => Judged::Refused("only a stricter sandbox than the operator's counts"),
            ("verify.clean", _) if value.as_bool() == Some(true) => Judged::Counts(value.clone()),
            ("worktree.submodules" | "worktree.lfs", Some("never")) => Judged::Counts(value.clone()),
            _ => Judged::Refused("it is the operator's to say, in a file of their own"),
        }
    }

    /// Commands of the clone come after the operator's, and need a sandbox to run in.
    fn verify(&self, value: &Value, file: &mut CloneFile) -> Judged {
        let own = &self.verify.commands;
        let commands: Vec<Vec<String>> = match value.clone().try_into() {
            Ok(commands) => commands,
            Err(_) => return Judged::Refused("it is no list of commands"),
        };
        let new: Vec<Vec<String>> = commands.into_iter().filter(|argv| !own.contains(argv)).collect();
        if new.is_empty() {
            return Judged::Nothing;
        }
        if self.sandbox.mode == SandboxMode::Off {
            return Judged::Refused(
                "commands of a repository run in a sandbox only, and sandbox.mode is \"off\"",
            );
        }
        file.verify_commands = new.len();
        let all = own.iter().chain(&new).map(|argv| Value::from(argv.clone())).collect();
        Judged::Counts(Value::Array(all))
    }

    /// Keys of `[[repositories]]`: of its own entry only the agent counts, if the operator names none.
    fn entry(&self, key: &str, value: &Value, layer: &Layer, repo: &RepoName) -> Judged {
        let field = key.rsplit('.').next().unwrap_or_default();
        let entry = key.split('.').next().unwrap_or_default();
        let name = leaves_of(&layer.table)
            .into_iter()
            .find(|(key, _)| *key == format!("{entry}.name"))
            .and_then(|(_, name)| name.as_str().map(str::to_owned));
        let is_own = name.is_none_or(|name| name.eq_ignore_ascii_case(&repo.to_string()));
        let at = self.repositories.iter().position(|entry| entry.name.as_ref() == Some(repo));
        let operators = at.and_then(|at| self.tree.entry("repositories", at)).and_then(|own| own.get(field));
        match field {
            _ if !is_own => Judged::Refused("it speaks of another repository"),
            "name" => Judged::Nothing,
            "path" if value.as_str() == Some(".") => Judged::Nothing,
            _ if operators == Some(value) => Judged::Nothing,
            "agent" if operators.is_none() && value.is_str() => Judged::Counts(value.clone()),
            "agent" => Judged::Refused("the operator's file names another agent"),
            _ => Judged::Refused("it is the operator's to say, in a file of their own"),
        }
    }

    fn is_lower(&self, key: &str, value: &Value) -> bool {
        let Some(own) = self.tree.at(key) else { return false };
        let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        if let (Some(new), Some(own)) = (number(value), number(own)) {
            // No cap on the day is written as 0.
            let none =
                ["budgets.max_cost_per_day", "budgets.max_cost_per_issue"].contains(&key) && own <= 0.0;
            let is_cap =
                new > 0.0 || (new == 0.0 && ["budgets.max_cost", "budgets.max_extension"].contains(&key));
            return is_cap && (none || new < own);
        }
        let span = |value: &Value| value.as_str().and_then(|text| text.parse::<Span>().ok());
        matches!((span(value), span(own)), (Some(new), Some(own)) if new < own)
    }
}

/// The key of a value. For a value in a list of tables it is the key of the list, except for the repositories.
fn of_list(key: String) -> String {
    match key.split_once('[') {
        Some((list, _)) if list != "repositories" => list.to_owned(),
        _ => key,
    }
}

/// `bubblewrap` is the strictest, and every mode is stricter than none.
fn is_stricter(word: &str, own: SandboxMode) -> bool {
    match (Value::from(word).try_into().ok(), own) {
        (Some(SandboxMode::Bubblewrap), own) => own != SandboxMode::Bubblewrap,
        (Some(SandboxMode::Auto | SandboxMode::Landlock), SandboxMode::Off) => true,
        _ => false,
    }
}

/// The configuration of the clone: a plain file in plain folders. A link could lead anywhere on this machine.
fn own_file(clone: &Path) -> Result<Option<PathBuf>, (PathBuf, String)> {
    for name in [FILE_NAME.to_owned(), format!(".agent/{FILE_NAME}")] {
        let path = clone.join(&name);
        if path.symlink_metadata().is_ok() {
            return match plain_file(clone, Path::new(&name)) {
                Some(path) => Ok(Some(path)),
                None => Err((path, "it is no plain file of the repository".to_owned())),
            };
        }
    }
    Ok(None)
}

/// A file below a folder that is reached without any link.
pub fn plain_file(folder: &Path, relative: &Path) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for part in relative.components() {
        match part {
            Component::CurDir => continue,
            Component::Normal(name) => path.push(name),
            _ => return None,
        }
        if path.symlink_metadata().ok()?.is_symlink() {
            return None;
        }
    }
    path.is_file().then_some(path)
}

fn policy_files(value: &Value, clone: &Path, file: &mut CloneFile) -> Judged {
    let names: Vec<PathBuf> = match value.clone().try_into() {
        Ok(names) => names,
        Err(_) => return Judged::Refused("it is no list of files"),
    };
    let found: Option<Vec<PathBuf>> = names.iter().map(|name| plain_file(clone, name)).collect();
    match found {
        Some(found) => {
            file.policy_files = found;
            Judged::Nothing
        }
        None => Judged::Refused("it names what is no plain file of the repository"),
    }
}

fn set_agent(tree: &mut Tree, repo: &RepoName, agent: Value) {
    let Some(entries) = tree.values.get_mut("repositories").and_then(Value::as_array_mut) else { return };
    let name = repo.to_string();
    let own = |entry: &&mut Value| entry.get("name").and_then(Value::as_str) == Some(name.as_str());
    if let Some(entry) = entries.iter_mut().find(own).and_then(Value::as_table_mut) {
        entry.entry("agent").or_insert(agent);
    }
}
