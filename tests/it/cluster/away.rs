//! A daemon whose store is away: at its start it waits and says so, and a stop ends it in bounded time, with nothing lost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemons::Daemon;
use super::moving::{agentd, document, run_ids};
use super::running::world;
use super::server::is_there;
use super::taking_over::{Node, asked_for, shared};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::text;

/// What the daemon of a node wrote of itself last.
fn status(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.state.join("daemon/status.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn file(node: &Node) -> (&str, PathBuf) {
    (node.config.to_str().unwrap(), node.state.clone())
}

async fn answered(status: &Value, path: &str) -> Value {
    let url = format!("http://{}{path}", status["listen"].as_str().unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(url).send().await.unwrap().json().await.unwrap()
}

fn listening(node: &Node) {
    let text = std::fs::read_to_string(&node.config).unwrap();
    let more = "\n[daemon]\npoll_interval = \"1s\"\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(&node.config, format!("{text}{more}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_a_daemon_whose_store_is_away_says_so_and_works_once_it_answers() {
    if !is_there("k_070_daemon") {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = Node::of(&world, "a").await;
    listening(&a);
    server.kill();
    let daemon = Daemon::start(&world, &a);
    until("it says so", || status(&a)["store_unavailable"].is_object()).await;
    let told = status(&a);
    let page = answered(&told, "/api/v1/status").await;
    assert!(page["store_unavailable"]["error"].as_str().is_some_and(|why| !why.is_empty()), "{page:#}");
    assert_eq!(answered(&told, "/health").await["status"], json!("degraded"));
    let (config, state) = file(&a);
    let (code, shown) = document(&world, config, &state, &["status"]).await;
    assert_eq!(code, Some(0), "{shown:#}");
    assert_eq!(shown["daemon_running"], json!(true), "{shown:#}");
    assert!(shown["store_unavailable"]["since"].is_string(), "{shown:#}");
    server.run();
    server.wait();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is done", || world.labels() == ["agentd:done"]).await;
    let page = answered(&told, "/api/v1/status").await;
    assert!(page.get("store_unavailable").is_none(), "{page:#}");
    assert_eq!(page["repositories"][0]["repo"], json!("demo/shop"), "the address is the same: {page:#}");
    // Away once more, while it stands by. Before it has missed the store, what it said last is shown.
    daemon.signal("-STOP");
    server.kill();
    std::fs::remove_dir_all(a.state.join("cluster")).unwrap();
    let (code, shown) = document(&world, config, &state, &["status"]).await;
    assert_eq!((code, &shown["daemon_running"]), (Some(0), &json!(true)), "{shown:#}");
    assert_eq!((&shown["stale"], &shown["store_unavailable"]), (&json!(true), &json!(null)), "{shown:#}");
    let shown = agentd(&world, config, &state, &["status"]).await;
    let (said, noted) = (text(&shown.stdout), text(&shown.stderr));
    assert!(said.contains("daemon here (pid "), "{said} {noted}");
    assert!(noted.contains("Of other nodes nothing is known"), "{said} {noted}");
    daemon.signal("-CONT");
    until_or("it says so once more", || status(&a)["store_unavailable"].is_object(), || a.said()).await;
    server.run();
    server.wait();
    until("it is over", || status(&a).get("store_unavailable").is_none()).await;
    daemon.stop().await;
    let (_, shown) = document(&world, config, &state, &["status"]).await;
    assert_eq!(shown["nodes"][0]["status"]["stopping"], json!(true), "its last word is heard: {shown:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_once_ends_without_the_store_and_a_stop_ends_a_daemon_that_waits_for_it() {
    if !is_there("k_070_once") {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = Node::of(&world, "a").await;
    server.kill();
    let begin = Instant::now();
    let (config, state) = file(&a);
    let (code, said) = document(&world, config, &state, &["daemon", "--once"]).await;
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(code, Some(1), "{said:#}");
    assert!(said["error"]["message"].as_str().unwrap().contains("store"), "{said:#}");
    let daemon = Daemon::start(&world, &a);
    until("it waits", || status(&a)["store_unavailable"].is_object()).await;
    let begin = Instant::now();
    daemon.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    world.finish().await;
}

/// A run is at work, the store goes away, and the daemon is told to end so many times. Another daemon then goes on with all of it.
async fn stopped(test: &str, signals: usize, within: Duration) {
    if !is_there(test) {
        return;
    }
    let (world, mut server) = world(2).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 3, 1_500);
    let daemon = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || world.sim.model_requests().len() == 4).await;
    server.kill();
    until_or("it waits", || a.said().contains("waiting for the cluster's store"), || a.said()).await;
    let (run, lines) = (run_ids(&a.state).pop().unwrap(), a.journal());
    let begin = Instant::now();
    for number in 1..=signals {
        daemon.signal("-INT");
        if number < signals {
            until("it has heard", || status(&a)["stopping"] == json!(true)).await;
        }
    }
    if signals == 1 {
        // The store comes back while the daemon ends. The run is not told to have failed for that.
        until_or("it gives up", || a.said().contains("the cluster's store has not answered."), || a.said())
            .await;
        server.run();
    }
    let code = daemon.ends().await;
    assert!(begin.elapsed() < within, "{:?}: {}", begin.elapsed(), a.said());
    assert!(code.success(), "{code:?}: {}", a.said());
    // What waits to be written on GitHub is in this node's state.
    let remembered = std::fs::read_to_string(a.state.join("daemon/state.json")).unwrap();
    assert!(remembered.contains("demo/shop") && !remembered.contains("\"state\":\"failed\""), "{remembered}");
    assert!(!world.labels().contains(&"agentd:failed".to_owned()), "{:?}: {}", world.labels(), a.said());
    let kept = a.journal();
    assert!(kept.starts_with(&lines), "what was written is on this disk");
    if signals > 1 {
        server.run();
    }
    server.wait();
    assert!(kept.starts_with(&shared(&server, &run)), "and the store has no more of it");
    let again = Daemon::start(&world, &a);
    until("it is done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 1, "a finished visit is not made again");
    let whole = shared(&server, &run);
    assert!(whole.starts_with(&lines), "the store has what was written without it");
    again.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_a_run_in_the_foreground_that_is_told_to_end_without_the_store_ends_and_is_gone_on_with() {
    if !is_there("k_070_foreground") {
        return;
    }
    let (world, mut server) = world(2).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 3, 1_500);
    let log = std::fs::File::create(a.state.with_extension("log")).unwrap();
    let run = a.command(&world, &["run", "--issue", "7"]).stderr(log).spawn().unwrap();
    until("the second visit", || world.sim.model_requests().len() == 4).await;
    server.kill();
    until_or("it waits", || a.said().contains("waiting for the cluster's store"), || a.said()).await;
    let begin = Instant::now();
    let pid = run.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || run.wait_with_output().unwrap()).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((ended.status.code(), &told["stop_detail"]), (Some(1), &json!("shutdown")), "{told:#}");
    server.run();
    server.wait();
    let again = tokio::task::block_in_place(|| a.command(&world, &["run", "--issue", "7"]).output());
    let again = again.unwrap();
    let done: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((again.status.code(), &done["stop_detail"]), (Some(0), &json!("completed")), "{done:#}");
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 1, "a finished visit is not made again");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_a_stop_without_the_store_ends_the_daemon_and_its_run_is_gone_on_with() {
    stopped("k_070_stop", 1, Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_a_second_signal_without_the_store_ends_the_daemon_at_once() {
    stopped("k_070_abort", 2, Duration::from_secs(40)).await;
}
