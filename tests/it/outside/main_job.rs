//! The main job: label to pull request, killed, labelled, without an origin.

use serde_json::json;

use super::daemons::until;
use super::world::{World, basic};

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_becomes_a_pull_request_and_a_second_run_continues_on_it() {
    let world = World::new(2).await;
    let (code, first) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, first["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{first:#}");
    assert_eq!(first["mapping"]["branch"], "feature/issue-7");
    assert_eq!(first["mapping"]["origin"]["source"], "config");
    assert_eq!(first["iterations"], 4);
    assert_eq!(first["change"], "made");
    world.assert_one_of_each();
    assert_eq!(world.labels(), ["agentd:done"]);
    let pull = &world.sim.pulls("demo/shop")[0];
    assert!(pull.pull.as_ref().is_some_and(|pull| pull.base == "develop"), "{pull:?}");
    let (code, second) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_ne!(first["run_id"], second["run_id"]);
    assert_eq!(second["mapping"]["branch"], first["mapping"]["branch"]);
    world.assert_one_of_each();
    let main = world.git(&world.shop(), &["status", "--porcelain", "--untracked-files=no"]).await;
    assert_eq!(main, "", "the main checkout is not touched");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e23_a_killed_run_is_continued_at_its_last_finished_visit_and_repeats_no_effect() {
    let world = World::new(3).await;
    let overlay = world.dir.path().join("overlay.toml").display().to_string();
    let mut killed = world.command(&["--config", &overlay, "run", "--issue", "7"]).spawn().unwrap();
    // Killed as soon as the second visit has asked the model: an event, not a time.
    while world.sim.model_requests().len() < 3 {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it could be killed");
        tokio::task::yield_now().await;
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert!(runs.to_string().contains("interrupted"), "{runs:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_starts_a_run_under_the_daemon() {
    let world = World::new(1).await;
    let (code, idle) = world.json(&["daemon", "--once"]).await;
    assert_eq!((code, idle["ended"].as_array().map(Vec::len)), (Some(0), Some(0)), "{idle:#}");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (code, report) = world.json(&["daemon", "--once"]).await;
    assert_eq!(
        (code, report["ended"][0]["stop_reason"].as_str()),
        (Some(0), Some("OBJECTIVE_ACHIEVED")),
        "{report:#}"
    );
    world.assert_one_of_each();
    assert_eq!(world.labels(), ["agentd:done"]);
    world.finish().await;
}

/// As on a full disk of logs, or when who reads the pipe has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_ends_no_daemon() {
    let world = World::new(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let mut command = world.command_in(&["--log-level", "debug", "daemon", "--once"]);
    command.stderr(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let done = tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap();
    assert_eq!((done.code(), world.labels()), (Some(0), vec!["agentd:done".to_owned()]));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g03_without_an_origin_nothing_is_made() {
    let world = World::new(1).await;
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("origin_branch = \"develop\"", "# no origin"));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("origin_unresolved")), "{output:#}");
    assert!(output["mapping"].is_null());
    assert!(!world.shop().join(".worktrees").exists());
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    let (code, output) = world.json(&["run", "--issue", "7", "--origin", "nowhere"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("origin_missing")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_every_line_of_the_journal_and_the_run_output_last_however_slowly_it_is_read() {
    let world = World::new(1).await;
    // A flag that every command takes may stand in front as well.
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--stream"]);
    let run = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Nobody reads until everything is done: more than a pipe holds waits.
    while world.labels() != ["agentd:done"] {
        tokio::task::yield_now().await;
    }
    let done = tokio::task::spawn_blocking(move || run.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(0));
    let lines: Vec<serde_json::Value> =
        super::world::text(&done.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (output, events) = lines.split_last().unwrap();
    assert_eq!(output["schema_version"], "agentd.run_output.v1");
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["kind"], "run_ended");
    for refused in
        [&["--max-steps", "0"][..], &["--origin", "nowhere"], &["--origin", "nowhere", "--dry-run"]]
    {
        let mut args = vec!["--json", "run", "--issue", "7", "--stream"];
        args.extend(refused);
        let mut command = world.command_in(&args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(done.status.code(), Some(4), "{refused:?}");
        let told = super::world::text(&done.stdout);
        assert_eq!(told.lines().count(), 1, "{refused:?}: {told}");
        let output: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(output["schema_version"], "agentd.run_output.v1", "{refused:?}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d36_what_a_model_wrote_sets_nothing_in_motion_where_it_is_published() {
    let said = "Fixes #5. Thanks @octo! [skip ci]";
    let world = World::of(1, |scenario| {
        let last = scenario.model.replies.last_mut().unwrap().final_report.as_mut().unwrap();
        last["content_json"]["summary"] = json!(said);
    })
    .await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["final_report"]["content_json"]["summary"]), (Some(0), &json!(said)));
    let pull = world.sim.pulls("demo/shop").remove(0).body.unwrap();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments.remove(0).body;
    let message = world.git(&world.shop(), &["log", "-1", "--format=%B", "feature/issue-7"]).await;
    for (place, text) in [("pull request", &pull), ("comment", &comment), ("commit", &message)] {
        assert!(text.contains("Thanks"), "{place}: {text}");
        for word in ["Fixes #5", "@octo", "[skip ci]"] {
            assert!(!text.contains(word), "{place}: {text}");
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_json_is_json_from_the_first_line_to_the_last_progress_and_errors_included() {
    let world = World::new(1).await;
    for (args, code) in [(&["--issue", "7"][..], 0), (&["--issue", "99"], 4)] {
        let mut command = world.command_in(&["--log-format", "json", "run"]);
        command.args(args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(done.status.code(), Some(code));
        let told = super::world::text(&done.stderr);
        let lines: Vec<serde_json::Value> = told
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{told}")))
            .collect();
        let count = |level: &str| lines.iter().filter(|line| line["level"] == level).count();
        if code == 0 {
            assert!(count("INFO") > 10 && count("ERROR") == 0, "{told}");
        } else {
            assert_eq!(count("ERROR"), 1, "{told}");
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_others_brought_in_while_it_was_published_needs_no_pull_request() {
    let world = World::new(1).await;
    let slow = json!({ "path": "/repos/demo/shop/pulls", "kind": "delay", "delay_ms": 4_000 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    let running = world.json(&["run", "--issue", "7"]);
    let merging = async {
        let remote = world.sim.git_dir("demo/shop").unwrap();
        let pushed = || agentd::sim::bare::head(&remote, "feature/issue-7");
        until("a push", || pushed().is_some()).await;
        let to = format!("{}:refs/heads/develop", pushed().unwrap());
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        world.git(&world.shop(), &["-c", &header, "push", "-q", "origin", &to]).await;
    };
    let ((code, output), ()) = tokio::join!(running, merging);
    assert_eq!((code, output["stop_detail"].as_str()), (Some(0), Some("completed")), "{output:#}");
    assert_eq!(output["pr_url"], json!(null), "{output:#}");
    assert!(output["warnings"].to_string().contains("already_merged"), "{output:#}");
    assert!(world.sim.pulls("demo/shop").is_empty());
    assert_eq!(world.labels(), ["agentd:done"]);
    world.finish().await;
}
