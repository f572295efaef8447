//! Attacks on agentd, one table a surface: each a real attempt, and its effect is looked for from outside.

mod configuration;
mod git;
mod http;
mod journal;
mod mcp;
mod output;
mod people;
mod program_places;
mod sandbox;
mod terminal;
mod toolchains;
mod worktree_paths;

/// The attacks of each surface.
fn counts() -> Vec<(&'static str, usize)> {
    vec![
        ("git", git::CASES),
        ("paths and what is published", worktree_paths::count()),
        ("people and text on GitHub", people::CASES),
        ("HTTP and egress proxy", http::CASES),
        ("MCP", mcp::CASES),
        ("models' output", output::cases()),
        ("sandbox", sandbox::cases()),
        ("journal", journal::CASES),
        ("configuration", configuration::cases()),
        ("terminal and page", terminal::CASES),
    ]
}

#[test]
fn the_documentation_holds_the_count_of_each_surface() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let rows = counts();
    let all: usize = rows.iter().map(|(_, count)| count).sum();
    let missing: Vec<String> = rows
        .iter()
        .map(|(surface, count)| format!("| {surface} | {count} |"))
        .chain([format!("{all} attacks")])
        .filter(|row| !text.contains(row))
        .collect();
    assert!(missing.is_empty(), "docs/security.md has no\n{}", missing.join("\n"));
    assert!(all >= 250, "{all}");
}

#[derive(serde::Deserialize)]
struct Defences {
    defence: Vec<Defence>,
}

/// As `.ci/campaigns/defences` reads it.
#[derive(serde::Deserialize)]
struct Defence {
    name: String,
    file: String,
    find: String,
    tests: Vec<String>,
}

#[test]
fn every_defence_that_can_be_switched_off_is_where_its_table_says_and_has_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for table in std::fs::read_dir(root.join("tests/data/attacks/defences")).unwrap() {
        let text = std::fs::read_to_string(table.unwrap().path()).unwrap();
        for Defence { name, file, find, tests } in toml::from_str::<Defences>(&text).unwrap().defence {
            let times = std::fs::read_to_string(root.join(&file)).unwrap_or_default().matches(&find).count();
            if times != 1 {
                wrong.push(format!("{name}: its line stands {times} times in {file}"));
            }
            for test in tests.iter().filter(|test| !is_there(root, test)) {
                wrong.push(format!("{name}: there is no test {test}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a test of that path stands in the file of its module, or in one below it.
fn is_there(root: &std::path::Path, test: &str) -> bool {
    let Some((module, name)) = test.rsplit_once("::") else { return false };
    let place = |at: &str| root.join(at).join(module.replace("::", "/"));
    let files = [place("tests/it").with_extension("rs"), place("tests/it").join("mod.rs")];
    let unit = module.trim_end_matches("::tests").replace("::", "/");
    let files = files.into_iter().chain([root.join("src").join(unit).with_extension("rs")]);
    let has = |file: std::path::PathBuf| {
        std::fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}")))
    };
    files.into_iter().any(has)
}
