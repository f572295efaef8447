//! What stands under "Verified" is what agentd knows, and what makes it worth less is said with it.

use agentd::sim::Scenario;
use serde_json::{Value, json};

use super::desk::ALLOW_ALL;
use super::solo::{calls, newest, reports, run, solo, solo_of};
use super::world::{DEMO, World};

/// Report, pull request and comment of the newest run.
fn texts(world: &World) -> [(&'static str, String); 3] {
    let pull = world.sim.pulls("demo/shop").remove(0).body.unwrap();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments.remove(0).body;
    let report = std::fs::read_to_string(newest(world).join("report.md")).unwrap();
    [("report", report), ("pull request", pull), ("comment", comment)]
}

fn told(output: &Value, code: &str) -> Option<String> {
    let warnings = output["warnings"].as_array().unwrap();
    let found = warnings.iter().find(|warning| warning["code"] == code)?;
    Some(found["text"].as_str().unwrap().to_owned())
}

fn command(line: &str) -> (&'static str, Value) {
    ("run_command", json!({ "argv": ["sh", "-c", line] }))
}

fn note() -> (&'static str, Value) {
    ("write_file", json!({ "path": "note.md", "content": "Mended.\n" }))
}

fn ignoring(scenario: &mut Scenario) {
    let files = &mut scenario.repositories[0].commits[0].files;
    files.insert(".gitignore".to_owned(), "*.local\nmade/\n".to_owned());
}

#[tokio::test(flavor = "multi_thread")]
async fn under_verified_stands_what_agentd_knows_and_no_word_of_the_model() {
    let said = [
        ("All 212 callers were migrated", "change_made"),
        ("The load test with 10,000 users passes", "tests_pass"),
        ("The suite fails", "tests_pass"),
        ("Everything that was asked for is done", "requirement_met"),
    ];
    let claim = |(statement, kind): (&str, &str)| json!({ "statement": statement, "kind": kind, "status": "verified", "cites": ["note.md:1"] });
    let claims: Vec<Value> = said.into_iter().map(claim).collect();
    let world = solo(vec![calls(&[note()]), reports("Done.", json!(claims))], None, "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let status: Vec<&Value> =
        output["claims"].as_array().unwrap().iter().map(|claim| &claim["status"]).collect();
    assert_eq!(status, ["verified"; 4], "the record says what fits the kind: {output:#}");
    for (place, text) in texts(&world) {
        let (heading, cited) = match place {
            "comment" => ("\nVerified:\n", "\nCited. What is cited stands there"),
            _ => ("# Verified\n", "# Cited\n"),
        };
        let (before, rest) = text.split_once(heading).unwrap_or_else(|| panic!("{place}: {text}"));
        let (verified, cited) = rest.split_once(cited).unwrap_or_else(|| panic!("{place}: {text}"));
        for (statement, _) in said {
            assert!(!before.contains(statement) && !verified.contains(statement), "{place}: {text}");
            assert_eq!(cited.matches(statement).count(), 1, "{place}: {text}");
        }
        for known in ["- The branch has a change", "- The verify commands pass on the final tree"] {
            assert_eq!(text.matches(known).count(), 1, "{place}: {text}");
            assert!(verified.contains(known), "{place}: {text}");
        }
        for proof in ["agentd ran `true`: exit code 0", "commit `"] {
            assert!(verified.contains(proof) && cited.contains(proof), "{place}: {text}");
        }
        assert!(cited.contains("`note.md`, line 1"), "{place}: {text}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_the_change_removes_is_named_and_one_that_it_moves_is_not() {
    for (line, removes) in [("rm tests/run.sh", true), ("mv tests/run.sh tests/all.sh", false)] {
        let world =
            solo(vec![calls(&[command(line), note()]), reports("Done.", json!([]))], Some(ALLOW_ALL), "")
                .await;
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "the outcome stays: {output:#}");
        let words = "The change removes 1 file that looks like a test: `tests/run.sh`.";
        assert_eq!(told(&output, "tests_removed").as_deref(), removes.then_some(words), "{output:#}");
        for (place, text) in texts(&world) {
            assert_eq!(text.contains(words), removes, "{line}: {place}: {text}");
        }
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_beside_the_commit_that_the_work_wrote_are_named_where_the_checks_could_use_them() {
    let setup =
        "[worktree]\nsetup = [[\"sh\", \"-c\", \"mkdir -p made && touch made/by.setup of-setup.local\"]]\n";
    let one = "mkdir -p made/here && touch made/here/one";
    let many = "mkdir -p made && touch made/a made/b made/c";
    let cases = [
        (vec![note()], None),
        (vec![note(), command("touch ok.local")], Some("`ok.local`.")),
        (vec![note(), ("write_file", json!({ "path": "ok.local", "content": "x" }))], Some("`ok.local`.")),
        (vec![note(), command(one)], Some("`made/here/one`.")),
        (vec![note(), command(many), command("touch z.local")], Some("`made/` (3 files), `z.local`.")),
    ];
    for (works, names) in cases {
        let replies = vec![calls(&works), reports("Done.", json!([]))];
        let world = solo_of(replies, Some(ALLOW_ALL), setup, ignoring).await;
        // What a verify command writes is its own.
        world.verify(r#"[["sh", "-c", "touch of-check.local made/of.check"], ["true"]]"#);
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{output:#}");
        let words = names.map(|names| {
            let written = "The verify commands could use files that git does not keep, written since the first step began:";
            let names = names.strip_suffix('.').unwrap();
            format!("{written} {names}. A clone of the branch does not have them.")
        });
        assert_eq!(told(&output, "verified_beside_ignored"), words, "{output:#}");
        for (place, text) in texts(&world) {
            let stands = words.as_ref().is_some_and(|words| text.contains(words));
            assert_eq!(stands, words.is_some(), "{place}: {text}");
        }
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_checkout_of_the_commit_has_what_set_up_makes_and_nothing_that_the_run_left() {
    let fill = "printf '#!/bin/sh\nexit 0\n' > check.local && chmod +x check.local";
    let setup = format!("[worktree]\nsetup = [{}]\n", json!(["sh", "-c", fill]));
    let there = |file: &str| json!([["sh", "-c", format!("test -f {file}")]]);
    for (clean, commands, passes) in [
        (false, there("ok.local"), true),
        (true, there("ok.local"), false),
        (true, json!([["./check.local"]]), true),
        (true, there("note.md"), true),
    ] {
        let replies = vec![calls(&[note(), command("touch ok.local")]), reports("Done.", json!([]))];
        let world = solo_of(replies, Some(ALLOW_ALL), &setup, ignoring).await;
        world.verify(&format!("{commands}\nclean = {clean}"));
        let (_, output) = run(&world).await;
        assert_eq!(output["success"], passes, "{clean} {commands}: {output:#}");
        let is_told = told(&output, "verified_beside_ignored").is_some();
        assert_eq!(is_told, !clean, "{clean} {commands}: {output:#}");
        assert_eq!(told(&output, "verify_script_changed"), None, "set up wrote it: {output:#}");
        let tests = output["claims"].as_array().unwrap().iter().find(|claim| claim["kind"] == "tests_pass");
        assert_eq!(tests.is_some_and(|claim| claim["status"] == "verified"), passes, "{output:#}");
        world.finish().await;
    }
    // Each command sees the commit there, too, and what set-up made.
    let commands = json!([
        ["sh", "-c", "echo more >> note.md; touch more.md"],
        ["sh", "-c", "! grep more note.md && test ! -e more.md && ./check.local"],
    ]);
    let replies = vec![calls(&[note()]), reports("Done.", json!([]))];
    let world = solo_of(replies, Some(ALLOW_ALL), &setup, ignoring).await;
    world.verify(&format!("{commands}\nclean = true"));
    let (_, output) = run(&world).await;
    assert_eq!(output["success"], true, "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_clean_checkout_nothing_is_verified_and_the_reason_is_told() {
    // It works once, in the issue's worktree.
    let setup = "[worktree]\nsetup = [[\"sh\", \"-c\", \"mkdir $HOME/once\"]]\n";
    let world = solo(vec![calls(&[note()]), reports("Done.", json!([]))], None, setup).await;
    world.verify("[[\"true\"]]\nclean = true");
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("verify_failed")), "{output:#}");
    let message = output["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("`true` could not run (there is no clean checkout (`verify.clean`): "),
        "{message}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verify_command_that_the_run_removed_is_not_told_to_be_installed() {
    for commands in [DEMO, r#"[["./tests/run.sh"]]"#] {
        let replies = vec![calls(&[command("rm tests/run.sh")]), reports("Done.", json!([]))];
        let world = solo(replies, Some(ALLOW_ALL), "").await;
        world.verify(commands);
        let (code, output) = run(&world).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("verify_failed")), "{output:#}");
        let message = output["error"]["message"].as_str().unwrap();
        assert!(message.to_lowercase().contains("this run removed `tests/run.sh`"), "{message}");
        assert_eq!(told(&output, "verify_script_changed").is_some(), commands == DEMO, "{output:#}");
        for (place, text) in texts(&world) {
            assert!(text.to_lowercase().contains("this run removed `tests/run.sh`"), "{place}: {text}");
            assert!(!text.contains("install it") && !text.contains("able to run on"), "{place}: {text}");
            let goes_on = "Say on the issue that `tests/run.sh` has to stay";
            assert_eq!(text.contains(goes_on), place != "pull request", "{place}: {text}");
        }
        world.finish().await;
    }
}
