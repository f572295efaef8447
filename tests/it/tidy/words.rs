//! A word that `docs/glossary.md` retires is neither a name nor a word of a comment.

use std::fs;
use std::path::Path;

use super::lexer::parted;
use super::{rust_files, source};

struct Retired {
    /// The parts of the word: `way_out` → way, out.
    parts: Vec<String>,
    /// Whether it is looked for in comments too; names are always looked at.
    in_comments: bool,
}

/// The parts of a name, in lower case: `WayOut` and `way_out` → way, out.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        if c.is_alphanumeric() {
            let begins = before == '_' || (c.is_uppercase() && !before.is_uppercase());
            match parts.last_mut().filter(|_| !begins) {
                Some(last) => last.extend(c.to_lowercase()),
                None => parts.push(c.to_lowercase().collect()),
            }
        }
        before = if c.is_alphanumeric() { c } else { '_' };
    }
    parts
}

/// The rows below "Retired words": the words in the first column, and where they are looked for in the last one.
fn retired(glossary: &str) -> Vec<Retired> {
    let table = glossary.split("\n## Retired words").nth(1).unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut found = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches(['|', ' ']).split(" | ").collect();
        let in_comments = match cells.last().copied() {
            Some("names and comments") => true,
            Some("names") => false,
            _ => continue,
        };
        let words = cells[0].split('`').filter(|word| word.chars().any(char::is_alphanumeric));
        found.extend(words.map(|word| Retired { parts: parts_of(word), in_comments }));
    }
    found
}

fn names_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(line, content)| {
        let names = content.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        names.filter(|name| !name.is_empty()).map(move |name| (line + 1, name))
    })
}

/// The retired words of one file, with their lines.
fn used(file: &str, text: &str, retired: &[Retired]) -> Vec<String> {
    let (code, comments) = parted(text);
    let stem = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    let places = names_in(stem).map(|(_, name)| (1, name, false));
    let places = places.chain(names_in(&code).map(|(line, name)| (line, name, false)));
    let places = places.chain(names_in(&comments).map(|(line, name)| (line, name, true)));
    let mut found = Vec::new();
    for (line, name, comment) in places {
        let parts = parts_of(name);
        let hit = retired
            .iter()
            .filter(|word| word.in_comments || !comment)
            .find(|word| parts.windows(word.parts.len()).any(|part| part == word.parts));
        if let Some(word) = hit {
            let word = word.parts.join("_");
            found.push(format!("{file}:{line}: `{name}`: docs/glossary.md retires `{word}`"));
        }
    }
    found
}

#[test]
fn no_name_and_no_comment_has_a_word_that_the_glossary_retires() {
    let glossary = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/glossary.md");
    let retired = retired(&fs::read_to_string(glossary).unwrap());
    assert!(retired.len() > 20, "the glossary has its table");
    let mut wrong = Vec::new();
    for file in rust_files(&source()) {
        let name = file.strip_prefix(source()).unwrap().display().to_string();
        wrong.extend(used(&name, &fs::read_to_string(&file).unwrap(), &retired));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_about_words_finds_names_comments_and_files() {
    let table = "# Words\n| `kept` | x | names |\n\n## Retired words\n\n| `way_out`, `desk` | egress proxy | names and comments |\n\
                 | `board` | snapshot | names |\n| `page` | rendering | – |\n";
    let retired = retired(table);
    let lines = |file: &str, text: &str| -> Vec<String> {
        let word = |sentence: &String| sentence.trim_end_matches('`').rsplit('`').next().unwrap().to_owned();
        let place = |sentence: &String| sentence.split(": ").next().unwrap().to_owned();
        used(file, text, &retired).iter().map(|found| format!("{} {}", word(found), place(found))).collect()
    };
    let text = "// The way out of a board.\nstruct WayOut;\nfn on_board(page: &str) {\n    say(\"desk\"); // a desk\n}\n";
    assert_eq!(lines("a/x.rs", text), ["way_out a/x.rs:2", "board a/x.rs:3", "desk a/x.rs:4"]);
    assert_eq!(lines("a/agent_desk.rs", "//! Whatever.\n"), ["desk a/agent_desk.rs:1"]);
    assert_eq!(parts_of("HTTPDesk_is2Way"), ["httpdesk", "is2", "way"]);
}
