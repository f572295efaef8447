//! What a branch changes, file by file.

use serde::{Deserialize, Serialize};

use super::executed::executed;
use super::test_files::is_test;

/// What a branch changes against the origin's commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Files, sorted by path.
    pub files: Vec<FileChange>,
    /// Commits since the origin's commit.
    pub commits: u32,
}

impl Change {
    /// Whether nothing differs (D12).
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Files of the change that a command executes: its program, a script among its arguments or in a shell's line, and those of which
    /// `executes` says so. The change has an influence on what such a command says.
    pub fn executed_by(&self, argv: &[String], executes: &[String]) -> Vec<String> {
        let there = self.files.iter().filter(|file| !file.gone).map(|file| file.path.as_str());
        executed_of(&there.collect::<Vec<_>>(), argv, executes)
    }

    /// Files that a command would execute and that the change removed, or moved: by the names that they had.
    pub fn removed_of(&self, argv: &[String]) -> Vec<String> {
        let named =
            |file: &'_ FileChange| if file.gone { Some(file.path.clone()) } else { file.from.clone() };
        let removed: Vec<String> = self.files.iter().filter_map(named).collect();
        executed_of(&removed.iter().map(String::as_str).collect::<Vec<_>>(), argv, &[])
    }

    /// Files that it removes and that look like tests.
    pub fn removed_tests(&self) -> Vec<&str> {
        let gone = self.files.iter().filter(|file| file.gone).map(|file| file.path.as_str());
        gone.filter(|path| is_test(path)).collect()
    }

    /// Lines added and removed.
    pub fn lines(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed))
    }
}

/// Those of the files that a command executes, as far as its words or `executes` show.
fn executed_of(files: &[&str], argv: &[String], executes: &[String]) -> Vec<String> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let found = executed(&words, &|path: &str| files.contains(&path.trim_start_matches("./")));
    let named = argv.iter().map(|word| word.trim_start_matches("./").replace("/./", "/"));
    let named: Vec<String> = named.collect();
    let is_executed = |path: &&&str| {
        let path = **path;
        // A program without a folder is looked for elsewhere.
        let program = argv.first().is_some_and(|program| program.contains('/') && named[0] == path);
        let is_found = found.iter().chain(executes).any(|one| one.trim_start_matches("./") == path);
        program || is_found || named.iter().skip(1).any(|word| word == path)
    };
    files.iter().filter(is_executed).map(|path| (*path).to_owned()).collect()
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to the worktree.
    pub path: String,
    /// Lines added; 0 for a binary file.
    pub added: u64,
    /// Lines removed; 0 for a binary file.
    pub removed: u64,
    /// Whether it is new and only commands made it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_command: bool,
    /// Whether it is there no more. A moved file is there, by its new name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gone: bool,
    /// Its name before, where it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

fn is_false(one: &bool) -> bool {
    !*one
}
