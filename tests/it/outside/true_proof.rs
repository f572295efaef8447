//! What stands under "Verified" is what agentd knows, and what makes it worth less is said with it.

use serde_json::{Value, json};

use super::desk::ALLOW_ALL;
use super::solo::{calls, newest, reports, run, solo};
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
