//! Streams that are lost and made again while nodes work: who has something takes it anew, nodes hear each other, and it is said what is
//! not known any more.

use serde_json::json;

use super::assignments::{another, label, labels, nothing_left, third_visit, two};
use super::moving::{agentd, document};
use super::running::world;
use super::server::{is_there, make_streams};
use super::taking_over::asked_for;
use crate::outside::daemons::until_or;
use crate::outside::world::text;

#[tokio::test(flavor = "multi_thread")]
async fn k_078_k_080_streams_that_are_lost_and_made_again_leave_runs_in_place_and_nodes_that_hear_each_other()
{
    if !is_there("k_080_begun_anew") {
        return;
    }
    let (world, mut server, [a, b], [first, second]) = two(3).await;
    let both = || [&a, &b].map(|node| node.said()).join("\n---\n");
    another(&world, 8);
    third_visit(&world, &b, 15_000).await;
    server.lose();
    make_streams(&server.url(), 1);
    let seen = || [&a, &b].iter().all(|node| node.said().contains("the cluster's store has begun anew"));
    until_or("both see it", seen, both).await;
    until_or("the run is done", || labels(&world, 7) == ["agentd:done"], both).await;
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(&world, words));
    assert_eq!((times, a.began(), b.began()), ([1, 1, 1], 0, 1), "no visit is made again\n{}", both());
    nothing_left(&server).await;
    // The next run goes to the other node, and the labelling of an issue from before is heard.
    label(&world, 8);
    until_or("the next one is done", || labels(&world, 8) == ["agentd:done"], both).await;
    assert_eq!((a.began(), b.began()), (0, 2), "{}", both());
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    label(&world, 7);
    until_or("once more", || labels(&world, 7) == ["agentd:done"], both).await;
    assert_eq!((a.began(), b.began()), (0, 3), "{}", both());
    assert!(!both().contains("did not answer"), "{}", both());
    // What was spent before is not known any more, and every node says so.
    let bare = world.dir.path().join("bare");
    let (_, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    let nodes = told["nodes"].as_array().cloned().unwrap_or_default();
    let says = nodes.iter().filter(|node| node["status"]["store_begun_anew"].is_object());
    assert_eq!(says.count(), 2, "{told:#}");
    let (_, cluster) = document(&world, "cluster.toml", &bare, &["cluster", "status"]).await;
    assert!(
        cluster["streams"].as_array().unwrap().iter().all(|one| one["made_at"].is_string()),
        "{cluster:#}"
    );
    let sessions = cluster["nodes"].as_array().unwrap().iter().map(|node| &node["session"]);
    assert!(sessions.eq([&json!(1), &json!(1)]), "{cluster:#}");
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_its_streams_is_reached_and_what_it_lacks_is_said() {
    if !is_there("no_streams") {
        return;
    }
    let (world, mut server) = world(1).await;
    server.lose();
    let bare = world.dir.path().join("bare");
    let said = async |args: &[&str]| {
        let done = agentd(&world, "cluster.toml", &bare, args).await;
        text(&done.stdout) + &text(&done.stderr)
    };
    let told = said(&["status"]).await;
    assert!(told.contains("lacks a stream") && !told.contains("cannot be reached"), "{told}");
    let told = said(&["cluster", "status"]).await;
    assert!(
        told.contains("Streams are missing; agentd") && told.contains("cluster doctor --create"),
        "{told}"
    );
    assert!(!told.contains("No node has held anything yet"), "{told}");
    // Away, it is said to be away.
    server.kill();
    let told = said(&["status"]).await;
    assert!(told.contains("cannot be reached"), "{told}");
    world.finish().await;
}
