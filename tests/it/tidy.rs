//! The rules of the code that a machine can check: layers, borders, sizes, circles, words, codes.

mod circles;
mod codes;
mod lexer;
mod printed_commands;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Adapters do not import each other.
const ADAPTERS: &[&str] = &["store", "tools", "agents", "mcp", "llm", "github", "git", "proxy"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let is_rust = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    files(folder).into_iter().filter(is_rust).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Module name → layer, in the order of the `mod` lines of lib.rs.
fn layers(map: &str) -> BTreeMap<String, usize> {
    map.lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .enumerate()
        .map(|(layer, module)| (module.to_owned(), layer))
        .collect()
}

/// The crate's modules that a text imports: `crate::x` anywhere but in comments.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(group) => {
                    group.split(',').map(|part| part.trim().split("::").next().unwrap_or_default()).collect()
                }
                None => {
                    vec![rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()]
                }
            };
            found.extend(names.into_iter().map(|name| (number + 1, name.to_owned())));
        }
    }
    found
}

/// Imports of one file that point to a higher layer, or from adapter to adapter.
fn wrong_imports(file: &str, home: &str, text: &str, layers: &BTreeMap<String, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, module) in imports(text) {
        let (Some(here), Some(there)) = (layers.get(home), layers.get(&module)) else { continue };
        if module == home {
            continue;
        }
        if there > here {
            wrong
                .push(format!("{file}:{line}: {home} imports {module}, which stands above it in src/lib.rs"));
        } else if ADAPTERS.contains(&home) && ADAPTERS.contains(&module.as_str()) {
            wrong.push(format!("{file}:{line}: {home} imports {module}; adapters do not import each other"));
        }
    }
    wrong
}

#[test]
fn no_module_imports_a_higher_layer() {
    let layers = layers(&fs::read_to_string(source().join("lib.rs")).unwrap());
    assert!(layers.len() > 15, "lib.rs is the map");
    let mut wrong = Vec::new();
    for file in rust_files(&source()) {
        let inside = file.strip_prefix(source()).unwrap();
        let home = inside.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        wrong.extend(wrong_imports(
            &inside.display().to_string(),
            &home,
            &fs::read_to_string(&file).unwrap(),
            &layers,
        ));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_about_layers_finds_an_import_of_a_higher_one_and_one_between_adapters() {
    let layers = layers("pub mod domain;\npub mod git;\npub mod github;\npub mod cli;\n");
    assert_eq!(wrong_imports("domain/x.rs", "domain", "use crate::cli::output;", &layers).len(), 1);
    assert_eq!(
        wrong_imports("github/x.rs", "github", "use crate::{domain::name, git::push};", &layers).len(),
        1
    );
    assert_eq!(
        wrong_imports("cli/x.rs", "cli", "use crate::domain::name; // crate::nothing", &layers).len(),
        0
    );
}

#[test]
fn every_file_says_what_it_is_for_and_can_be_read_in_one_sitting() {
    let mut wrong = Vec::new();
    for file in rust_files(&source()) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(source()).unwrap().display().to_string();
        if !text.starts_with("//! ") {
            wrong.push(format!("{name}: opens with a `//!` sentence on what it is for"));
        }
        let lines = text.lines().take_while(|line| !line.starts_with("mod tests")).count();
        if lines > 700 {
            wrong.push(format!("{name}: {lines} lines without its tests; find the noun that wants out"));
        }
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if ["utils", "util", "common", "helpers", "helper", "imp", "manager", "misc"].contains(&stem) {
            wrong.push(format!("{name}: named by a noun of the field"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn nothing_but_source_lies_in_src() {
    let kinds = ["rs", "graphql"];
    let is_source =
        |file: &PathBuf| file.extension().is_some_and(|kind| kinds.iter().any(|known| kind == *known));
    let strange: Vec<PathBuf> = files(&source()).into_iter().filter(|file| !is_source(file)).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn serde_derives_stand_where_a_format_is_owned() {
    let mut wrong = Vec::new();
    for file in rust_files(&source()) {
        let inside = file.strip_prefix(source()).unwrap().display().to_string();
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let owned = ["_file", "_wire", "_format"].iter().any(|end| stem.ends_with(end));
        // Domain nouns are what our records are made of; the engine's seams and policy input are records too.
        if owned || inside.starts_with("domain/") || inside.starts_with("engine/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("#[derive(")
                && (line.contains("Deserialize") || line.contains("Serialize"))
            {
                wrong.push(format!(
                    "{inside}:{}: a serde derive outside *_file.rs, *_wire.rs, *_format.rs",
                    number + 1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_test_file_is_in_the_test_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let stem = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(
            stem == "main" || main.contains(&format!("mod {stem};")),
            "tests/it/{stem} is not declared in main.rs"
        );
    }
}

/// Which tests start agentd with a log of their own; their text from the name to the next test.
fn tests_with_a_log(text: &str) -> Vec<&str> {
    let starts: Vec<usize> = text.match_indices("\n#[").map(|(at, _)| at).chain([text.len()]).collect();
    let parts = starts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
    parts.filter(|part| part.contains("\"--log-format\"") || part.contains("\"--log-level\"")).collect()
}

#[test]
fn a_098_no_test_reads_the_words_of_the_log() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut looked_at = 0;
    for file in rust_files(&tests).into_iter().filter(|file| !file.ends_with("tidy.rs")) {
        let text = fs::read_to_string(&file).unwrap();
        for test in tests_with_a_log(&text) {
            looked_at += 1;
            let reads = test.contains(".contains(") || test.contains("[\"message\"]");
            assert!(!reads, "{}: a test asks for the log and reads its words:{test}", file.display());
        }
    }
    assert!(looked_at > 0, "the rule has nothing to look at");
}
