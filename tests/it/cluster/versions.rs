//! Nodes of two versions: what a later one wrote beside stays, and what only a later one knows is refused and named.

use std::time::{Duration, Instant};

use agentd::domain::cluster::forms::Forms;
use agentd::domain::name::RepoName;
use agentd::store::nats::{Access, NatsStore};
use agentd::store::port::{Holders as _, LeaseKey};
use serde_json::{Value, json};

use super::assignments::{another, label, labels, node};
use super::daemons::Daemon;
use super::moving::{agentd, document, with_client};
use super::running::world;
use super::server::{Server, access, is_there};
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// Makes a cell say this, as another program does.
fn put(server: &Server, subject: &str, value: &Value) {
    let (subject, text) = (subject.to_owned(), value.to_string());
    with_client(&server.url(), async |context| {
        context.publish(subject, text.into()).await.unwrap().await.unwrap();
    });
}

fn cell(server: &Server, subject: &str) -> Value {
    let message = with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        stream.get_last_raw_message_by_subject(subject).await.unwrap()
    });
    serde_json::from_slice(&message.payload).unwrap()
}

const ISSUE: &str = "agentd.test.cell.issue.demo.shop.7";
const REPO: &str = "agentd.test.cell.repo.demo.shop";

#[tokio::test(flavor = "multi_thread")]
async fn h_43_what_a_later_version_wrote_beside_is_there_after_a_whole_run_and_nothing_is_refused() {
    if !is_there("h_43") {
        return;
    }
    let (world, server) = world(1).await;
    let issue = json!({ "schema_version": "agentd.cell.issue.v1", "term": 4, "state": "free",
                        "answered": { "label": 0, "others": [] }, "later": { "of": "the issue" } });
    put(&server, ISSUE, &issue);
    put(
        &server,
        REPO,
        &json!({ "schema_version": "agentd.cell.repo.v1", "poller": null, "later": ["repo"] }),
    );
    // The later version has schema 1 in force yet.
    put(
        &server,
        "agentd.test.cell.meta",
        &json!({ "schema_version": "agentd.cell.meta.v1", "schema": 1, "next": 2 }),
    );
    let a = Node::of(&world, "a").await;
    let daemon = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    assert_eq!(a.journal()[0]["data"]["held"]["term"], json!(5));
    let after = cell(&server, ISSUE);
    assert_eq!((&after["later"], &after["term"]), (&json!({ "of": "the issue" }), &json!(5)), "{after:#}");
    assert_eq!(cell(&server, REPO)["later"], json!(["repo"]));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_43_with_a_later_schema_in_force_neither_a_daemon_nor_a_run_begins_and_both_are_named() {
    if !is_there("h_43_in_force") {
        return;
    }
    let (world, server) = world(1).await;
    put(&server, "agentd.test.cell.meta", &json!({ "schema_version": "agentd.cell.meta.v1", "schema": 2 }));
    let a = Node::of(&world, "a").await;
    let words = "the schema 2 in force, and this agentd";
    let (config, state) = (a.config.to_str().unwrap(), &a.state);
    let (code, output) = document(&world, config, state, &["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("config_invalid")), "{output:#}");
    assert!(output.to_string().contains(words), "{output:#}");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Daemon::start(&world, &a);
    let ended = daemon.ends().await;
    assert_eq!(ended.code(), Some(4), "{}", a.said());
    assert!(a.said().contains(words), "{}", a.said());
    // Of one issue only: that one.
    put(&server, "agentd.test.cell.meta", &json!({ "schema_version": "agentd.cell.meta.v1", "schema": 1 }));
    put(&server, ISSUE, &json!({ "schema_version": "agentd.cell.issue.v2", "anything": "else" }));
    let (code, output) = document(&world, config, state, &["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("config_invalid")), "{output:#}");
    let told = output.to_string();
    assert!(told.contains("agentd.cell.issue.v2") && told.contains("agentd.cell.issue.v1"), "{output:#}");
    assert_eq!(cell(&server, ISSUE)["anything"], json!("else"), "it is not written over");
    assert_eq!((world.sim.model_requests().len(), world.labels()), (0, vec!["agentd".to_owned()]));
    world.finish().await;
}

/// How long all must have offered the next schema, for the nodes of the later version in these tests.
const OFFERED_FOR: Duration = Duration::from_secs(4);

/// A node of a later version that lives: of this one, told that it knows more. It holds what no daemon of the test looks at.
fn later(server: &Server, newest: u32) -> NatsStore {
    tokio::task::block_in_place(|| {
        let forms = Forms { newest, offered_for: OFFERED_FOR };
        let store = NatsStore::connect(&Access { forms, ..access(&server.url()) }).unwrap();
        let lease = LeaseKey::Poller(RepoName::parse("demo/other").unwrap());
        // Of two, one has it; both have a session.
        let held = store.take(&lease, "daemon", Duration::ZERO);
        drop(held);
        store
    })
}

async fn cluster(world: &World) -> Value {
    let bare = world.dir.path().join("bare");
    document(world, "cluster.toml", &bare, &["cluster", "status"]).await.1
}

fn in_force(server: &Server) -> Value {
    let form = |store: NatsStore| json!(store.form().unwrap());
    tokio::task::block_in_place(|| form(super::server::connect(&server.url())))
}

#[tokio::test(flavor = "multi_thread")]
async fn k_058_the_next_schema_is_in_force_once_all_that_live_have_offered_it_for_long_enough_and_never_falls()
 {
    if !is_there("k_058") {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    let begun = Instant::now();
    let (x, y) = (later(&server, 2), later(&server, 2));
    let daemon = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or("it is done beside later versions", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    // This node does not know it, for however long.
    tokio::time::sleep((OFFERED_FOR * 2).saturating_sub(begun.elapsed())).await;
    let told = cluster(&world).await;
    let nodes = told["nodes"].as_array().unwrap();
    let schemas =
        |name: &str| nodes.iter().find(|node| node["node"] == json!(name)).unwrap()["schemas"].clone();
    assert_eq!((&told["schema"], schemas("a")), (&json!(1), json!([1])), "{told:#}");
    let known = nodes.iter().filter(|node| node["schemas"] == json!([1, 2])).count();
    assert_eq!((nodes.len(), known), (3, 2), "{told:#}");
    // One of a version that does not say what it knows, and that nobody has seen the end of.
    let mut old = cell(&server, "agentd.test.cell.node.a");
    old.as_object_mut().unwrap().remove("schemas");
    put(&server, "agentd.test.cell.node.old", &old);
    daemon.stop().await;
    tokio::time::sleep(OFFERED_FOR + Duration::from_secs(2)).await;
    assert_eq!(in_force(&server), json!(1), "the old one lives");
    old["state"] = json!("left");
    put(&server, "agentd.test.cell.node.old", &old);
    let since = Instant::now();
    until("it is in force", || in_force(&server) == json!(2)).await;
    assert!(since.elapsed() >= OFFERED_FOR, "{:?} is not as long", since.elapsed());
    // Who does not know it does not begin.
    let again = Daemon::start(&world, &a);
    assert_eq!(again.ends().await.code(), Some(4), "{}", a.said());
    assert!(a.said().contains("the schema 2 in force, and this agentd"), "{}", a.said());
    assert!(a.said().contains("install a later one"), "{}", a.said());
    // A still later version beside: those of this one do not know its next schema, and it falls for nobody.
    let z = later(&server, 3);
    tokio::time::sleep(OFFERED_FOR * 2).await;
    assert_eq!(in_force(&server), json!(2));
    tokio::task::block_in_place(|| drop((x, y)));
    until("the last one is in force", || in_force(&server) == json!(3)).await;
    tokio::task::block_in_place(|| drop(z));
    world.finish().await;
}

/// What the daemon of a node wrote of itself last.
fn status(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.state.join("daemon/status.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_058_a_node_under_which_a_later_schema_comes_in_force_takes_nothing_more_says_so_and_ends_what_it_has()
 {
    if !is_there("k_058_running") {
        return;
    }
    let (world, server) = world(2).await;
    let a = node(&world, "a", 2).await;
    another(&world, 8);
    slow_model(&world, 5, 12_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the third visit", || world.sim.model_requests().len() == 6, || a.said()).await;
    put(&server, "agentd.test.cell.meta", &json!({ "schema_version": "agentd.cell.meta.v1", "schema": 2 }));
    until_or("it sees that", || status(&a)["schema_unknown"].is_object(), || a.said()).await;
    assert_eq!(status(&a)["schema_unknown"]["in_force"], json!(2));
    label(&world, 8);
    let waits = || {
        let rows = status(&a)["waiting"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["issue"] == json!(8) && row["code"] == json!("schema_unknown"))
    };
    until_or("the next one waits", waits, || a.said()).await;
    let (config, state) = (a.config.to_str().unwrap(), &a.state);
    let (_, why) = document(&world, config, state, &["why", "8"]).await;
    let says =
        |rule: &Value| rule["rule"] == json!("daemon_goes_on") && rule["code"] == json!("schema_unknown");
    assert!(why["rules"].as_array().unwrap().iter().any(says), "{why:#}");
    assert!(why.to_string().contains("install a later agentd"), "{why:#}");
    let told = agentd(&world, config, state, &["status"]).await;
    let told = crate::outside::world::text(&told.stdout);
    assert!(told.contains("schema_unknown: its agentd"), "{told}");
    until_or("the run ends well", || labels(&world, 7) == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    assert_eq!((a.began(), labels(&world, 8)), (1, vec!["agentd".to_owned(), "agentd:queued".to_owned()]));
    // With its own schema in force again, as after a store that was set back, it goes on.
    put(&server, "agentd.test.cell.meta", &json!({ "schema_version": "agentd.cell.meta.v1", "schema": 1 }));
    until_or("the next one is done", || labels(&world, 8) == ["agentd:done"], || a.said()).await;
    daemon.stop().await;
    world.finish().await;
}
