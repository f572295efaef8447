//! A dead node's run is gone on with by a node that has its definition; where none is there for a lease, its work is done anew.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemons::Daemon;
use super::moving::{document, run_ids};
use super::running::world;
use super::server::{Server, is_there};
use super::taking_over::{Node, asked_for, shared};
use crate::outside::daemons::{slow_model, until};
use crate::outside::world::World;

/// Gives a node another definition of the agent than the others have.
fn differs(node: &Node) {
    let file = node.checkout.join(".agent/resolver/prompts/system.md");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    std::fs::write(&file, text + "\nBe brief.\n").unwrap();
}

/// A longer lease for the nodes that are made from now on: who looks sees what one waits for, however busy the machine is.
fn lease(world: &World, lease: &str) {
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &text.replace("lease = \"3s\"", &format!("lease = \"{lease}\"")));
}

fn has_line(server: &Server, run: &str, kind: &str) -> bool {
    shared(server, run).iter().any(|line| line["kind"] == json!(kind))
}

/// A run of a node that is killed in its third visit, with two visits that others can have.
pub async fn killed(world: &World, server: &Server, node: &Node) -> String {
    slow_model(world, 5, 600_000);
    let working = node.start(world);
    until("the third visit", || node.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&node.state).pop().unwrap();
    let third = |line: &Value| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3;
    until("it is published", || shared(server, &run).iter().any(third)).await;
    working.kill();
    run
}

pub fn told(output: &Value) -> Vec<String> {
    let warnings = output["warnings"].as_array().cloned().unwrap_or_default();
    let of = warnings.iter().filter(|warning| warning["code"] == json!("definition_changed"));
    of.map(|warning| warning["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_21_a_node_with_another_definition_waits_a_lease_and_then_does_the_work_anew() {
    if !is_there("h_21") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    differs(&b);
    let run = killed(&world, &server, &a).await;
    let working = b.start(&world);
    until("the dead run has its end", || has_line(&server, &run, "run_ended")).await;
    let ended = Instant::now();
    until("it has begun", || {
        b.journal().first().is_some_and(|line| line["data"]["previous_run"] == json!(run))
    })
    .await;
    assert!(ended.elapsed() > Duration::from_millis(2_500), "{:?} of a lease of 3 s", ended.elapsed());
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 2, "from the beginning");
    let told = told(&output);
    assert!(told.len() == 1 && told[0].contains(&run) && told[0].contains("done anew"), "{told:?}");
    let end = shared(&server, &run).into_iter().find(|line| line["kind"] == json!("run_ended")).unwrap();
    assert_eq!(end["data"]["stop"]["detail"], json!("interrupted"));
    let spent = b.journal().into_iter().find(|line| line["kind"] == json!("run_started")).unwrap();
    assert!(spent["data"]["inherited"]["steps"].as_u64().unwrap() >= 2, "what it had used counts: {spent:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_21_a_node_with_the_definition_goes_on_with_the_run_while_another_waits() {
    if !is_there("h_21_same") {
        return;
    }
    let (world, server) = world(2).await;
    lease(&world, "15s");
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let c = Node::of(&world, "c").await;
    differs(&b);
    let run = killed(&world, &server, &a).await;
    let waiting = b.start(&world);
    until("the dead run has its end", || has_line(&server, &run, "run_ended")).await;
    let (code, output, said) = c.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert_eq!(told(&output), Vec::<String>::new());
    assert_eq!(c.journal()[0]["data"]["previous_run"], json!(run));
    assert_eq!(asked_for(&world, "Understand and plan"), 1, "no finished visit again");
    let (code, output, said) = waiting.ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("branch_busy")), "{output:#} {said}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute and more of waiting: .ci/campaigns/cluster-cases"]
async fn h_21_daemons_wait_for_the_definition_say_so_and_one_that_has_it_is_given_the_run() {
    if !is_there("h_21_daemons") {
        return;
    }
    for comes in [false, true] {
        let (world, server) = world(2).await;
        lease(&world, "12s");
        let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
        let c = Node::of(&world, "c").await;
        differs(&b);
        slow_model(&world, 5, 600_000);
        let first = Daemon::start(&world, &a);
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
        let run = run_ids(&a.state).pop().unwrap();
        let third = |line: &Value| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3;
        until("it is published", || shared(&server, &run).iter().any(third)).await;
        let second = Daemon::start(&world, &b);
        first.kill();
        let config = b.config.file_name().unwrap().to_str().unwrap().to_owned();
        let says = async || {
            let (_, why) = document(&world, &config, &b.state, &["why", "7"]).await;
            let rules = why["rules"].as_array().cloned().unwrap_or_default();
            rules.iter().any(|rule| rule["code"] == json!("definition_changed"))
        };
        let begin = Instant::now();
        while !says().await {
            assert!(begin.elapsed() < Duration::from_secs(120), "it does not say why it waits: {}", b.said());
        }
        let third = comes.then(|| Daemon::start(&world, &c));
        until("it is done", || world.labels() == ["agentd:done"]).await;
        world.assert_one_of_each();
        let plans = if comes { 1 } else { 2 };
        assert_eq!(asked_for(&world, "Understand and plan"), plans, "{}", b.said());
        if comes {
            assert_eq!(c.began(), 2, "its own run, and the one that it goes on with");
        }
        second.stop().await;
        if let Some(third) = third {
            third.stop().await;
        }
        world.finish().await;
    }
}
