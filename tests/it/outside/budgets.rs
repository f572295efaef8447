//! Whose word counts on a budget: flags, the issue's fields, the definition, the configuration, the defaults.

use agentd::sim::Scenario;
use serde_json::{Value, json};

use super::daemons::{slow_model, until};
use super::solo::{calls, left, reports, solo_of};
use super::world::World;

/// The fields of the issue, and who wrote it.
fn issue(scenario: &mut Scenario, fields: Value, author: &str) {
    for (login, permission) in [("rita", "read"), ("max", "maintain")] {
        scenario.users.push(serde_json::from_value(json!({ "login": login })).unwrap());
        scenario.repositories[0]
            .collaborators
            .insert(login.to_owned(), serde_json::from_value(json!(permission)).unwrap());
    }
    let mut issue = serde_json::to_value(&scenario.repositories[0].issues[0]).unwrap();
    issue["fields"] = fields;
    issue["author"] = json!(author);
    scenario.repositories[0].issues[0] = serde_json::from_value(issue).unwrap();
}

async fn world(fields: Value, author: &str, definition: Option<Value>, config: &str) -> World {
    let world =
        solo_of(vec![reports("Done.", json!([]))], None, config, |scenario| issue(scenario, fields, author))
            .await;
    // What `agentd init` wrote of budgets would stand above the defaults.
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    let mut written: toml::Table = toml.parse().unwrap();
    written.remove("budgets");
    world.write("shop/.agent/agentd.toml", &toml::to_string(&written).unwrap());
    if let Some(budgets) = definition {
        let path = world.shop().join(".agent/solo/agent.json");
        let mut agent: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        agent["runner"]["agentd"] = json!({ "budgets": budgets });
        world.write("shop/.agent/solo/agent.json", &agent.to_string());
    }
    world
}

async fn planned(world: &World, flags: &[&str]) -> Value {
    let mut args = vec!["run", "--issue", "7", "--agent", "solo", "--dry-run"];
    args.extend(flags);
    let (code, plan) = world.json(&args).await;
    assert_eq!(code, Some(0), "{plan:#}");
    plan["budgets"].clone()
}

