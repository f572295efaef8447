//! What a sweep takes, what it says before, and what it asks.

use agentd::sim::IssueFile;
use serde_json::{Value, json};

use super::world::{World, text};

/// Seven is labelled; eight is not, by somebody who may; nine is not, by somebody who may not.
async fn world() -> World {
    World::of(2, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let seven = issues[0].clone();
        issues.push(IssueFile {
            number: Some(8),
            title: "Eight".to_owned(),
            labels: vec![],
            ..seven.clone()
        });
        let author = Some("stranger".to_owned());
        issues.push(IssueFile { number: Some(9), title: "Nine".to_owned(), author, labels: vec![], ..seven });
        issues[0].labels = vec!["agentd".to_owned()];
    })
    .await
}

fn labels(world: &World, number: u64) -> Vec<String> {
    world.sim.issue("demo/shop", number).unwrap().labels
}

fn ended(report: &Value) -> Vec<u64> {
    let number = |one: &Value| one["issue"].as_str().unwrap().rsplit_once('#').unwrap().1.parse().unwrap();
    report["ended"].as_array().unwrap().iter().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_labelled_issues_alone_and_asks_nobody() {
    let world = world().await;
    let (code, report) = world.json(&["sweep"]).await;
    assert_eq!((code, ended(&report)), (Some(0), vec![7]), "{report:#}");
    assert_eq!((labels(&world, 8), labels(&world, 9)), (vec![], vec![]));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_over_all_begins_nothing_without_a_yes_and_says_what_it_would_take_and_cost() {
    let world = world().await;
    for by_configuration in [false, true] {
        if by_configuration {
            world.configure(&["sweep_select = \"all\""]);
        }
        let all: &[&str] = if by_configuration { &["sweep"] } else { &["sweep", "--all"] };
        let mut command = world.command_in(all);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let told = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{told}");
        for word in [
            "demo/shop#7",
            "(labelled)",
            "demo/shop#8  Eight  (not labelled, by ",
            "2 issues, at most $",
            "--yes",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("demo/shop#9"), "its author may not ask: {told}");
        assert_eq!((labels(&world, 7), labels(&world, 8)), (vec!["agentd".to_owned()], vec![]));
        assert!(world.sim.model_requests().is_empty());
    }
    let (code, report) = world.json(&["sweep", "--all", "--yes"]).await;
    assert_eq!(code, Some(0), "{report:#}");
    let mut taken = ended(&report);
    taken.sort_unstable();
    assert_eq!((taken, labels(&world, 9)), (vec![7, 8], vec![]), "{report:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_over_all_that_finds_labelled_issues_alone_does_not_say_that_nobody_labelled_them() {
    let world = World::of(1, |scenario| {
        scenario.repositories[0].issues[0].labels = vec!["agentd".to_owned()];
    })
    .await;
    let mut command = world.command_in(&["sweep", "--all"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = text(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{told}");
    assert!(told.contains("whether they are labelled or not") && told.contains("(labelled)"), "{told}");
    assert!(!told.contains("nobody labelled"), "{told}");
    assert!(world.sim.model_requests().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_finds_nothing_to_take_prints_one_document_as_well() {
    let world = World::of(1, |scenario| scenario.repositories[0].issues.clear()).await;
    let (code, report) = world.json(&["sweep", "--all"]).await;
    assert_eq!((code, ended(&report)), (Some(0), vec![]), "{report:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_sweep_changes_nothing() {
    let world = world().await;
    for (args, taken) in
        [(&["sweep", "--dry-run"][..], json!([7])), (&["sweep", "--all", "--dry-run"], json!([7, 8]))]
    {
        let (code, shown) = world.json(args).await;
        assert_eq!(code, Some(0), "{shown:#}");
        let numbers: Vec<Value> =
            shown["issues"].as_array().unwrap().iter().map(|one| one["issue"].clone()).collect();
        assert_eq!(Value::from(numbers), taken, "{shown:#}");
    }
    assert_eq!((labels(&world, 7), labels(&world, 8)), (vec!["agentd".to_owned()], vec![]));
    assert!(world.sim.model_requests().is_empty() && !world.shop().join(".worktrees").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_on_a_schedule_needs_an_end() {
    let world = world().await;
    world.configure(&["sweep = \"0 3 * * *\"", "sweep_select = \"all\"", "sweep_limit = 5"]);
    let file = "shop/.agent/agentd.toml";
    let toml = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.write(file, &toml.replace("max_cost_per_day", "# max_cost_per_day"));
    let mut command = world.command_in(&["daemon", "--once"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = text(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{told}");
    assert!(told.contains("sweep_select") && told.contains("max_cost_per_day"), "{told}");
    assert_eq!(labels(&world, 7), ["agentd"]);
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[budgets]\nmax_cost_per_day = 20.0\n"));
    let (code, told) = world.json(&["config", "check"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_another_issue_uses_up_no_place_of_a_sweep() {
    let world = World::of(1, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let seven = IssueFile { labels: vec!["agentd".to_owned()], ..issues[0].clone() };
        issues[0] = IssueFile { blocked_by: vec![9], ..seven.clone() };
        issues.push(IssueFile { number: Some(8), title: "Eight".to_owned(), ..seven.clone() });
        issues.push(IssueFile { number: Some(9), title: "Nine".to_owned(), labels: vec![], ..seven });
    })
    .await;
    world.configure(&["sweep_limit = 1"]);
    let (_, shown) = world.json(&["sweep", "--dry-run"]).await;
    let issues = shown["issues"].as_array().unwrap().iter();
    let issues: Vec<_> = issues.map(|one| (one["issue"].clone(), one["waits"].clone())).collect();
    assert_eq!(issues, [(json!(7), json!(true)), (json!(8), json!(false))], "{shown:#}");
    let mut dry_run = world.command_in(&["sweep", "--dry-run"]);
    let done = tokio::task::spawn_blocking(move || dry_run.output().unwrap()).await.unwrap();
    let told = text(&done.stdout);
    assert!(told.contains("(labelled)  (waits)") && told.contains("\n1 issue, at most $"), "{told}");
    let (code, report) = world.json(&["sweep"]).await;
    assert_eq!((code, ended(&report)), (Some(0), vec![8]), "{report:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_beside_a_daemon_counts_the_runs_of_both_against_the_cap_of_a_repository() {
    let world = World::of(2, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let labelled = |number| IssueFile {
            number: Some(number),
            labels: vec!["agentd".to_owned()],
            ..issues[0].clone()
        };
        let eight = labelled(8);
        issues.push(eight);
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write(
        "overlay.toml",
        &format!("{overlay}\n[daemon]\npoll_interval = \"1s\"\nmax_runs_per_repository = 1\n"),
    );
    // One at a time: the first one's model is slow enough that the sweep would have begun the other beside it.
    super::daemons::slow_model(&world, 1, 6_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = super::daemons::Running::start(&world, &[]);
    super::daemons::until("a run of the daemon", || world.sim.model_requests().len() > 1).await;
    let sweep = world.command_in(&["sweep"]);
    let swept = tokio::task::spawn_blocking(move || { sweep }.output().unwrap());
    let done = |number| labels(&world, number) == ["agentd:done"];
    super::daemons::until("both are done", || done(7) && done(8)).await;
    let swept = swept.await.unwrap();
    assert_eq!(swept.status.code(), Some(0), "{}", text(&swept.stderr));
    daemon.stop().await;
    let (_, runs) = world.json(&["runs", "list"]).await;
    let mut times = Vec::new();
    for run in runs.as_array().unwrap() {
        let (_, shown) = world.json(&["runs", "show", run["run_id"].as_str().unwrap()]).await;
        let at = |key: &str| shown[key].as_str().unwrap().to_owned();
        times.push((at("started_at"), at("completed_at")));
    }
    times.sort();
    assert!(times.len() == 2 && times[0].1 <= times[1].0, "one after the other: {times:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_of_somebody_who_may_not_ask_is_over_when_a_run_begins() {
    let world = World::new(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "mallory");
    let daemon = super::daemons::Running::start(&world, &[]);
    let comments = || -> Vec<String> {
        world.sim.issue("demo/shop", 7).unwrap().comments.into_iter().map(|comment| comment.body).collect()
    };
    let refused = || comments().iter().any(|body| body.contains("did not start on this issue"));
    super::daemons::until("a refusal", || refused() && labels(&world, 7) == ["agentd:attention"]).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    super::daemons::until("done", || labels(&world, 7) == ["agentd:done"]).await;
    assert!(!refused(), "{:#?}", comments());
    assert!(comments().iter().any(|body| body.contains("mallory has the permission")), "{:#?}", comments());
    daemon.stop().await;
    world.finish().await;
}

/// What a run asked there is answered first, whether a daemon is there or not; then the sweep goes on with the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_begins_nothing_anew_where_a_question_waits_and_goes_on_where_it_is_answered() {
    let asks = json!({ "question": "In which unit?", "options": ["cents", "dollars"] });
    let asks = agentd::sim::ReplyFile { times: Some(1), ..super::solo::calls(&[("agent__ask", asks)]) };
    let replies = vec![asks, super::solo::reports("Done.", json!([]))];
    let world = super::solo::solo(replies, None, "[daemon]\npoll_interval = \"1s\"\n").await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = super::daemons::Running::start(&world, &[]);
    super::daemons::until("a question", || labels(&world, 7).contains(&"agentd:needs-input".to_owned()))
        .await;
    let mut daemon = Some(daemon);
    for beside in ["a daemon", "none"] {
        let (code, report) = world.json(&["sweep"]).await;
        let waits = (&report["ended"], &report["waiting"][0]["code"]);
        assert_eq!(
            (code, waits),
            (Some(0), (&json!([]), &json!("waits_for_answer"))),
            "{beside}: {report:#}"
        );
        assert_eq!(world.sim.model_requests().len(), 1, "{beside}");
        if let Some(daemon) = daemon.take() {
            daemon.stop().await;
        }
    }
    let (code, _) = world.json(&["answer", "7", "dollars"]).await;
    assert_eq!(code, Some(0));
    let (code, report) = world.json(&["sweep"]).await;
    assert_eq!((code, ended(&report)), (Some(0), vec![7]), "{report:#}");
    assert_eq!(labels(&world, 7), ["agentd:done"]);
    assert!(world.told(1).contains("dollars"), "it was told the answer: {}", world.told(1));
    world.finish().await;
}
