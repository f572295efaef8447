//! The origin branch: four sources, the first that is set wins, and every failure is said before anything is made.

use agentd::sim::world::FieldContent;
use serde_json::{Value, json};

use super::daemons::{slow_model, until};
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
async fn g02_g04_an_origin_that_cannot_be_used_stops_the_start() {
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
    fails(&["--origin", "feature/issue-7"], "origin_missing", &["the issue's own branch"]).await;
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
async fn work_that_was_merged_together_with_a_persons_commit_is_merged_and_what_came_after_it_is_not() {
    let world = World::new(2).await;
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let files = json!({ "docs/cart.md": "By Ada.\n" });
    let more = json!({ "branch": "feature/issue-7", "message": "Tidied up", "files": files });
    world.sim.admin("POST", &format!("repos/{REPO}/commits"), &more).unwrap();
    merged(&world, "squash").await;
    let prune = async || world.json(&["worktrees", "prune", "--dry-run"]).await.1;
    let place = world.shop().join(".worktrees/issue-7");
    let ours = world.git(&place, &["rev-parse", "HEAD"]).await;
    world
        .git(&place, &["-c", "user.name=A", "-c", "user.email=a@x", "commit", "-qm", "More", "--allow-empty"])
        .await;
    let kept = prune().await;
    assert!(kept["kept"][0]["reason"].as_str().is_some_and(|why| why.contains("is not merged")), "{kept:#}");
    world.git(&place, &["reset", "-q", "--hard", ours.trim()]).await;
    let gone = prune().await;
    assert_eq!(gone["removed"][0]["name"], "issue-7", "{gone:#}");
    let develop = agentd::sim::bare::head(&world.sim.git_dir(REPO).unwrap(), "develop").unwrap();
    let (code, second) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_eq!(second["mapping"]["origin"]["commit"], develop);
    assert!(second["warnings"].to_string().contains("starts from develop as it is now"), "{second:#}");
    assert!(place.join("docs/cart.md").exists(), "what was merged is there");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_commits_after_the_merge_is_compared_with_the_origin_as_it_is_now() {
    let world = World::new(2).await;
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    merged(&world, "merge").await;
    let place = world.shop().join(".worktrees/issue-7");
    world.write("shop/.worktrees/issue-7/notes/mine.txt", "mine\n");
    world.git(&place, &["add", "-A"]).await;
    world.git(&place, &["-c", "user.name=A", "-c", "user.email=a@x", "commit", "-qm", "Mine"]).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let develop = agentd::sim::bare::head(&git_dir, "develop").unwrap();
    let (code, second) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_eq!(second["mapping"]["origin"]["commit"], develop, "{second:#}");
    assert!(second["warnings"].to_string().contains("what came after that goes onto develop"), "{second:#}");
    // The model did the same again, which adds a line to what is merged.
    let (_, diff) = world.json(&["runs", "diff"]).await;
    let changed = ["notes/mine.txt", "tests/run.sh"];
    let expected: Vec<Value> =
        changed.iter().map(|path| json!({ "path": path, "added": 1, "removed": 0 })).collect();
    assert_eq!(diff["files"], json!(expected), "{diff:#}");
    let shown = world.git(&git_dir, &["diff", "--name-only", "develop...feature/issue-7"]).await;
    assert_eq!(shown.lines().collect::<Vec<_>>(), changed, "as GitHub compares them");
    let body = world.sim.pulls(REPO)[1].body.clone().unwrap();
    assert!(!body.contains("3 files"), "{body}");
    world.finish().await;
}

/// A second run, and what people do while it works.
async fn meanwhile(world: &World, people: impl Future<Output = ()>) -> (Option<i32>, Value) {
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    slow_model(world, 1, 3_000);
    let before = world.sim.model_requests().len();
    let people = async {
        until("it works", || world.sim.model_requests().len() >= before + 2).await;
        people.await;
    };
    futures::future::join(world.json(&["run", "--issue", "7"]), people).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_while_the_pull_request_is_squashed_goes_onto_the_origin_and_brings_nothing_twice() {
    let world = World::new(2).await;
    let (code, second) = meanwhile(&world, merged(&world, "squash")).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert!(second["warnings"].to_string().contains("was merged while the run worked"), "{second:#}");
    let told = world.sim.issue(REPO, 7).unwrap().comments[0].body.clone();
    assert!(
        told.contains("\n\nThe pull request ") && told.contains("was merged while the run worked"),
        "{told}"
    );
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let develop = agentd::sim::bare::head(&git_dir, "develop").unwrap();
    assert_eq!(second["mapping"]["origin"]["commit"], develop, "{second:#}");
    let (_, diff) = world.json(&["runs", "diff"]).await;
    assert_eq!(diff["files"], json!([{ "path": "tests/run.sh", "added": 1, "removed": 0 }]), "{diff:#}");
    let pulls = world.sim.pulls(REPO);
    assert_eq!(pulls.iter().map(|pull| pull.open).collect::<Vec<_>>(), [false, true]);
    let head = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
    let behind = agentd::sim::bare::ahead_behind(&git_dir, &develop, &head).map(|(_, behind)| behind);
    assert_eq!(behind, Some(0), "it conflicts with nothing");
    assert!(world.shop().join(".worktrees/issue-7/NEWS.md").exists(), "others' work is there");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_conflicts_with_the_origin_after_the_merge_is_not_published_and_the_next_run_is_told() {
    let world = World::new(3).await;
    let people = async {
        merged(&world, "squash").await;
        let files = json!({ "tests/run.sh": "exit 0\n" });
        let more = json!({ "branch": "develop", "message": "No tests", "files": files });
        world.sim.admin("POST", &format!("repos/{REPO}/commits"), &more).unwrap();
    };
    let (code, second) = meanwhile(&world, people).await;
    assert_eq!((code, &second["stop_detail"]), (Some(1), &json!("user_stop")), "{second:#}");
    let told = second.to_string();
    assert!(
        told.contains("was merged while the run worked") && told.contains("in tests/run.sh"),
        "{second:#}"
    );
    let pulls = world.sim.pulls(REPO);
    assert_eq!(pulls.iter().map(|pull| pull.open).collect::<Vec<_>>(), [false], "{second:#}");
    let git_dir = world.sim.git_dir(REPO).unwrap();
    assert_eq!(agentd::sim::bare::head(&git_dir, "feature/issue-7"), None);
    let (_, third) = world.json(&["run", "--issue", "7"]).await;
    let warned = third["warnings"].to_string();
    assert!(warned.contains("part of the work of earlier runs is merged"), "{third:#}");
    assert!(warned.contains("it conflicts in tests/run.sh\""), "{third:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_pull_request_a_person_closed_meanwhile_opens_no_other() {
    let world = World::new(2).await;
    let people = async {
        let pull = world.sim.pulls(REPO)[0].number;
        assert!(world.sim.edit_issue(REPO, pull, |issue| issue.open = false));
    };
    let (code, second) = meanwhile(&world, people).await;
    assert_eq!((code, &second["stop_detail"]), (Some(1), &json!("user_stop")), "{second:#}");
    assert!(second.to_string().contains("was closed while the run worked"), "{second:#}");
    assert_eq!(world.sim.pulls(REPO).len(), 1);
    world.finish().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_which_nothing_was_made_starts_from_the_origin_as_it_is_when_it_is_worked_on() {
    let world = World::new(1).await;
    let fault = json!({ "path": "/model/**", "kind": "status", "status": 401, "times": 1 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    let (code, first) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &first["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{first:#}");
    let more = json!({ "branch": "develop", "message": "News", "files": { "NEWS.md": "new\n" } });
    world.sim.admin("POST", &format!("repos/{REPO}/commits"), &more).unwrap();
    let develop = agentd::sim::bare::head(&world.sim.git_dir(REPO).unwrap(), "develop").unwrap();
    // Edits of somebody's own keep it where it is.
    world.write("shop/.worktrees/issue-7/lib/cart.sh", "# mine\n");
    let (_, plan) = planned(&world, &[]).await;
    assert_eq!(plan["origin"]["commit"], first["mapping"]["origin"]["commit"], "{plan:#}");
    world.git(&world.shop().join(".worktrees/issue-7"), &["checkout", "-q", "--", "."]).await;
    let (code, second) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_eq!(second["mapping"]["origin"]["commit"], develop, "{second:#}");
    assert!(second["warnings"].to_string().contains("the branch has no work yet"), "{second:#}");
    assert!(world.shop().join(".worktrees/issue-7/NEWS.md").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_set_back_on_the_remote_and_is_gone_here_is_said_to_lack_what_was_pushed() {
    let world = World::new(2).await;
    world.json(&["run", "--issue", "7"]).await;
    let (shop, git_dir) = (world.shop(), world.sim.git_dir(REPO).unwrap());
    let pushed = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
    let start = agentd::sim::bare::head(&git_dir, "develop").unwrap();
    world.git(&shop, &["worktree", "remove", "--force", ".worktrees/issue-7"]).await;
    world.git(&shop, &["branch", "-D", "feature/issue-7"]).await;
    world.git(&git_dir, &["update-ref", "refs/heads/feature/issue-7", &start]).await;
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    let told: Vec<&str> = output["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["code"] == "others_commits")
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    let wanted = format!(
        "The branch feature/issue-7 on the remote is at {}, without what agentd pushed last ({})",
        &start[..10],
        &pushed[..10]
    );
    assert_eq!(told, [wanted.as_str()], "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_branch_that_is_renamed_while_a_run_works_is_named_and_followed_and_the_work_published() {
    let world = World::new(1).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    slow_model(&world, 1, 3_000);
    let renamed = async {
        until("it works", || world.sim.model_requests().len() >= 2).await;
        world.git(&git_dir, &["branch", "-q", "-m", "develop", "trunk"]).await;
    };
    let ((code, first), ()) = futures::future::join(world.json(&["run", "--issue", "7"]), renamed).await;
    assert_eq!((code, &first["stop_detail"]), (Some(1), &json!("github_error")), "{first:#}");
    let told = world.sim.issue(REPO, 7).unwrap().comments[0].body.clone();
    for words in ["does not exist any more", "develop", "runs resume", "without asking the model"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let asked = world.sim.model_requests().len();
    let refused = async |more: &[&str], words: &[&str]| {
        let mut args = vec!["run", "--issue", "7"];
        args.extend(more);
        let (code, output) = world.json(&args).await;
        assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("origin_missing")), "{output:#}");
        let told = output.to_string().replace("\\\"", "\"");
        words.iter().for_each(|words| assert!(told.contains(words), "{words}: {told}"));
    };
    refused(&[], &["\"develop\"", "mapped to", "any more"]).await;
    refused(&["--origin", "nowhere"], &["\"develop\"", "\"nowhere\""]).await;
    let tree = world.git(&git_dir, &["rev-parse", "trunk^{tree}"]).await;
    let commit = world
        .git(
            &git_dir,
            &[
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@b",
                "commit-tree",
                tree.trim(),
                "-m",
                "Another history",
            ],
        )
        .await;
    world.git(&git_dir, &["branch", "-q", "other", commit.trim()]).await;
    refused(&["--origin", "other"], &["\"other\"", "does not have the commit"]).await;
    world.sim.set_field(REPO, 7, "base_branch", text("trunk"));
    let run = first["run_id"].as_str().unwrap();
    let (code, second) = world.json(&["runs", "resume", run]).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_eq!(world.sim.model_requests().len(), asked, "it was paid for once");
    assert_eq!(second["mapping"]["origin"]["branch"], "trunk", "{second:#}");
    assert!(second["warnings"].to_string().contains("the mapping follows the issue field"), "{second:#}");
    let pulls = world.sim.pulls(REPO);
    assert_eq!(pulls.len(), 1);
    assert!(pulls[0].pull.as_ref().is_some_and(|pull| pull.base == "trunk"), "{pulls:?}");
    world.finish().await;
}

/// A world whose token may do everything but read projects.
async fn without_projects(more: &str) -> World {
    let world = World::of(1, |scenario| {
        let granted =
            [("contents", "write"), ("issues", "write"), ("pull_requests", "write"), ("metadata", "read")];
        let granted = granted.map(|(name, level)| (name.to_owned(), level.to_owned()));
        scenario.tokens[0].permissions = Some(granted.into_iter().collect());
        scenario.model.replies.push(super::doctor::answers());
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &overlay.replacen("[github]\n", &format!("[github]\n{more}"), 1));
    world
}

fn unreadable(output: &Value) -> Vec<&str> {
    let all = output["warnings"].as_array().unwrap().iter();
    let all = all.filter(|one| one["code"] == "project_unreadable");
    all.map(|one| one["text"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_reads_no_projects_is_no_obstacle_where_nobody_named_a_project_field() {
    let world = without_projects("").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["mapping"]["origin"]["source"]), (Some(0), &json!("config")), "{output:#}");
    let told = unreadable(&output);
    assert_eq!(told.len(), 1, "{output:#}");
    assert!(told[0].contains("projects: read") && told[0].contains("project_field = \"\""), "{told:?}");
    let mut doctor = world.command_in(&["doctor"]);
    let shown = tokio::task::spawn_blocking(move || doctor.output().unwrap()).await.unwrap();
    let shown = super::world::text(&shown.stdout);
    assert_eq!(shown.matches("project_unreadable").count(), 1, "{shown}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_works_with_a_token_that_reads_no_projects() {
    let world = without_projects("").await;
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let (code, report) = world.json(&["daemon", "--once"]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["ended"][0]["stop_detail"], "completed", "{report:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_field_that_the_operator_named_has_to_be_readable_and_an_empty_one_is_never_asked_for() {
    let world = without_projects("project_field = \"Target Branch\"\n").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("github_error")), "{output:#}");
    assert!(output["error"]["message"].as_str().unwrap().contains("projects: read"), "{output:#}");
    world.finish().await;
    let world = without_projects("project_field = \"\"\n").await;
    let (code, output) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert_eq!((code, &output["origin"]["source"]), (Some(0), &json!("config")), "{output:#}");
    let asked = world.sim.requests().iter().filter(|asked| asked.target.contains("graphql")).count();
    assert_eq!(asked, 0, "never asked for");
    world.finish().await;
}
