//! Bad input and a bad world: a clear error, the documented exit code, and nothing lost.

use std::path::Path;

use agentd::sim::FaultFile;
use serde_json::{Value, json};

use super::world::{World, text};

fn fault(value: Value) -> FaultFile {
    serde_json::from_value(value).unwrap()
}

/// A refused start: its exit code and detail, an error that says what and what next, and nothing made (D31). A dry run
/// of it gives the same document.
async fn refused(world: &World, args: &[&str], code: i32, detail: &str, told: &str) {
    let mut objectives = Vec::new();
    for more in [&[][..], &["--dry-run"]] {
        let (status, output) = world.json(&[args, more].concat()).await;
        let found = (status, output["stop_detail"].as_str());
        assert_eq!(found, (Some(code), Some(detail)), "{args:?}, {more:?}: {output:#}");
        assert_eq!(output["exit_code"], code, "{args:?}");
        assert!(output.to_string().contains(told), "{args:?}: `{told}` is not in {output:#}");
        objectives.push(output["objective"].clone());
    }
    assert_eq!(objectives[0], objectives[1], "{args:?}");
    assert!(!world.shop().join(".worktrees").exists(), "{args:?} made a worktree");
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "", "{args:?}");
    assert!(world.sim.issue("demo/shop", 7).unwrap().comments.is_empty(), "{args:?} wrote a comment");
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_an_issue_that_cannot_be_worked_on_is_refused() {
    let world = World::of(1, |scenario| {
        let repository = &mut scenario.repositories[0];
        let issue = |value| serde_json::from_value(value).unwrap();
        repository.issues.push(issue(json!({ "number": 8, "title": "Old", "state": "closed" })));
        let blank = "\u{200b}\u{2066} ";
        repository.issues.push(issue(json!({ "number": 10, "title": blank })));
        repository.pulls.push(
            serde_json::from_value(
                json!({ "number": 9, "title": "A change", "head": "develop", "base": "develop" }),
            )
            .unwrap(),
        );
    })
    .await;
    refused(&world, &["run", "--issue", "404"], 4, "invalid_input", "404").await;
    refused(&world, &["run", "--issue", "8"], 4, "invalid_input", "closed").await;
    refused(&world, &["run", "--issue", "9"], 4, "invalid_input", "pull request").await;
    refused(&world, &["run", "--issue", "10"], 4, "invalid_input", "no title").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_a_github_that_refuses_or_fails_is_a_github_error() {
    let world = World::new(1).await;
    for (kind, told) in [
        (json!({ "status": 401, "kind": "status", "body": { "message": "Bad credentials" } }), "401"),
        (json!({ "status": 403, "kind": "status", "body": { "message": "Resource not accessible" } }), "403"),
        (json!({ "status": 502, "kind": "status" }), "502"),
        (json!({ "kind": "drop" }), "GitHub"),
        (json!({ "kind": "garbage" }), "GitHub"),
    ] {
        let mut planned = kind.clone();
        planned["path"] = json!("/repos/**");
        planned["times"] = json!(0);
        world.sim.inject(&fault(planned)).unwrap();
        refused(&world, &["run", "--issue", "7"], 1, "github_error", told).await;
        world.sim.world().faults.clear();
    }
    // Nobody listens there at all.
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &overlay.replace(&world.sim.api_url(), "http://127.0.0.1:9"));
    refused(&world, &["run", "--issue", "7"], 1, "github_error", "could not be reached").await;
    let told = world.command_in(&["run", "--issue", "7"]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("http://127.0.0.1:9/") && told.contains("Connection refused"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_who_may_only_read_pays_for_no_run_that_cannot_be_published() {
    let world = World::of(1, |scenario| {
        scenario.users.push(serde_json::from_value(json!({ "login": "reader" })).unwrap());
        let reader = scenario.tokens[0].login.clone();
        let may = serde_json::from_value(json!("read")).unwrap();
        scenario.repositories[0].collaborators.insert(reader, may);
    })
    .await;
    refused(&world, &["run", "--issue", "7"], 1, "github_error", "branches could not be pushed").await;
    world.sim.world().repositories[0].archived = true;
    refused(&world, &["run", "--issue", "7"], 1, "github_error", "is archived on GitHub").await;
    assert!(world.sim.model_requests().is_empty());
    // What is not to be published needs no right.
    let (code, plan) = world.json(&["run", "--issue", "7", "--publish", "none", "--dry-run"]).await;
    assert_eq!(code, Some(0), "{plan:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_github_that_is_slow_is_waited_for() {
    let world = World::new(1).await;
    world
        .sim
        .inject(&fault(json!({ "path": "/repos/**", "kind": "delay", "delay_ms": 300, "times": 3 })))
        .unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_017_p_044_a_model_that_fails_ends_the_run_with_its_reason_and_the_branch_kept() {
    for (planned, detail) in [
        (json!({ "status": 401, "kind": "status" }), "auth_error"),
        (json!({ "status": 500, "kind": "status" }), "llm_unavailable"),
        (json!({ "kind": "garbage" }), "invalid_model_output"),
        (json!({ "kind": "drop" }), "llm_unavailable"),
    ] {
        let world = World::new(1).await;
        let mut all = planned.clone();
        all["path"] = json!("/model/**");
        all["times"] = json!(0);
        world.sim.inject(&fault(all)).unwrap();
        let (code, output) = world.json(&["run", "--issue", "7", "--max-retries", "2"]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some(detail)), "{planned}: {output:#}");
        assert_eq!(output["mapping"]["branch"], "feature/issue-7");
        assert_eq!(world.labels(), ["agentd:failed"], "{planned}");
        let report = world.agentd(&["runs", "report", "latest"]).await;
        assert!(text(&report.stdout).contains(detail), "{planned}: {}", text(&report.stdout));
        // The next run goes on where nothing was lost.
        world.sim.world().faults.clear();
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{planned}: {output:#}");
        world.assert_one_of_each();
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_busy_or_cut_off_once_is_asked_again() {
    // Two of each reply: the one that is cut off is used up.
    let world = World::new(2).await;
    let busy =
        json!({ "path": "/model/**", "kind": "status", "status": 429, "headers": { "retry-after": "1" } });
    world.sim.inject(&fault(busy)).unwrap();
    world.sim.inject(&fault(json!({ "path": "/model/**", "kind": "truncate", "skip": 3 }))).unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output["totals"]["llm_failed"].as_u64() == Some(2), "{:#}", output["totals"]);
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_broken_is_refused_before_anything_is_made() {
    let world = World::new(1).await;
    let prompts = world.shop().join(".agent/resolver/prompts");
    let (_, prompt) = files(&prompts).into_iter().next().unwrap();
    let away = world.dir.path().join("away.md");
    std::fs::rename(&prompt, &away).unwrap();
    let name = prompt.file_name().unwrap().to_str().unwrap().to_owned();
    refused(&world, &["run", "--issue", "7"], 4, "config_invalid", &name).await;
    std::fs::rename(&away, &prompt).unwrap();

    let (_, schema) = files(&world.shop().join(".agent/resolver/schemas")).into_iter().next().unwrap();
    let good = std::fs::read_to_string(&schema).unwrap();
    std::fs::write(&schema, good.replace("\"type\": \"object\"", "\"type\": 7")).unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert!(matches!(code, Some(4 | 5)), "{output:#}");
    std::fs::write(&schema, "{ not json").unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert!(matches!(code, Some(4 | 5)), "{output:#}");
    assert!(output.to_string().contains(schema.file_name().unwrap().to_str().unwrap()), "{output:#}");
    assert!(!world.shop().join(".worktrees").exists());
    assert_eq!(world.sim.model_requests().len(), 0);
    world.finish().await;
}

fn files(dir: &Path) -> Vec<(String, std::path::PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), path));
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_without_repository_or_remote_says_what_to_do() {
    let world = World::new(1).await;
    let empty = world.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let run = |dir: std::path::PathBuf| {
        let mut command = world.command(&["--json", "run", "--issue", "7"]);
        command.current_dir(dir);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let done = run(empty.clone()).await.unwrap();
    assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("git repository"), "{}", text(&done.stderr));
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(output["exit_code"], 4);
    world.git(&empty, &["init", "-q"]).await;
    let done = run(empty).await.unwrap();
    assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("remote"), "{}", text(&done.stderr));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d34_a_taken_place_is_a_conflict_and_stays_as_it_is() {
    let world = World::new(1).await;
    std::fs::create_dir_all(world.shop().join(".worktrees/issue-7")).unwrap();
    world.write("shop/.worktrees/issue-7/notes.txt", "mine");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("mapping_conflict")), "{output:#}");
    assert!(output.to_string().contains("issue-7"), "{output:#}");
    assert_eq!(std::fs::read_to_string(world.shop().join(".worktrees/issue-7/notes.txt")).unwrap(), "mine");
    std::fs::remove_dir_all(world.shop().join(".worktrees")).unwrap();
    // A branch named `feature` is in the way of `feature/issue-7`.
    world.git(&world.shop(), &["branch", "feature"]).await;
    refused_branch(&world).await;
    world.git(&world.shop(), &["branch", "-D", "feature"]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

async fn refused_branch(world: &World) {
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("mapping_conflict")), "{output:#}");
    assert!(output.to_string().contains("feature"), "{output:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dirty_main_checkout_is_not_touched() {
    let world = World::new(1).await;
    let readme = world.shop().join("README.md");
    let dirty = std::fs::read_to_string(&readme).unwrap() + "not committed\n";
    std::fs::write(&readme, &dirty).unwrap();
    world.write("shop/staged.txt", "staged");
    world.git(&world.shop(), &["add", "staged.txt"]).await;
    let before = world.git(&world.shop(), &["status", "--porcelain"]).await;
    let head = world.git(&world.shop(), &["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(std::fs::read_to_string(&readme).unwrap(), dirty);
    assert_eq!(world.git(&world.shop(), &["status", "--porcelain"]).await, before);
    assert_eq!(world.git(&world.shop(), &["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"]).await, head);
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert!(agentd::sim::bare::file(&git_dir, "feature/issue-7", "staged.txt").is_none());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_place_of_the_state_directory_is_named_by_every_command_with_what_to_do() {
    let world = World::new(1).await;
    world.write("state", "not a folder\n");
    for args in
        [&["status"][..], &["why", "7"], &["run", "--issue", "7"], &["runs", "list"], &["daemon", "--once"]]
    {
        let done = world.agentd(args).await;
        let told = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{args:?}: {told}");
        assert!(told.contains("/state is no directory") && told.contains("--state-dir"), "{args:?}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_about_what_is_not_there_say_what_to_do_next() {
    let world = World::new(1).await;
    let done = world.command_in(&["run", "--issue", "7", "--origin", "a..b"]).output().unwrap();
    let told = text(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{told}");
    assert!(told.contains("change --origin to the name of a branch on the remote \"origin\""), "{told}");
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let (code, refused) = world.json(&["runs", "approve", "latest", "deadbeef"]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    let hints = refused["error"]["hints"].to_string();
    assert!(hints.contains("nothing of this run waits") && hints.contains("approvals list"), "{hints}");
    world.finish().await;
}
