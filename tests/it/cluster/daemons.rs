//! Daemons of several nodes on one repository: one polls it, one labelling starts one chain of runs, and another goes on with both when
//! it dies.

use std::collections::BTreeSet;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::json;

use super::moving::{agentd, document, run_ids};
use super::running::world;
use super::server::is_there;
use super::taking_over::{Node, asked_for, shared};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::{World, text};

/// A daemon as a process; dropped, it is killed.
pub struct Daemon(Option<Child>);

impl Daemon {
    pub fn start(world: &World, node: &Node) -> Self {
        let text = std::fs::read_to_string(&node.config).unwrap();
        if !text.contains("poll_interval") {
            std::fs::write(&node.config, format!("{text}\n[daemon]\npoll_interval = \"1s\"\n")).unwrap();
        }
        let log = std::fs::File::create(node.state.with_extension("log")).unwrap();
        let mut command = node.command(world, &["-v", "daemon"]);
        Self(Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap()))
    }

    pub fn signal(&self, name: &str) {
        let pid = self.0.as_ref().unwrap().id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub async fn stop(self) {
        self.signal("-TERM");
        let done = self.ends().await;
        assert!(done.success(), "{done:?}");
    }

    /// Waits until it has ended, however it does.
    pub async fn ends(mut self) -> ExitStatus {
        let mut child = self.0.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What was asked of GitHub after so many requests and is more than a look; some looks are a POST, too.
pub fn written(world: &World, after: usize) -> Vec<String> {
    let later = world.sim.requests().into_iter().skip(after).filter(|request| {
        let looks = request.target.ends_with("/git-upload-pack")
            || request.target.ends_with("/graphql")
                && !request.body["query"].to_string().contains("mutation");
        request.method != "GET" && !looks
    });
    later.map(|request| format!("{} {}", request.method, request.target)).collect()
}

/// Runs of both nodes. One that the other goes on from is on both.
pub fn all_runs(nodes: [&Node; 2]) -> usize {
    let ids = nodes.into_iter().filter(|node| node.began() > 0).flat_map(|node| run_ids(&node.state));
    ids.collect::<BTreeSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_02_two_daemons_one_label_one_run_one_pull_request_one_comment_and_all_show_it() {
    if !is_there("h_02") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (first, second) = (Daemon::start(&world, &a), Daemon::start(&world, &b));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is done", || world.labels() == ["agentd:done"]).await;
    // Both look once more.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    world.assert_one_of_each();
    assert_eq!(all_runs([&a, &b]), 1);
    let bare = world.dir.path().join("bare");
    let (_, listed) = document(&world, "cluster.toml", &bare, &["runs", "list"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    let (code, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    assert_eq!((code, told["nodes"].as_array().map(Vec::len)), (Some(0), Some(2)), "{told:#}");
    let (_, cluster) = document(&world, "cluster.toml", &bare, &["cluster", "status"]).await;
    assert_eq!(cluster["pollers"].as_array().map(Vec::len), Some(1), "{cluster:#}");
    // The label once more: one more run.
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is done again", || world.labels() == ["agentd:done"] && all_runs([&a, &b]) == 2).await;
    first.stop().await;
    second.stop().await;
    let (_, cluster) = document(&world, "cluster.toml", &bare, &["cluster", "status"]).await;
    assert!(
        cluster["nodes"].as_array().unwrap().iter().all(|node| node["state"] == json!("left")),
        "{cluster:#}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_killed_daemons_repository_and_run_are_gone_on_with_by_another() {
    if !is_there("h_10_daemon") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 600_000);
    let first = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let second = Daemon::start(&world, &b);
    let run = run_ids(&a.state).pop().unwrap();
    until("it is published", || {
        shared(&server, &run)
            .iter()
            .any(|line| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3)
    })
    .await;
    first.kill();
    until("it is done", || world.labels() == ["agentd:done"]).await;
    until("its end is written", || b.journal().iter().any(|line| line["kind"] == json!("files_sealed")))
        .await;
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1, 2], "the third visit once more, the others not");
    assert_eq!(b.journal()[0]["data"]["previous_run"], json!(run));
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_11_a_run_that_dies_between_its_end_and_its_seal_is_sealed_by_the_next_node() {
    if !is_there("h_11") {
        return;
    }
    let (world, server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let first = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it began", || a.began() == 1).await;
    let run = run_ids(&a.state).pop().unwrap();
    // There are some milliseconds between the end and the seal: the lines are heard as they go to the store.
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut lines = client.subscribe(format!("agentd.test.log.demo.shop.{run}")).await.unwrap();
    client.flush().await.unwrap();
    while !text(&lines.next().await.unwrap().payload).contains("\"kind\":\"run_ended\"") {}
    first.kill();
    let second = Daemon::start(&world, &b);
    until("it is sealed", || {
        shared(&server, &run).last().is_some_and(|line| line["kind"] == json!("files_sealed"))
    })
    .await;
    let bare = world.dir.path().join("bare");
    let (code, verified) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
    assert_eq!((code, &verified["ok"]), (Some(0), &json!(true)), "{verified:#}");
    let (_, listed) = document(&world, "cluster.toml", &bare, &["runs", "list"]).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    assert_eq!(world.labels(), ["agentd:done"]);
    world.assert_one_of_each();
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_03_a_daemon_that_stood_still_answers_no_labelling_that_another_has_answered() {
    if !is_there("h_03") {
        return;
    }
    let (world, _server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 2, 3_000);
    let first = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || a.has("visit_started", 2) && world.sim.model_requests().len() == 3).await;
    first.signal("-STOP");
    let second = Daemon::start(&world, &b);
    until("it is done", || world.labels() == ["agentd:done"]).await;
    let ended = world.sim.requests().len();
    first.signal("-CONT");
    until("it says so", || a.said().contains("another node")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.assert_one_of_each();
    assert_eq!(world.labels(), ["agentd:done"]);
    assert_eq!(written(&world, ended), Vec::<String>::new());
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_03_a_start_that_was_decided_before_another_nodes_run_ended_begins_nothing() {
    if !is_there("h_03_late") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let first = Daemon::start(&world, &a);
    until("it polls", || world.sim.requests().iter().any(|request| request.target.contains("/issues?")))
        .await;
    // It has read that the issue is labelled, and reads the remote before it takes the lease.
    let slow = json!({ "path": "/git/**", "kind": "delay", "delay_ms": 4_000, "times": 0 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it has begun to start", || a.said().contains("starting a run")).await;
    first.signal("-STOP");
    world.sim.world().faults.clear();
    assert_eq!(a.began(), 0, "it stands still before it has the lease");
    let second = Daemon::start(&world, &b);
    until("it is done", || world.labels() == ["agentd:done"]).await;
    until("its end is written", || b.journal().iter().any(|line| line["kind"] == json!("files_sealed")))
        .await;
    let (asked, ended) = (world.sim.model_requests().len(), world.sim.requests().len());
    first.signal("-CONT");
    until_or("it goes on", || a.said().contains("nothing was begun") || all_runs([&a, &b]) > 1, || a.said())
        .await;
    // It stands by, and looks once more.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(all_runs([&a, &b]), 1);
    assert_eq!(world.sim.model_requests().len(), asked);
    assert_eq!(written(&world, ended), Vec::<String>::new());
    world.assert_one_of_each();
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_stop_from_another_host_reaches_the_run_once() {
    if !is_there("h_37") {
        return;
    }
    let (world, _server) = world(1).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 2, 4_000);
    let first = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || a.has("visit_started", 2) && world.sim.model_requests().len() == 3).await;
    let bare = world.dir.path().join("bare");
    // Rows are up to two seconds behind.
    let begin = Instant::now();
    loop {
        let stopped = agentd(&world, "cluster.toml", &bare, &["runs", "stop", "latest"]).await;
        if stopped.status.success() {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", text(&stopped.stderr));
    }
    until("it ended", || a.journal().iter().any(|line| line["kind"] == json!("run_ended"))).await;
    let end = a.journal().into_iter().find(|line| line["kind"] == json!("run_ended")).unwrap();
    assert_eq!(end["data"]["stop"]["detail"], json!("user_stop"));
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_44_a_second_daemon_of_one_name_ends_and_names_the_first() {
    if !is_there("h_44_daemon") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let first = Daemon::start(&world, &a);
    let bare = world.dir.path().join("bare");
    let polled =
        async || document(&world, "cluster.toml", &bare, &["cluster", "status"]).await.1["pollers"].clone();
    while polled().await.as_array().is_none_or(Vec::is_empty) {}
    world.write("b.toml", &std::fs::read_to_string(&a.config).unwrap());
    let mut second = b.command(&world, &["daemon"]);
    let done = tokio::task::spawn_blocking(move || second.output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
    let pid = first.0.as_ref().unwrap().id();
    assert!(text(&done.stderr).contains(&format!("pid {pid} on")), "{}", text(&done.stderr));
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_056_what_the_last_poller_had_still_to_write_is_written_by_the_next() {
    if !is_there("k_056") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    // The end's labels cannot be written, once the run works.
    let first = Daemon::start(&world, &a);
    slow_model(&world, 2, 2_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || a.has("visit_started", 2)).await;
    let fault =
        json!({ "path": "/repos/demo/shop/issues/7/labels**", "kind": "status", "status": 500, "times": 0 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    until("it ended", || a.journal().iter().any(|line| line["kind"] == json!("files_sealed"))).await;
    until("it is known what is to be written", || {
        a.said().contains("could not be written") || a.said().contains("label")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.kill();
    world.sim.world().faults.clear();
    let second = Daemon::start(&world, &b);
    until("it is done", || world.labels() == ["agentd:done"]).await;
    assert_eq!(b.began(), 0, "the labelling was answered");
    world.assert_one_of_each();
    second.stop().await;
    world.finish().await;
}
