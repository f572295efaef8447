//! What a person does on one node with a run of another one whose machine is gone: nothing of that machine is used.

use serde_json::{Value, json};

use super::assignments::{another, label, node};
use super::daemons::Daemon;
use super::running::world;
use super::server::is_there;
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until_or};
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
    failing_model(&world, 5);
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

#[tokio::test(flavor = "multi_thread")]
async fn k_006_a_run_that_works_on_another_node_is_attached_to_until_its_end() {
    if !is_there("k_006_attach") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 1, 4_000);
    let works = a.start(&world);
    until_or("its model is asked", || world.sim.model_requests().len() == 2, || "nothing".to_owned()).await;
    let (code, out, err) = agentd(&world, &b, false, &["attach", "7"]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(out.contains("initial.issue"), "{out} {err}");
    let (code, output, told) = works.ended().await;
    assert_eq!(code, Some(0), "{output:#} {told}");
    world.finish().await;
}

/// In a node's checkout git knows in whose name to commit.
async fn person(world: &World, node: &Node) {
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        world.git(&node.checkout, &["config", key, value]).await;
    }
}

/// The model refuses one request after so many.
fn failing_model(world: &World, skip: u32) {
    let fault = json!({ "path": "/model/**", "kind": "status", "status": 400, "skip": skip, "times": 1 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k_049_work_is_taken_over_and_given_back_on_the_node_that_has_it_and_a_former_one_says_which() {
    if !is_there("k_049_taken") {
        return;
    }
    let (world, _server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    person(&world, &b).await;
    for node in [&a, &b] {
        failing_model(&world, 5);
        let (code, output, told) = node.start(&world).ended().await;
        assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {told}");
    }
    // What stands on the first node is older than what the second one made of it.
    let (code, out, err) = agentd(&world, &a, false, &["take", "7"]).await;
    assert_eq!(code, Some(4), "{out} {err}");
    assert!(err.contains("the work on issue 7 is on the node b, and not here"), "{out} {err}");
    let (code, out, err) = agentd(&world, &b, false, &["take", "7"]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    let worktree = std::path::PathBuf::from(out.trim());
    assert!(worktree.starts_with(&b.checkout), "{out}");
    std::fs::write(worktree.join("NOTES.md"), "by hand\n").unwrap();
    let (code, out, err) = agentd(&world, &a, false, &["give-back", "7", "-m", "Keep my notes."]).await;
    assert_eq!(code, Some(4), "{out} {err}");
    assert!(err.contains("the work on issue 7 is on the node b, and not here"), "{out} {err}");
    let (code, out, err) = agentd(&world, &b, true, &["give-back", "7", "-m", "Keep my notes."]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    world.assert_one_of_each();
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let notes = agentd::sim::bare::file(&git_dir, "feature/issue-7", "NOTES.md");
    assert_eq!(notes.map(|notes| text(&notes)).as_deref(), Some("by hand\n"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_049_what_a_person_gives_back_on_one_node_is_gone_on_with_by_another() {
    if !is_there("k_049_given_back") {
        return;
    }
    let (world, _server) = world(6).await;
    let (a, b) = (node(&world, "a", 4).await, node(&world, "b", 1).await);
    person(&world, &b).await;
    failing_model(&world, 5);
    let (code, output, told) = b.start(&world).ended().await;
    assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {told}");
    let (code, out, err) = agentd(&world, &b, false, &["take", "7"]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    std::fs::write(std::path::Path::new(out.trim()).join("NOTES.md"), "by hand\n").unwrap();
    // Its daemon polls, and has no room but for another issue.
    slow_model(&world, 0, 120_000);
    let asked = world.sim.model_requests().len();
    another(&world, 8);
    label(&world, 8);
    let second = Daemon::start(&world, &b);
    until_or("it is busy", || world.sim.model_requests().len() > asked, || b.said()).await;
    let first = Daemon::start(&world, &a);
    until_or("the other stands by", || a.state.join("daemon/status.json").exists(), || a.said()).await;
    label(&world, 7);
    let (code, out, err) = agentd(&world, &b, true, &["give-back", "7", "-m", "Keep my notes."]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    let said = || format!("{:?} {out} {err} {}\n---\n{}", world.labels(), a.said(), b.said());
    until_or("it is done", || world.labels().contains(&"agentd:done".to_owned()), said).await;
    assert!(a.began() > 0, "{}", said());
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let notes = agentd::sim::bare::file(&git_dir, "feature/issue-7", "NOTES.md");
    assert_eq!(notes.map(|notes| text(&notes)).as_deref(), Some("by hand\n"), "{}", said());
    first.kill();
    second.kill();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_049_what_a_person_gives_back_where_no_daemon_works_is_gone_on_with_by_the_one_of_another_node() {
    if !is_there("k_049_no_daemon_here") {
        return;
    }
    let (world, _server) = world(6).await;
    let (a, b) = (node(&world, "a", 4).await, node(&world, "b", 1).await);
    person(&world, &b).await;
    failing_model(&world, 5);
    let (code, output, told) = b.start(&world).ended().await;
    assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {told}");
    let (code, out, err) = agentd(&world, &b, false, &["take", "7"]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    std::fs::write(std::path::Path::new(out.trim()).join("NOTES.md"), "by hand\n").unwrap();
    let daemon = Daemon::start(&world, &a);
    let polls = || {
        let status = std::fs::read_to_string(a.state.join("daemon/status.json")).unwrap_or_default();
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["repositories"].as_array().is_some_and(|of| !of.is_empty())
    };
    until_or("it polls", polls, || a.said()).await;
    label(&world, 7);
    let (code, out, err) = agentd(&world, &b, true, &["give-back", "7", "-m", "Keep my notes."]).await;
    let back: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!((code, &back["goes_on"]), (Some(0), &json!(true)), "{back:#} {err}");
    let said = || format!("{:?} {out} {err} {}", world.labels(), a.said());
    until_or("it is done", || world.labels().contains(&"agentd:done".to_owned()), said).await;
    assert_eq!(b.began(), 1, "{}", said());
    daemon.kill();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_what_a_run_of_the_foreground_asks_on_whichever_node_it_is_asked() {
    if !is_there("status_parked") {
        return;
    }
    let asks = json!({ "question": "In which unit?", "options": ["cents", "dollars"] });
    let world = World::of(1, |scenario| {
        let question = crate::outside::solo::calls(&[("agent__ask", asks)]);
        scenario.model.replies.insert(0, question);
    })
    .await;
    let server = super::server::Server::start();
    super::server::make_streams(&server.url(), 1);
    super::moving::clustered(&world, &server.url());
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (code, output, told) = a.start(&world).ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#} {told}");
    for node in [&a, &b] {
        let (_, out, err) = agentd(&world, node, true, &["status"]).await;
        let status: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
        let parked = &status["parked"][0];
        assert_eq!(
            (&parked["issue"], &parked["code"]),
            (&json!(7), &json!("question_pending")),
            "{status:#}"
        );
        assert_eq!(parked["asked"]["options"], json!(["cents", "dollars"]), "{status:#}");
        let (_, out, err) = agentd(&world, node, false, &["status"]).await;
        assert!(out.contains("demo/shop#7") && out.contains("question_pending"), "{out} {err}");
    }
    let (code, out, err) = agentd(&world, &a, false, &["answer", "7", "2"]).await;
    assert_eq!(code, Some(0), "{out} {err}");
    let (_, out, err) = agentd(&world, &b, false, &["status"]).await;
    assert!(out.contains("answered") && out.contains("agentd runs resume"), "{out} {err}");
    world.sim.shutdown().await;
}
