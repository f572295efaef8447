//! Nodes that are drained, and runs that are moved: they go on elsewhere behind the visit that is under way, and nothing is done twice.

use std::time::Duration;

use serde_json::{Value, json};

use super::assignments::{another, labels, node, nothing_left, third_visit, two};
use super::daemons::Daemon;
use super::moving::{agentd, document};
use super::server::is_there;
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{until, until_or};
use crate::outside::world::{World, text};

async fn cluster(world: &World, args: &[&str]) -> (Option<i32>, Value) {
    document(world, "cluster.toml", &world.dir.path().join("bare"), &[&["cluster"], args].concat()).await
}

/// Every visit was asked of the model as often as in a run that nobody disturbs.
fn each_once(world: &World) {
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(world, words));
    assert_eq!(times, [1, 1, 1], "no visit is made again");
}

/// The labels that the issue had, one after the other.
fn labels_put(world: &World) -> Vec<String> {
    let put = world
        .sim
        .requests()
        .into_iter()
        .filter(|request| request.method != "GET" && request.target.contains("/issues/7/labels"));
    put.map(|request| format!("{} {} {}", request.method, request.target, *request.body)).collect()
}

fn ended(node: &Node) -> Value {
    let end = node.journal().into_iter().find(|line| line["kind"] == json!("run_ended"));
    end.map_or(Value::Null, |line| line["data"]["stop"]["detail"].clone())
}

async fn polled_by(world: &World, name: &str) {
    let by = || {
        let asked = cluster(world, &["status"]);
        let (_, status) = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asked));
        status["pollers"][0]["poller"]["node"] == json!(name)
    };
    until(&format!("{name} polls"), by).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_40_a_drained_node_ends_behind_its_visit_and_others_go_on() {
    if !is_there("h_40_drained") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(2).await;
    third_visit(&world, &b, 4_000).await;
    let before = labels_put(&world);
    let (code, told) = cluster(&world, &["drain", "b"]).await;
    assert_eq!(
        (code, &told["heard"], &told["state"]),
        (Some(0), &json!(true), &json!("draining")),
        "{told:#}"
    );
    // Its service manager may stop it meanwhile: that is the first signal.
    second.signal("-TERM");
    let done = second.ends().await;
    assert!(done.success(), "{done:?} {}", b.said());
    assert!(b.has("visit_finished", 3) && !b.has("visit_started", 4), "it ends behind the third visit");
    assert_eq!(ended(&b), json!("shutdown"));
    assert_eq!(labels_put(&world), before, "no label changes");
    let (_, status) = cluster(&world, &["status"]).await;
    assert_eq!(status["nodes"][1]["state"], json!("left"), "{status:#}");
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    // It begins anew: what was asked of its last life is over.
    let second = Daemon::start(&world, &b);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let again =
        agentd(&world, "cluster.toml", &world.dir.path().join("bare"), &["cluster", "drain", "c"]).await;
    assert_eq!(again.status.code(), Some(4));
    assert!(text(&again.stderr).contains("there is no node \"c\" that lives"), "{}", text(&again.stderr));
    second.stop().await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_40_a_drained_poller_leaves_its_repository_and_its_own_run_behind_its_visit() {
    if !is_there("h_40_poller") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(2).await;
    // The second one takes the run and is away when it polls again: it is the poller's own.
    second.stop().await;
    third_visit(&world, &a, 7_000).await;
    let bare = world.dir.path().join("bare");
    let refused = agentd(&world, "cluster.toml", &bare, &["cluster", "move", "7"]).await;
    assert_eq!(refused.status.code(), Some(4));
    let told = text(&refused.stderr);
    assert!(told.contains("no node lives beside a that takes runs of demo/shop"), "{told}");
    let second = Daemon::start(&world, &b);
    until("the other stands by", || b.said().contains("watching demo/shop")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (code, told) = cluster(&world, &["drain", "a"]).await;
    assert_eq!((code, &told["heard"]), (Some(0), &json!(true)), "{told:#}");
    let done = first.ends().await;
    assert!(done.success(), "{done:?} {}", a.said());
    assert!(a.has("visit_finished", 3) && !a.has("visit_started", 4), "{}", a.said());
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    polled_by(&world, "b").await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_41_a_moved_run_goes_on_on_the_node_that_was_named() {
    if !is_there("h_41") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(2).await;
    let c = node(&world, "c", 1).await;
    let third = Daemon::start(&world, &c);
    until("the third stands by", || world.dir.path().join("c/state/daemon/status.json").exists()).await;
    third_visit(&world, &b, 5_000).await;
    let (code, told) = cluster(&world, &["move", "7", "--to", "c"]).await;
    assert_eq!((code, &told["from"], &told["to"]), (Some(0), &json!("b"), &json!("c")), "{told:#}");
    until_or(
        "it is done",
        || world.labels() == ["agentd:done"],
        || [&a, &b, &c].map(Node::said).join("\n---\n"),
    )
    .await;
    assert!(b.has("visit_finished", 3) && !b.has("visit_started", 4), "it ends behind the third visit");
    until("its end is written", || ended(&c) == json!("completed")).await;
    assert_eq!(a.began(), 0);
    let held = |node: &Node| node.journal()[0]["data"]["held"]["term"].as_u64();
    assert_eq!(held(&c), held(&b).map(|term| term + 1), "one term more");
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    // Nobody works on it now, and a node that is not there takes nothing.
    for (args, words) in [
        (&["cluster", "move", "7"][..], "no node works on issue 7"),
        (&["cluster", "move", "nonsense"], "is not an issue's number"),
    ] {
        let refused = agentd(&world, "cluster.toml", &world.dir.path().join("bare"), args).await;
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
        assert_eq!(refused.status.code(), Some(4));
    }
    for daemon in [first, second, third] {
        daemon.stop().await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_039_a_sweep_of_a_command_takes_part_among_the_nodes() {
    if !is_there("k_039_sweep") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(3).await;
    first.stop().await;
    third_visit(&world, &b, 25_000).await;
    another(&world, 8);
    // Nobody labelled it: no daemon begins it.
    let swept = a.command(&world, &["sweep", "--all", "--yes"]).output().unwrap();
    let told: Value = serde_json::from_slice(&swept.stdout).unwrap();
    let of = |number: u64| {
        let name = format!("demo/shop#{number}");
        let ended = told["ended"].as_array().unwrap().iter().find(|run| run["issue"] == json!(name));
        ended.map_or(Value::Null, |run| run["stop_detail"].clone())
    };
    assert_eq!(
        (swept.status.code(), of(8)),
        (Some(0), json!("completed")),
        "{told:#} {}",
        text(&swept.stderr)
    );
    assert_eq!(labels(&world, 8), ["agentd:done"]);
    let (_, listed) =
        document(&world, "cluster.toml", &world.dir.path().join("bare"), &["runs", "list"]).await;
    let by: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|run| run["node"].as_str()).collect();
    assert!(by.contains(&"a+1") && by.contains(&"b"), "{listed:#}");
    // What another node works on is left to it.
    assert_eq!(of(7), json!("branch_busy"), "{told:#}");
    until_or("it is done", || labels(&world, 7) == ["agentd:done"], || b.said()).await;
    assert_eq!((a.began(), b.began()), (1, 1));
    assert_eq!(world.sim.pulls("demo/shop").len(), 2);
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}
