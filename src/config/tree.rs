//! The merged layers: one tree in which every value knows its source.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::known_keys::join;
use super::layer::Layer;
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

    /// Replaces a table by the one of another tree.
    pub fn take(&mut self, key: &str, other: &Self) {
        if let Some(value) = other.values.get(key) {
            self.origins.retain(|known, _| !is_within(known, key));
            self.origins.extend(other.origins_within(key, key));
            self.values.insert(key.to_owned(), value.clone());
        }
    }

    /// Makes an entry of another tree's list of tables the only one here. Keys that it does not set come from the entry
    /// `own` of this list.
    pub fn replace_entry(&mut self, list: &str, own: Option<usize>, other: &Self, index: usize) {
        let (only, theirs) = (format!("{list}[0]"), format!("{list}[{index}]"));
        let mut entry = Table::new();
        let mut origins = BTreeMap::new();
        if let Some(own) = own {
            entry = self.entry(list, own).cloned().unwrap_or_default();
            origins = self.origins_within(&format!("{list}[{own}]"), &only);
        }
        for (name, value) in other.entry(list, index).into_iter().flatten() {
            let (key, from) = (join(&only, name), join(&theirs, name));
            origins.retain(|known, _| !is_within(known, &key));
            origins.extend(other.origins_within(&from, &key));
            entry.insert(name.clone(), value.clone());
        }
        origins.extend(other.origin(&theirs).map(|origin| (only, origin.clone())));
        self.origins.retain(|known, _| !is_within(known, list));
        self.origins.append(&mut origins);
        self.values.insert(list.to_owned(), Value::Array(vec![Value::Table(entry)]));
    }

    /// The value of a key that stands in no list.
    pub fn at(&self, path: &str) -> Option<&Value> {
        at(&self.values, path)
    }

    /// An entry of a list of tables.
    pub fn entry(&self, list: &str, index: usize) -> Option<&Table> {
        self.values.get(list)?.as_array()?.get(index)?.as_table()
    }

    /// What is known of `path` and all below it, under another path.
    fn origins_within(&self, path: &str, new: &str) -> BTreeMap<String, Origin> {
        let within = self.origins.iter().filter(|(known, _)| is_within(known, path));
        within.map(|(known, origin)| (format!("{new}{}", &known[path.len()..]), origin.clone())).collect()
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

/// The value of a key that stands in no list.
pub(super) fn at<'t>(values: &'t Table, path: &str) -> Option<&'t Value> {
    let (values, name) = match path.rsplit_once('.') {
        Some((table, name)) => (at(values, table)?.as_table()?, name),
        None => (values, path),
    };
    values.get(name)
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
