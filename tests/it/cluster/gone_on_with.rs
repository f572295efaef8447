//! A run that goes on without the trigger label: whatever becomes of the processes that work on it, somebody goes on with it.

use super::assignments::{label, node};
use super::daemons::Daemon;
use super::moving::document;
use super::running::world;
use super::server::is_there;
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until_or};
use crate::outside::world::World;

/// A daemon's run that a person stopped, and went on with by hand in a process that was killed.
async fn resumed_and_killed(world: &World, node: &Node) {
    let asked = || world.sim.model_requests().len();
    slow_model(world, 1, 3_000);
    label(world, 7);
    until_or("it works", || asked() == 2, || node.said()).await;
    let config = node.config.to_str().unwrap();
    let (code, stopped) = document(world, config, &node.state, &["runs", "stop", "latest"]).await;
    assert_eq!(code, Some(0), "{stopped:#}");
    until_or("it has ended", || world.labels() == ["agentd:attention"], || node.said()).await;
    let before = asked();
    slow_model(world, 0, 20_000);
    let mut by_hand = node.command(world, &["runs", "resume", "latest"]).spawn().unwrap();
    until_or("it works by hand", || asked() > before, || node.said()).await;
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
    assert_eq!(world.labels(), ["agentd:running"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k_032_a_run_whose_process_beside_a_daemon_was_killed_is_gone_on_with_by_who_polls() {
    if !is_there("k_032_beside") {
        return;
    }
    let (world, _server) = world(6).await;
    let a = node(&world, "a", 1).await;
    let daemon = Daemon::start(&world, &a);
    resumed_and_killed(&world, &a).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    assert_eq!(a.began(), 3, "{}", a.said());
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_057_a_run_without_the_label_whose_node_stopped_is_gone_on_with_by_whoever_polls_next() {
    if !is_there("k_057_unlabelled") {
        return;
    }
    let (world, _server) = world(6).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &b);
    resumed_and_killed(&world, &b).await;
    first.stop().await;
    let before = world.sim.model_requests().len();
    slow_model(&world, 0, 4_000);
    let again = Daemon::start(&world, &b);
    until_or("it goes on", || world.sim.model_requests().len() > before, || b.said()).await;
    again.stop().await;
    assert_eq!(world.labels(), ["agentd:running"], "{}", b.said());
    // Another node polls now: the run was never on it.
    let second = Daemon::start(&world, &a);
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    assert!(a.said().contains("it is gone on with"), "{}", a.said());
    second.stop().await;
    world.finish().await;
}
