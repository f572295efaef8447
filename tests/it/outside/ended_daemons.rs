//! What is said, and what goes on, once a daemon has ended and before the next one works.

use agentd::sim::IssueFile;
use serde_json::{Value, json};

use super::daemons::{Running, slow_model, until};
use super::world::{World, text, with_library};

/// Three issues that are asked for.
async fn three(rounds: usize) -> World {
    let world = World::of(rounds, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let seven = issues[0].clone();
        issues.push(IssueFile { number: Some(8), ..seven.clone() });
        issues.push(IssueFile { number: Some(12), ..seven });
    })
    .await;
    for number in [7, 8, 12] {
        world.sim.add_label("demo/shop", number, "agentd", "ada");
    }
    world
}

/// `agentd daemon --once` without the model's key. Gives its log.
async fn once_without_key(world: &World) -> String {
    let mut command = world.command_in(&["daemon", "--once"]);
    command.env_remove("MODEL_KEY");
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stderr)
}

/// The first rule that says no, by `agentd why`.
async fn refused_by(world: &World, number: &str) -> (Value, Value) {
    let (_, why) = world.json(&["why", number]).await;
    let rules = why["rules"].as_array().cloned().unwrap_or_default();
    let first = rules.into_iter().find(|rule| rule["code"] != "ok").unwrap_or_default();
    (first["code"].clone(), why)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_missing_is_used_by_the_next_daemon_at_once() {
    for exported in [true, false] {
        let world = three(3).await;
        once_without_key(&world).await;
        let labels = |number| world.sim.issue("demo/shop", number).unwrap().labels;
        let (code, why) = refused_by(&world, "12").await;
        assert_eq!(code, "host_not_ready", "{why:#}");
        assert!(why.to_string().contains("it is started again"), "{why:#}");
        let mut next = world.command_in(&["daemon", "--once"]);
        if !exported {
            // Where the message says.
            world.write(".agentd.env", "MODEL_KEY=a-key-of-the-simulator\n");
            next.env_remove("MODEL_KEY");
        }
        let done = tokio::task::spawn_blocking(move || next.output().unwrap()).await.unwrap();
        let begun = [7, 8, 12].into_iter().filter(|number| labels(*number) == ["agentd:done"]).count();
        assert_eq!(begun, 2, "{exported}: {:?} {}", labels(12), text(&done.stderr) + &text(&done.stdout));
        world.finish().await;
    }
}

/// The default branch of the repository was renamed, and the configuration names the old one.
#[tokio::test(flavor = "multi_thread")]
async fn an_origin_branch_that_is_gone_costs_one_issue_its_label_and_not_all_of_them() {
    let world = three(3).await;
    world.configure(&["origin_branch = \"renamed\""]);
    let once = || async {
        let mut command = world.command_in(&["daemon", "--once"]);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    for _ in 0..2 {
        once().await;
    }
    let labels = |number| world.sim.issue("demo/shop", number).unwrap().labels;
    let with = |label: &str| {
        let has = |number: &u64| labels(*number).iter().any(|on| on == label);
        [7, 8, 12].iter().filter(|number| has(number)).count()
    };
    assert_eq!((with("agentd"), with("agentd:attention")), (2, 1), "{:?}", [7, 8, 12].map(labels));
    let (code, why) = refused_by(&world, "12").await;
    assert_eq!(code, "host_not_ready", "{why:#}");
    assert!(why.to_string().contains("renamed"), "{why:#}");
    world.configure(&["origin_branch = \"develop\""]);
    let done = once().await;
    assert_eq!(with("agentd:done"), 2, "{:?} {}", [7, 8, 12].map(labels), text(&done.stderr));
    world.finish().await;
}

/// Whoever asks while GitHub keeps a start waiting, and while the daemon itself stands still.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_run_that_is_prepared_it_is_said_that_it_runs_and_of_a_daemon_that_stands_still_that_it_does() {
    let world = World::new(0).await;
    let hang = json!({ "path": "/graphql", "kind": "hang", "times": 0 });
    world.sim.inject(&serde_json::from_value(hang).unwrap()).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    let file = world.dir.path().join("state/daemon/status.json");
    let status =
        || -> Value { serde_json::from_slice(&std::fs::read(&file).unwrap_or_default()).unwrap_or_default() };
    until("it begins", || status()["running"][0]["issue"] == 7).await;
    let (_, why) = world.json(&["why", "7"]).await;
    assert_eq!(why["outlook"], "runs", "{why:#}");
    assert!(!text(&world.agentd(&["status"]).await.stdout).contains("has written nothing"));
    // As if it had stood still since: what it wrote last is old.
    let _ = std::process::Command::new("kill").args(["-STOP", &daemon.pid().to_string()]).status();
    let mut old = status();
    old["at"] = json!("2026-01-01T00:00:00Z");
    std::fs::write(&file, old.to_string()).unwrap();
    for args in [&["status"][..], &["why", "7"]] {
        let told = world.agentd(args).await;
        let told = text(&told.stdout) + &text(&told.stderr);
        assert!(told.contains("lives and has written nothing for"), "{args:?}: {told}");
    }
    daemon.kill();
    world.sim.shutdown().await;
}

/// Hints of a refusal are lines of their own, and a line of a log is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_says_on_one_line_and_without_escapes_why_nothing_was_begun() {
    let world = three(0).await;
    let log = once_without_key(&world).await;
    for what in ["nothing was begun", "no run begins before then"] {
        let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {log}"));
        assert!(line.contains("MODEL_KEY") && !line.contains("\\n"), "{line}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_that_a_repository_cannot_be_seen_where_no_poll_has_succeeded() {
    let world = World::of(0, |scenario| {
        with_library(scenario);
        scenario.repositories[0].private = true;
        let narrow = json!({
            "token": "narrow", "login": scenario.tokens[0].login, "repositories": ["demo/lib"],
        });
        scenario.tokens.push(serde_json::from_value(narrow).unwrap());
    })
    .await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let narrow = async |args: &[&str]| {
        let mut command = world.command_in(&[&["--json"], args].concat());
        command.env("GITHUB_TOKEN", "narrow");
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (done.status.code(), serde_json::from_slice::<Value>(&done.stdout).unwrap_or_default())
    };
    let (code, report) = narrow(&["daemon", "--once"]).await;
    assert_eq!(code, Some(1), "{report:#}");
    let (_, why) = narrow(&["why", "7"]).await;
    let polled = &why["rules"][0];
    assert_eq!((&polled["rule"], &polled["code"]), (&json!("repository_polled"), &json!("poll_failed")));
    let told = polled["answer"].as_str().unwrap();
    assert!(told.contains("the repository demo/shop") && told.contains("the token cannot see it"), "{told}");
    let summary = why["summary"].as_str().unwrap();
    assert!(summary.contains("the token cannot see it") && why["do"].is_null(), "{why:#}");
    // Whoever sees it is not told of a poll that was none, nor that a number is wrong that is right.
    let (_, why) = world.json(&["why", "7"]).await;
    let answer = why["rules"][0]["answer"].as_str().unwrap();
    assert!(why["rules"][0]["code"] == "ok" && !answer.contains("succeeded"), "{answer}");
    assert_eq!(refused_by(&world, "99").await.0, "not_found");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_of_each_issue_that_an_ended_daemon_left_what_why_says() {
    // Two refused starts, and one that no slot was left for.
    let world = three(0).await;
    once_without_key(&world).await;
    let (_, shown) = world.json(&["status"]).await;
    let waiting = shown["status"]["waiting"].as_array().unwrap();
    let parked: Vec<_> =
        shown["status"]["parked"].as_array().unwrap().iter().map(|row| &row["issue"]).collect();
    assert_eq!((waiting.len(), parked.len()), (2, 1), "{shown:#}");
    for row in waiting {
        let (code, why) = refused_by(&world, &row["issue"].to_string()).await;
        assert_eq!(row["code"], code, "{row:#} {why:#}");
    }
    world.finish().await;
    // A run that was cut off by the stop.
    let world = World::new(2).await;
    slow_model(&world, 0, 8_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    let asked = |what: &str| world.sim.requests().iter().filter(|one| one.target.contains(what)).count();
    until("work", || asked("/model") > 0).await;
    // It sees the labels that the run has put on.
    let seen = asked("/issues?");
    until("two more polls", || asked("/issues?") >= seen + 2).await;
    daemon.stop().await;
    assert!(world.labels().contains(&"agentd".to_owned()), "{:?}", world.labels());
    let (_, shown) = world.json(&["status"]).await;
    let row = &shown["status"]["waiting"][0];
    assert_eq!((&row["issue"], &row["code"]), (&json!(7), &json!("no_daemon")), "{shown:#}");
    assert_eq!(refused_by(&world, "7").await.0, "no_daemon");
    let mut status = world.command_in(&["status"]);
    let told = text(&tokio::task::spawn_blocking(move || status.output().unwrap()).await.unwrap().stdout);
    assert!(told.contains("no_daemon") && !told.contains("nothing waits"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_slot_of_a_killed_daemon_waits_for_the_next_one() {
    let world = three(0).await;
    slow_model(&world, 0, 60_000);
    slow_model(&world, 0, 60_000);
    let daemon = Running::start(&world, &[]);
    let said = || std::fs::read_to_string(world.dir.path().join("state/daemon/status.json"));
    until("no slot is left", || said().is_ok_and(|said| said.contains("repository_slots_full"))).await;
    daemon.kill();
    let (_, shown) = world.json(&["status"]).await;
    let rows = shown["status"]["waiting"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["code"] == "no_daemon", "{shown:#}");
    assert_eq!(refused_by(&world, &rows[0]["issue"].to_string()).await.0, "no_daemon");
    world.sim.shutdown().await;
}
