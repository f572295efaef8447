//! Attacks on agentd, one table a surface: each a real attempt, and its effect is looked for from outside.

mod configuration;
mod git;
mod http;
mod journal;
mod mcp;
mod output;
mod people;
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
