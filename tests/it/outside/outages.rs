//! GitHub in trouble: what is wrong is said, nothing is concluded from it, and when it is over the work goes on.

use std::process::Command;

use agentd::sim::FaultFile;
use serde_json::{Value, json};

use super::daemons::{Running, slow_model, until, until_or};
use super::world::World;

fn status(world: &World) -> Value {
    let file = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
    serde_json::from_slice(&file).unwrap_or_default()
}

/// A person waits for the answer.
#[tokio::test(flavor = "multi_thread")]
async fn where_github_does_not_answer_why_says_so_soon_and_once() {
    let world = World::new(0).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || status(&world)["repositories"][0]["polled_at"].is_string()).await;
    trouble(&world, "/repos/**", json!({ "kind": "hang", "times": 0 }));
    until("it is noticed", || status(&world)["repositories"][0]["failing_since"].is_string()).await;
    let begun = std::time::Instant::now();
    let why = world.agentd(&["why", "7"]).await;
    assert!(begun.elapsed().as_secs() < 60, "it took {:?}", begun.elapsed());
    let told = crate::outside::world::text(&why.stdout);
    assert_eq!(told.matches("not known, as said under repository_polled").count(), 2, "{told}");
    let noted = crate::outside::world::text(&why.stderr);
    assert!(noted.contains("has not heard of demo/shop since"), "{noted}");
    drop(daemon);
    world.sim.shutdown().await;
}

/// The next requests to these places of the API go wrong.
fn trouble(world: &World, path: &str, mut fault: Value) {
    fault["path"] = json!(path);
    let fault: FaultFile = serde_json::from_value(fault).unwrap();
    world.sim.inject(&fault).unwrap();
}

