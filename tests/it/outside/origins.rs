//! The origin branch: four sources, the first that is set wins, and every failure is said before anything is made.

use agentd::sim::world::FieldContent;
use serde_json::{Value, json};

use super::world::World;

const REPO: &str = "demo/shop";

fn text(value: &str) -> Option<FieldContent> {
    Some(FieldContent::Text(value.to_owned()))
}

fn option(value: &str) -> Option<FieldContent> {
    Some(FieldContent::SingleSelect(value.to_owned()))
}

async fn planned(world: &World, more: &[&str]) -> (Option<i32>, Value) {
    let mut args = vec!["run", "--issue", "7", "--dry-run"];
    args.extend(more);
    world.json(&args).await
}

async fn comes_from(world: &World, more: &[&str], branch: &str, source: &str) {
    let (code, plan) = planned(world, more).await;
    let origin = &plan["origin"];
    assert_eq!(code, Some(0), "{plan:#}");
    assert_eq!(
        (origin["branch"].as_str(), origin["source"].as_str()),
        (Some(branch), Some(source)),
        "{plan:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_the_first_link_that_is_set_wins_and_is_named() {
    let world = World::new(1).await;
    for branch in ["alpha", "beta", "gamma"] {
        world.push_branch("develop", branch).await;
    }
    comes_from(&world, &[], "develop", "config").await;
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", text("gamma"));
    comes_from(&world, &[], "gamma", "project_field").await;
    world.sim.set_field(REPO, 7, "base_branch", option("beta"));
    comes_from(&world, &[], "beta", "issue_field").await;
    comes_from(&world, &["--origin", "refs/heads/alpha"], "alpha", "explicit").await;
    // Blank counts as unset.
    world.sim.set_field(REPO, 7, "base_branch", text("   "));
    comes_from(&world, &[], "gamma", "project_field").await;
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", None);
    comes_from(&world, &["--origin", ""], "develop", "config").await;
    world.sim.set_field(REPO, 7, "base_branch", text("beta"));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["mapping"]["origin"]["source"], "issue_field");
    let pull = &world.sim.pulls(REPO)[0];
    assert!(pull.pull.as_ref().is_some_and(|pull| pull.base == "beta"), "{pull:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g02_an_origin_that_cannot_be_used_stops_the_start() {
    let world = World::new(1).await;
    let fails = async |more: &[&str], detail: &str, told: &[&str]| {
        let mut args = vec!["run", "--issue", "7"];
        args.extend(more);
        let (code, output) = world.json(&args).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some(detail)), "{output:#}");
        for told in told {
            assert!(output["summary"].as_str().is_some_and(|text| text.contains(told)), "{told}: {output:#}");
        }
    };
    fails(&["--origin", "nowhere"], "origin_missing", &["nowhere"]).await;
    fails(&["--origin", "bad..name"], "origin_missing", &["bad..name"]).await;
    world.sim.set_field(REPO, 7, "base_branch", Some(FieldContent::Number(4.0)));
    fails(&[], "origin_unresolved", &["base_branch", "text or single select"]).await;
    world.sim.set_field(REPO, 7, "base_branch", None);
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", text("develop"));
    world.sim.set_project_field(REPO, 7, "Bugs", "Target Branch", text("main"));
    fails(&[], "origin_unresolved", &["Roadmap", "Bugs"]).await;
    assert!(!world.shop().join(".worktrees").exists());
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}

/// Merges the issue's pull request as a person would, and lets the origin branch move on.
async fn merged(world: &World, method: &str) {
    let pull = world.sim.pulls(REPO)[0].number;
    let post = async |path: String, body: Value| {
        let url = format!("{}/_sim/repos/{REPO}/{path}", world.sim.base_url());
        let done = reqwest::Client::new().post(url).body(body.to_string()).send().await.unwrap();
        assert!(done.status().is_success(), "{}", done.text().await.unwrap());
    };
    post(format!("pulls/{pull}/merge"), json!({ "merge_method": method })).await;
    if method == "squash" {
        // As GitHub does where a repository wants merged branches deleted.
        let git_dir = world.sim.git_dir(REPO).unwrap();
        assert!(agentd::sim::bare::delete_branch(&git_dir, "feature/issue-7"));
    }
    let files = json!({ "NEWS.md": "Other work.\n" });
    post("commits".to_owned(), json!({ "branch": "develop", "message": "Other work", "files": files })).await;
    assert!(world.sim.edit_issue(REPO, 7, |issue| issue.open = true));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_work_is_merged_starts_again_from_what_its_origin_is_now() {
    for method in ["merge", "squash"] {
        let world = World::new(2).await;
        let (code, first) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{method}: {first:#}");
        merged(&world, method).await;
        let git_dir = world.sim.git_dir(REPO).unwrap();
        let develop = agentd::sim::bare::head(&git_dir, "develop").unwrap();
        let (code, second) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{method}: {second:#}");
        assert_eq!(second["mapping"]["origin"]["commit"], develop, "{method}");
        assert_eq!(second["mapping"]["branch"], first["mapping"]["branch"], "{method}");
        assert!(second["warnings"].to_string().contains("starts from develop as it is now"), "{second:#}");
        let place = world.shop().join(".worktrees/issue-7");
        assert!(place.join("NEWS.md").exists(), "{method}: others' work is there");
        // The model did the same again, which adds a line to what is merged: that is all that this run changed.
        let (_, diff) = world.json(&["runs", "diff"]).await;
        assert_eq!(diff["files"], json!([{ "path": "tests/run.sh", "added": 1, "removed": 0 }]), "{method}");
        let pulls = world.sim.pulls(REPO);
        assert_eq!(pulls.iter().map(|pull| pull.open).collect::<Vec<_>>(), [false, true], "{method}");
        let head = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
        let behind = agentd::sim::bare::ahead_behind(&git_dir, &develop, &head).map(|(_, behind)| behind);
        assert_eq!(behind, Some(0), "{method}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_whose_work_is_not_merged_keeps_the_commit_that_it_started_from() {
    let world = World::new(2).await;
    let (_, first) = world.json(&["run", "--issue", "7"]).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let moved = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
    world.git(&git_dir, &["update-ref", "refs/heads/develop", &moved]).await;
    // Merged, but something of a person's own waits in the worktree.
    world.write("shop/.worktrees/issue-7/lib/cart.sh", "# mine\n");
    let (_, plan) = planned(&world, &[]).await;
    assert_eq!(plan["origin"]["commit"], first["mapping"]["origin"]["commit"], "{plan:#}");
    world.git(&world.shop().join(".worktrees/issue-7"), &["checkout", "-q", "--", "."]).await;
    let (_, plan) = planned(&world, &[]).await;
    assert_eq!(plan["origin"]["commit"], moved, "{plan:#}");
    world.finish().await;
}