fn caps(budgets: &Value) -> (u64, u64, f64) {
    (
        budgets["max_steps"].as_u64().unwrap(),
        budgets["max_wall_time_ms"].as_u64().unwrap(),
        budgets["max_cost_usd"].as_f64().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn x_002_x_003_x_004_x_005_flags_go_before_the_issue_the_definition_the_configuration_and_the_defaults()
{
    let none = world(json!({}), "rita", None, "").await;
    assert_eq!(caps(&planned(&none, &[]).await), (12, 900_000, 10.0), "defaults");
    none.finish().await;

    let config = "[budgets]\nmax_steps = 9\nmax_wall_time = \"10m\"\nmax_cost = 5.0\n";
    let definition = json!({ "maxSteps": 8, "maxCost": 4.5 });
    let fields = json!({ "max_steps": { "number": 7.0 }, "Max wall time": "90s" });
    let world = world(fields, "rita", Some(definition), config).await;
    let budgets = planned(&world, &[]).await;
    assert_eq!(caps(&budgets), (7, 90_000, 4.5), "{budgets:#}");
    let sources = &budgets["sources"];
    assert_eq!(
        (&sources["max_steps"], &sources["max_wall_time"], &sources["max_cost"]),
        (&json!("the issue's field"), &json!("the issue's field"), &json!("the agent's definition"))
    );
    let budgets = planned(&world, &["--max-steps", "11", "--max-wall-time", "1h", "--max-cost", "6"]).await;
    assert_eq!(caps(&budgets), (11, 3_600_000, 6.0), "the operator's last word: {budgets:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_an_issue_raises_a_budget_only_where_its_author_is_a_maintainer() {
    let fields = || json!({ "max_cost": "100", "max_steps": "3" });
    let reader = world(fields(), "rita", None, "").await;
    let (code, output) = reader.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(
        (&output["budgets"]["max_cost_usd"], &output["budgets"]["max_steps"]),
        (&json!(10.0), &json!(3)),
        "raised: no, lowered: yes"
    );
    let warnings = output["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|warning| warning["code"] == "budget_not_raised"
            && warning["text"].as_str().unwrap().contains("max_cost")),
        "{warnings:#?}"
    );
    reader.finish().await;

    let maintainer = world(fields(), "max", None, "").await;
    let (code, output) = maintainer.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!((code, &output["budgets"]["max_cost_usd"]), (Some(0), &json!(100.0)), "{output:#}");
    assert_eq!(output["warnings"], json!([]), "{output:#}");
    assert_eq!(left(&maintainer, "run.json")["contextSnapshot"]["budgets"]["max_steps"], 3);
    maintainer.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_a_budget_that_cannot_be_read_is_refused_and_names_its_place() {
    for (fields, definition) in [
        (json!({ "max_cost": "-1" }), None),
        (json!({ "max_wall_time": "soon" }), None),
        (json!({}), Some(json!({ "maxSteps": 0 }))),
        (json!({}), Some(json!({ "maxCost": -2 }))),
    ] {
        let world = world(fields.clone(), "max", definition.clone(), "").await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        let said = output["error"]["message"].as_str().unwrap_or_default();
        assert!(matches!(code, Some(4 | 5)), "{fields} {definition:?}: {output:#}");
        assert!(said.contains("max_") || said.contains("budgets"), "{said}");
        assert!(output["mapping"].is_null() && world.sim.model_requests().is_empty());
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_a_cap_on_the_cost_is_never_passed_and_nothing_is_asked_that_it_does_not_cover() {
    for (cap, requests) in [("0", 0), ("0.01", 0), ("0.2", 1)] {
        let echo = calls(&[("read_file", json!({ "path": "README.md" }))]);
        let world = solo_of(vec![echo.clone(), echo, reports("Done.", json!([]))], None, "", |_| ()).await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--max-cost", cap]).await;
        let asked = world.sim.model_requests().len();
        if requests == 0 {
            assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{cap}: {output:#}");
            assert_eq!(asked, 0, "{cap}");
            assert_eq!(output["totals"]["cost_usd"], json!(0.0), "{output:#}");
        } else {
            assert!(asked >= requests, "{output:#}");
        }
        let spent = output["totals"]["cost_usd"].as_f64().unwrap();
        assert!(spent <= cap.parse().unwrap(), "{cap}: {output:#}");
        // Only a new run takes the flag.
        if output["stop_detail"] == json!("max_cost") {
            let (_, report) = world.json(&["runs", "report", "latest"]).await;
            let next = report["next_steps"].to_string();
            let (resume, again) = next.split_once("; or run again with `--max-cost`: ").unwrap();
            assert!(!resume.contains("--max") && again.starts_with("`agentd run --issue 7`"), "{next}");
        }
        world.finish().await;
    }
}

/// What was sent may be billed whole, also where nobody was there any more for the answer.
#[tokio::test(flavor = "multi_thread")]
async fn d61_the_cap_of_a_run_that_goes_on_counts_the_requests_that_were_under_way_when_it_was_killed() {
    // What is left covers a short reply, which does not end it.
    let reads = calls(&[("read_file", json!({ "path": "README.md" }))]);
    let reads = agentd::sim::ReplyFile { times: Some(0), ..reads };
    let world = solo_of(vec![reads], None, "", |_| ()).await;
    let killed = async |args: &[&str]| {
        slow_model(&world, 0, 60_000);
        let before = world.sim.model_requests().len();
        let mut command = world.command_in(args);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut run = command.spawn().unwrap();
        until("a request", || world.sim.model_requests().len() > before).await;
        run.kill().unwrap();
        run.wait().unwrap();
    };
    killed(&["run", "--issue", "7", "--agent", "solo", "--max-cost", "0.4"]).await;
    killed(&["runs", "resume", "latest"]).await;
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{output:#}");
    let told = output["error"]["message"].as_str().unwrap();
    assert!(told.contains("is an estimate for requests whose cost nobody knows"), "{told}");
    world.finish().await;
}

/// What runs side by side set aside for their requests comes back, and nothing ends for it. The day's money is not used up by that.
#[tokio::test(flavor = "multi_thread")]
async fn d87_a_run_waits_for_money_of_the_day_that_others_have_only_set_aside() {
    let reply = |turn: u64, reply: agentd::sim::ReplyFile| agentd::sim::ReplyFile {
        times: Some(0),
        delay_ms: 2_000,
        when: serde_json::from_value(json!({ "turn": turn })).unwrap(),
        ..reply
    };
    let write = calls(&[("write_file", json!({ "path": "notes.md", "content": "Note.\n" }))]);
    let replies = vec![reply(1, write), reply(2, reports("Done.", json!([])))];
    // Two requests at their worst case, with what is kept back for the last reports, and no third one.
    let more = "[budgets]\nmax_cost_per_day = 0.7\n[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = 4\n\
                max_runs_per_repository = 4\n";
    let world = solo_of(replies, None, more, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let seven = issues[0].clone();
        for number in 7..11 {
            let one = agentd::sim::IssueFile { number: Some(number), ..seven.clone() };
            if number == 7 { issues[0] = one } else { issues.push(one) }
        }
    })
    .await;
    world.configure(&["agent = \"solo\""]);
    for number in 7..11 {
        world.sim.add_label("demo/shop", number, "agentd", "ada");
    }
    let daemon = super::daemons::Running::start(&world, &[]);
    let labels = |number| world.sim.issue("demo/shop", number).unwrap().labels;
    let is_over = |number| {
        let labels: Vec<String> = labels(number);
        !labels.is_empty()
            && !labels.iter().any(|label| ["agentd", "agentd:running"].contains(&label.as_str()))
    };
    let over = || (7..11).all(is_over);
    let status = world.dir.path().join("state/daemon/status.json");
    let shown = || std::fs::read_to_string(&status).unwrap_or_default();
    until("it is shown", || shown().contains("waiting for money that others have set aside")).await;
    until("all are over", over).await;
    let ends: Vec<Vec<String>> = (7..11).map(labels).collect();
    let log = super::world::text(&daemon.stop().await.stderr);
    assert!(ends.iter().all(|labels| *labels == ["agentd:done"]), "{ends:?}\n{log}");
    assert!(log.contains("waiting for money"), "they met: {log}");
    world.finish().await;
}

/// Nobody bills what never reached a model.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_reached_no_model_is_not_held_against_the_budgets() {
    let page = serde_json::from_value::<agentd::sim::ReplyFile>(
        json!({ "garbage": "<html>Log in</html>", "times": 0 }),
    );
    let away = vec![];
    for replies in [away, vec![page.unwrap()]] {
        let is_away = replies.is_empty();
        let world = solo_of(replies, None, "[session]\nretry_backoff = \"5ms\"\n", |_| ()).await;
        if is_away {
            let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
            let there = format!("{}/model", world.sim.base_url());
            assert!(overlay.contains(&there), "{overlay}");
            world.write("overlay.toml", &overlay.replace(&there, "http://127.0.0.1:1/model"));
        }
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        assert_ne!(code, Some(0), "{output:#}");
        assert!(output["totals"]["llm_requests"].as_u64().unwrap() >= 1, "{output:#}");
        let spending = world.dir.path().join("state/repos/demo/shop/spend");
        for file in std::fs::read_dir(spending).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            assert_eq!(kept["reserved"].as_object().map_or(0, |held| held.len()), 0, "{file:?}: {kept:#}");
        }
        world.sim.shutdown().await;
    }
}

/// What was sent is billed as far as anybody knows, and every view says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_cut_off_before_its_answer_counts_at_what_it_sent() {
    let drop = serde_json::from_value(json!({ "drop": "before_headers", "times": 1 })).unwrap();
    let more = "[session]\nretry_backoff = \"5ms\"\n";
    let world = solo_of(vec![drop, reports("Done.", json!([]))], None, more, |_| ()).await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output["warnings"].to_string().contains("cost_unknown"), "{output:#}");
    let (_, ledger) = world.json(&["runs", "accounting", "latest"]).await;
    let estimate = ledger[0]["estimatedCostUsd"].as_f64().unwrap();
    assert!(estimate > 0.0 && estimate < 0.1, "{ledger:#}");
    world.sim.shutdown().await;
}
