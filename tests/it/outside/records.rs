//! What a run leaves, looked at afterwards: ended by readers, verified, compared, summed up, stopped and gone on with.

use std::path::PathBuf;

use agentd::sim::FaultFile;
use serde_json::{Value, json};

use super::solo::{calls, newest, reports, run, solo};
use super::started::{delayed, ended, start, until};
use super::world::{World, text};

fn files(dir: &PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_035_case_17_whoever_looks_at_a_killed_run_finds_its_result_and_report_and_a_live_one_is_left_alone()
 {
    let world = World::new(2).await;
    let once = FaultFile { times: Some(1), ..delayed(2, 3000) };
    world.sim.inject(&once).unwrap();
    let mut run = start(&world);
    until(&mut run, || world.sim.model_requests().len() >= 3).await;
    let (_, list) = world.json(&["runs", "list"]).await;
    assert_eq!(list[0]["stop_reason"], Value::Null, "{list:#}");
    let dir = newest(&world);
    assert!(!dir.join("result.json").exists(), "a live run is nobody's to end");
    run.kill().unwrap();
    run.wait().unwrap();
    let (code, result) = world.json(&["runs", "show"]).await;
    assert_eq!((code, result["stop_detail"].as_str()), (Some(0), Some("interrupted")), "{result:#}");
    assert_eq!(result["stop_reason"], "SYSTEM_ERROR");
    let report = world.agentd(&["runs", "report"]).await;
    assert!(text(&report.stdout).contains("interrupted"), "{}", text(&report.stdout));
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!((code, &verified["ok"]), (Some(0), &json!(true)), "{verified:#}");
    let record = std::fs::read(dir.join("run.json")).unwrap();
    let told: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(
        (&told["status"], &told["metadata"]["stop_detail"]),
        (&json!("failed"), &json!("interrupted"))
    );
    // The next start goes on in a run of its own; the killed one keeps its one record.
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_ne!(newest(&world), dir);
    assert_eq!(std::fs::read(dir.join("run.json")).unwrap(), record);
    let (_, list) = world.json(&["runs", "list"]).await;
    let details: Vec<&str> =
        list.as_array().unwrap().iter().filter_map(|run| run["stop_detail"].as_str()).collect();
    assert_eq!(details, ["completed", "interrupted"], "{list:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_any_file_of_a_run_is_found_and_named() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!((code, &verified["findings"]), (Some(0), &json!([])), "{verified:#}");
    assert!(verified["checked"]["claims"].as_u64().unwrap() > 0, "{verified:#}");
    let dir = newest(&world);
    let all = files(&dir);
    assert!(all.len() > 8, "{all:?}");
    for file in all {
        let name = file.strip_prefix(&dir).unwrap().display().to_string();
        let sound = std::fs::read(&file).unwrap();
        if sound.is_empty() {
            continue;
        }
        for place in [0, sound.len() / 2, sound.len() - 1] {
            let mut flipped = sound.clone();
            flipped[place] ^= 1;
            agentd::sys::files::write_private(&file, &flipped).unwrap();
            let (code, verified) = world.json(&["runs", "verify"]).await;
            let named: Vec<&str> =
                verified["findings"].as_array().unwrap().iter().filter_map(|f| f["file"].as_str()).collect();
            assert_eq!(code, Some(1), "{name} at {place}: {verified:#}");
            assert!(named.contains(&name.as_str()), "{name} at {place}: {verified:#}");
        }
        agentd::sys::files::write_private(&file, &sound).unwrap();
    }
    agentd::sys::files::write_private(&dir.join("foreign.txt"), b"x").unwrap();
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!((code, verified["findings"][0]["file"].as_str()), (Some(1), Some("foreign.txt")));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_left_is_folded_from_its_journal_where_a_file_of_it_is_gone() {
    let world = World::new(1).await;
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let dir = newest(&world);
    for (what, file) in [("evidence", "evidence.jsonl"), ("accounting", "accounting.jsonl")] {
        let before = std::fs::read(dir.join(file)).unwrap();
        assert!(!before.is_empty());
        let (_, listed) = world.json(&["runs", what]).await;
        std::fs::remove_file(dir.join(file)).unwrap();
        let plain = world.agentd(&["runs", what]).await;
        assert_eq!(plain.status.code(), Some(0), "{what}: {}", text(&plain.stderr));
        assert!(plain.stdout == before, "{what}: {}", text(&plain.stdout));
        let (code, folded) = world.json(&["runs", what]).await;
        assert_eq!((code, folded), (Some(0), listed), "{what}");
        assert!(!dir.join(file).exists(), "reading writes nothing");
    }
    let written: Value = serde_json::from_slice(&std::fs::read(dir.join("result.json")).unwrap()).unwrap();
    std::fs::remove_file(dir.join("result.json")).unwrap();
    let (_, shown) = world.json(&["runs", "show"]).await;
    assert_eq!(shown["artifacts"]["accounting"], written["artifacts"]["accounting"], "{shown:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_008_a_claim_whose_commit_is_gone_no_longer_verifies() {
    let world = World::new(1).await;
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let (_, evidence) = world.json(&["runs", "evidence"]).await;
    assert!(evidence.as_array().is_some_and(|records| !records.is_empty()), "{evidence:#}");
    // The repository as if the work had never been there.
    world.git(&world.shop(), &["worktree", "remove", "--force", ".worktrees/issue-7"]).await;
    world.git(&world.shop(), &["update-ref", "-d", "refs/heads/feature/issue-7"]).await;
    for name in world
        .git(&world.shop(), &["for-each-ref", "--format=%(refname)", "refs/agentd", "refs/remotes"])
        .await
        .lines()
    {
        world.git(&world.shop(), &["update-ref", "-d", name]).await;
    }
    world.git(&world.shop(), &["reflog", "expire", "--expire=now", "--all"]).await;
    world.git(&world.shop(), &["gc", "--prune=now", "-q"]).await;
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!((code, &verified["ok"]), (Some(1), &json!(false)), "{verified:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_041_x_023_a_run_equals_itself_and_differs_from_another_at_a_json_path() {
    let world = World::new(2).await;
    for _ in 0..2 {
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{output:#}");
    }
    let (_, list) = world.json(&["runs", "list"]).await;
    let (second, first) = (list[0]["run_id"].as_str().unwrap(), list[1]["run_id"].as_str().unwrap());
    let (code, same) = world.json(&["runs", "compare", first, first]).await;
    assert_eq!((code, &same["equal"]), (Some(0), &json!(true)), "{same:#}");
    let (code, other) = world.json(&["runs", "compare", first, second]).await;
    assert_eq!((code, &other["equal"]), (Some(1), &json!(false)), "{other:#}");
    assert!(other["differences"][0]["path"].as_str().unwrap().starts_with("$."), "{other:#}");
    let (_, stats) = world.json(&["runs", "stats"]).await;
    assert_eq!((&stats["runs"], &stats["success_rate"]), (&json!(2), &json!(1.0)), "{stats:#}");
    let costs: f64 = list.as_array().unwrap().iter().map(|run| run["cost_usd"].as_f64().unwrap()).sum();
    assert!((stats["cost_usd"].as_f64().unwrap() - costs).abs() < 1e-9, "{stats:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_26_a_run_that_is_told_to_stop_ends_with_a_report_and_can_be_gone_on_with() {
    let world = World::new(2).await;
    world.sim.inject(&delayed(3, 1200)).unwrap();
    let mut run = start(&world);
    until(&mut run, || world.sim.model_requests().len() >= 4).await;
    let (code, told) = world.json(&["runs", "stop", "latest"]).await;
    assert_eq!((code, told["stop_detail"].as_str()), (Some(0), Some("user_stop")), "{told:#}");
    let (code, output) = ended(run).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(1), Some("HUMAN_REQUESTED")), "{output:#}");
    let stopped = output["run_id"].as_str().unwrap().to_owned();
    let (code, refused) = world.json(&["runs", "stop", &stopped]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    let (code, output) = world.json(&["runs", "resume", &stopped]).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    let record: Value =
        serde_json::from_slice(&std::fs::read(newest(&world).join("run.json")).unwrap()).unwrap();
    assert_eq!(record["previousRunId"].as_str(), Some(stopped.as_str()));
    world.assert_one_of_each();
    let (code, refused) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(4), "a success is not gone on with: {refused:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_from_another_process_ends_a_run_at_once() {
    let world = World::new(1).await;
    world.sim.inject(&delayed(1, 30_000)).unwrap();
    let mut run = start(&world);
    until(&mut run, || world.sim.model_requests().len() >= 2).await;
    let asked = std::time::Instant::now();
    let (code, told) = world.json(&["runs", "stop", "latest", "--abort"]).await;
    assert_eq!((code, told["stop_detail"].as_str()), (Some(0), Some("user_abort")), "{told:#}");
    assert!(asked.elapsed().as_secs() < 25, "{:?}", asked.elapsed());
    let (code, output) = ended(run).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("user_abort")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_changed_the_tree_is_told_as_such_and_the_patch_has_its_hash() {
    let policy =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    let write = calls(&[("write_file", json!({ "path": "a.txt", "content": "x\n" }))]);
    let world = solo(vec![write, reports("Done.", json!([]))], Some(policy), "").await;
    world.verify(r#"[["sh", "-c", "echo more >> a.txt"], ["true"]]"#);
    let (_, output) = run(&world).await;
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(!report.contains("on the final tree:"), "{report}");
    assert!(report.contains("it changed the tree that it ran on, and that was put back"), "{report}");
    assert!(!report.contains("it ran on another tree than the final one"), "{report}");
    let git = output["evidence"].as_array().unwrap().iter().find(|record| record["kind"] == "git").unwrap();
    let hash = &git["provenance"]["patch_sha256"];
    assert_eq!((hash.as_str().unwrap().len(), hash), (64, &output["artifacts"]["patch_sha256"]));
    world.finish().await;
}

/// Ordinary patterns, such as of account numbers, fit numbers and hashes as well.
#[tokio::test(flavor = "multi_thread")]
async fn p_031_patterns_of_the_configuration_take_nothing_out_of_the_record_that_is_agentds_own() {
    let told = "account 1234567 since 2026-01-02, key 0123456789abcdef0123456789abcdef";
    let replies = vec![
        calls(&[("write_file", json!({ "path": "notes.txt", "content": "Plain words.\n" }))]),
        calls(&[("run_command", json!({ "argv": ["echo", told] }))]),
        reports("Noted.", json!([])),
    ];
    let patterns = [
        "[0-9]{6,}",
        "\\b[0-9a-f]{32,}\\b",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "\\+?[0-9][0-9 -]{7,}[0-9]",
        "ended|finished",
    ];
    let more = format!("[redaction]\npatterns = {}\n", serde_json::to_string(&patterns).unwrap());
    let world = solo(replies, None, &more).await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output["totals"]["cost_usd"].as_f64().is_some_and(|usd| usd > 0.0), "{output:#}");
    assert!(output["budgets"]["max_wall_time_ms"].is_u64(), "{output:#}");
    let (code, verified) = world.json(&["runs", "verify", "latest"]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    let (code, stats) = world.json(&["runs", "stats"]).await;
    assert_eq!(code, Some(0), "{stats:#}");
    let journal = std::fs::read_to_string(newest(&world).join("events.jsonl")).unwrap();
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    for part in ["1234567", "0123456789abcdef0123456789abcdef"] {
        assert!(!journal.contains(part), "{part} is in the journal");
    }
    world.finish().await;
}

/// Such as the folder of a project, for a server of tools: what is recorded names it, and is looked at again.
#[tokio::test(flavor = "multi_thread")]
async fn a_variable_whose_value_is_a_folder_that_is_there_is_taken_out_of_no_record() {
    let world = World::new(1).await;
    let overlay = world.dir.path().join("overlay.toml");
    let server =
        "\n[mcp.servers.shelf]\ncommand = \"true\"\nrequired = false\nenv = { ROOM = \"${PROJECT_DIR}\" }\n";
    std::fs::write(&overlay, std::fs::read_to_string(&overlay).unwrap() + server).unwrap();
    let with_folder = |args: &[&str]| {
        let mut command = world.command_in(args);
        command.env("PROJECT_DIR", world.dir.path());
        command.output().unwrap()
    };
    let done = with_folder(&["run", "--issue", "7"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let verified = with_folder(&["--json", "runs", "verify", "latest"]);
    assert_eq!(verified.status.code(), Some(0), "{}{}", text(&verified.stdout), text(&verified.stderr));
    world.finish().await;
}
