//! `.ci/campaigns/benchmarks`: the pages that it wrote are what their figures give, and its short form works.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a script beside the program, pages in a temporary folder, and a word where python3 is missing"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the campaign says; nothing where there is no python3.
fn campaign(docs: &Path, asked: &[&str]) -> Option<Output> {
    let script = root().join(".ci/campaigns/benchmarks");
    match Command::new("python3").arg(script).arg("--docs").arg(docs).args(asked).output() {
        Ok(done) => Some(done),
        Err(error) => {
            println!("skipped: python3 does not start: {error}");
            None
        }
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).join("\n")
}

#[test]
fn tables_and_plots_of_the_benchmarks_are_what_their_figures_give() {
    if let Some(done) = campaign(&root().join("docs"), &["--check"]) {
        assert!(done.status.success(), "{}", said(&done));
    }
}

#[test]
fn a_short_run_writes_only_where_told_and_what_somebody_changes_afterwards_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (docs, out) = (folder.path().join("docs"), folder.path().join("out"));
    fs::create_dir(&docs).unwrap();
    let page = docs.join("benchmarks.md");
    fs::copy(root().join("docs/benchmarks.md"), &page).unwrap();
    let before = fs::read_to_string(&page).unwrap();
    let (out, place) = (out.to_str().unwrap(), folder.path().to_str().unwrap());
    let program = env!("CARGO_BIN_EXE_agentd");
    let mut asked = vec!["--short", "--parts", "visits", "--visits", "5,10,15", "--program", program];
    asked.extend(["--out", out, "--place", place]);
    let Some(done) = campaign(&docs, &asked) else { return };
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("| agentd: memory at most |"), "{}", said(&done));
    assert!(folder.path().join("out/figures.json").exists());
    assert_eq!(fs::read_to_string(&page).unwrap(), before);

    // As if that run had been interrupted: what it measured is not measured again, and is of that program only.
    let figures = folder.path().join("out/figures.json");
    let measured = fs::read_to_string(&figures).unwrap();
    let go_on = || campaign(&docs, &[&asked[..], &["--go-on"]].concat()).unwrap();
    let done = go_on();
    assert!(done.status.success() && !said(&done).contains("| agentd:"), "{}", said(&done));
    assert_eq!(fs::read_to_string(&figures).unwrap(), measured);
    fs::write(&figures, measured.replace("\"sha256\": \"", "\"sha256\": \"0")).unwrap();
    let done = go_on();
    assert!(!done.status.success() && said(&done).contains("had another program"), "{}", said(&done));

    asked.push("--write");
    let done = campaign(&docs, &asked).unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("**A short run**"), "{text}");
    assert!(text.contains("### By the number of files\n\nNot measured.\n"), "{text}");
    let checked = || campaign(&docs, &["--check"]).unwrap();
    assert!(checked().status.success(), "{}", said(&checked()));

    let change = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(docs.join(name)).unwrap();
        assert!(text.contains(from), "{name} has {from}");
        fs::write(docs.join(name), text.replacen(from, to, 1)).unwrap();
    };
    change("benchmarks.md", "| agentd: memory at most |", "| agentd: memory at least |");
    change("benchmarks/visits-each.svg", "One visit", "A visit");
    fs::rename(docs.join("benchmarks/visits-time.svg"), docs.join("benchmarks/other.svg")).unwrap();
    let told = said(&checked());
    assert_eq!(checked().status.code(), Some(1), "{told}");
    for word in [
        "| agentd: memory at least |",
        "visits-each.svg is stale",
        "visits-time.svg is missing",
        "other.svg is of no part",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }

    assert!(campaign(&docs, &["--draw"]).unwrap().status.success());
    assert!(checked().status.success(), "{}", said(&checked()));
    let figures = fs::read_to_string(docs.join("benchmarks/figures.json")).unwrap();
    let met = figures.contains("\"met\": true");
    change("benchmarks/figures.json", &format!("\"met\": {met}"), &format!("\"met\": {}", !met));
    let told = said(&checked());
    assert!(told.contains("whether the aim is met is not what its median says"), "{told}");
}
