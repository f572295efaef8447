//! What people and programs are told who have another key than what they ask for needs: which right is missing, and what the key is for.

use std::process::Output;
use std::time::Duration;

use agentd::domain::name::RepoName;
use agentd::store::nats::{Access, NatsStore};
use agentd::store::port::LeaseKey;
use agentd::store::run_dir::StateDir;
use serde_json::{Value, json};

use super::daemons::written;
use super::moving::{document, with_client};
use super::requests::{person, seed, with_keys};
use super::running;
use super::server::{access, is_there};
use crate::outside::daemons::until;
use crate::outside::world::{World, text};

/// `agentd` in the checkout as somebody with a key.
async fn in_checkout(world: &World, user: &str, args: &[&str]) -> Output {
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    let file = format!("{user}.toml");
    world.write(&file, &text.replace("node = \"here\"", &format!("node = \"{user}\"")));
    let mut command = world.command(&["--config"]);
    command.arg(world.dir.path().join(file)).args(args).env("SEED", seed(world, user));
    command.env("AGENTD_STATE_DIR", world.dir.path().join("states").join(user));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_013_what_a_node_does_is_refused_with_another_key_and_the_right_that_is_missing_is_named() {
    if !is_there("k_013_refused") {
        return;
    }
    let world = World::new(1).await;
    let _server = with_keys(&world).await;
    let before = world.sim.requests().len();
    for user in ["page", "anna", "keeper"] {
        for args in [&["run", "7"][..], &["take", "7"], &["sweep"], &["daemon", "--once"]] {
            let refused = in_checkout(&world, user, args).await;
            let words = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(4), "{user} {args:?} {words}");
            assert!(
                words.contains("error: ") && words.contains("not permitted: "),
                "{user} {args:?} {words}"
            );
            assert!(!words.contains("store_unavailable"), "{user} {args:?} {words}");
        }
        let refused = in_checkout(&world, user, &["--json", "run", "7"]).await;
        let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(
            (&told["exit_code"], &told["stop_detail"]),
            (&json!(4), &json!("config_invalid")),
            "{user} {told:#}"
        );
    }
    assert_eq!(written(&world, before), Vec::<String>::new(), "nothing is written on GitHub");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_013_the_key_of_another_node_is_named_as_such_and_nothing_waits_for_answers_that_never_come() {
    if !is_there("k_013_another_nodes_key") {
        return;
    }
    let world = World::new(1).await;
    let _server = with_keys(&world).await;
    let keys = world.shop().join("keys");
    std::fs::copy(keys.join("a.nkey"), keys.join("b.nkey")).unwrap();
    let own = "where answers to `cluster.node` come; this key is another user's";
    for args in [&["run", "7"][..], &["sweep"], &["daemon", "--once"], &["status"], &["runs", "list"]] {
        let refused = in_checkout(&world, "b", args).await;
        let words = text(&refused.stderr);
        assert!(
            refused.status.code() == Some(4) && words.contains(own),
            "{args:?} {:?} {words}",
            refused.status
        );
    }
    let doctor = in_checkout(&world, "b", &["--json", "cluster", "doctor"]).await;
    let told: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let is_problem = |found: &&Value| found["state"] == "problem";
    let problems: Vec<&Value> = told["findings"].as_array().unwrap().iter().filter(is_problem).collect();
    assert!(problems.len() == 1 && problems[0]["what"] == "key", "{told:#}");
    assert!(problems[0]["told"].as_str().unwrap().contains(own), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_013_a_keepers_key_is_told_what_it_may_and_what_it_may_not() {
    if !is_there("k_013_keeper") {
        return;
    }
    let world = World::new(1).await;
    let _server = with_keys(&world).await;
    let status = person(&world, "keeper", &["cluster", "status"]).await;
    let (told, words) = (text(&status.stdout), text(&status.stderr));
    assert_eq!(status.status.code(), Some(4), "{words}");
    assert!(told.contains("STREAM") && told.contains("cells"), "the streams are shown: {told}");
    for has in ["a keeper's", "doctor --create", "may not read", "not permitted: $JS.API.STREAM.MSG.GET."] {
        assert!(words.contains(has), "{has}: {words}");
    }
    for args in [&["status"][..], &["runs", "list"]] {
        let refused = person(&world, "keeper", args).await;
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{args:?} {words}");
        assert!(
            words.contains("not permitted: ") && !words.contains("cannot be reached"),
            "{args:?} {words}"
        );
    }
    world.finish().await;
}

/// A node that lives as long as its process has the lease, and does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn h_40_a_node_that_only_expires_is_not_said_to_have_heard_that_it_is_drained() {
    if !is_there("h_40_expired") {
        return;
    }
    let (world, server) = running::world(1).await;
    let node = Access { node: "a".into(), ..access(&server.url()) };
    let store = StateDir::on_nats("/nowhere".into(), NatsStore::connect(&node).unwrap());
    let repo = LeaseKey::Poller(RepoName::parse("demo/shop").unwrap());
    let held = store.store().take(&repo, "daemon", Duration::ZERO).unwrap();
    let bare = world.dir.path().join("bare");
    let drained = document(&world, "cluster.toml", &bare, &["cluster", "drain", "a"]);
    let expires = async {
        let asked = || {
            with_client(&server.url(), async |context| {
                let mut stream = context.get_stream("agentd_test_ctl").await.unwrap();
                stream.info().await.unwrap().state.messages > 0
            })
        };
        until("the node is asked", asked).await;
        // As another node does it that saw no sign of life of it.
        with_client(&server.url(), async |context| {
            let subject = "agentd.test.cell.node.a";
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let last = stream.get_last_raw_message_by_subject(subject).await.unwrap();
            let mut cell: Value = serde_json::from_slice(last.payload.trim_ascii()).unwrap();
            cell["state"] = json!("expired");
            context.publish(subject, cell.to_string().into()).await.unwrap().await.unwrap();
        });
    };
    let ((code, told), ()) = tokio::join!(drained, expires);
    assert_eq!(
        (code, &told["heard"], &told["state"]),
        (Some(0), &json!(false), &json!("expired")),
        "{told:#}"
    );
    drop(held);
    world.finish().await;
}
