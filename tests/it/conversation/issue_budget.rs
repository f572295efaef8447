//! One budget for an issue: over all its runs, over restarts and machines, and given more by people.

use std::path::PathBuf;
use std::process::Output;

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use crate::outside::daemons::{Running, slow_model, until, until_or};
use crate::outside::solo::{calls, newest, reports, solo};
use crate::outside::world::{World, text};

/// Replies that cost 0.15 USD each and ask for one more.
fn dear(count: usize) -> Vec<ReplyFile> {
    (0..count)
        .map(|n| {
            let mut reply = calls(&[("search", json!({ "pattern": format!("nothing like this {n}") }))]);
            reply.usage = serde_json::from_value(json!({ "input": 50_000, "output": 0 })).unwrap();
            reply
        })
        .collect()
}

async fn world(replies: Vec<ReplyFile>, budgets: &str) -> World {
    let world = solo(replies, None, &format!("[budgets]\n{budgets}\n")).await;
    world.configure(&["agent = \"solo\""]);
    // What `agentd init` wrote of budgets would stand above.
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    let mut written: toml::Table = toml.parse().unwrap();
    written.remove("budgets");
    world.write("shop/.agent/agentd.toml", &toml::to_string(&written).unwrap());
    world
}

fn cell(world: &World, state: &str) -> PathBuf {
    world.dir.path().join(state).join("repos/demo/shop/spend/7.json")
}

