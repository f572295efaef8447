//! Inside of a module at most two files import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::lexer::parted;
use super::{rust_files, source};

/// A file of a module, as its path below it: `sandbox/inside.rs` → sandbox, inside; `sandbox/mod.rs` → sandbox.
type File = Vec<String>;

fn file_of(inside: &str) -> File {
    let mut parts: File = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.len() > 1 && parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// Every path of a text that begins with `super`, `self` or `crate`, with groups taken apart.
fn paths(text: &str) -> Vec<Vec<String>> {
    // What is shown to the parent is no import of it.
    let code: Vec<char> = parted(text).0.replace("pub(super)", "pub").chars().collect();
    let word = |at: usize| code.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let mut found = Vec::new();
    for at in 0..code.len() {
        let first = at == 0 || !(word(at - 1) || code[at - 1] == ':');
        if first && word(at) {
            let name: String = code[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
            if ["super", "self", "crate"].contains(&name.as_str()) {
                tree(&code, at, &[], &mut found);
            }
        }
    }
    found
}

/// Reads a path, or a tree of them, from `at`; gives where it ends.
fn tree(code: &[char], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let skip = |mut at: usize| {
        while code.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        at
    };
    let mut path = before.to_vec();
    loop {
        at = skip(at);
        if code.get(at) == Some(&'{') {
            at += 1;
            while at < code.len() && code[at] != '}' {
                at = tree(code, at, &path, found);
                while at < code.len() && !matches!(code[at], ',' | '}') {
                    at += 1;
                }
                at = if code.get(at) == Some(&',') { skip(at + 1) } else { at };
            }
            return (at + 1).min(code.len());
        }
        let name: String = code[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
        at += name.chars().count();
        if !name.is_empty() {
            path.push(name);
        }
        if code.get(at) == Some(&':') && code.get(at + 1) == Some(&':') {
            at += 2;
        } else {
            found.push(path);
            return at;
        }
        let next = code.get(skip(at));
        if next == Some(&'*') {
            path.push("*".to_owned());
        }
        if !next.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '{')) {
            found.push(path);
            return at;
        }
    }
}

/// The file of the module that a path of `here` leads to.
fn target(path: &[String], here: &File, module: &str, files: &BTreeSet<File>) -> Option<File> {
    let mut place = here.clone();
    let mut rest = path;
    if path[0] == "crate" {
        rest = path[1..].strip_prefix(&[module.to_owned()])?;
        place.clear();
    }
    while let Some(first) = rest.first().filter(|first| *first == "super" || *first == "self") {
        if first == "super" {
            place.pop()?;
        }
        rest = &rest[1..];
    }
    // `pub(super)` and `self` alone name no file.
    rest.first()?;
    place.extend(rest.iter().cloned());
    let found = (1..=place.len()).rev().map(|length| &place[..length]).find(|part| files.contains(*part))?;
    (found != here.as_slice()).then(|| found.to_vec())
}

/// The circles of more than two files of a module, given its files with their texts.
fn circles(module: &str, texts: &BTreeMap<File, String>) -> Vec<BTreeSet<File>> {
    let files: BTreeSet<File> = texts.keys().cloned().collect();
    let mut imports: BTreeMap<&File, BTreeSet<File>> = BTreeMap::new();
    for (file, text) in texts {
        let own = text.split("\nmod tests {").next().unwrap_or_default();
        let targets = paths(own).into_iter().filter_map(|path| target(&path, file, module, &files));
        imports.insert(file, targets.collect());
    }
    let reached = |from: &File| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(file) = open.pop() {
            let new = imports[&file].iter().filter(|next| reached.insert((*next).clone()));
            open.extend(new.cloned().collect::<Vec<_>>());
        }
        reached
    };
    let reach: BTreeMap<&File, BTreeSet<File>> = files.iter().map(|file| (file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, there) in &reach {
        let circle: BTreeSet<File> =
            there.iter().filter(|next| reach[next].contains(*file)).cloned().collect();
        if circle.len() > 2 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[test]
fn no_more_than_two_files_of_a_module_import_each_other() {
    let mut modules: BTreeMap<String, BTreeMap<File, String>> = BTreeMap::new();
    for file in rust_files(&source()) {
        let inside = file.strip_prefix(source()).unwrap().display().to_string();
        if let Some((module, rest)) = inside.split_once('/') {
            let text = fs::read_to_string(&file).unwrap();
            modules.entry(module.to_owned()).or_default().insert(file_of(rest), text);
        }
    }
    let mut wrong = Vec::new();
    for (module, texts) in &modules {
        for circle in circles(module, texts) {
            let files: Vec<String> = circle.iter().map(|file| file.join("/")).collect();
            wrong.push(format!("src/{module}: a circle of {} files: {}", files.len(), files.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_about_circles_finds_one_of_three_and_lets_two_be() {
    let module = |files: &[(&str, &str)]| -> Vec<String> {
        let texts = files.iter().map(|(name, text)| (file_of(name), (*text).to_owned())).collect();
        let names =
            |circle: &BTreeSet<File>| circle.iter().map(|file| file.join("/")).collect::<Vec<_>>().join(" ");
        circles("m", &texts).iter().map(names).collect()
    };
    let three = [
        ("a.rs", "use super::{x, b::{B, self}};\n"),
        ("b.rs", "fn f() { crate::m::c::g() } // super::d\n"),
        ("c/mod.rs", "use self::{e::E, f::F}; use crate::m::a::A;\n"),
        ("c/e.rs", "pub(super) fn f(&self) {}\n"),
        ("c/f.rs", "use super::*;\n"),
        ("d.rs", "use super::a;\n\nmod tests {\n    use super::super::b;\n}\n"),
    ];
    assert_eq!(module(&three), ["a b c c/f"]);
    let two =
        [("a.rs", "use super::b::B;"), ("b.rs", "use super::a::A;"), ("c/e.rs", "use super::super::a::A;")];
    assert!(module(&two).is_empty());
}
