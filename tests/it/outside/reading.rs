//! What people read of a run: its progress, its dialogue, its report, on screens of any width.

use std::process::Stdio;

use serde_json::json;

use super::daemons::{slow_model, until};
use super::solo::{calls, newest, reports, solo};
use super::world::{World, text};

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

/// A run that says something, fails with one call and writes a file with another.
async fn world() -> World {
    let mut first = calls(&[
        ("run_command", json!({ "argv": ["sh", "-c", "echo broken; exit 3"] })),
        ("write_file", json!({ "path": "lib/one.sh", "content": "echo new\n" })),
    ]);
    first.text = Some("First I look at what the tests say about the discount, then I write it.".to_owned());
    // The last one answers `doctor`.
    let replies = vec![first, reports("It is written.", json!([])), super::doctor::answers()];
    solo(replies, Some(ALLOW), "").await
}

/// What a command says to people on a screen of so many columns: exit code, stdout, stderr.
async fn said(world: &World, args: &[&str], columns: Option<&str>) -> (Option<i32>, String, String) {
    let mut command = world.command_in(args);
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_names_what_is_run_and_written_what_it_changed_and_what_it_cost_of_the_budget() {
    for words in [false, true] {
        let world = world().await;
        let args: &[&str] =
            if words { &["run", "7", "--agent", "solo", "-v"] } else { &["run", "7", "--agent", "solo"] };
        let (code, out, progress) = said(&world, args, None).await;
        assert_eq!(code, Some(0), "{out}{progress}");
        for told in [
            "  run_command sh -c 'echo broken; exit 3': exit 3 (",
            "  write_file lib/one.sh: ok, new, +1 (",
            " of $5.00 so far)",
        ] {
            assert!(progress.contains(told), "{told}: {progress}");
        }
        assert_eq!(progress.contains("First I look at what"), words, "{progress}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_run_is_its_dialogue_step_by_step() {
    let world = world().await;
    said(&world, &["run", "7", "--agent", "solo"], None).await;
    let (code, log, _) = said(&world, &["runs", "log"], None).await;
    assert_eq!(code, Some(0), "{log}");
    let parts = [
        "issue 7 of demo/shop: ",
        "visit 1: initial.issue",
        "First I look at what the tests say",
        "run_command sh -c 'echo broken; exit 3': exit 3",
        "broken",
        "write_file lib/one.sh: ok, new, +1",
        "reports:\n    It is written.",
        " of $5.00 so far)",
        "OBJECTIVE_ACHIEVED (completed)",
    ];
    let mut rest = log.as_str();
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} in its place: {log}"));
        rest = after;
    }
    let (_, failed, _) = said(&world, &["runs", "log", "latest", "--failed"], None).await;
    assert!(failed.contains("visit 1: initial.issue") && failed.contains("exit 3"), "{failed}");
    assert!(!failed.contains("write_file") && !failed.contains("OBJECTIVE"), "{failed}");
    let (code, step, _) = said(&world, &["runs", "log", "latest", "--step", "initial.issue"], None).await;
    assert!(code == Some(0) && step.contains("write_file") && !step.contains("issue 7 of"), "{step}");
    let (code, _, refused) = said(&world, &["runs", "log", "--step", "nowhere"], None).await;
    assert!(code == Some(4) && refused.contains("initial.issue"), "{refused}");
    let (_, lines) = world.json(&["runs", "log", "--failed"]).await;
    assert_eq!(
        (&lines[1]["step"], &lines[1]["failed"]),
        (&json!("initial.issue"), &json!(true)),
        "{lines:#}"
    );
    // Whoever reads only the beginning is no failure.
    let mut command = world.command_in(&["runs", "log"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_run_that_works_is_followed_to_its_end() {
    let world = world().await;
    slow_model(&world, 1, 3_000);
    let mut run = world.command_in(&["run", "7", "--agent", "solo"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the second turn", || world.sim.model_requests().len() > 1).await;
    let (_, so_far, _) = said(&world, &["runs", "log"], None).await;
    assert!(so_far.contains("write_file lib/one.sh") && !so_far.contains("OBJECTIVE"), "{so_far}");
    let (code, log, _) = said(&world, &["runs", "log", "--follow"], None).await;
    assert!(code == Some(0) && log.contains("OBJECTIVE_ACHIEVED (completed)"), "{log}");
    assert_eq!(log.matches("visit 1: initial.issue").count(), 1, "each line once: {log}");
    run.wait().unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_one_json_document_for_whoever_asks_for_it() {
    let world = world().await;
    said(&world, &["run", "7", "--agent", "solo"], None).await;
    let (code, report) = world.json(&["runs", "report"]).await;
    assert_eq!((code, &report["success"]), (Some(0), &json!(true)), "{report:#}");
    assert_eq!((&report["stop_detail"], &report["headline"]), (&json!("completed"), &json!("Done.")));
    assert_eq!(report["final_report"]["content"], "It is written.");
    let written = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert_eq!(report["markdown"], written);
    let (_, shown, _) = said(&world, &["runs", "report"], None).await;
    assert_eq!(shown, written, "for people it is as it was");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_reads_well_on_a_screen_of_sixty_columns_and_is_as_it_was_elsewhere() {
    let world = world().await;
    let (_, ended, progress) = said(&world, &["run", "7", "--agent", "solo"], Some("60")).await;
    let mut shown = vec![("run".to_owned(), ended), ("progress".to_owned(), progress)];
    for args in [
        &["runs", "list"][..],
        &["runs", "show"],
        &["runs", "log"],
        &["runs", "stats"],
        &["why", "7"],
        &["approvals", "list"],
        &["status"],
        &["worktrees", "list"],
        &["doctor"],
        &["--help"],
        &["run", "--help"],
        &["runs", "log", "--help"],
    ] {
        let (_, out, err) = said(&world, args, Some("60")).await;
        shown.push((args.join(" "), format!("{out}{err}")));
    }
    for (what, told) in shown {
        for line in told.lines() {
            // A word that is longer than a line stays whole; what to do is one line, so that it can be copied.
            let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
            let fits = line.chars().count() <= 60 || longest > 30 || line.starts_with("Do: ");
            assert!(fits, "{what}: {line:?}\n{told}");
        }
    }
    let (_, wide, _) = said(&world, &["runs", "list"], Some("200")).await;
    let (_, any, _) = said(&world, &["runs", "list"], None).await;
    assert_eq!(wide, any);
    assert!(any.lines().count() == 2 && any.starts_with("RUN "), "{any}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_of_a_run_is_told_once() {
    for format in ["text", "json"] {
        let world = world().await;
        // Red on the origin branch, too: the run notes it.
        world.verify("[[\"false\"]]");
        let (_, _, progress) =
            said(&world, &["run", "7", "--agent", "solo", "--log-format", format], None).await;
        let (_, shown) = world.json(&["runs", "show"]).await;
        let warnings = shown["warnings"].as_array().unwrap();
        assert!(!warnings.is_empty(), "{shown:#}");
        for warning in warnings {
            let told = warning["text"].as_str().unwrap();
            assert_eq!(progress.matches(told).count(), 1, "{told}: {progress}");
        }
        world.finish().await;
    }
}
