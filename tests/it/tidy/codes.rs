//! A code that is cited anywhere is explained in `docs/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::lexer::parted;
use crate::clauses::tests_in;

/// Whether a word is a code: `A-017` and `C-05`, decisions (`D61`), cases (`E12`), points and complaints (`S24`, `I49`).
fn is_code(word: &str) -> bool {
    let Some(letter) = word.chars().next().filter(char::is_ascii_uppercase) else { return false };
    let (dash, digits) = match word[1..].strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, &word[1..]),
    };
    let lengths = match (dash, letter) {
        (true, _) => 2..=3,
        (false, 'D') => 1..=3,
        (false, 'S' | 'I') => 1..=2,
        (false, 'P' | 'N' | 'T' | 'E' | 'G') => 2..=2,
        (false, _) => return false,
    };
    lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The codes of a text with their lines.
fn codes(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, words) in text.lines().enumerate() {
        let words = words.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
        found.extend(words.filter(|word| is_code(word)).map(|word| (line + 1, word.to_owned())));
    }
    found
}

/// The codes that the name of a test begins with: `d12_x_006_what_it_shows` → D12, X-006.
fn codes_of_a_name(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = name.split('_').peekable();
    while let Some(word) = words.next() {
        let upper = word.to_uppercase();
        let with_number = words.peek().map(|number| format!("{upper}-{number}"));
        match with_number.filter(|code| ["a", "p", "x", "s", "c"].contains(&word) && is_code(code)) {
            Some(code) => {
                found.push(code);
                words.next();
            }
            None if is_code(&upper) => found.push(upper),
            None => break,
        }
    }
    found
}

/// What a page explains: codes that a heading, or a row of a table, begins with.
fn explained(page: &str) -> BTreeSet<String> {
    let first_word = |line: &str| {
        let heading = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#'));
        let text = heading.or_else(|| line.strip_prefix('|'))?;
        let word = text.split_whitespace().next()?.trim_end_matches(':').to_owned();
        is_code(&word).then_some(word)
    };
    page.lines().filter_map(first_word).collect()
}

fn unexplained(file: &str, cited: Vec<(usize, String)>, known: &BTreeSet<String>) -> Vec<String> {
    let unknown = cited.into_iter().filter(|(_, code)| !known.contains(code));
    unknown.map(|(line, code)| format!("{file}:{line}: {code} has no heading in docs/")).collect()
}

/// What a file cites: in Rust its comments and the names of its tests, elsewhere every word.
fn cited(path: &Path, text: &str) -> Vec<(usize, String)> {
    if path.extension().is_none_or(|extension| extension != "rs") {
        return codes(text);
    }
    let mut cited = codes(&parted(text).1);
    for name in tests_in(text) {
        let line = text.lines().position(|line| line.contains(&name)).unwrap_or_default() + 1;
        cited.extend(codes_of_a_name(&name).into_iter().map(|code| (line, code)));
    }
    cited
}

fn files(place: &Path, found: &mut Vec<PathBuf>) {
    if !place.is_dir() {
        found.push(place.to_owned());
        return;
    }
    for entry in fs::read_dir(place).unwrap() {
        files(&entry.unwrap().path(), found);
    }
}

#[test]
fn every_code_that_is_cited_is_explained_in_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    files(&root.join("docs"), &mut pages);
    let known: BTreeSet<String> =
        pages.iter().flat_map(|page| explained(&fs::read_to_string(page).unwrap_or_default())).collect();
    assert!(known.len() > 400, "docs/ has the headings");
    let places = "src tests/it benches examples docs prompts templates schemas .ci .agent README.md CHANGELOG.md \
                  CONTRIBUTING.md SECURITY.md Cargo.toml";
    let mut wrong = Vec::new();
    for place in places.split_whitespace().map(|place| root.join(place)).filter(|place| place.exists()) {
        let mut found = Vec::new();
        files(&place, &mut found);
        found.sort();
        for file in found {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let name = file.strip_prefix(root).unwrap().display().to_string();
            wrong.extend(unexplained(&name, cited(&file, &text), &known));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_about_codes_finds_one_that_nothing_explains() {
    let known = explained("# Page\n### A-001\n## D61: killed runs\n| E12 | a case |\n");
    assert_eq!(known, ["A-001", "D61", "E12"].map(str::to_owned).into());
    let text = "let a = \"A-999\"; // as A-001…A-003 say, over SHA-256 and UTF-8\n#[test]\nfn d61_x_040_e12_c_05_b() {}\n";
    let wrong = unexplained("x.rs", cited(Path::new("x.rs"), text), &known);
    assert_eq!(
        wrong,
        ["x.rs:1: A-003", "x.rs:3: X-040", "x.rs:3: C-05"]
            .map(|place| format!("{place} has no heading in docs/"))
    );
    assert_eq!(unexplained("a.md", cited(Path::new("a.md"), "see D62, P1"), &known).len(), 1);
}
