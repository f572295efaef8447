//! Which node polls a repository: of those that have it and reach GitHub, the one that comes first by the hash; and what goes with it.

use std::time::Duration;

use serde_json::json;

use super::assignments::{label, node, nothing_left, third_visit};
use super::daemons::Daemon;
use super::eater::Gate;
use super::moving::document;
use super::running::world;
use super::server::is_there;
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{slow_model, until_or};
use crate::outside::world::World;

/// The node that polls the repository; empty = none.
async fn poller(world: &World) -> String {
    let bare = world.dir.path().join("bare");
    let (_, status) = document(world, "cluster.toml", &bare, &["cluster", "status"]).await;
    status["pollers"][0]["poller"]["node"].as_str().unwrap_or_default().to_owned()
}

async fn polled_by(world: &World, name: &str, nodes: &[&Node]) {
    for _ in 0..200 {
        if poller(world).await == name {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} does not poll:\n{}", said(nodes));
}

fn said(nodes: &[&Node]) -> String {
    nodes.iter().map(|node| node.said()).collect::<Vec<_>>().join("\n---\n")
}

fn each_once(world: &World) {
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(world, words));
    assert_eq!(times, [1, 1, 1], "no visit is made again");
}

/// Times at which the list of labelled issues was asked for.
fn lists(world: &World) -> usize {
    let asked = world.sim.requests().into_iter();
    asked
        .filter(|request| request.method == "GET" && request.target.contains("/repos/demo/shop/issues?"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_42_a_repository_goes_to_the_node_that_comes_first_and_its_run_is_followed_where_it_works() {
    if !is_there("h_42") {
        return;
    }
    let (world, server) = world(2).await;
    // By the hash "a" comes first.
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let second = Daemon::start(&world, &b);
    polled_by(&world, "b", &[&b]).await;
    third_visit(&world, &b, 9_000).await;
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a, &b]).await;
    until_or("it follows the run", || a.said().contains("following a run"), || said(&[&a, &b])).await;
    assert!(!b.has("visit_finished", 3), "the run is at work");
    // One of both looks at the list.
    let before = lists(&world);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looks = lists(&world) - before;
    assert!((1..=5).contains(&looks), "{looks} looks in three seconds\n{}", said(&[&a, &b]));
    // What people ask of it reaches it over its new poller.
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend").unwrap();
    let extended = || b.journal().iter().any(|line| line["kind"] == json!("budget_extended"));
    until_or("it is given more", extended, || said(&[&a, &b])).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    assert_eq!((a.began(), b.began(), world.sim.pulls("demo/shop").len()), (0, 1, 1));
    each_once(&world);
    nothing_left(&server).await;
    // The first one goes: the other has the repository again, and the next labelling is found.
    first.stop().await;
    polled_by(&world, "b", &[&a, &b]).await;
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    label(&world, 7);
    until_or("once more", || b.began() == 2 && world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_42_a_poller_that_is_told_to_stop_gives_its_repository_away_at_once() {
    if !is_there("h_42_stop") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    third_visit(&world, &a, 12_000).await;
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    // It has said what it has room for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.signal("-TERM");
    polled_by(&world, "b", &[&a, &b]).await;
    assert!(!a.has("visit_finished", 3), "its own run is in the middle of a visit yet");
    assert!(first.ends().await.success());
    assert!(a.has("visit_finished", 3) && !a.has("visit_started", 4));
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_26_a_node_that_is_cut_from_github_polls_no_more_and_another_publishes_its_run() {
    if !is_there("h_26") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let text = std::fs::read_to_string(&a.config).unwrap();
    let address = text.lines().find_map(|line| line.strip_prefix("api_url = \"http://")).unwrap();
    let address = address.split(['/', '"']).next().unwrap().to_owned();
    let gate = Gate::to(address.clone());
    let through = text
        .replace(&format!("api_url = \"http://{address}"), &format!("api_url = \"http://{}", gate.address));
    world.write("a.toml", &through);
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    slow_model(&world, 5, 8_000);
    label(&world, 7);
    until_or(
        "the third visit",
        || a.has("visit_started", 3) && world.sim.model_requests().len() == 6,
        || a.said(),
    )
    .await;
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    gate.cut();
    polled_by(&world, "b", &[&a, &b]).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    // It reaches GitHub again, and comes first again.
    gate.open();
    polled_by(&world, "a", &[&a, &b]).await;
    first.stop().await;
    second.stop().await;
    world.finish().await;
}
