//! What the pages say of the code: the files that they name exist, and what they say is absent is absent.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::rust_files;

/// Folders of the repository that pages name files of.
const FOLDERS: [&str; 10] = [
    "src/",
    "tests/",
    "docs/",
    "schemas/",
    "templates/",
    "prompts/",
    "benches/",
    "examples/",
    ".ci/",
    ".github/",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README, CONTRIBUTING, SECURITY and everything in docs.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)).to_vec();
    for folder in ["docs", "docs/reference"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages.sort();
    pages
}

/// Paths of the repository in backquotes, and targets of links, as a path from the page's own folder.
fn named(page: &Path, text: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    for part in prose {
        for quoted in part.split('`').skip(1).step_by(2) {
            let path = quoted.split_whitespace().next().unwrap_or_default();
            // `NAME` stands for a name that the reader chooses.
            let plain = !path.contains(['*', '<', '{', '…', '(']) && !path.contains("NAME");
            if plain && FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                found.push((path.to_owned(), root().join(path)));
            }
        }
        for link in part.split("](").skip(1) {
            let target = link.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((target.to_owned(), page.parent().unwrap().join(target)));
            }
        }
    }
    found
}

#[test]
fn every_file_that_a_page_names_exists() {
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (name, path) in named(&page, &text) {
            looked_at += 1;
            if !path.exists() {
                wrong.push(format!("{}: {name}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(looked_at > 100, "the rule has something to look at: {looked_at}");
    assert!(wrong.is_empty(), "these are named and not there:\n{}", wrong.join("\n"));
}

#[test]
fn a_path_that_is_not_there_is_found_in_backquotes_and_in_links() {
    let page = root().join("docs/x.md");
    let names = |text: &str| -> Vec<String> {
        named(&page, text).into_iter().filter(|(_, path)| !path.exists()).map(|(name, _)| name).collect()
    };
    assert_eq!(names("see `src/nothing.rs` and [x](none.md#a)"), ["src/nothing.rs", "none.md"]);
    assert_eq!(names("see `src/lib.rs`, [x](../README.md), <https://a.b> and [y](https://a.b/c)"), [""; 0]);
}

/// Lines of code: no comments, no tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().take_while(|line| !line.starts_with("mod tests"));
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// Whether a text names a library or a module of the standard one as a whole word.
fn names(code: &str, what: &str) -> bool {
    code.match_indices(what).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + what.len()..];
        let begins = !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
        begins && (what.contains(' ') || after.starts_with("::") || after.starts_with(';'))
    })
}

/// Rows of the table of the architecture page whose first heading is this one: the quoted words of each cell.
fn rows(heading: &str) -> Vec<(String, Vec<String>)> {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let quoted =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {heading} |"))).skip(2);
    let mut rows = Vec::new();
    while let Some(cells) = lines.next().and_then(|line| line.strip_prefix("| ")) {
        let (first, rest) = cells.split_once(" | ").unwrap();
        rows.push((quoted(first).remove(0), quoted(rest)));
    }
    assert!(rows.len() > 3, "the page has the table \"{heading}\"");
    rows
}

#[test]
fn what_the_architecture_says_is_absent_is_absent() {
    let mut wrong = Vec::new();
    for (module, absent) in rows("in") {
        for file in rust_files(&root().join(&module)) {
            let code = code(&file);
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            wrong.extend(
                absent.iter().filter(|what| names(&code, what)).map(|what| format!("{shown}: {what}")),
            );
        }
    }
    for (library, modules) in rows("library") {
        for file in rust_files(&root().join("src")) {
            let inside = file.strip_prefix(root().join("src")).unwrap();
            let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
            if !modules.iter().any(|known| known == module) && names(&code(&file), &library) {
                wrong.push(format!(
                    "src/{}: {library}, which is for {} alone",
                    inside.display(),
                    modules.join(", ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/architecture.md says that this is absent:\n{}", wrong.join("\n"));
}

#[test]
fn a_library_is_found_where_it_is_named_and_not_in_longer_names() {
    assert!(
        names("use git2::Oid;", "git2") && names("async fn x() {}", "async fn") && names("use nix;", "nix")
    );
    assert!(
        !names("use libgit2::x;", "git2")
            && !names("crate::nix::x", "nix")
            && !names("std::fs2::x", "std::fs")
    );
}

#[test]
fn the_layers_of_the_page_are_those_of_the_map_in_its_order() {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = map.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let modules: Vec<String> = modules.map(|module| format!("src/{module}")).collect();
    let layers: Vec<String> = rows("module").into_iter().map(|(module, _)| module).collect();
    assert_eq!(layers, modules, "docs/architecture.md and src/lib.rs");
}