fn spending(world: &World) -> Value {
    let text = std::fs::read(cell(world, "state")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Spent and set aside.
fn total(spending: &Value) -> f64 {
    let reserved = spending["reserved"].as_object().into_iter().flatten();
    spending["spent"].as_f64().unwrap_or(0.0) + reserved.map(|(_, held)| held.as_f64().unwrap()).sum::<f64>()
}

fn comments(world: &World) -> Vec<String> {
    world.sim.issue("demo/shop", 7).unwrap().comments.into_iter().map(|comment| comment.body).collect()
}

fn told(world: &World, what: &str) -> usize {
    comments(world).iter().filter(|body| body.contains(what)).count()
}

fn output(done: &Output) -> Value {
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
}

async fn why(world: &World) -> (Value, Vec<String>) {
    let (_, why) = world.json(&["why", "7"]).await;
    let codes = why["rules"].as_array().unwrap().iter().map(|rule| rule["code"].as_str().unwrap().to_owned());
    let codes = codes.filter(|code| code != "ok").collect();
    (why, codes)
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i56_two_runs_of_an_issue_at_a_time_stay_within_its_budget_and_why_says_that_it_is_used_up() {
    // The model counts no more than it was sent, or no cap could hold.
    let mut replies = dear(30);
    for reply in &mut replies {
        reply.usage = serde_json::from_value(json!({ "input": 6_000, "output": 0 })).unwrap();
    }
    let world = world(replies, "max_cost_per_issue = 1.0\n").await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let dearer = overlay.replacen("input = 3.0,", "input = 10.0,", 1).replacen(
        "cache_write = 3.75",
        "cache_write = 10.0",
        1,
    );
    world.write("overlay.toml", &dearer);
    // Slow enough that both work at a time.
    let slow = json!({ "path": "/model/**", "kind": "delay", "delay_ms": 700, "times": 40 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    // A second clone, with a lease file of its own: the issue comes from a file, so that no comment keeps them apart.
    let shop = world.shop();
    let shops = [shop.clone(), world.dir.path().join("other")];
    world.git(world.dir.path(), &["clone", "-q", shop.to_str().unwrap(), "other"]).await;
    std::process::Command::new("cp")
        .args(["-r", "shop/.agent", "other/"])
        .current_dir(world.dir.path())
        .status()
        .unwrap();
    let mut running = Vec::new();
    for shop in &shops {
        let path = shop.join("7.md");
        agentd::sys::files::write_public(&path, b"# Discount takes off cents\n\nSee tests.\n").unwrap();
        world.git(shop, &["checkout", "-q", "-B", "develop"]).await;
        world.git(shop, &["remote", "remove", "origin"]).await;
        let overlay = world.dir.path().join("overlay.toml").display().to_string();
        let args = ["--config", &overlay, "--json", "run", "--issue-file", "7.md"];
        let mut command = world.command(&args);
        command.current_dir(shop).env_remove("GITHUB_TOKEN");
        running.push(tokio::task::spawn_blocking(move || command.output().unwrap()));
    }
    let mut sum = 0.0;
    for run in running {
        let done = run.await.unwrap();
        let output = output(&done);
        assert_eq!(output["stop_detail"], "max_cost", "{output:#}\n{}", text(&done.stderr));
        let said = output["error"]["message"].as_str().unwrap();
        assert!(said.contains("$1.00 for this issue"), "{said}");
        assert!(output["totals"]["cost_usd"].as_f64().unwrap() > 0.0, "both spent some: {output:#}");
        sum += output["totals"]["cost_usd"].as_f64().unwrap();
    }
    let kept = spending(&world);
    assert!(sum <= 1.0 && (total(&kept) - sum).abs() < 1e-9, "{sum}: {kept:#}");
    assert_eq!(kept["by_run"].as_object().unwrap().len(), 2, "{kept:#}");

    // Nothing starts, neither here nor by the daemon.
    let asked = world.sim.model_requests().len();
    let url = world.sim.remote_url("demo", "shop");
    world.git(&shop, &["remote", "add", "origin", &url]).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (why, codes) = why(&world).await;
    assert!(codes.contains(&"issue_budget_spent".to_owned()), "{why:#}");
    assert!(why["do"].as_str().unwrap().contains("agentd extend 7 5"), "{why:#}");
    let (code, refused) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &refused["stop_detail"]), (Some(1), &json!("max_cost")), "{refused:#}");
    let daemon = Running::start(&world, &[]);
    super::pull_request::ticks(&world, 2).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd run");
    let instead = || format!("{:#?}", comments(&world));
    until_or("what it waits for", || told(&world, "but none starts yet: the budget") == 1, instead).await;
    daemon.stop().await;
    assert_eq!(world.sim.model_requests().len(), asked);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i57_five_dollars_more_are_given_once_and_the_run_goes_on_where_it_stopped() {
    let mut replies = dear(4);
    replies.extend([reports("Done.", json!([])), reports("Done.", json!([]))]);
    let world = world(replies, "max_cost_per_issue = 0.7\nsoft_ratio = 0.4\n").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_or(
        "failed",
        || world.labels().contains(&"agentd:failed".to_owned()),
        || format!("{:?}", world.labels()),
    )
    .await;
    let instead = || format!("{:#?}", comments(&world));
    until_or("the comment", || told(&world, "The budget of this issue is used up") == 1, instead).await;
    let asked = comments(&world).into_iter().find(|body| body.contains("is used up")).unwrap();
    assert!(asked.contains("`/agentd extend 5`") && asked.contains("feature/issue-7"), "{asked}");
    assert!(asked.contains("what is left does not cover another request"), "{asked}");
    // A flag of one run changes nothing about the issue's budget.
    until("its record", || newest(&world).join("run.json").is_file()).await;
    let report = world.agentd(&["runs", "report", "latest"]).await;
    let report = text(&report.stdout);
    assert!(report.contains("agentd extend 7 5") && !report.contains("--max-cost"), "{report}");
    let spent = total(&spending(&world));
    assert!(spent <= 0.7, "{spent}");
    let (why, _) = why(&world).await;
    assert!(why["do"].as_str().unwrap().starts_with("agentd extend 7 5"), "{why:#}");

    // What is no amount changes nothing.
    for wrong in ["-5", "1e9", "5,00", "0"] {
        world.sim.add_comment("demo/shop", 7, "ada", &format!("/agentd extend {wrong}"));
        until_or(wrong, || told(&world, &format!("`{wrong}` is no amount")) == 1, instead).await;
    }
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend 30");
    until_or("a refusal", || told(&world, "comments may give this issue $25.00") == 1, instead).await;
    assert_eq!(spending(&world)["extensions"], Value::Null);

    // The outcome of the first run is written: the label goes on again by the command alone.
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend 5");
    until_or("an answer", || told(&world, "ada gave this issue $5.00 (USD) more") == 1, instead).await;
    world.sim.edit_issue("demo/shop", 7, |issue| {
        let given = issue.comments.iter_mut().find(|comment| comment.body == "/agentd extend 5").unwrap();
        given.body = "/agentd extend 50".to_owned();
    });
    until_or(
        "done",
        || world.labels() == ["agentd:done"],
        || format!("{:?} {:#?}", world.labels(), comments(&world)),
    )
    .await;
    let given = spending(&world)["extensions"].as_object().unwrap().clone();
    assert_eq!(given.len(), 1, "{given:#?}");
    assert!(given.values().all(|given| given["amount"] == json!(5.0) && given["by"] == "ada"), "{given:#?}");
    daemon.stop().await;
    let (_, runs) = world.json(&["runs", "list"]).await;
    let runs = runs.as_array().map_or_else(|| runs["runs"].as_array().unwrap().clone(), Clone::clone);
    assert_eq!(runs.len(), 2, "{runs:#?}");
    let newest = std::fs::read_to_string(newest(&world).join("events.jsonl")).unwrap();
    assert!(newest.contains("\"previous_run\""), "a successor, not a new beginning");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_had_set_aside_stays_spent_and_a_new_state_directory_begins_from_the_comment() {
    let mut replies = dear(2);
    replies.push(reports("Done.", json!([])));
    replies.push(reports("Done.", json!([])));
    let world = world(replies, "max_cost_per_issue = 5.0\n").await;
    // The second request does not end.
    slow_model(&world, 1, 60_000);
    let overlay = world.dir.path().join("overlay.toml").display().to_string();
    let mut child = world.command(&["--config", &overlay, "--json", "run", "--issue", "7"]).spawn().unwrap();
    until("a reservation beside what is spent", || {
        let kept = spending(&world);
        kept["spent"] == json!(0.15) && kept["reserved"].as_object().is_some_and(|held| held.len() == 1)
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let left = total(&spending(&world));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let kept = spending(&world);
    assert_eq!(kept["reserved"].as_object().unwrap().len(), 1, "nobody knows what it cost: {kept:#}");
    assert!(total(&kept) > left, "{kept:#}");

    // Another machine: the sum is in the status comment.
    let carried = comments(&world).into_iter().find(|body| body.contains("agentd:spent")).unwrap();
    assert!(carried.trim_end().ends_with("-->"), "{carried}");
    let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
    command.env("AGENTD_STATE_DIR", world.dir.path().join("elsewhere"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stdout));
    let there: Value = serde_json::from_slice(&std::fs::read(cell(&world, "elsewhere")).unwrap()).unwrap();
    assert!(total(&there) > total(&kept), "{there:#} begins from {kept:#}");

    // A replay costs the issue nothing.
    let before = spending(&world);
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!(code, Some(0), "{replayed:#}");
    assert_eq!(spending(&world), before);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn near_its_budget_an_issue_says_so_once_and_the_machine_s_user_gives_any_sum_to_the_run_that_works() {
    let mut replies = dear(5);
    replies.push(reports("Done.", json!([])));
    let world = world(replies, "max_cost_per_issue = 1.2\nmax_cost = 1.2\nsoft_ratio = 0.2\n").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    slow_model(&world, 3, 6_000);
    let daemon = Running::start(&world, &[]);
    let instead = || format!("{:#?}", comments(&world));
    until_or("the warning", || told(&world, "The budget of this issue is nearly used up") == 1, instead)
        .await;
    until_or("the label", || world.labels().contains(&"agentd:attention".to_owned()), instead).await;
    let (code, given) = world.json(&["extend", "7", "100"]).await;
    assert_eq!((code, &given["budget_usd"]), (Some(0), &json!(101.2)), "{given:#}");
    until_or("done", || world.labels() == ["agentd:done"], instead).await;
    assert_eq!(told(&world, "The budget of this issue is nearly used up"), 1);
    daemon.stop().await;
    let (_, shown) = world.json(&["runs", "show"]).await;
    assert_eq!(shown["budgets"]["max_cost_usd"], json!(101.2), "{shown:#}");
    for wrong in ["0", "-5", "1e9", "5,00"] {
        let (code, _) = world.json(&["extend", "7", wrong]).await;
        assert_eq!(code, Some(4), "{wrong}");
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_an_issue_money_is_told_what_is_set_aside_apart_from_what_is_spent() {
    let mut replies = dear(2);
    replies.push(reports("Done.", json!([])));
    let world = world(replies, "max_cost_per_issue = 5.0\n").await;
    slow_model(&world, 1, 25_000);
    let daemon = Running::listening(&world).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("a reservation beside what is spent", || {
        let kept = spending(&world);
        kept["spent"] == json!(0.15) && kept["reserved"].as_object().is_some_and(|held| held.len() == 1)
    })
    .await;
    let (code, given) = world.json(&["extend", "7", "2"]).await;
    assert_eq!((code, &given["spent_usd"], &given["budget_usd"]), (Some(0), &json!(0.15), &json!(7.0)));
    assert!(given["set_aside_usd"].as_f64().is_some_and(|aside| aside > 0.0), "{given:#}");
    let mut command = world.command_in(&["extend", "7", "1"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = text(&done.stdout);
    let wanted = "all of its runs together may cost $8.00 now; $0.15 is spent, and $";
    assert!(said.contains(wanted) && said.contains(" is set aside for requests."), "{said}");
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend 1");
    let answer = "all of its runs together may cost $9.00 now; $0.15 is spent, and $";
    until_or("the answer", || told(&world, answer) == 1, || format!("{:#?}", comments(&world))).await;
    until("done", || world.labels() == ["agentd:done"]).await;
    // With nothing set aside only what is spent is told.
    let (_, given) = world.json(&["extend", "7", "1"]).await;
    assert_eq!(given["set_aside_usd"], json!(0.0), "{given:#}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_run_s_end_the_comment_about_a_budget_that_was_near_says_what_is_left() {
    let mut replies = dear(3);
    replies.push(reports("Done.", json!([])));
    let world = world(replies, "max_cost_per_issue = 1.2\nmax_cost = 1.2\nsoft_ratio = 0.2\n").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = comments(&world).into_iter().find(|body| body.contains("is nearly used up")).unwrap();
    assert!(told.contains("The run has ended; $") && !told.contains("The run goes on"), "{told}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_into_the_status_comment_gives_an_issue_no_money() {
    let replies = || reports("Done.", json!([]));
    let world = world(vec![replies(), replies(), replies()], "max_cost_per_issue = 5.0\n").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments.remove(0);
    let written = comment.body.replace("\"given\":0", "\"given\":500");
    assert_ne!(written, comment.body);
    let edit = json!({ "body": written, "actor": "max" });
    world.sim.admin("PATCH", &format!("repos/demo/shop/comments/{}", comment.id), &edit).unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let kept = spending(&world);
    assert_eq!(kept["extensions"], Value::Null, "{kept:#}");
    // In another state directory the sum that agentd wrote itself counts.
    let (code, given) = world.json(&["extend", "7", "3"]).await;
    assert_eq!(code, Some(0), "{given:#}");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.sim.push_replies([replies()]).unwrap();
    let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
    command.env("AGENTD_STATE_DIR", world.dir.path().join("elsewhere"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stdout));
    let there: Value = serde_json::from_slice(&std::fs::read(cell(&world, "elsewhere")).unwrap()).unwrap();
    assert_eq!(there["extensions"]["status-comment"]["amount"], json!(3.0), "{there:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_is_told_that_the_issue_has_no_money_and_is_heard_once_it_has() {
    let write = json!({ "path": "notes/1.md", "content": "One.\n" });
    // The last report costs more than anybody could have set aside.
    let mut dear = reports("Done.", json!([]));
    dear.usage = serde_json::from_value(json!({ "input": 1_000, "output": 100_000 })).unwrap();
    let replies = vec![calls(&[("write_file", write)]), dear, reports("More.", json!([]))];
    let world = world(replies, "max_cost_per_issue = 1.0\n\n[conversation]\nquiet_period = \"0s\"\n").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (daemon, pull) = {
        let daemon = Running::start(&world, &[]);
        (daemon, super::pull_request::opened(&world).await)
    };
    let before = world.sim.model_requests().len();
    super::pull_request::review(&world, pull, "ada", "changes_requested", "Not like this, PAPAYA.", &[]);
    let heard = || super::pull_request::said(&world, pull, "no run begins for it yet");
    until_or("the reviewer is told", || heard().len() == 1, || format!("{:#?}", comments(&world))).await;
    assert!(heard()[0].contains("/agentd extend 5"), "{:#?}", heard());
    super::pull_request::ticks(&world, 3).await;
    assert_eq!((world.sim.model_requests().len(), heard().len()), (before, 1));
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend 5");
    let instead = || format!("{:#?} {:#}", comments(&world), super::pull_request::status(&world));
    until_or("a run for it", || world.sim.model_requests().len() > before, instead).await;
    assert!(world.told(before).contains("PAPAYA"), "{}", world.told(before));
    daemon.stop().await;
    world.sim.shutdown().await;
}
