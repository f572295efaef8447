//! The files of a definition, read once: their text, their values, and where each value stands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::diagnostic::{Diagnostic, Severity};
use super::position::{Position, Positions};
use crate::domain::canonical::sha256_hex;
use crate::sys::files::leads_out;

/// Largest definition file, in bytes.
const LARGEST_FILE: u64 = 8 * 1024 * 1024;

/// A JSON file.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSource {
    /// File as people know it.
    pub shown: String,
    /// Parsed, as written.
    pub value: Value,
    /// Places of its values.
    pub positions: Positions,
}

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// There is none.
    Absent,
    /// It cannot be read.
    Failed(String),
    /// It is no JSON.
    NotJson(Position, String),
}

/// Everything that is read, with hashes.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    hashes: RefCell<BTreeMap<String, String>>,
    json: RefCell<BTreeMap<PathBuf, Result<std::rc::Rc<JsonSource>, Unreadable>>>,
}

impl Files {
    /// Reads below the repository `root` only: no link may lead out of it.
    pub fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), hashes: RefCell::default(), json: RefCell::default() }
    }

    /// Reads a JSON file, once.
    pub fn json(&self, path: &Path, shown: &str) -> Result<std::rc::Rc<JsonSource>, Unreadable> {
        if let Some(known) = self.json.borrow().get(path) {
            return known.clone();
        }
        let read = self.read_json(path, shown).map(std::rc::Rc::new);
        self.json.borrow_mut().insert(path.to_owned(), read.clone());
        read
    }

    fn read_json(&self, path: &Path, shown: &str) -> Result<JsonSource, Unreadable> {
        let text = self.text(path, shown)?;
        let json = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let value = serde_json::from_str(json).map_err(|error| {
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
            Unreadable::NotJson(
                Position { line: number(error.line()).max(1), column: number(error.column()).max(1) },
                message,
            )
        })?;
        Ok(JsonSource { shown: shown.to_owned(), positions: Positions::scan(json), value })
    }

    /// Reads a text file.
    pub fn text(&self, path: &Path, shown: &str) -> Result<String, Unreadable> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Unreadable::Absent,
            _ => Unreadable::Failed(error.to_string()),
        };
        if let Some(real) = leads_out(&self.root, path) {
            return Err(Unreadable::Failed(format!(
                "a link leads out of the repository, to {}; put the file itself there",
                real.display()
            )));
        }
        let about = path.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(Unreadable::Failed("is no file".into()));
        }
        let size = about.len();
        if size > LARGEST_FILE {
            return Err(Unreadable::Failed(format!("has {size} bytes; at most {LARGEST_FILE} are read")));
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        self.keep(shown, &bytes);
        String::from_utf8(bytes).map_err(|broken| {
            let sound = broken.utf8_error().valid_up_to();
            let line = 1 + broken.as_bytes()[..sound].iter().filter(|byte| **byte == b'\n').count();
            Unreadable::Failed(format!("is not UTF-8 on line {line}; save it as UTF-8"))
        })
    }

    /// Notes the bytes of a file that was read elsewhere.
    pub fn keep(&self, shown: &str, bytes: &[u8]) {
        self.keep_hash(shown, &sha256_hex(bytes));
    }

    /// Notes the hash of a file that was read elsewhere.
    pub fn keep_hash(&self, shown: &str, sha256: &str) {
        self.hashes.borrow_mut().insert(shown.to_owned(), sha256.to_owned());
    }

    /// One hash over the names and hashes of all files that were read, in the order of names.
    pub fn sha256(&self) -> String {
        let mut all = String::new();
        for (name, hash) in self.hashes.borrow().iter() {
            all.push_str(hash);
            all.push_str("  ");
            all.push_str(name);
            all.push('\n');
        }
        sha256_hex(all.as_bytes())
    }
}

/// A path below a folder; `None` when it is absolute or climbs out.
pub fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let plain = !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
    plain.then(|| folder.join(path))
}

/// Collects findings about one JSON file. Knows how pointers of the newest form are written in the file.
#[derive(Debug)]
pub struct Findings<'a> {
    shown: &'a str,
    positions: &'a Positions,
    moves: &'a [(String, String)],
    /// What was found.
    pub list: Vec<Diagnostic>,
}

impl<'a> Findings<'a> {
    /// `moves`: (pointer in the newest form, pointer in the file), for keys that were moved.
    pub fn new(source: &'a JsonSource, moves: &'a [(String, String)]) -> Self {
        Self { shown: &source.shown, positions: &source.positions, moves, list: Vec::new() }
    }

    /// Adds a finding at a pointer of the newest form.
    pub fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        pointer: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let pointer = self.written(pointer);
        self.add_written(severity, code, &pointer, message, fix);
    }

    /// Adds a finding at a pointer of the file itself.
    pub fn add_written(
        &mut self,
        severity: Severity,
        code: &'static str,
        pointer: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.list.push(Diagnostic {
            code,
            severity,
            file: self.shown.to_owned(),
            place: Some(self.positions.of(pointer)),
            pointer: pointer.to_owned(),
            message: message.into(),
            fix: fix.into(),
            schema: false,
        });
    }

    /// Adds an error that the file's own schema would find (exit 5).
    pub fn schema_error(
        &mut self,
        code: &'static str,
        pointer: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Severity::Error, code, pointer, message, fix);
        if let Some(last) = self.list.last_mut() {
            last.schema = true;
        }
    }

    /// The pointer as the file spells it.
    pub fn written(&self, pointer: &str) -> String {
        self.moves
            .iter()
            .filter(|(new, _)| {
                pointer == new || pointer.strip_prefix(new.as_str()).is_some_and(|rest| rest.starts_with('/'))
            })
            .max_by_key(|(new, _)| new.len())
            .map_or_else(|| pointer.to_owned(), |(new, old)| format!("{old}{}", &pointer[new.len()..]))
    }
}
