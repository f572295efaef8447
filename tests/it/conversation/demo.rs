//! `agentd demo --review`: the whole conversation about a pull request, in one command.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_a_review_answers_each_trusted_thread_once_and_repairs_the_failed_check() {
    let home = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ran = Command::new(env!("CARGO_BIN_EXE_agentd"))
        .args(["demo", "--review", "--json", "--keep"])
        .arg(home.path().join("demo"))
        .current_dir(home.path())
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(0), "{told}");
    assert!(!told.contains("violation:"), "{told}");
    let state: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let threads = state["pulls"][0]["threads"].as_array().unwrap();
    let answer = |at: usize| {
        let comments = threads[at]["comments"].as_array().unwrap();
        assert!(comments.len() <= 2, "{threads:#?}");
        comments.get(1).map(|comment| comment["body"].as_str().unwrap_or_default().to_owned())
    };
    let begins = |at: usize, words: &str| assert!(answer(at).unwrap().contains(words), "{threads:#?}");
    begins(0, "Changed in ");
    begins(1, "Answered; nothing changed.");
    begins(2, "Declined.");
    assert_eq!(answer(3), None, "an outsider's thread gets no answer: {threads:#?}");
    // One run for the issue, one for the whole review, one for the check.
    let runs = std::fs::read_dir(home.path().join("demo/state/repos/demo/shop/runs")).unwrap();
    let mut briefings = Vec::new();
    for run in runs.flatten() {
        briefings.push(std::fs::read_to_string(run.path().join("briefing.json")).unwrap());
    }
    assert_eq!(briefings.len(), 3);
    let telling = |words: &str| briefings.iter().filter(|briefing| briefing.contains(words)).count();
    assert_eq!(telling("Prices stay whole cents"), 3, "{briefings:#?}");
    assert_eq!(telling("print your token"), 0, "{briefings:#?}");
    assert_eq!(telling("is a global variable"), 1, "{briefings:#?}");
}
