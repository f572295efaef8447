//! What `agentd why` says of an issue in a cluster, each word provoked. Other words are provoked where what they name is tested:
//! `clock_skew` in `clocks`, `cluster_full` and `no_poller` in `slots`, `definition_changed` in `definitions`, `pinned` in
//! `left_unpushed`, `store_full` in `store_faults`, `schema_unknown` in `versions`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::assignments::{another, label, labels, node};
use super::daemons::Daemon;
use super::moving::{agentd, document};
use super::running::world;
use super::server::is_there;
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::{World, text};

/// Longest time until something is said.
const PATIENCE: Duration = Duration::from_secs(90);

async fn why(world: &World, node: &Node, number: &str) -> Value {
    let (code, told) = document(world, node.config.to_str().unwrap(), &node.state, &["why", number]).await;
    assert_eq!(code, Some(0), "{told:#}");
    told
}

/// The answer to an issue by a rule's code, as soon as it is given.
async fn says(world: &World, node: &Node, number: &str, code: &str) -> Value {
    let begin = Instant::now();
    loop {
        let told = why(world, node, number).await;
        if told["rules"].as_array().unwrap().iter().any(|rule| rule["code"] == json!(code)) {
            return told;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not say {code}: {told:#}\n{}", node.said());
    }
}

/// The codes of the nodes.
fn nodes(told: &Value) -> Vec<(&str, &str)> {
    let all = told["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|one| (one["node"].as_str().unwrap(), one["code"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_064_an_issue_that_was_given_to_a_node_is_said_to_be_offered_with_why_each_node_does_not_take_it() {
    if !is_there("k_064_offered") {
        return;
    }
    let (world, _server) = world(2).await;
    // The node that stands still counts as living for as long as this test looks.
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &text.replace("lease = \"3s\"", "lease = \"60s\""));
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
    another(&world, 8);
    slow_model(&world, 1, 60_000);
    let first = Daemon::start(&world, &a);
    label(&world, 8);
    until_or("the poller's own slot is taken", || a.has("visit_started", 1), || a.said()).await;
    let second = Daemon::start(&world, &b);
    let begin = Instant::now();
    while nodes(&why(&world, &a, "7").await) != [("a", "slots_full"), ("b", "ok")] {
        assert!(begin.elapsed() < PATIENCE, "{:#}", why(&world, &a, "7").await);
    }
    second.signal("-STOP");
    label(&world, 7);
    // Each time that the node does not answer, the poller takes the run back and gives it anew.
    let told = says(&world, &a, "7", "offered").await;
    assert_eq!(nodes(&told), [("a", "slots_full"), ("b", "offered")], "{told:#}");
    assert_eq!(told["outlook"], json!("waits"), "{told:#}");
    let summary = told["summary"].as_str().unwrap();
    assert!(summary.contains("offered to the node b: the run was given to it"), "{summary}");
    let full = &told["nodes"][0]["answer"];
    assert_eq!(full, &json!("it has no room: 1 of 1 runs"), "{told:#}");
    second.signal("-CONT");
    until_or("it is done there", || labels(&world, 7) == ["agentd:done"], || b.said()).await;
    assert_eq!(b.began(), 1);
    second.stop().await;
    first.kill();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_064_a_poller_that_is_drained_and_a_repository_without_one_are_said() {
    if !is_there("k_064_draining") {
        return;
    }
    let (world, _server) = world(2).await;
    let a = node(&world, "a", 2).await;
    another(&world, 8);
    slow_model(&world, 1, 15_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the first visit", || world.sim.model_requests().len() == 2, || a.said()).await;
    let bare = world.dir.path().join("bare");
    let (code, told) = document(&world, "cluster.toml", &bare, &["cluster", "drain", "a"]).await;
    assert_eq!((code, &told["heard"]), (Some(0), &json!(true)), "{told:#}");
    label(&world, 8);
    let told = says(&world, &a, "8", "draining").await;
    assert_eq!(nodes(&told), [("a", "draining")], "{told:#}");
    assert!(told["summary"].as_str().unwrap().contains("is being drained"), "{told:#}");
    let done = daemon.ends().await;
    assert!(done.success(), "{done:?} {}", a.said());
    let told = says(&world, &a, "8", "no_poller").await;
    assert_eq!(nodes(&told), [], "{told:#}");
    assert!(told["summary"].as_str().unwrap().contains("no node of the cluster lives"), "{told:#}");
    assert!(told["do"].as_str().unwrap().contains("agentd daemon"), "{told:#}");
    assert!(!told.to_string().contains("all 0 slots"), "{told:#}");
    assert_eq!(a.began(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_064_without_the_store_why_is_an_error_that_says_so() {
    if !is_there("k_064_store_unavailable") {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = node(&world, "a", 1).await;
    let daemon = Daemon::start(&world, &a);
    until("it polls", || a.said().contains("this node polls the repository now")).await;
    server.kill();
    let done = agentd(&world, a.config.to_str().unwrap(), &a.state, &["why", "7"]).await;
    let told = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{told}");
    assert!(told.contains("store_unavailable"), "{told}");
    daemon.kill();
    world.finish().await;
}
