//! What the front tells of costs and titles: what nobody knows is said, nothing counts twice, and what others wrote hides nothing.

use std::time::{Duration, Instant};

use agentd::sim::{FaultFile, IssueFile, ReplyFile, Scenario};
use serde_json::{Value, json};

use super::front::Front;
use super::solo::{reports, solo_of};
use super::world::World;

const TITLE: &str = "one \u{202e}RTL\u{202c} <i>x</i>\u{7}";
/// The same as it is shown.
pub(super) const SHOWN_TITLE: &str = "one RTL <i>x</i>";

/// Issues 7 to `last`, all alike.
fn issues(scenario: &mut Scenario, last: u64, title: &str) {
    let issues = &mut scenario.repositories[0].issues;
    let seven = IssueFile { number: Some(7), title: title.to_owned(), ..issues[0].clone() };
    issues[0] = seven.clone();
    issues.extend((8..=last).map(|number| IssueFile { number: Some(number), ..seven.clone() }));
}

/// The run of issue 7 has ended, and nobody knows what it cost; no reply of the model comes any more. Issues 8 and 9 are asked for.
pub(super) async fn of_unknown_cost() -> World {
    let hangs = serde_json::from_value(json!({ "hang": "before_headers", "times": 0 })).unwrap();
    let impatient = "llm_timeout = \"1s\"\n";
    let more = format!("[session]\n{impatient}retry_backoff = \"5ms\"\n[budgets]\nmax_cost_per_day = 50.0\n");
    let world = solo_of(vec![hangs], None, &more, |scenario| issues(scenario, 9, TITLE)).await;
    world.configure(&["agent = \"solo\""]);
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "llm_unavailable", "{output:#}");
    assert_eq!(output["totals"]["cost_usd"], Value::Null, "{output:#}");
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &overlay.replace(impatient, ""));
    for number in [8, 9] {
        world.sim.add_label("demo/shop", number, "agentd", "ada");
    }
    world
}

/// What the front says once it is so.
async fn told(front: &Front, path: &str, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let (_, text) = front.text(path).await;
        let said: Value = serde_json::from_str(&text).unwrap();
        if so(&said) {
            return said;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{path} never: {said:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn items<'v>(said: &'v Value, list: &str) -> &'v [Value] {
    said[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn sum(days: &Value) -> f64 {
    days.as_object().unwrap().values().map(|day| day.as_f64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn s_050_costs_that_nobody_knows_are_said_and_titles_hide_nothing() {
    let world = of_unknown_cost().await;
    let front = Front::start(&world, "1s", "max_runs_per_repository = 1");
    let status = told(&front, "/api/v1/status", |said| {
        !items(said, "running").is_empty() && !items(said, "waiting").is_empty()
    });
    let status = status.await;
    let waits = &status["waiting"][0];
    assert_eq!(waits["title"], SHOWN_TITLE, "{waits:#}");
    let page = format!("/issues/{}", waits["issue"]);
    assert!(waits["url"].as_str().unwrap().ends_with(&page), "{waits:#}");
    let both = |said: &Value| items(said, "runs").iter().filter(|run| run["title"].is_string()).count() == 2;
    let runs = told(&front, "/api/v1/runs", both).await;
    assert!(items(&runs, "runs").iter().all(|run| run["title"] == SHOWN_TITLE), "{runs:#}");
    let ended = items(&runs, "runs").iter().find(|run| run["state"] == "ended").unwrap();
    assert_eq!((&ended["cost_usd"], &ended["cost_unknown"]), (&Value::Null, &json!(true)), "{ended:#}");

    // The run under way has made its request.
    let asks = |said: &Value| said["day_cap"]["set_aside_usd"].as_f64().is_some_and(|aside| aside > 0.0);
    let cost = told(&front, "/api/v1/cost", asks).await;
    assert_eq!((&cost["runs_of_unknown_cost"], &cost["turns_of_unknown_cost"]), (&json!(1), &json!(0)));
    assert_eq!(sum(&cost["unknown_by_day"]), 1.0, "{cost:#}");
    let cap = &cost["day_cap"];
    assert_eq!(cap["cap_usd"], 50.0, "{cost:#}");
    let counts = cap["spent_usd"].as_f64().unwrap() + cap["set_aside_usd"].as_f64().unwrap();
    assert!(counts > cost["total_usd"].as_f64().unwrap(), "{cost:#}");
    let (_, why) = world.json(&["why", "9"]).await;
    let money = why["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "day_has_money").unwrap();
    assert!(money["answer"].as_str().unwrap().contains("is set aside for requests"), "{money:#}");
    let metrics = front.text("/metrics").await.1;
    for line in [
        "agentd_runs_of_unknown_cost_total{repository=\"demo/shop\"} 1\n",
        "agentd_day_cap_usd 50\n",
        "agentd_day_cap_used_usd{state=\"set_aside\"} ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    drop(front);
    world.sim.shutdown().await;
}

/// A tick may take minutes where GitHub is slow, or many issues are to be labelled.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_tick_is_busy_a_run_is_told_of_when_it_begins_and_counted_once_when_it_has_ended() {
    let reply = ReplyFile { times: Some(0), delay_ms: 1_000, ..reports("Done.", json!([])) };
    let world = solo_of(vec![reply], None, "", |scenario| issues(scenario, 14, "one")).await;
    world.configure(&["agent = \"solo\""]);
    let slow: FaultFile = serde_json::from_value(json!({
        "path": "/repos/*/issues/*/labels*", "method": "POST", "contains": "queued", "kind": "delay",
        "delay_ms": 10_000, "times": 0,
    }))
    .unwrap();
    world.sim.inject(&slow).unwrap();
    for number in 7..=14 {
        world.sim.add_label("demo/shop", number, "agentd", "ada");
    }
    let front = Front::start(&world, "1s", "max_runs_per_repository = 1");
    let status = told(&front, "/api/v1/status", |said| !items(said, "running").is_empty()).await;
    let first = status["running"][0]["issue"].as_u64().unwrap();
    let labelled = || {
        let others = |number: &u64| *number != first;
        let targets: Vec<String> = (7..=14)
            .filter(others)
            .map(|number| format!("/repos/demo/shop/issues/{number}/labels"))
            .collect();
        let requests = world.sim.requests();
        requests.iter().filter(|asked| asked.method == "POST" && targets.contains(&asked.target)).count()
    };
    assert!(labelled() < 7, "the tick is over");
    told(&front, "/api/v1/runs", |said| items(said, "runs").iter().any(|run| run["state"] == "ended")).await;
    let cost = front.json("/api/v1/cost").await;
    let status = front.json("/api/v1/status").await;
    assert!(
        items(&status, "running").iter().any(|run| run["issue"] == first && !run["progress"].is_null()),
        "its end was noticed before it could count twice: {status:#}"
    );
    assert!(sum(&cost["by_day"]) > 0.0, "{cost:#}");
    assert_eq!((&cost["under_way_usd"], &cost["total_usd"]), (&json!(0.0), &json!(sum(&cost["by_day"]))));
    drop(front);
    world.sim.shutdown().await;
}
