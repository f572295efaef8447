//! Another account of the same servers: it sees nothing of a cluster, whatever it asks.

use serde_json::{Value, json};

use super::moving::{agentd, document, run_ids};
use super::server::{Server, is_there};
use crate::outside::world::{World, text};

/// Lays `[cluster]` over the world's configuration, for the user whose seed has this name.
fn configured(world: &World, file: &str, server: &Server, seed: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let cluster = format!(
        "[cluster]\nstore = \"nats\"\nname = \"test\"\nnode = \"here\"\nurls = [\"{}\"]\nreplicas = 1\nlease = \"3s\"\nnkey = \"${{{seed}}}\"\n",
        server.url()
    );
    world.write(file, &format!("{overlay}\n{cluster}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn h_36_a_user_of_another_account_finds_nothing_of_the_cluster_by_any_command() {
    if !is_there("h_36") {
        return;
    }
    let world = World::new(1).await;
    let [own, other] = [0, 1].map(|_| nkeys::KeyPair::new_user());
    let account = |name: &str, user: &nkeys::KeyPair| {
        format!("{name} {{ jetstream: enabled, users: [ {{ nkey: {} }} ] }}", user.public_key())
    };
    let server = Server::with(&format!("accounts {{ {}, {} }}", account("A", &own), account("B", &other)));
    world.write(".agentd.env", &format!("OWN={}\nOTHER={}\n", own.seed().unwrap(), other.seed().unwrap()));
    configured(&world, "cluster.toml", &server, "OWN");
    configured(&world, "other.toml", &server, "OTHER");
    let (state, bare) = (world.dir.path().join("state"), world.dir.path().join("bare"));
    let (code, made) = document(&world, "cluster.toml", &state, &["cluster", "doctor", "--create"]).await;
    assert_eq!(code, Some(0), "{made:#}");
    let (code, output) = document(&world, "cluster.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let run = run_ids(&state).pop().unwrap();
    let reads: [&[&str]; 8] = [
        &["cluster", "status"],
        &["status"],
        &["runs", "list"],
        &["runs", "show", &run],
        &["runs", "report", &run],
        &["runs", "events", &run],
        &["runs", "verify", &run],
        &["approvals"],
    ];
    // First without streams of its own, then with them.
    for with_streams in [false, true] {
        if with_streams {
            let (code, made) =
                document(&world, "other.toml", &bare, &["cluster", "doctor", "--create"]).await;
            assert_eq!(code, Some(0), "{made:#}");
        }
        for args in reads {
            let done = agentd(&world, "other.toml", &bare, &[&["--json"], args].concat()).await;
            let said = text(&done.stdout) + &text(&done.stderr);
            // A command that was given the run's id may say it again.
            let named = args.contains(&run.as_str());
            assert!(named || !said.contains(&run), "{args:?}: {said}");
            assert!(!named || !done.status.success(), "{args:?}: {said}");
            assert!(!said.contains("pull/1") && !said.contains("run_started"), "{args:?}: {said}");
        }
    }
    let (code, listed) = document(&world, "other.toml", &bare, &["runs", "list"]).await;
    assert_eq!((code, listed), (Some(0), json!([])));
    let (code, status) = document(&world, "other.toml", &bare, &["cluster", "status"]).await;
    assert_eq!((code, &status["nodes"], &status["issues"]), (Some(0), &json!([]), &json!([])), "{status:#}");
    // The cluster itself has all of it.
    let (_, listed) = document(&world, "cluster.toml", &bare, &["runs", "list"]).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    assert_eq!(listed[0]["run_id"], Value::from(run));
    world.finish().await;
}
