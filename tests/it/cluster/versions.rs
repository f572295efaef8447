//! Nodes of two versions: what a later one wrote beside stays, and what only a later one knows is refused and named.

use serde_json::{Value, json};

use super::daemons::Daemon;
use super::moving::{document, with_client};
use super::running::world;
use super::server::{Server, is_there};
use super::taking_over::Node;
use crate::outside::daemons::until_or;

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