async fn survives(fault: Value) {
    let world = World::new(1).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || status(&world)["repositories"][0]["polled_at"].is_string()).await;
    trouble(&world, "/repos/**", fault.clone());
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until(&format!("it is said: {fault}"), || {
        let said = status(&world);
        said["repositories"][0]["error"].is_string() || said["limits"]["held_by"].is_string()
    })
    .await;
    let done = || world.labels() == ["agentd:done"];
    let instead =
        || format!("{:?}, {:#}, {:#?}", world.labels(), status(&world), world.sim.issue("demo/shop", 7));
    until_or(&format!("done in spite of {fault}"), done, instead).await;
    world.assert_one_of_each();
    until("nothing is wrong any more", || status(&world)["repositories"][0]["error"].is_null()).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i50_whatever_github_answers_is_said_and_when_it_is_over_the_issue_is_worked_out_once() {
    let all = [
        json!({ "kind": "status", "status": 502, "times": 9 }),
        json!({ "kind": "garbage", "times": 9 }),
        json!({ "kind": "drop", "times": 9 }),
        json!({ "kind": "truncate", "times": 9 }),
        json!({ "kind": "secondary_limit", "retry_after": 3, "times": 1 }),
        json!({ "kind": "status", "status": 401, "times": 2 }),
    ];
    futures::future::join_all(all.map(survives)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i50_a_label_taken_off_is_not_concluded_from_a_list_that_could_not_be_read() {
    let world = World::new(1).await;
    slow_model(&world, 1, 4_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("work", || world.sim.model_requests().len() >= 2).await;
    // The list alone: what the run publishes at its end is not what this is about.
    trouble(&world, "/repos/demo/shop/issues", json!({ "kind": "status", "status": 500, "times": 8 }));
    until("it is said", || status(&world)["repositories"][0]["error"].is_string()).await;
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_github_did_not_take_is_published_later_and_no_model_is_asked_again() {
    let world = World::new(1).await;
    trouble(&world, "/repos/demo/shop/pulls", json!({ "kind": "status", "status": 500, "times": 0 }));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("failed", || world.labels() == ["agentd:failed"]).await;
    let remembered = || std::fs::read_to_string(world.dir.path().join("state/daemon/state.json"));
    until("others wait", || remembered().is_ok_and(|state| state.contains("\"cause\":\"remote\""))).await;
    let asked = world.sim.model_requests().len();
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd retry").unwrap();
    until("done", || world.labels() == ["agentd:done"]).await;
    assert_eq!(world.sim.model_requests().len(), asked);
    // The label is there a moment before the result is.
    let (_, mut output) = world.json(&["runs", "show", "latest"]).await;
    while output["running"] == true {
        (_, output) = world.json(&["runs", "show", "latest"]).await;
    }
    let (claims, change) = (&output["claims"], output["change"].as_str());
    assert!(
        claims.as_array().is_some_and(|claims| !claims.is_empty()) && change == Some("made"),
        "{output:#}"
    );
    assert_eq!(world.sim.pulls("demo/shop").len(), 1);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_not_taken_is_published_after_a_pause_and_nobody_has_to_ask() {
    // A remote that is away, a token that may not push any more, and one that may open no pull request.
    let (push, pull) = ("/git/demo/shop.git/git-receive-pack", "/repos/demo/shop/pulls");
    futures::future::join_all([(push, 503), (push, 403), (pull, 403)].map(published_later)).await;
}

async fn published_later((path, status_code): (&str, u16)) {
    let world = World::new(1).await;
    let refuse = json!({ "kind": "status", "status": status_code, "times": 0, "method": "POST" });
    trouble(&world, path, refuse);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("failed", || world.labels() == ["agentd:failed"]).await;
    let asked = world.sim.model_requests().len();
    let told =
        || world.sim.issue("demo/shop", 7).unwrap().comments.pop().map_or_else(String::new, |told| told.body);
    assert!(told().contains("tries that again by itself"), "{}", told());
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    until_or("done", || world.labels() == ["agentd:done"], || format!("{:#}", status(&world))).await;
    assert_eq!(world.sim.model_requests().len(), asked, "no model is asked again");
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_not_published_is_when_a_person_goes_on_with_its_run() {
    let world = World::new(1).await;
    trouble(&world, "/repos/demo/shop/pulls", json!({ "kind": "status", "status": 500, "times": 0 }));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("github_error")), "{output:#}");
    let asked = world.sim.model_requests().len();
    // Nobody is told to pay for the work again.
    let next = world.json(&["runs", "report", "latest"]).await.1["next_steps"].to_string();
    let publishes = format!("`agentd runs resume {}` publishes it", output["run_id"].as_str().unwrap());
    assert!(next.contains(&publishes) && !next.contains("agentd run --issue"), "{next}");
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, world.sim.model_requests().len()), (Some(0), asked), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_the_network_hides_for_a_moment_is_asked_again_and_what_was_pushed_is_pushed_once() {
    let world = World::new(1).await;
    trouble(&world, "/git/demo/shop.git/info/refs", json!({ "kind": "drop", "times": 2 }));
    trouble(&world, "/git/demo/shop.git/info/refs", json!({ "kind": "truncate", "skip": 2 }));
    // The first push arrives, and nobody hears of it.
    trouble(&world, "/git/demo/shop.git/git-receive-pack", json!({ "kind": "lost_reply" }));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(0), Some("completed")), "{output:#}");
    world.assert_one_of_each();
    let asked = world.sim.requests();
    let failed =
        asked.iter().filter(|asked| asked.target.starts_with("/git/") && asked.status != 200).count();
    assert!(failed >= 3, "the network failed: {asked:#?}");
    world.finish().await;
}

/// A world with a second repository, which has no issues and is cloned by the daemon.
async fn with_a_second_repository() -> World {
    let world = World::of(1, |scenario| {
        let mut second = scenario.repositories[0].clone();
        "demo/second".clone_into(&mut second.name);
        second.issues.clear();
        scenario.repositories.push(second);
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let path = world.shop().display().to_string();
    world.write(
        "overlay.toml",
        &format!(
            "{overlay}\n[[repositories]]\nname = \"demo/shop\"\npath = \"{path}\"\norigin_branch = \"develop\"\nagent = \"resolver\"\n\
             [[repositories]]\nname = \"demo/second\"\norigin_branch = \"develop\"\nagent = \"resolver\"\n"
        ),
    );
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_does_not_answer_is_not_waited_for_in_each_look_at_the_others() {
    let world = with_a_second_repository().await;
    let daemon = Running::start(&world, &[]);
    let lists = |of: &str| {
        let list = format!("/repos/demo/{of}/issues?");
        world.sim.requests().iter().filter(|asked| asked.target.contains(&list)).count()
    };
    until("both are watched", || lists("shop") > 0 && lists("second") > 0).await;
    trouble(&world, "/repos/demo/second/*", json!({ "kind": "hang", "times": 0 }));
    let (before, second) = (lists("shop"), lists("second"));
    until("looks at the other one", || lists("shop") >= before + 4).await;
    assert!(lists("second") <= second + 2, "{} {second}", lists("second"));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is worked on", || world.labels() == ["agentd:done"]).await;
    let shown = status(&world);
    let second =
        shown["repositories"].as_array().unwrap().iter().find(|one| one["repo"] == "demo/second").unwrap();
    assert!(second["error"].is_string(), "what does not answer is named: {shown:#}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_counts_the_runs_of_its_own_repository_alone() {
    let world = with_a_second_repository().await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let one = "[daemon]\npoll_interval = \"1s\"\nmax_runs_per_repository = 1\n";
    world.write("overlay.toml", &format!("{overlay}{one}"));
    slow_model(&world, 1, 30_000);
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it works", || status(&world)["running"].as_array().is_some_and(|runs| runs.len() == 1)).await;
    for (of, code, words) in [
        ("shop", "repository_slots_full", "all 1 slots of the repository are taken"),
        ("second", "ok", "0 of 1 slots of the repository are taken"),
    ] {
        let (_, why) = world.json(&["why", &format!("demo/{of}#1")]).await;
        let rule =
            |name: &str| why["rules"].as_array().unwrap().iter().find(|one| one["rule"] == name).cloned();
        let (own, all) = (rule("slot_in_repository").unwrap(), rule("slot").unwrap());
        assert_eq!((&own["code"], &own["answer"]), (&json!(code), &json!(words)), "{of}: {own:#}");
        assert!(all["answer"].as_str().unwrap().starts_with("1 of "), "{all:#}");
    }
    daemon.kill();
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_clone_that_cannot_be_made_is_waited_for_and_the_other_repositories_go_on() {
    let world = with_a_second_repository().await;
    // Asked four times at the start, and once more ten seconds later.
    trouble(&world, "/repos/demo/second", json!({ "kind": "status", "status": 502, "times": 5 }));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    let of = |name: &str| {
        let said = status(&world);
        let all = said["repositories"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["repo"] == name).unwrap_or_default()
    };
    until("it is said", || of("demo/second")["error"].to_string().contains("cannot be opened yet")).await;
    until("the other one is worked on", || world.labels() == ["agentd:done"]).await;
    until("it is watched", || of("demo/second")["polled_at"].is_string()).await;
    assert!(of("demo/second")["error"].is_null(), "{}", of("demo/second"));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_of_the_command_line_no_longer_shows_as_working_after_the_next_start() {
    for next in ["daemon", "run", "file", "doctor", "without comment"] {
        let world = World::of(1, |scenario| {
            let issues = &mut scenario.repositories[0].issues;
            let mut other = issues[0].clone();
            other.number = Some(8);
            issues.push(other);
        })
        .await;
        slow_model(&world, 0, 60_000);
        let mut run = world.command_in(&["run", "--issue", "7"]).spawn().unwrap();
        until("it works", || world.sim.model_requests().len() == 1 && world.labels() == ["agentd:running"])
            .await;
        run.kill().unwrap();
        run.wait().unwrap();
        let comment = || world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
        assert!(comment().contains("is working on this issue"), "{}", comment());
        let cleared = "the killed run agent-issue-7-";
        match next {
            "daemon" => drop(world.agentd(&["--config", "../overlay.toml", "daemon", "--once"]).await),
            "doctor" => {
                let (_, told) = world.json(&["doctor"]).await;
                let told = told.to_string();
                assert!(
                    told.contains(cleared) && told.contains("no longer shows as working on #7"),
                    "{told}"
                );
                let (_, again) = world.json(&["doctor"]).await;
                assert!(!again.to_string().contains(cleared), "once: {again:#}");
            }
            "file" => {
                world.write("shop/9.md", "# Other work\n\nSomething else.\n");
                drop(world.json(&["run", "--issue-file", "9.md"]).await);
            }
            // Somebody took the comment away.
            "without comment" => {
                world.sim.edit_issue("demo/shop", 7, |issue| issue.comments.clear());
                let (_, told) = world.json(&["doctor"]).await;
                assert!(told.to_string().contains(cleared), "{told:#}");
                assert_eq!(world.labels(), ["agentd:failed"]);
                world.sim.shutdown().await;
                continue;
            }
            _ => {
                drop(world.json(&["run", "--issue", "8", "--dry-run"]).await);
                // Only looked at, not started.
                assert_eq!(world.labels(), ["agentd:running"]);
                drop(world.json(&["run", "--issue", "8"]).await);
            }
        }
        assert_eq!(world.labels(), ["agentd:failed"], "{next}");
        assert!(
            comment().contains("agentd runs resume") && !comment().contains("agentd:lease"),
            "{}",
            comment()
        );
        assert_eq!(world.sim.issue("demo/shop", 7).unwrap().comments.len(), 1);
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_the_state_directory_takes_nothing_back_from_the_issue() {
    let world = World::new(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    slow_model(&world, 1, 4_000);
    let daemon = Running::start(&world, &[]);
    until("it works", || world.sim.model_requests().len() >= 2).await;
    let copied = Command::new("cp").args(["-a", "state", "older"]).current_dir(world.dir.path()).status();
    assert!(copied.unwrap().success());
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    let said = || world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    let before = said();
    std::fs::remove_dir_all(world.dir.path().join("state")).unwrap();
    let moved = Command::new("mv").args(["older", "state"]).current_dir(world.dir.path()).status();
    assert!(moved.unwrap().success());
    let lists = || world.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    let seen = lists();
    let daemon = Running::start(&world, &[]);
    until("three polls", || lists() >= seen + 3).await;
    let out = daemon.stop().await;
    let log = super::world::text(&out.stderr);
    assert!(log.contains("the issue is left as it is"), "{log}");
    assert_eq!((world.labels(), said()), (vec!["agentd:done".to_owned()], before), "{log}");
    let (_, run) = world.json(&["runs", "show", "latest"]).await;
    assert_eq!(run["stop_detail"], "interrupted", "{run:#}");
    assert_eq!(world.sim.pulls("demo/shop").len(), 1);
    world.finish().await;
}

/// Refuses each commit in whose tests the new one stands once.
const REFUSES: &str = r#"#!/bin/sh
while read -r old new ref; do
  for commit in $(git rev-list "$new" --not --all); do
    count=$(git show "$commit:tests/run.sh" | grep -c 'a full discount is free')
    if [ "$count" = 1 ]; then
      echo "error: GH013: Repository rule violations found for $ref." >&2
      echo "- GITHUB PUSH PROTECTION" >&2
      echo "  - Push cannot contain secrets" >&2
      exit 1
    fi
  done
done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_the_remote_refuses_for_its_content_is_told_to_the_next_run_and_committed_anew() {
    let world = World::new(2).await;
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let hook = git_dir.join("hooks").join("pre-receive");
    agentd::sys::files::create_dir(hook.parent().unwrap()).unwrap();
    agentd::sys::files::write_public(&hook, REFUSES.as_bytes()).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[daemon]\npoll_interval = \"1s\"\n"));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_or("it failed", || world.labels() == ["agentd:failed"], || format!("{:?}", world.labels())).await;
    let told = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    for words in ["Push cannot contain secrets", "Nothing was pushed", "Say on the issue", "committed anew"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains("without asking the model"), "{told}");
    let asked = world.sim.model_requests().len();
    world.sim.add_comment("demo/shop", 7, "ada", "Write it twice, then.").unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let done = || world.labels() == ["agentd:done"] && world.sim.model_requests().len() > asked;
    until_or("it is done", done, || {
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        format!("{:?} {comments:#?}", world.labels())
    })
    .await;
    let told = world.told(asked);
    for words in ["Push cannot contain secrets", "Write it twice, then."] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let commits = world.git(&git_dir, &["rev-list", "--count", "develop..feature/issue-7"]).await;
    assert_eq!(commits.trim(), "1", "what was refused is in no history");
    assert_eq!(world.sim.pulls("demo/shop").len(), 1);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_the_token_may_not_write_says_why_and_stands_on_the_issue_once_it_may() {
    let world = World::new(1).await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let refuse = json!({ "kind": "status", "status": 403, "times": 0, "method": method,
            "body": { "message": "Resource not accessible by personal access token" } });
        trouble(&world, "/repos/demo/shop/issues/**", refuse);
    }
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("a pull request", || !world.sim.pulls("demo/shop").is_empty()).await;
    let shown = || status(&world)["waiting"][0]["text"].as_str().unwrap_or_default().to_owned();
    until_or("why", || shown().contains("GitHub did not take them"), || format!("{:#}", status(&world)))
        .await;
    assert!(shown().contains("issues: write"), "{}", shown());
    let (_, why) = world.json(&["why", "7"]).await;
    assert!(why["summary"].as_str().unwrap().contains("issues: write"), "{why:#}");
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    until_or("done", || world.labels() == ["agentd:done"], || format!("{:#}", status(&world))).await;
    let comments = || world.sim.issue("demo/shop", 7).unwrap().comments;
    until_or("a comment", || comments().len() == 1, || format!("{:#?}", comments())).await;
    let told = comments().remove(0).body;
    let pull = world.sim.pulls("demo/shop").remove(0);
    assert!(told.contains("**agentd has ended its work on this issue.**"), "{told}");
    assert!(told.contains(&format!("/pull/{}", pull.number)) && told.contains("agentd runs show "), "{told}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_published_later_where_the_whole_remote_is_away_at_its_end() {
    let world = World::new(1).await;
    slow_model(&world, 1, 3_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("it works", || world.sim.model_requests().len() >= 2).await;
    trouble(&world, "/git/**", json!({ "kind": "status", "status": 503, "times": 0 }));
    until("failed", || world.labels() == ["agentd:failed"]).await;
    let asked = world.sim.model_requests().len();
    let told = world.sim.issue("demo/shop", 7).unwrap().comments.remove(0).body;
    assert!(told.contains("tries that again by itself"), "{told}");
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    until_or("done", || world.labels() == ["agentd:done"], || format!("{:#}", status(&world))).await;
    assert_eq!(world.sim.model_requests().len(), asked, "no model is asked again");
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_goes_nowhere_that_a_remote_leads_to() {
    use std::io::{Read as _, Write as _};
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = elsewhere.local_addr().unwrap();
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let said = std::sync::Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in elsewhere.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = vec![0; 8192];
            let length = stream.read(&mut asked).unwrap_or(0);
            said.lock().unwrap().push(String::from_utf8_lossy(&asked[..length]).into_owned());
            let _closed = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let world = World::new(1).await;
    let place = format!("http://{there}/git/demo/shop.git/info/refs?service=git-upload-pack");
    trouble(
        &world,
        "/git/**",
        json!({ "kind": "status", "status": 302, "times": 0, "headers": { "location": place } }),
    );
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(1), "{output:#}");
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard, Vec::<String>::new());
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("leads elsewhere"), "{message}");
    world.finish().await;
}

/// What GitHub answers where it failed by itself: status 200, and words without a type.
fn went_wrong(times: u32, contains: &str) -> Value {
    let words = "Something went wrong while executing your query. This may be the result of a timeout, or it could be a GitHub bug.";
    json!({
        "method": "POST", "contains": contains, "kind": "status", "status": 200, "times": times,
        "headers": { "content-type": "application/json" },
        "body": { "data": null, "errors": [{ "message": words }] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_github_fails_by_itself_is_asked_again_and_what_goes_on_failing_is_its_own_trouble() {
    let world = World::new(1).await;
    trouble(&world, "/graphql", went_wrong(2, "query("));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    // It fails for longer: no advice about an address that is right.
    let again = World::new(1).await;
    trouble(&again, "/graphql", went_wrong(0, "query("));
    let (code, output) = again.json(&["run", "--issue", "7"]).await;
    let told = output.to_string();
    assert!(
        code != Some(0) && told.contains("error of its own") && !told.contains("is a GitHub API"),
        "{output:#}"
    );
    for world in [world, again] {
        world.sim.shutdown().await;
    }
}

/// Its change to ready fails once: that is nobody's doing, and the next run does it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_could_not_be_made_ready_is_made_so_by_the_next_run() {
    let note = |name: &str| super::solo::calls(&[("write_file", json!({ "path": name, "content": "x\n" }))]);
    let done = || super::solo::reports("Done.", json!([]));
    let replies = vec![note("one.txt"), done(), note("two.txt"), done(), note("three.txt"), done()];
    let allow =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    let world = super::solo::solo(replies, Some(allow), "").await;
    world.verify("[[\"false\"]]");
    let is_draft = || world.sim.pulls("demo/shop")[0].pull.as_ref().unwrap().draft;
    let (_, output) = super::solo::run(&world).await;
    assert!(is_draft(), "{output:#}");
    world.verify(super::world::GREEN);
    trouble(&world, "/graphql", went_wrong(3, "markPullRequestReadyForReview"));
    let (code, output) = super::solo::run(&world).await;
    assert!(code != Some(0) && is_draft(), "{output:#}");
    let (code, output) = super::solo::run(&world).await;
    assert!(code == Some(0) && !is_draft(), "{output:#}");
    world.sim.shutdown().await;
}

/// The end is the run's own, and what of it is missing is not left out for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_draft_of_a_run_with_red_checks_is_published_later_and_no_model_is_asked_again() {
    let world = World::new(1).await;
    world.verify("[[\"false\"]]");
    trouble(&world, "/repos/demo/shop/pulls", json!({ "kind": "status", "status": 502, "times": 0 }));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("no evidence", || world.labels() == ["agentd:no-evidence"]).await;
    let told = world.sim.issue("demo/shop", 7).unwrap().comments.pop().unwrap().body;
    assert!(told.contains("tries that again by itself"), "{told}");
    let remembered = world.dir.path().join("state/daemon/state.json");
    let paused = || std::fs::read_to_string(&remembered).is_ok_and(|state| state.contains("\"remote\""));
    until_or("others wait", paused, || format!("{:#}", status(&world))).await;
    let asked = world.sim.model_requests().len();
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    let is_there = || !world.sim.pulls("demo/shop").is_empty() && world.labels() == ["agentd:no-evidence"];
    until_or("a draft", is_there, || format!("{:#}", status(&world))).await;
    assert!(world.sim.pulls("demo/shop")[0].pull.as_ref().unwrap().draft);
    assert_eq!(world.sim.model_requests().len(), asked, "no model is asked again");
    until_or("nobody waits any more", || !paused(), || format!("{:#}", status(&world))).await;
    let told = world.sim.issue("demo/shop", 7).unwrap().comments.pop().unwrap().body;
    assert!(told.contains("`false` failed") && !told.contains("tries that again"), "{told}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_last_comment_was_not_taken_says_soon_that_the_work_has_ended() {
    let refused = |status: u16| json!({ "kind": "status", "status": status });
    let faults = [refused(403), refused(404), json!({ "kind": "garbage" })];
    let each = faults.map(|mut fault| async move {
        let world = World::new(1).await;
        fault["method"] = json!("PATCH");
        // The lease and the progress do not say what the checks said.
        fault["contains"] = json!("Verified:");
        trouble(&world, "/repos/demo/shop/issues/comments/*", fault.clone());
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let daemon = Running::start(&world, &[]);
        until("done", || world.labels() == ["agentd:done"]).await;
        let comments = || world.sim.issue("demo/shop", 7).unwrap().comments;
        let told = || comments()[0].body.contains("has ended its work on this issue");
        until_or("it says so", told, || format!("{fault}: {:#?}", comments())).await;
        assert_eq!(comments().len(), 1, "{:#?}", comments());
        let (_, output) = world.json(&["runs", "show", "latest"]).await;
        assert!(output["warnings"].to_string().contains("comment_not_written"), "{output:#}");
        assert!(!output["failures"].to_string().contains("local branch"), "{output:#}");
        until("the next may begin", || status(&world)["waiting"] == json!([])).await;
        daemon.stop().await;
        world.finish().await;
    });
    futures::future::join_all(each).await;
}

/// A token that lost a right, or expired, gets it back: what was to be said meanwhile is said then.
#[tokio::test(flavor = "multi_thread")]
async fn a_last_comment_that_github_refuses_for_long_is_written_once_it_takes_comments_again() {
    let each = [(401, false), (403, false), (404, false), (403, true)].map(|(refused, moved)| async move {
        let world = World::new(1).await;
        for (method, path) in [("PATCH", "comments/*"), ("POST", "7/comments")] {
            for contains in ["Verified:", "has ended its work"] {
                let fault = json!({
                    "kind": "status", "status": refused, "times": 0, "method": method, "contains": contains
                });
                trouble(&world, &format!("/repos/demo/shop/issues/{path}"), fault);
            }
        }
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let daemon = Running::start(&world, &[]);
        until("done", || world.labels() == ["agentd:done"]).await;
        until("the issue does not wait for it", || status(&world)["waiting"] == json!([])).await;
        let comments = || world.sim.issue("demo/shop", 7).unwrap().comments;
        let tried = || {
            let requests = world.sim.requests();
            requests
                .iter()
                .filter(|one| one.method == "PATCH" && one.target.contains("/issues/comments/"))
                .count()
        };
        let before = tried();
        until("it is tried again", || tried() > before + 1).await;
        assert!(!comments()[0].body.contains("has ended"), "{:#?}", comments());
        let state = || std::fs::read_to_string(world.dir.path().join("state/daemon/state.json")).unwrap();
        if moved {
            // Nobody reads it there any more, and other issues do not wait behind it.
            let issue = json!({ "moved_to": "demo/elsewhere#1", "actor": "ada" });
            world.sim.admin("PATCH", "repos/demo/shop/issues/7", &issue).unwrap();
            until("it is over", || !state().contains("untold")).await;
            daemon.stop().await;
            return world.finish().await;
        }
        // It is remembered over an end of the daemon.
        daemon.stop().await;
        let clear = format!("{}/_sim/faults", world.sim.base_url());
        assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
        let daemon = Running::start(&world, &[]);
        let told = || comments()[0].body.contains("has ended its work on this issue");
        until_or("it says so", told, || format!("{refused}: {:#?}", comments())).await;
        assert_eq!(comments().len(), 1, "{:#?}", comments());
        until("it is over", || !state().contains("untold")).await;
        daemon.stop().await;
        world.finish().await;
    });
    futures::future::join_all(each).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_is_known_here_while_github_cannot_be_asked() {
    let world = World::new(1).await;
    slow_model(&world, 1, 20_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("it works", || world.sim.model_requests().len() >= 2).await;
    for (code, words) in [(503, "503"), (401, "token")] {
        let clear = format!("{}/_sim/faults", world.sim.base_url());
        assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
        for path in ["/repos/**", "/graphql", "/user"] {
            trouble(&world, path, json!({ "kind": "status", "status": code, "times": 0 }));
        }
        let (exit, why) = world.json(&["why", "7"]).await;
        assert_eq!((exit, &why["outlook"]), (Some(0), &json!("runs")), "{why:#}");
        let first = &why["rules"][0];
        assert_eq!((&first["rule"], &first["code"]), (&json!("repository_polled"), &json!("poll_failed")));
        assert!(first["answer"].as_str().unwrap().contains(words), "{why:#}");
        // Of one that nothing is known of here it is not said that nobody asks for it.
        let (exit, why) = world.json(&["why", "8"]).await;
        assert_eq!((exit, &why["outlook"]), (Some(0), &json!("waits")), "{why:#}");
        assert!(!why.to_string().contains("no_trigger") && why["starts"] == false, "{why:#}");
    }
    daemon.kill();
    world.sim.shutdown().await;
}
