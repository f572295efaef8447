//! Configuration that changes under a running daemon, and repositories whose clone agentd manages.

use serde_json::{Value, json};

use super::daemons::{Running, slow_model, until, until_or};
use super::solo::{asked, calls, reports, solo, solo_of};
use super::world::{World, basic, text};

/// What the daemon last said of itself.
fn status(world: &World) -> Value {
    let file = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
    serde_json::from_slice(&file).unwrap_or_default()
}

fn polled(world: &World) -> bool {
    status(world)["repositories"][0]["polled_at"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_broken_configuration_is_said_and_the_last_good_one_works_until_it_is_mended() {
    let world = World::new(2).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || polled(&world)).await;
    let file = "shop/.agent/agentd.toml";
    let good = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.write(file, &good.replace("[github]", "[githup]"));
    until("it is said", || {
        status(&world)["reload_error"].as_str().is_some_and(|error| error.contains("githup"))
    })
    .await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("done all the same", || world.labels() == ["agentd:done"]).await;
    world.write(file, &format!("{good}\n[github.labels]\ntrigger = \"go\"\n"));
    until("it is in force", || status(&world).get("reload_error").is_none() && polled(&world)).await;
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    world.sim.add_label("demo/shop", 7, "go", "ada");
    until("the new label starts a run", || world.labels() == ["agentd:done"]).await;
    let out = daemon.stop().await;
    assert!(text(&out.stderr).contains("the last good one stays in force"), "{}", text(&out.stderr));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_broken_definition_or_policy_starts_runs_with_the_last_good_one() {
    let world = World::new(1).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || polled(&world)).await;
    world.write("shop/.agent/resolver/agent.json", "{ broken");
    until("it is said", || status(&world)["reload_error"].is_string()).await;
    world.write("shop/.agent/policy.toml", "[[rule]]\nid = 1");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("done all the same", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    daemon.stop().await;
    let (_, shown) = world.json(&["runs", "show"]).await;
    let told = shown.to_string();
    assert!(told.matches("definition_outdated").count() >= 2, "definition and policy: {told}");
    assert!(told.contains("AC-LOAD-002"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_a_folder_of_configuration_that_was_away_is_listened_to_again() {
    let world = World::new(1).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || polled(&world)).await;
    let (folder, aside) = (world.shop().join(".agent"), world.dir.path().join("aside"));
    let copied = |from: &std::path::Path, to: &std::path::Path| {
        let copied = std::process::Command::new("cp").arg("-r").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    copied(&folder, &aside);
    // As by a checkout of a branch without it, and back.
    std::fs::remove_dir_all(&folder).unwrap();
    until("it is missed", || status(&world)["reload_error"].is_string()).await;
    copied(&aside, &folder);
    until("it is there again", || status(&world).get("reload_error").is_none() && polled(&world)).await;
    let file = "shop/.agent/agentd.toml";
    let good = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.write(file, &good.replace("[github]", "[githup]"));
    let said = || status(&world)["reload_error"].as_str().is_some_and(|error| error.contains("githup"));
    until("an edit is noticed", said).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_label_that_is_named_anew_ends_no_run_that_the_old_one_began() {
    let world = World::new(1).await;
    let daemon = Running::start(&world, &[]);
    until("a first poll", || polled(&world)).await;
    slow_model(&world, 1, 6_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("work", || world.sim.model_requests().len() > 1).await;
    let file = "shop/.agent/agentd.toml";
    let text = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.write(file, &format!("{text}\n[github.labels]\ntrigger = \"go\"\n"));
    until_or("done", || world.labels() == ["agentd:done"], || format!("{:?}", world.labels())).await;
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_write_while_a_repository_is_out_of_the_configuration_is_heard_once_it_is_back() {
    let question =
        calls(&[("agent__ask", json!({ "question": "Which colour?", "options": ["red", "blue"] }))]);
    let quiet = "[conversation]\nquiet_period = \"1s\"\n";
    let world = solo_of(vec![question, reports("Done.", json!([]))], None, quiet, |scenario| {
        let mut second = scenario.repositories[0].clone();
        second.name = "demo/other".to_owned();
        scenario.repositories.push(second);
    })
    .await;
    world.configure(&["agent = \"solo\""]);
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let url = world.sim.remote_url("demo", "other");
    world.git(world.dir.path(), &["-c", &header, "clone", "-q", &url, "other"]).await;
    let other = world.dir.path().join("other");
    let copied =
        std::process::Command::new("cp").arg("-r").arg(world.shop().join(".agent")).arg(&other).status();
    assert!(copied.unwrap().success());
    let daemon = Running::listening(&world).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it asks", || world.labels().contains(&"agentd:needs-input".to_owned())).await;
    let watched = |name: &str| status(&world)["repositories"].to_string().contains(name);
    let file = "shop/.agent/agentd.toml";
    let toml = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    let place = format!("path = \"{}\"", other.display());
    world.write(file, &toml.replace("demo/shop", "demo/other").replacen("path = \".\"", &place, 1));
    until("it is out", || watched("demo/other") && !watched("demo/shop")).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd answer red");
    // It says so of itself, and not that its next look starts the issue.
    let (_, why) = world.json(&["--repo", "demo/shop", "why", "7"]).await;
    assert!(why.to_string().contains("no_daemon"), "{why:#}");
    world.write(file, &toml);
    let done = || world.labels() == ["agentd:done"];
    until_or("done with the answer", done, || format!("{:?}", world.labels())).await;
    assert!(asked(&world).last().unwrap().contains("red"));
    daemon.stop().await;
    world.finish().await;
}

/// A run of the command line with options of its own is killed, and the daemon goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn d61_what_a_killed_run_was_asked_for_on_the_command_line_counts_for_the_daemon_that_goes_on_with_it()
{
    let write = calls(&[("write_file", json!({ "path": "made.txt", "content": "x" }))]);
    let done = || reports("Done.", json!([]));
    let world = solo(vec![write, done(), done(), done()], None, "").await;
    let agent = world.dir.path().join("shop/.agent/solo/agent.json");
    let text = std::fs::read_to_string(&agent).unwrap();
    let note = r#""note": { "type": "string", "description": "Note", "required": true, "cli": "--note" },"#;
    world.write(
        "shop/.agent/solo/agent.json",
        &text.replace("\"parameters\": {", &format!("\"parameters\": {{ {note}")),
    );
    let registry = "shop/.agent/solo/steps_registry.json";
    let text = std::fs::read_to_string(world.dir.path().join(registry)).unwrap();
    world.write(
        registry,
        &text.replace("\"uvVariables\": [\"issue\"]", "\"uvVariables\": [\"issue\", \"note\"]"),
    );
    world.write(
        "shop/.agent/solo/prompts/steps/initial/issue/f_default.md",
        "Work on issue {uv-issue}: NOTE<{uv-note}>.\n",
    );
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    slow_model(&world, 1, 60_000);
    let options = ["--agent", "solo", "--uv", "note=ONE", "--publish", "none", "--max-cost", "0.5"];
    let mut command = world.command_in(&["run", "--issue", "7"]);
    command.args(options).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut run = command.spawn().unwrap();
    until("its second turn", || world.sim.model_requests().len() > 1).await;
    run.kill().unwrap();
    run.wait().unwrap();
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(world.sim.pulls("demo/shop").len(), 0, "it was not to be published");
    let told = asked(&world);
    assert!(told.len() > 2 && told.last().unwrap().contains("NOTE<ONE>"), "{told:?}");
    let (_, shown) = world.json(&["runs", "show", "latest"]).await;
    assert_eq!(shown["budgets"]["max_cost_usd"], json!(0.5), "{shown:#}");
    world.finish().await;
}

/// A folder `elsewhere` whose configuration names the repository without `path`; the agent is on its origin branch.
pub async fn managed(rounds: usize) -> World {
    let world = World::new(rounds).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let shop = world.shop();
    // What the repository says of budgets and tokens does not count; what it says of its own tests does.
    world.write(
        "shop/.agent/agentd.toml",
        "[verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n[daemon]\npoll_interval = \"9s\"\n",
    );
    world.git(&shop, &["add", "-A", "."]).await;
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "agents"]).await;
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let overlay = overlay.replace("[verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n", "");
    let managed = "[[repositories]]\nname = \"demo/shop\"\norigin_branch = \"develop\"\n[policy]\nfiles = [\".agent/policy.toml\"]\n";
    world.write("elsewhere/agentd.toml", &format!("{overlay}\n{managed}\n"));
    // Relative paths of the operator's file start beside it, and not in the clone.
    let policy = std::fs::read_to_string(shop.join(".agent/policy.toml")).unwrap();
    world.write("elsewhere/.agent/policy.toml", &policy);
    world
}

pub(super) async fn elsewhere(world: &World, args: &[&str]) -> Value {
    let mut command = world.command(&["--json"]);
    command.args(args).current_dir(world.dir.path().join("elsewhere"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
}

fn assert_in_the_clone(world: &World) {
    world.assert_one_of_each();
    let clone = world.dir.path().join("state/repos/demo/shop/checkout");
    assert!(clone.join(".worktrees/issue-7/lib/cart.sh").exists());
    let config = std::fs::read_to_string(clone.join(".git/config")).unwrap();
    assert!(!config.contains("demo-token"), "{config}");
    assert!(!world.shop().join(".worktrees").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_repository_without_a_path_is_cloned_and_works_with_the_definitions_of_its_origin_branch() {
    let world = managed(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let report = elsewhere(&world, &["daemon", "--once"]).await;
    assert_eq!(report["ended"][0]["stop_detail"], "completed", "{report:#}");
    assert_in_the_clone(&world);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_run_sweep_why_and_worktrees_use_the_managed_clone_too() {
    let world = managed(2).await;
    let output = elsewhere(&world, &["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    assert_in_the_clone(&world);
    let listed = elsewhere(&world, &["--repo", "demo/shop", "worktrees", "list"]).await;
    assert_eq!(listed[0]["name"], "issue-7", "{listed:#}");
    assert_eq!(elsewhere(&world, &["why", "7"]).await["issue"], 7);
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    let report = elsewhere(&world, &["sweep", "--all", "--yes"]).await;
    assert_eq!(report["ended"][0]["stop_detail"], "completed", "{report:#}");
    assert_in_the_clone(&world);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_clone_serves_as_it_is_while_github_does_not_answer_and_after_a_git_that_was_killed() {
    let world = managed(1).await;
    let report = elsewhere(&world, &["daemon", "--once"]).await;
    assert_eq!(report["failed_polls"], serde_json::json!([]), "{report:#}");
    let clone = world.dir.path().join("state/repos/demo/shop/checkout");
    for lock in ["index.lock", "HEAD.lock"] {
        std::fs::write(clone.join(".git").join(lock), "").unwrap();
    }
    // Down while the daemon starts, there again for what comes after.
    let down = serde_json::json!({ "path": "/git/demo/shop.git/info/refs", "kind": "drop", "times": 4 });
    world.sim.inject(&serde_json::from_value(down).unwrap()).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let report = elsewhere(&world, &["daemon", "--once"]).await;
    assert_eq!(report["ended"][0]["stop_detail"], "completed", "{report:#}");
    assert_in_the_clone(&world);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_dry_run_shows_the_plan_of_a_managed_repository_and_makes_no_clone() {
    let world = managed(1).await;
    let planned = elsewhere(&world, &["run", "--issue", "7", "--dry-run"]).await;
    assert_eq!(planned["origin"]["branch"], "develop", "{planned:#}");
    assert_eq!(planned["worktree"], ".worktrees/issue-7", "{planned:#}");
    let repos = world.dir.path().join("state/repos");
    assert!(!repos.exists(), "{:?}", std::fs::read_dir(&repos).unwrap().collect::<Vec<_>>());
    let output = elsewhere(&world, &["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    assert_in_the_clone(&world);
    world.finish().await;
}
