//! `docs/demands.md` and `docs/checklist.md` name tests: every one of them exists, and every number has its line.

use std::path::Path;

fn rows(file: &str) -> Vec<String> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file)).unwrap();
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(str::to_owned)
        .collect()
}

/// All Rust sources in one text.
fn sources() -> String {
    let mut open = vec![
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"),
    ];
    let mut all = String::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                all.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    all
}

#[test]
fn every_number_has_its_line_and_every_test_that_a_line_names_exists() {
    let sources = sources();
    for (file, mark, count) in [("demands.md", "I", 67), ("checklist.md", "S", 76)] {
        let rows = rows(file);
        assert_eq!(rows.len(), count, "{file}");
        for (at, row) in rows.iter().enumerate() {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells[0], format!("{mark}{}", at + 1), "{file}: {row}");
            assert!(["held", "adapted", "open", "not applicable"].contains(&cells[2]), "{file}: {row}");
            assert!(!cells[3].is_empty(), "{file}: {row}");
            let names = cells[3].split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() >= 3);
            for name in names {
                assert!(sources.contains(&format!("fn {name}(")), "{file} names {name}, which is no test");
            }
        }
    }
}
