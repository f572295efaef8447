//! Nodes whose wall clocks are wrong. A process' own clock cannot be set in a test; so the servers' clock is told otherwise to it, in
//! each answer that comes through a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{NaiveDateTime, TimeDelta};
use serde_json::{Value, json};

use super::assignments::{another, label, labels};
use super::daemons::Daemon;
use super::eater;
use super::moving::document;
use super::running::world;
use super::server::{Server, is_there};
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// Times in the servers' answers to nodes have this form up to whole seconds.
const FORM: &str = "%Y-%m-%dT%H:%M:%S";

/// An answer with its times moved by so many seconds, in place.
fn moved(mut answer: Vec<u8>, seconds: i64) -> Vec<u8> {
    for key in ["\"ts\":\"", "\"time\":\""] {
        let places = answer.windows(key.len()).enumerate().filter(|(_, window)| *window == key.as_bytes());
        for at in places.map(|(at, _)| at + key.len()).collect::<Vec<_>>() {
            let Some(time) = answer.get_mut(at..at + 19) else { continue };
            let text = String::from_utf8_lossy(time).into_owned();
            let Ok(told) = NaiveDateTime::parse_from_str(&text, FORM) else { continue };
            let other = told + TimeDelta::seconds(seconds);
            time.copy_from_slice(other.format(FORM).to_string().as_bytes());
        }
    }
    answer
}

/// A node whose clock is so many seconds ahead of the servers', as far as it can see.
async fn node(world: &World, server: &Server, name: &str, ahead: i64) -> (Node, Arc<AtomicI64>) {
    let node = Node::of(world, name).await;
    let ahead = Arc::new(AtomicI64::new(ahead));
    let now = Arc::clone(&ahead);
    let change = move |answer| Some(moved(answer, -now.load(Ordering::SeqCst)));
    let proxy = format!("nats://{}", eater::between(server.address(), Arc::new(change)));
    let text = std::fs::read_to_string(&node.config).unwrap();
    assert!(text.contains(&server.url()));
    std::fs::write(&node.config, text.replace(&server.url(), &proxy)).unwrap();
    (node, ahead)
}

