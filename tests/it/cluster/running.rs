//! `agentd run` on the cluster's store: what it writes is published as it is written, and read back anywhere.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::moving::{agentd, clustered, document, hashes, run_ids, runs, with_client};
use super::server::{Server, is_there, make_streams};
use crate::outside::world::{World, text};

/// A world on a cluster's store of its own.
pub async fn world(rounds: usize) -> (World, Server) {
    let world = World::new(rounds).await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    (world, server)
}

/// The messages of a subject one behind the other.
fn published(server: &Server, subject: &str) -> Vec<u8> {
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_log").await.unwrap();
        let (mut bytes, mut from) = (Vec::new(), 1);
        while let Ok(message) =
            stream.raw_message_builder().next_by_subject(subject.to_owned()).sequence(from).send().await
        {
            bytes.extend_from_slice(&message.payload);
            from = message.sequence + 1;
        }
        bytes
    })
}

fn run_dir(state: &Path, run: &str) -> std::path::PathBuf {
    runs(state).join(run)
}

#[tokio::test(flavor = "multi_thread")]
async fn k_005_a_run_is_published_as_it_is_written_and_reads_the_same_on_a_bare_host() {
    if !is_there("k_005") {
        return;
    }
    let (world, server) = world(1).await;
    let (state, bare) = (world.dir.path().join("state"), world.dir.path().join("bare"));
    let (code, output) = document(&world, "cluster.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let run = run_ids(&state).pop().unwrap();
    let own = std::fs::read(run_dir(&state, &run).join("events.jsonl")).unwrap();
    let first: serde_json::Value =
        serde_json::from_slice(own.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let held = &first["data"]["held"];
    assert_eq!((&held["cluster"], &held["term"]), (&json!("test"), &json!(1)), "{first:#}");
    let there = published(&server, &format!("agentd.test.log.demo.shop.{run}"));
    assert!(there == own, "the file and the subject are not the same");
    let (code, listed) = document(&world, "cluster.toml", &bare, &["runs", "list"]).await;
    assert_eq!(
        (code, &listed[0]["run_id"], &listed[0]["stop_detail"]),
        (Some(0), &json!(run), &json!("completed"))
    );
    assert_eq!(listed[0]["node"], held["node"], "{listed:#}");
    for args in [&["runs", "show", &run][..], &["runs", "report", &run]] {
        let shown = agentd(&world, "cluster.toml", &bare, args).await;
        assert!(shown.status.success(), "{args:?} {}", text(&shown.stderr));
    }
    let copy = bare.join("cluster/test/repos/demo/shop/runs").join(&run);
    assert_eq!(hashes(&copy), hashes(&run_dir(&state, &run)), "the same bytes");
    let (code, verified) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
    assert_eq!(
        (code, &verified["ok"], &verified["proof"]["signature"]),
        (Some(0), &json!(true), &json!("valid")),
        "{verified:#}"
    );
    // Nobody has the issue any more, and the session says that it went.
    let (_, status) = document(&world, "cluster.toml", &bare, &["cluster", "status"]).await;
    assert_eq!(status["issues"][0]["hold"]["state"], json!("free"), "{status:#}");
    assert_eq!(status["nodes"][0]["state"], json!("left"), "{status:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_without_the_store_no_run_begins_and_that_is_said_within_30_s() {
    if !is_there("k_070") {
        return;
    }
    let (world, mut server) = world(1).await;
    server.kill();
    let state = world.dir.path().join("state");
    let begin = Instant::now();
    let (code, output) = document(&world, "cluster.toml", &state, &["run", "--issue", "7"]).await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_eq!(
        (code, &output["stop_reason"], &output["stop_detail"]),
        (Some(1), &json!("SYSTEM_ERROR"), &json!("store_unavailable")),
        "{output:#}"
    );
    assert!(!runs(&state).exists(), "nothing was made");
    assert_eq!(world.sim.model_requests().len(), 0);
    world.finish().await;
}
