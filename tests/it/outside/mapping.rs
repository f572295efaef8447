//! The mapping from outside: what stands in its way is found before anything is made, by a dry run as by a start.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::world::{World, basic, text};

/// A person's shell in the checkout, with credentials for the remote. Must succeed.
fn shell(world: &World, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(world.shop()).env("HOME", world.dir.path());
    let header = format!("Authorization: Basic {}", basic());
    let config =
        [("http.extraHeader", header.as_str()), ("user.name", "Ada"), ("user.email", "ada@example.org")];
    command.env("GIT_CONFIG_COUNT", config.len().to_string());
    for (at, (key, value)) in config.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{script}: {}", text(&done.stderr));
}

/// The command that a message has behind some words, as somebody would copy it.
fn command_behind<'m>(message: &'m str, words: &str) -> &'m str {
    let (_, rest) = message.split_once(words).unwrap_or_else(|| panic!("no `{words}` in: {message}"));
    rest.trim_start_matches(['`', '(']).split('`').next().unwrap()
}

/// Every file below a directory.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

async fn planned(world: &World) -> (Option<i32>, Value) {
    world.json(&["run", "--issue", "7", "--dry-run"]).await
}

/// Dry run and start are refused alike, and nothing is made (D31, D34). Gives the message.
async fn refused(world: &World) -> String {
    let exclude = std::fs::read(world.shop().join(".git/info/exclude")).unwrap();
    let mut told = Vec::new();
    for more in [&["--dry-run"][..], &[]] {
        let (code, output) = world.json(&[&["run", "--issue", "7"], more].concat()).await;
        let detail = output["stop_detail"].as_str();
        assert_eq!((code, detail), (Some(4), Some("mapping_conflict")), "{more:?}: {output:#}");
        assert_eq!(output["mapping"], Value::Null, "{more:?}: {output:#}");
        told.push(output["error"]["message"].as_str().unwrap().to_owned());
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(files(&world.dir.path().join("state/repos/demo/shop/runs")), Vec::<std::path::PathBuf>::new());
    assert_eq!(std::fs::read(world.shop().join(".git/info/exclude")).unwrap(), exclude);
    assert!(!world.shop().join(".git/agentd").exists(), "{}", told[0]);
    assert!(world.sim.issue("demo/shop", 7).unwrap().comments.is_empty(), "{}", told[0]);
    told.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_anywhere() {
    let world = World::new(2).await;
    let push = r#"{ "branch": "develop", "message": "More", "files": { "more.txt": "by hand" } }"#;
    let url = format!("{}/_sim/repos/demo/shop/commits", world.sim.base_url());
    for again in [false, true] {
        assert!(reqwest::Client::new().post(&url).body(push).send().await.unwrap().status().is_success());
        let git = world.shop().join(".git");
        let refs = world.git(&world.shop(), &["for-each-ref"]).await;
        let before = (refs, files(&git), files(&world.dir.path().join("state")));
        let (code, plan) = planned(&world).await;
        assert_eq!(code, Some(0), "{plan:#}");
        let refs = world.git(&world.shop(), &["for-each-ref"]).await;
        assert_eq!((refs, files(&git), files(&world.dir.path().join("state"))), before);
        if !again {
            assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d34_what_is_in_the_way_is_refused_before_anything_is_made() {
    let world = World::new(1).await;
    for (made, undone, told) in [
        ("mkdir -p .worktrees/issue-7; echo mine > .worktrees/issue-7/x", "rm -r .worktrees", "did not make"),
        ("mkdir .worktrees; echo mine > .worktrees/issue-7", "rm -r .worktrees", "not a directory"),
        ("echo mine > .worktrees", "rm .worktrees", ".worktrees is not a directory"),
        (
            "git worktree add -q -b feature/issue-7 ../else origin/develop",
            "git worktree remove --force ../else; git branch -q -D feature/issue-7",
            "is checked out in",
        ),
        (
            "git checkout -q -b feature/issue-7 origin/develop; git commit -q --allow-empty -m one; \
             git push -q origin feature/issue-7; git commit -q --amend --allow-empty -m other; git checkout -q -",
            "git branch -q -D feature/issue-7; git push -q origin :feature/issue-7",
            "diverged",
        ),
    ] {
        shell(&world, made);
        let message = refused(&world).await;
        assert!(message.contains(told), "{message}");
        shell(&world, undone);
    }
    // Below another `worktree.root`: the remedy takes it along.
    shell(&world, "git worktree add -q -b feature/issue-7 ../else/issue-7 origin/develop");
    let message = refused(&world).await;
    shell(&world, command_behind(&message, "move it here: "));
    assert_eq!(planned(&world).await.0, Some(0), "{message}");
    assert!(world.shop().join(".worktrees/issue-7/README.md").is_file());
    shell(
        &world,
        "git worktree remove --force .worktrees/issue-7; git branch -q -D feature/issue-7; rmdir .worktrees",
    );
    // The remedy of a branch in the way is a command that ends the conflict.
    for made in ["git branch feature/issue-7/x", "git branch feature", "git push -q origin develop:feature"] {
        shell(&world, made);
        let message = refused(&world).await;
        shell(&world, command_behind(&message, "rename it: "));
        let (code, plan) = planned(&world).await;
        assert_eq!(code, Some(0), "{message}: {plan:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_a_refusal_work_where_the_path_has_a_space() {
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[worktree]\nroot = \"the trees\"\n"));
    let tree = "'the trees/issue-7'";
    let branch = "git branch -q feature/issue-7 origin/develop";
    for (made, told, words) in [
        (format!("mkdir -p {tree}; echo mine > {tree}/x"), "did not make", "move it away ("),
        (format!("{branch}; git worktree add -q {tree} feature/issue-7; git -C {tree} switch -q -c other"), "stands on", "put it right ("),
        (format!("git worktree lock {tree}; rm -r {tree}"), "but locked", "unlock it ("),
        ("git worktree prune; git branch -q -D feature/issue-7; git symbolic-ref refs/heads/feature/issue-7 refs/heads/develop".to_owned(), "symbolic ref", "remove it: "),
    ] {
        shell(&world, &made);
        let message = refused(&world).await;
        assert!(message.contains(told), "{message}");
        shell(&world, command_behind(&message, words));
        assert_eq!(planned(&world).await.0, Some(0), "{message}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d34_a_worktree_whose_branch_is_gone_names_the_commit_to_make_it_again_from() {
    let world = World::new(2).await;
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let tip = world.git(&world.shop(), &["rev-parse", "feature/issue-7"]).await;
    world.git(&world.shop(), &["update-ref", "-d", "refs/heads/feature/issue-7"]).await;
    for more in [&["--dry-run"][..], &[]] {
        let (code, output) = world.json(&[&["run", "--issue", "7"], more].concat()).await;
        let detail = output["stop_detail"].as_str();
        assert_eq!((code, detail), (Some(4), Some("mapping_conflict")), "{more:?}: {output:#}");
        let message = output["error"]["message"].as_str().unwrap();
        let remedy = format!("git branch feature/issue-7 {}", tip.trim());
        assert!(message.contains(&remedy), "{message}");
    }
    shell(&world, &format!("git branch feature/issue-7 {tip}"));
    assert_eq!(planned(&world).await.0, Some(0));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d31_a_taken_place_is_told_on_the_issue_by_the_daemon() {
    let world = World::new(1).await;
    shell(&world, "mkdir -p .worktrees/issue-7; echo mine > .worktrees/issue-7/x");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let overlay = world.dir.path().join("overlay.toml").display().to_string();
    world.agentd(&["--config", &overlay, "daemon", "--once"]).await;
    assert_eq!(world.labels(), ["agentd:attention"]);
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert_eq!(comments.len(), 1);
    assert!(comments[0].body.contains("a directory that agentd did not make"), "{}", comments[0].body);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_worktrees_is_taken_by_its_name_and_holds_nothing_else() {
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let root =
        |name: &str| world.write("overlay.toml", &format!("{overlay}\n[worktree]\nroot = \"{name}\"\n"));
    root("lib");
    assert!(refused(&world).await.contains("which holds files of the repository"));
    root(".git/worktrees");
    let (code, output) = planned(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("config_invalid")), "{output:#}");
    root("wt [x]*");
    let before = world.git(&world.shop(), &["status", "--porcelain"]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(world.git(&world.shop(), &["status", "--porcelain"]).await, before);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_repository_than_the_checkouts_is_refused_and_letters_case_makes_none() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["--repo", "demo/other", "run", "--issue", "7", "--dry-run"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("config_invalid")), "{output:#}");
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("is demo/shop, not demo/other"), "{message}");
    // One that GitHub knows by the remote's name now is no other: it keeps the name under which all that waits is kept.
    let renamed: agentd::sim::FaultFile = serde_json::from_value(serde_json::json!({
        "path": "/repos/demo/other", "kind": "status", "status": 301, "times": 0,
        "headers": { "location": format!("{}/repos/demo/shop", world.sim.api_url()) },
    }))
    .unwrap();
    world.sim.inject(&renamed).unwrap();
    let (code, listed) = world.json(&["--repo", "demo/other", "worktrees", "list"]).await;
    assert_eq!(code, Some(0), "{listed:#}");
    let (code, plan) = world.json(&["--repo", "DEMO/Shop", "run", "--issue", "7", "--dry-run"]).await;
    assert_eq!((code, plan["repository"].as_str()), (Some(0), Some("demo/shop")), "{plan:#}");
    world.finish().await;
}
