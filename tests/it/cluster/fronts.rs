//! The page and the API of each node tell of all nodes, while runs work and afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use super::daemons::{Daemon, all_runs};
use super::moving;
use super::running::world;
use super::server::is_there;
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// The front of a node's daemon.
struct Front {
    base: String,
    http: reqwest::Client,
}

impl Front {
    /// Where the daemon says that it listens.
    async fn of(node: &Node) -> Self {
        let file = node.state.join("daemon/status.json");
        let listens = || -> Option<String> {
            let text = std::fs::read_to_string(&file).ok()?;
            Some(serde_json::from_str::<Value>(&text).ok()?["listen"].as_str()?.to_owned())
        };
        until("it listens", || listens().is_some()).await;
        Self { base: format!("http://{}", listens().unwrap()), http: reqwest::Client::new() }
    }

    async fn text(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, text) = self.text(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What it tells, once that is so.
    async fn told(&self, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..150 {
            last = self.json(path).await;
            if is_so(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{what} is not told at {path}: {last:#}");
    }
}

async fn listening(world: &World, name: &str) -> Node {
    let node = Node::of(world, name).await;
    let text = std::fs::read_to_string(&node.config).unwrap();
    let more = "[daemon]\npoll_interval = \"1s\"\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(&node.config, format!("{text}\n{more}")).unwrap();
    node
}

/// Without what depends on the moment.
fn timeless(mut document: Value) -> Value {
    for run in document["runs"].as_array_mut().unwrap() {
        for member in ["age_ms", "as_of"] {
            assert!(run.as_object_mut().unwrap().remove(member).is_some(), "{run:#}");
        }
    }
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn k_061_page_and_api_of_each_node_tell_of_a_run_wherever_it_works() {
    if !is_there("k_061_fronts") {
        return;
    }
    let (world, server) = world(1).await;
    let (a, b) = (listening(&world, "a").await, listening(&world, "b").await);
    slow_model(&world, 2, 15_000);
    let (first, second) = (Daemon::start(&world, &a), Daemon::start(&world, &b));
    let fronts = (Front::of(&a).await, Front::of(&b).await);
    for front in [&fronts.0, &fronts.1] {
        front
            .told("/api/v1/status", "both nodes", |status| {
                status["nodes"].as_array().map(Vec::len) == Some(2)
            })
            .await;
    }
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let both = || [&a, &b].map(|node| node.said()).join("\n---\n");
    until_or("the second visit", || a.has("visit_started", 2) || b.has("visit_started", 2), both).await;
    let (name, works, other) = match a.began() {
        0 => ("b", &b, &fronts.0),
        _ => ("a", &a, &fronts.1),
    };
    // While it works: where it does not.
    let status = other
        .told("/api/v1/status", "the run's second visit", |status| {
            status["running"][0]["progress"]["visit"] == json!(2)
        })
        .await;
    let run = &status["running"][0];
    assert_eq!((&run["node"], &run["issue"]), (&json!(name), &json!(7)), "{status:#}");
    assert_eq!(status["running"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_eq!(status["repositories"].as_array().map(Vec::len), Some(1), "{status:#}");
    let id = run["progress"]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(other.json("/api/v1/issues/demo/shop/7").await["state"], json!("running"));
    let known = other.told("/api/v1/runs", "the run", |runs| runs["total"] == json!(1)).await;
    assert_eq!((&known["runs"][0]["state"], &known["runs"][0]["node"]), (&json!("under way"), &json!(name)));
    let (_, journal) = other.text(&format!("/api/v1/runs/{id}/events")).await;
    assert!(journal.lines().any(|line| line.contains("\"visit_started\"")), "{journal}");
    assert!(other.text("/metrics").await.1.contains("agentd_runs_under_way{repository=\"demo/shop\"} 1"));

    // What it says is heard there as it says it.
    let mut stream = other.http.get(format!("{}/api/v1/events", other.base)).send().await.unwrap();
    let mut heard = String::new();
    while !heard.contains("event: status") {
        heard.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    let heard = tokio::time::timeout(Duration::from_secs(60), async {
        while !heard.contains("OBJECTIVE_ACHIEVED") {
            heard.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
        }
        heard
    });
    let heard = heard.await.expect("the run's end is heard on the other node");
    let lines: Vec<&str> =
        heard.lines().filter(|line| line.contains("\"kind\"") && line.contains(&id)).collect();
    assert!(lines.iter().any(|line| line.contains("visit 2 ends with")), "{heard}");

    // Afterwards: on both the same.
    until("it is done", || world.labels() == ["agentd:done"]).await;
    let ended = |runs: &Value| runs["runs"][0]["state"] == json!("ended");
    let told = [
        fronts.0.told("/api/v1/runs", "its end", ended).await,
        fronts.1.told("/api/v1/runs", "its end", ended).await,
    ];
    let [here, there] = told.map(timeless);
    assert_eq!(here, there);
    assert_eq!(here["runs"][0]["success"], json!(true));
    for path in ["report", "events", ""]
        .map(|what| format!("/api/v1/runs/latest/{what}").trim_end_matches('/').to_owned())
    {
        let (here, there) = (fronts.0.text(&path).await, fronts.1.text(&path).await);
        assert_eq!((here.0, &here), (200, &there), "{path}");
    }
    let cost = other.json("/api/v1/cost").await;
    assert!(cost["total_usd"].as_f64().unwrap() > 0.0, "{cost:#}");
    assert_eq!(cost, fronts.0.json("/api/v1/cost").await);
    let count = "agentd_runs_total{repository=\"demo/shop\",stop_reason=\"OBJECTIVE_ACHIEVED\"} 1";
    assert!(other.text("/metrics").await.1.contains(count));
    assert_eq!(other.text("/api/v1/runs/0000").await.0, 404);
    assert_eq!((all_runs([&a, &b]), works.began()), (1, 1));

    // Without the store: at once what was last known, and never an empty list.
    drop(server);
    let away = |status: &Value| !status["store_unavailable"].is_null();
    let status = other.told("/api/v1/status", "that the store is gone", away).await;
    assert_eq!(status["stale_since"], status["store_unavailable"]["since"], "{status:#}");
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(2), "{status:#}");
    assert_eq!(other.json("/api/v1/runs").await["total"], json!(1));
    first.kill();
    second.kill();
    world.finish().await;
}

/// How often the issue stands in a status, wherever.
fn stands(status: &Value) -> usize {
    let is = |item: &&Value| item["issue"] == json!(7);
    let lists = ["running", "waiting", "parked"];
    lists.iter().map(|list| status[list].as_array().into_iter().flatten().filter(is).count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_061_an_issue_that_was_admitted_waits_or_runs_at_each_moment_and_never_both_or_neither() {
    if !is_there("k_061_one_of_both") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (listening(&world, "a").await, listening(&world, "b").await);
    // The poller has the least room, so that what it begins works on the other.
    let text = std::fs::read_to_string(&a.config).unwrap();
    std::fs::write(&a.config, text.replace("poll_interval", "max_concurrent_runs = 1\npoll_interval"))
        .unwrap();
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    let second = Daemon::start(&world, &b);
    let fronts = [Front::of(&a).await, Front::of(&b).await];
    for front in &fronts {
        let both = |status: &Value| status["nodes"].as_array().map(Vec::len) == Some(2);
        front.told("/api/v1/status", "both nodes", both).await;
    }
    // A node that has been given a run needs some seconds until it speaks of it; later it dies.
    let slow = json!({ "path": "/git/**", "kind": "delay", "delay_ms": 8_000, "times": 2 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    slow_model(&world, 2, 600_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (bare, mut second) = (world.dir.path().join("bare"), Some(second));
    let (mut seen, mut begins) = (false, 0);
    let is_done = || world.labels() == ["agentd:done"];
    loop {
        // What is asked later may be no older.
        let mut told = vec![fronts[0].json("/api/v1/status").await];
        if second.is_some() {
            told.push(fronts[1].json("/api/v1/status").await);
        }
        let (_, document) = moving::document(&world, "cluster.toml", &bare, &["status"]).await;
        let words = moving::agentd(&world, "cluster.toml", &bare, &["status"]).await;
        let words = String::from_utf8(words.stdout).unwrap();
        if is_done() {
            break;
        }
        let foreground = document["foreground"].as_array().map_or(0, Vec::len);
        let times: Vec<usize> = told
            .iter()
            .map(stands)
            .chain([
                stands(&document["status"]) + foreground,
                words.lines().filter(|line| line.contains("demo/shop#7")).count(),
            ])
            .collect();
        let all_told = || format!("{times:?} {told:#?}\n{document:#}\n{words}\n{}", a.said());
        // The other front may be a second behind; what the store has is alike for all that ask after it.
        let of_store = &times[times.len() - 2..];
        if seen {
            assert!(times[0] == 1 && of_store == [1, 1], "{}", all_told());
        }
        assert!(times.iter().all(|times| *times <= 1), "{}", all_told());
        seen |= of_store[0] == 1;
        assert!(!seen || of_store[1] == 1, "{}", all_told());
        begins += usize::from(seen && b.began() == 0);
        if b.has("visit_started", 2)
            && world.sim.model_requests().len() == 3
            && times.iter().all(|times| *times == 1)
        {
            second.take().into_iter().for_each(Daemon::kill);
        }
    }
    assert!(begins > 0 && second.is_none(), "it was looked before the run began, and after its node died");
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_035_people_who_ask_a_node_that_does_not_poll_to_look_now_are_heard_by_the_one_that_does() {
    if !is_there("k_035_refresh") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, b) = (listening(&world, "a").await, listening(&world, "b").await);
    for node in [&a, &b] {
        let text = std::fs::read_to_string(&node.config).unwrap();
        std::fs::write(&node.config, text.replace("poll_interval = \"1s\"", "poll_interval = \"1h\""))
            .unwrap();
    }
    let first = Daemon::start(&world, &a);
    let looks =
        || world.sim.requests().iter().filter(|asked| asked.target.contains("/demo/shop/issues?")).count();
    until_or("a first look", || looks() > 0, || a.said()).await;
    let second = Daemon::start(&world, &b);
    let (poller, other) = (Front::of(&a).await, Front::of(&b).await);
    other.told("/api/v1/status", "who polls", |status| status["repositories"][0]["node"] == json!("a")).await;
    let refresh = async |front: &Front| {
        let asked = front.http.post(format!("{}/api/v1/refresh", front.base)).send().await.unwrap();
        (asked.status().as_u16(), asked.json::<Value>().await.unwrap())
    };
    // Each is heard at once, however short ago the last one was.
    for front in [&other, &poller, &other, &other] {
        let before = looks();
        let (code, told) = refresh(front).await;
        assert_eq!((code, &told["accepted"]), (202, &json!(true)), "{told:#}");
        let begin = std::time::Instant::now();
        until_or("it looks", || looks() > before, || a.said()).await;
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let begin = std::time::Instant::now();
    assert_eq!(refresh(&other).await.0, 202);
    until_or("it begins", || a.began() + b.began() == 1, || a.said()).await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    until("it is done", || world.labels() == ["agentd:done"]).await;
    first.stop().await;
    second.stop().await;
    world.finish().await;
}
