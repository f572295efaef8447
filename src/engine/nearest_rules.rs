//! Rules of folders: a session is told of them with its first tool result about a path below.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::briefing::FolderRules;
use crate::domain::image::Image;

/// Arguments of tools that hold paths.
const PATHS: [&str; 5] = ["path", "paths", "file", "folder", "argv"];

/// What a run has stored and noted before its sessions begin, for all of them.
#[derive(Debug, Clone, Default)]
pub struct Background {
    /// Texts that `tool_output` reads, by their handle.
    pub stored: Vec<(String, crate::domain::artifact::Artifact)>,
    /// Rules of folders.
    pub folder_rules: Arc<[FolderRules]>,
    /// Images that stand with the first message.
    pub images: Arc<[Image]>,
}

/// The rules that one session was not told of yet.
#[derive(Debug, Default)]
pub struct NearestRules {
    rules: Arc<[FolderRules]>,
    told: BTreeSet<usize>,
}

impl NearestRules {
    /// None of these were told.
    pub fn new(rules: Arc<[FolderRules]>) -> Self {
        Self { rules, told: BTreeSet::new() }
    }

    /// The rules for what a call is about, the nearest last, and their places; `None` = there is nothing to tell.
    pub fn of_call(&self, arguments: &Value) -> Option<(Vec<usize>, String)> {
        if self.told.len() == self.rules.len() {
            return None;
        }
        let named = paths(arguments);
        let concerns = |rules: &FolderRules| named.iter().any(|path| is_below(path, &rules.folder));
        // A folder stands before the folders in it.
        let places: Vec<usize> = (0..self.rules.len())
            .filter(|place| !self.told.contains(place) && concerns(&self.rules[*place]))
            .collect();
        let texts: Vec<&str> = places.iter().map(|place| self.rules[*place].text.as_str()).collect();
        (!places.is_empty()).then(|| (places, texts.join("\n\n")))
    }

    /// They were told.
    pub fn told(&mut self, places: Vec<usize>) {
        self.told.extend(places);
    }
}

/// The paths in a call's arguments, relative to the worktree.
fn paths(arguments: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for name in PATHS {
        match &arguments[name] {
            Value::String(path) => found.push(normal(path)),
            Value::Array(many) => found.extend(many.iter().filter_map(Value::as_str).map(normal)),
            _ => {}
        }
    }
    found
}

fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rules_of_a_folder_come_with_the_first_result_about_a_path_below_and_once() {
        let rule =
            |folder: &str| FolderRules { folder: folder.to_owned(), text: format!("rules of {folder}") };
        let mut rules = NearestRules::new([rule("a"), rule("a/b"), rule("c")].into());
        assert_eq!(rules.of_call(&json!({ "path": "ab/x" })), None);
        let (places, text) = rules.of_call(&json!({ "path": "./a/x/../b/y" })).unwrap();
        assert_eq!(text, "rules of a\n\nrules of a/b");
        rules.told(places);
        assert_eq!(rules.of_call(&json!({ "path": "a/b/y" })), None);
        assert_eq!(rules.of_call(&json!({ "argv": ["cat", "c/x"] })).unwrap().1, "rules of c");
    }
}