/// What the daemon of a node wrote of itself last.
fn status(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.state.join("daemon/status.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn skew(node: &Node) -> Option<i64> {
    status(node)["clock_skew"]["seconds"].as_i64()
}

/// Why an issue waits, as a node's daemon says.
fn waits(node: &Node, number: u64) -> Value {
    let status = status(node);
    let rows = status["waiting"].as_array().cloned().unwrap_or_default();
    rows.iter().find(|row| row["issue"] == json!(number)).map(|row| row["code"].clone()).unwrap_or_default()
}

/// All living nodes are still in the first session of theirs.
async fn calm(world: &World, nodes: usize) {
    let bare = world.dir.path().join("bare");
    let (_, told) = document(world, "cluster.toml", &bare, &["cluster", "status"]).await;
    let found = told["nodes"].as_array().unwrap();
    assert_eq!(found.len(), nodes, "{told:#}");
    for node in found {
        assert_eq!((&node["session"], &node["state"]), (&json!(1), &json!("live")), "{told:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h_29_a_node_whose_clock_is_an_hour_off_starts_nothing_says_so_and_leases_stay_calm() {
    if !is_there("h_29") {
        return;
    }
    let (world, server) = world(1).await;
    let (ahead, _) = node(&world, &server, "a", 3600).await;
    let (behind, _) = node(&world, &server, "c", -3600).await;
    let right = Node::of(&world, "b").await;
    let first = Daemon::start(&world, &ahead);
    label(&world, 7);
    // Alone, it polls, and the issue waits.
    until_or("the issue waits", || waits(&ahead, 7) == json!("clock_skew"), || ahead.said()).await;
    assert!((3590..3610).contains(&skew(&ahead).unwrap()), "{:#}", status(&ahead));
    let (config, state) = (ahead.config.to_str().unwrap(), &ahead.state);
    let (code, why) = document(&world, config, state, &["why", "7"]).await;
    assert_eq!(code, Some(0), "{why:#}");
    let says = |rule: &Value| rule["rule"] == json!("daemon_goes_on") && rule["code"] == json!("clock_skew");
    assert!(why["rules"].as_array().unwrap().iter().any(says), "{why:#}");
    assert!(why.to_string().contains("by NTP"), "what to do is said: {why:#}");
    let second = Daemon::start(&world, &behind);
    until_or("the other one is off, too", || skew(&behind).is_some(), || behind.said()).await;
    assert!((-3610..-3590).contains(&skew(&behind).unwrap()), "{:#}", status(&behind));
    let bare = world.dir.path().join("bare");
    let (_, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    let nodes = told["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node["status"]["clock_skew"]["seconds"].is_i64()), "{told:#}");
    assert_eq!(world.labels(), ["agentd", "agentd:queued"]);
    // One whose clock is right does the work.
    let third = Daemon::start(&world, &right);
    let all = || [&ahead, &behind, &right].map(Node::said).join("\n---\n");
    until_or("it is done", || world.labels() == ["agentd:done"], all).await;
    world.assert_one_of_each();
    assert_eq!((ahead.began(), behind.began(), right.began()), (0, 0, 1));
    assert_eq!(skew(&right), None);
    calm(&world, 3).await;
    for daemon in [first, second, third] {
        daemon.stop().await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_059_agentd_run_on_a_host_whose_clock_is_off_begins_nothing_and_says_so() {
    if !is_there("k_059_run") {
        return;
    }
    let (world, server) = world(1).await;
    let (a, ahead) = node(&world, &server, "a", 3600).await;
    label(&world, 7);
    let asked = world.sim.requests().len();
    let (config, state) = (a.config.to_str().unwrap(), &a.state);
    let (code, output) = document(&world, config, state, &["run", "--issue", "7"]).await;
    assert_eq!(
        (code, &output["stop_reason"], &output["stop_detail"]),
        (Some(1), &json!("SYSTEM_ERROR"), &json!("store_unavailable")),
        "{output:#}"
    );
    let told = output.to_string();
    assert!(told.contains("clock_skew: this node's clock is 3") && told.contains("ahead of"), "{told}");
    assert!(told.contains("cluster.max_clock_skew"), "{told}");
    assert_eq!((a.began(), world.sim.model_requests().len()), (0, 0));
    let written: Vec<String> = super::daemons::written(&world, asked);
    assert_eq!((written, world.labels()), (Vec::new(), vec!["agentd".to_owned()]), "nothing was written");
    // Put right, it begins.
    ahead.store(0, Ordering::SeqCst);
    let (code, output) = document(&world, config, state, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_30_a_holder_whose_clock_jumps_by_a_day_goes_on_and_begins_nothing_more_until_it_is_right() {
    if !is_there("h_30") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, ahead) = node(&world, &server, "a", 0).await;
    another(&world, 8);
    slow_model(&world, 5, 12_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_or(
        "the third visit",
        || a.has("visit_started", 3) && world.sim.model_requests().len() == 6,
        || a.said(),
    )
    .await;
    ahead.store(86_400, Ordering::SeqCst);
    until_or("it sees that", || skew(&a).is_some(), || a.said()).await;
    label(&world, 8);
    until_or("the next issue waits", || waits(&a, 8) == json!("clock_skew"), || a.said()).await;
    assert_eq!(labels(&world, 7), ["agentd", "agentd:running"], "the run is at work meanwhile");
    until_or("it ends well", || labels(&world, 7) == ["agentd:done"], || a.said()).await;
    assert_eq!(a.began(), 1);
    assert_eq!(a.journal()[0]["data"]["held"]["term"], json!(1));
    calm(&world, 1).await;
    // The clock is put right.
    ahead.store(0, Ordering::SeqCst);
    until_or("the next one is done", || labels(&world, 8) == ["agentd:done"], || a.said()).await;
    until("it is over", || skew(&a).is_none()).await;
    calm(&world, 1).await;
    daemon.stop().await;
    world.finish().await;
}

/// Moves the clock that counts sleep by the seconds that a file says, for a process that is started with it. The other clocks stay: a host that
/// was suspended is back, and nothing of the process has moved meanwhile.
const SLEEPER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, at);
    const char *path = getenv("SLEPT");
    FILE *file = clock == CLOCK_BOOTTIME && path ? fopen(path, "r") : 0;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    at->tv_sec += seconds;
    return done;
}
"#;

/// How often the only node said that it lives.
fn signs_of_life(server: &Server) -> u64 {
    super::moving::with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let subject = "agentd.test.cell.node.*".to_owned();
        let last = stream.raw_message_builder().last_by_subject(subject).send().await.unwrap();
        serde_json::from_slice::<Value>(last.payload.trim_ascii()).unwrap()["renewed"].as_u64().unwrap()
    })
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn h_31_a_node_that_slept_for_a_lease_begins_nothing_before_its_session_is_acknowledged_again() {
    if !is_there("h_31") {
        return;
    }
    let (world, server) = world(1).await;
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &text.replace("lease = \"3s\"", "lease = \"90s\""));
    world.write("sleeper.c", SLEEPER);
    let (source, library) = (world.dir.path().join("sleeper.c"), world.dir.path().join("sleeper.so"));
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().unwrap().success());
    let mut a = Node::of(&world, "a").await;
    let slept = world.dir.path().join("slept");
    a.env.push(("LD_PRELOAD", library.display().to_string()));
    a.env.push(("SLEPT", slept.display().to_string()));
    slow_model(&world, 3, 3_000);
    let working = a.start(&world);
    until("the second visit", || world.sim.model_requests().len() == 4).await;
    // It gives the next sign of life a third of a lease after the last one.
    let before = signs_of_life(&server);
    std::fs::write(&slept, "90").unwrap();
    until("the next request", || world.sim.model_requests().len() > 4).await;
    assert!(signs_of_life(&server) > before, "it began before its session was acknowledged again");
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert_eq!(world.sim.model_requests().len(), 9, "nothing was asked twice");
    world.assert_one_of_each();
    world.finish().await;
}
