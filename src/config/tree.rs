//! The layers laid over each other: one tree of values in which every value knows its source.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::layer::{Layer, join};
use super::placeholder::{Placeholder, Scope};
use super::source_format::Source;

/// Merged values (A-090: tables merge deeply, scalars and arrays replace) with the source and scope of each.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub values: Table,
    origins: BTreeMap<String, Origin>,
    process: Scope,
}

#[derive(Debug, Clone)]
struct Origin {
    source: Source,
    scope: Scope,
}

impl Tree {
    /// A tree of defaults; `process` is the scope of what stands in no file.
    pub fn new(defaults: Table, process: Scope) -> Self {
        Self { values: defaults, origins: BTreeMap::new(), process }
    }

    /// Lays a file over what is there.
    pub fn lay_file(&mut self, layer: &Layer) {
        let note = |path: &str| Origin { source: layer.source(path), scope: layer.scope.clone() };
        lay(&mut self.values, &layer.table, "", &note, &mut self.origins);
    }

    /// Sets one value.
    pub fn set(&mut self, path: &str, value: Value, source: Source) {
        let mut table = Table::new();
        let mut names = path.rsplit('.');
        if let Some(last) = names.next() {
            table.insert(last.to_owned(), value);
        }
        for name in names {
            table = Table::from_iter([(name.to_owned(), Value::Table(table))]);
        }
        let note = |_: &str| Origin { source: source.clone(), scope: self.process.clone() };
        lay(&mut self.values, &table, "", &note, &mut self.origins);
    }

    /// Source of the value at `path`, or of the nearest value around it that has one.
    pub fn source(&self, path: &str) -> Source {
        self.origin(path).map_or(Source::Default, |origin| origin.source.clone())
    }

    /// The text at `path` with what is needed to resolve it later.
    pub fn placeholder(&self, path: &str, text: &str) -> Placeholder {
        let scope = self.origin(path).map_or(&self.process, |origin| &origin.scope);
        Placeholder::new(text, path, &self.source(path), scope)
    }

    /// Every value that is neither a table nor a list of tables, in the file's order, with its path.
    pub fn leaves(&self) -> Vec<(String, &Value)> {
        leaves_of(&self.values)
    }

    fn origin(&self, path: &str) -> Option<&Origin> {
        let mut path = path;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return Some(origin);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// The leaves of a table; see [`Tree::leaves`].
pub(super) fn leaves_of(values: &Table) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (name, value) in values {
        leaves(value, name.clone(), &mut found);
    }
    found
}

fn leaves<'a>(value: &'a Value, path: String, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (name, value) in table {
                leaves(value, join(&path, name), found);
            }
        }
        Value::Array(array) if array.iter().any(Value::is_table) => {
            for (index, value) in array.iter().enumerate() {
                leaves(value, format!("{path}[{index}]"), found);
            }
        }
        Value::Table(_) => {}
        _ => found.push((path, value)),
    }
}

fn lay(
    base: &mut Table,
    over: &Table,
    path: &str,
    note: &dyn Fn(&str) -> Origin,
    origins: &mut BTreeMap<String, Origin>,
) {
    for (name, value) in over {
        let path = join(path, name);
        match (base.get_mut(name), value) {
            (Some(Value::Table(base)), Value::Table(over)) => lay(base, over, &path, note, origins),
            _ => {
                // What is replaced takes its sources with it.
                origins.retain(|known, _| !is_within(known, &path));
                note_all(value, &path, note, origins);
                base.insert(name.clone(), value.clone());
            }
        }
    }
}

fn is_within(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn note_all(
    value: &Value,
    path: &str,
    note: &dyn Fn(&str) -> Origin,
    origins: &mut BTreeMap<String, Origin>,
) {
    origins.insert(path.to_owned(), note(path));
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                note_all(value, &join(path, name), note, origins);
            }
        }
        Value::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                note_all(value, &format!("{path}[{index}]"), note, origins);
            }
        }
        _ => {}
    }
}
