//! Nodes that are configured otherwise than the others are seen, with what differs where it is known.

use serde_json::{Value, json};

use super::assignments::node;
use super::daemons::Daemon;
use super::moving::{agentd, document};
use super::running::world;
use super::server::is_there;
use crate::outside::daemons::until;
use crate::outside::world::text;

/// What a node's status says of its configuration.
fn said(status: &Value, name: &str) -> Value {
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .find(|node| node["node"] == json!(name))
        .map_or(Value::Null, |node| node["configuration"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn k_010_doctor_and_status_show_which_nodes_are_configured_otherwise_and_in_what() {
    if !is_there("k_010") {
        return;
    }
    let (world, _server) = world(1).await;
    let bare = world.dir.path().join("bare");
    let cluster = |args: &'static [&'static str]| document(&world, "cluster.toml", &bare, args);
    // What each has for itself is no difference.
    let (a, b, c) = (node(&world, "a", 1).await, node(&world, "b", 4).await, node(&world, "c", 1).await);
    let text_of_c = std::fs::read_to_string(&c.config).unwrap();
    let other = text_of_c
        .replace("max_runs_per_repository = 8", "max_runs_per_repository = 7")
        .replace("lease = \"3s\"", "lease = \"3s\"\nmax_runs = 5")
        .replace("[verify]", "[commit]\nmax_files = 3\n[verify]");
    std::fs::write(&c.config, other).unwrap();
    let policy = c.checkout.join(".agent/policy.toml");
    let rules = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, format!("{rules}\n[[rule]]\ntool = \"delete_file\"\neffect = \"deny\"\n"))
        .unwrap();
    let daemons = [&a, &b].map(|node| Daemon::start(&world, node));
    let all_say = |names: &'static [&'static str]| {
        let asked = cluster(&["cluster", "status"]);
        let (_, status) = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asked));
        names.iter().all(|name| said(&status, name).is_object())
    };
    until("both say how they are configured", || all_say(&["a", "b"])).await;
    let finding = |told: &Value| {
        let findings = told["findings"].as_array().unwrap();
        findings.iter().find(|one| one["what"] == json!("configuration")).cloned().unwrap_or_default()
    };
    let (_, told) = cluster(&["cluster", "doctor"]).await;
    assert_eq!(finding(&told)["state"], json!("ok"), "{told:#}");
    let third = Daemon::start(&world, &c);
    until("the third says it, too", || all_say(&["a", "b", "c"])).await;
    let (_, told) = cluster(&["cluster", "doctor"]).await;
    let found = finding(&told);
    assert_eq!(found["state"], json!("warning"), "{told:#}");
    let words = found["told"].as_str().unwrap();
    for has in [
        "c is configured otherwise than a, b",
        "cluster.max_runs is 5, elsewhere 0",
        "daemon.max_runs_per_repository is 7, elsewhere 8",
        "[commit] is another one",
        "the rules in the files that [policy] names are other ones",
    ] {
        assert!(words.contains(has), "{has}: {words}");
    }
    assert!(!words.contains("max_concurrent_runs") && !words.contains("cluster.node"), "{words}");
    assert!(found["remedy"].as_str().unwrap().contains("agentd config explain"), "{told:#}");
    let (_, status) = cluster(&["cluster", "status"]).await;
    assert_eq!(said(&status, "a")["hash"], said(&status, "b")["hash"], "{status:#}");
    assert_ne!(said(&status, "a")["hash"], said(&status, "c")["hash"], "{status:#}");
    assert_eq!(said(&status, "c")["over_all"]["cluster.max_runs"], json!("5"), "{status:#}");
    let shown = text(&agentd(&world, "cluster.toml", &bare, &["cluster", "status"]).await.stdout);
    assert!(shown.contains("c is configured otherwise than a, b"), "{shown}");
    for daemon in daemons.into_iter().chain([third]) {
        daemon.stop().await;
    }
    world.finish().await;
}
