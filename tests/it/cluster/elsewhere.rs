//! What a person does on one node with a run of another one whose machine is gone: nothing of that machine is used.

use serde_json::{Value, json};

use super::running::world;
use super::server::is_there;
use super::taking_over::Node;
use crate::outside::world::{World, text};

/// `agentd` on a node: exit code, what it printed, and what it said beside.
async fn agentd(world: &World, node: &Node, json: bool, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = world.command(&["--config"]);
    command.arg(&node.config).args(json.then_some("--json")).args(args);
    command.current_dir(&node.checkout).env("AGENTD_STATE_DIR", &node.state);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn k_006_a_run_of_a_node_that_is_gone_is_shown_and_replayed_on_another_one_with_nothing_of_its_machine()
{
    if !is_there("k_006_replay") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (code, output, told) = a.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {told}");
    let run = output["run_id"].as_str().unwrap().to_owned();
    let place = world.dir.path().join("a");
    std::fs::rename(&place, world.dir.path().join("gone")).unwrap();
    let place = place.to_str().unwrap();

    for json in [false, true] {
        let (code, out, err) = agentd(&world, &b, json, &["runs", "replay", &run]).await;
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(out.contains("equal"), "{out} {err}");
        for args in [
            &["runs", "show", &run][..],
            &["runs", "report", &run],
            &["runs", "log", &run],
            &["runs", "accounting", &run],
            &["runs", "evidence", &run],
            &["runs", "verify", &run],
            &["runs", "diff", &run],
            &["runs", "compare", &run, &run],
            &["why", "7"],
            &["status"],
        ] {
            let (code, out, err) = agentd(&world, &b, json, args).await;
            assert_eq!(code, Some(0), "{args:?}: {out} {err}");
            assert!(!format!("{out}{err}").contains(place), "{args:?}: {out} {err}");
        }
    }
    assert_eq!(
        std::fs::metadata(place).map_err(|error| error.kind()).err(),
        Some(std::io::ErrorKind::NotFound)
    );
    assert!(!b.checkout.join(".worktrees").exists(), "a replay leaves nothing here");
    // What it committed is had from the remote, and what nobody has is said to be on its node.
    let (_, out, err) = agentd(&world, &b, false, &["runs", "diff", &run]).await;
    assert!(out.contains("+++ b/lib/cart.sh"), "{out} {err}");
    let (_, out, err) = agentd(&world, &b, true, &["runs", "verify", &run]).await;
    let verified: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!(
        (&verified["ok"], verified.get("evidence_not_looked_at")),
        (&json!(true), None),
        "{verified:#}"
    );
    // What has ended well is not gone on with, and that is said the same way.
    let (code, out, err) = agentd(&world, &b, false, &["runs", "resume", &run]).await;
    assert_eq!(code, Some(4), "{out} {err}");
    assert!(!format!("{out}{err}").contains(place), "{out} {err}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_006_a_run_that_failed_on_a_node_that_is_gone_is_replayed_and_resumed_on_another_one() {
    if !is_there("k_006_resume") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let fault = json!({ "path": "/model/**", "kind": "status", "status": 400, "skip": 5, "times": 1 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    let (code, output, told) = a.start(&world).ended().await;
    assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {told}");
    let run = output["run_id"].as_str().unwrap().to_owned();
    let place = world.dir.path().join("a");
    std::fs::rename(&place, world.dir.path().join("gone")).unwrap();
    let place = place.to_str().unwrap();
    for args in
        [&["runs", "show", &run][..], &["runs", "report", &run], &["runs", "log", &run], &["why", "7"]]
    {
        let (code, out, err) = agentd(&world, &b, false, args).await;
        assert_eq!(code, Some(0), "{args:?}: {out} {err}");
        assert!(!format!("{out}{err}").contains(place), "{args:?}: {out} {err}");
    }
    let (code, out, err) = agentd(&world, &b, true, &["runs", "replay", &run]).await;
    let replayed: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#} {err}");
    let (code, out, err) = agentd(&world, &b, true, &["runs", "resume", &run]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(!err.contains(place), "{err}");
    world.assert_one_of_each();
    assert!(!std::path::Path::new(place).exists(), "nothing is made where the other node's machine had it");
    world.finish().await;
}
