//! Work that the end of a run leaves unpushed: the next run of the issue goes on with it, on whatever node that is, or it is told that
//! it stays where it is.

use agentd::sim::{FaultFile, Scenario};
use serde_json::{Value, json};

use super::daemons::Daemon;
use super::moving::{clustered, document, run_ids, with_client};
use super::running::world;
use super::server::{Server, is_there, make_streams};
use super::taking_over::{Node, asked_for, git, shared};
use crate::outside::daemons::{slow_model, until};
use crate::outside::world::World;

/// The model refuses one request after so many.
fn failing_model(world: &World, skip: u32) {
    let fault: FaultFile = serde_json::from_value(
        json!({ "path": "/model/**", "kind": "status", "status": 400, "skip": skip, "times": 1 }),
    )
    .unwrap();
    world.sim.inject(&fault).unwrap();
}

/// What the issue's cell has of what was left unpushed.
fn left(server: &Server) -> Value {
    let subject = "agentd.test.cell.issue.demo.shop.7";
    let cell: Value = with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let last = stream.get_last_raw_message_by_subject(subject).await.unwrap();
        serde_json::from_slice(last.payload.trim_ascii()).unwrap()
    });
    cell["record"]["unpushed"].clone()
}

fn pinned(output: &Value) -> Vec<String> {
    let warnings = output["warnings"].as_array().cloned().unwrap_or_default();
    let pinned = warnings.iter().filter(|warning| warning["code"].as_str().unwrap().starts_with("pinned"));
    pinned.map(|warning| warning["text"].as_str().unwrap().to_owned()).collect()
}

/// A run on a node that fails in its third visit, with the edits of the second committed. Gives the branch's commit and the run output.
async fn failed(world: &World, node: &Node) -> (String, Value) {
    failing_model(world, 5);
    let (code, output, said) = node.start(world).ended().await;
    assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {said}");
    assert!(agentd::sim::bare::head(&world.sim.git_dir("demo/shop").unwrap(), "feature/issue-7").is_none());
    let commit = git(world, &node.checkout, &["rev-parse", "feature/issue-7"]).await;
    let edited = git(world, &node.checkout, &["show", &format!("{commit}:lib/cart.sh")]).await;
    assert!(edited.contains("$1 * (100 - $2) / 100"), "{edited}");
    (commit, output)
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_a_failed_run_that_pushed_nothing_is_gone_on_with_on_another_node() {
    if !is_there("h_20") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (commit, output) = failed(&world, &a).await;
    assert_eq!(pinned(&output), Vec::<String>::new());
    let cell = left(&server);
    let run = run_ids(&a.state).pop().unwrap();
    assert_eq!(
        (&cell["run_id"], &cell["node"], &cell["commit"]),
        (&json!(run), &json!("a"), &json!(commit)),
        "{cell:#}"
    );
    assert!(cell["bundle"]["file"]["bytes"].as_u64().unwrap() > 0, "{cell:#}");
    // Its host is gone for good.
    std::fs::remove_dir_all(a.checkout.parent().unwrap()).unwrap();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert_eq!(b.journal()[0]["data"]["previous_run"], Value::Null, "it is no takeover");
    git(&world, &b.checkout, &["merge-base", "--is-ancestor", &commit, "feature/issue-7"]).await;
    world.assert_one_of_each();
    assert_eq!(left(&server), Value::Null, "all of it is pushed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_what_publish_none_left_is_gone_on_with_by_each_node_in_turn() {
    if !is_there("h_20_none") {
        return;
    }
    let (world, server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let mut commits: Vec<String> = Vec::new();
    for node in [&a, &b] {
        let (code, output, said) = node.start_with(&world, &["--publish", "none"]).ended().await;
        assert_eq!(code, Some(0), "{output:#} {said}");
        let commit = git(&world, &node.checkout, &["rev-parse", "feature/issue-7"]).await;
        for earlier in &commits {
            git(&world, &node.checkout, &["merge-base", "--is-ancestor", earlier, &commit]).await;
        }
        assert_eq!(left(&server)["commit"], json!(commit));
        commits.push(commit);
    }
    assert!(world.sim.pulls("demo/shop").is_empty());
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    git(&world, &a.checkout, &["merge-base", "--is-ancestor", &commits[1], "feature/issue-7"]).await;
    world.assert_one_of_each();
    assert_eq!(left(&server), Value::Null, "all of it is pushed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_work_that_is_too_large_for_others_stays_is_told_and_is_kept_when_it_has_to_give_way() {
    if !is_there("h_20_pinned") {
        return;
    }
    let (world, server) = world(3).await;
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &format!("{text}checkpoint_max = 1\n"));
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (commit, output) = failed(&world, &a).await;
    let told = pinned(&output);
    assert!(
        told.iter().any(|text| text.contains("not pushed") && text.contains("the node a alone")),
        "{told:?}"
    );
    assert_eq!(left(&server)["bundle"], Value::Null);
    let comment = &world.sim.issue("demo/shop", 7).unwrap().comments[0].body;
    assert!(comment.contains("on the node a alone"), "{comment}");
    let bare = world.dir.path().join("bare");
    let (_, why) = document(&world, "cluster.toml", &bare, &["why", "7"]).await;
    assert_eq!((&why["pinned"]["node"], &why["pinned"]["commit"]), (&json!("a"), &json!(commit)), "{why:#}");
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    let told = pinned(&output);
    assert!(
        told.iter().any(|text| text.contains("on the node a") && text.contains("without them")),
        "{told:?}"
    );
    let pushed = git(&world, &b.checkout, &["rev-parse", "feature/issue-7"]).await;
    // On the node that has it, it gives way to what is pushed by now.
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(output["stop_reason"], json!("OBJECTIVE_ACHIEVED"), "{code:?} {output:#} {said}");
    git(&world, &a.checkout, &["merge-base", "--is-ancestor", &pushed, "feature/issue-7"]).await;
    let own = run_ids(&a.state).pop().unwrap();
    let kept = git(&world, &a.checkout, &["rev-parse", &format!("refs/agentd/rescue/{own}")]).await;
    assert_eq!(kept, commit);
    world.finish().await;
}

/// A world whose model makes, beside its change, a file under Git LFS that no remote has.
pub async fn world_with_pointer() -> (World, Server) {
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 4\n", "a".repeat(64));
    world_with("logo.bin", &pointer, |_| ()).await
}

/// A world whose model makes a file beside its change; `more`: what else is changed of it.
async fn world_with(path: &str, content: &str, more: impl FnOnce(&mut Scenario)) -> (World, Server) {
    let writes = |scenario: &mut Scenario| {
        let mut call = scenario.model.replies[2].tool_calls[0].clone();
        (call.name, call.arguments) =
            ("write_file".to_owned(), Some(json!({ "path": path, "content": content })));
        scenario.model.replies[2].tool_calls.push(call);
        more(scenario);
    };
    let world = World::of(2, writes).await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    (world, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_commits_with_files_that_no_remote_has_stay_and_are_gone_on_with_where_they_are() {
    if !is_there("h_20_lfs") {
        return;
    }
    let (world, server) = world_with_pointer().await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let (commit, output) = failed(&world, &a).await;
    let told = pinned(&output).join("\n");
    assert!(told.contains("Git LFS") && told.contains("logo.bin") && told.contains("not pushed"), "{told}");
    assert_eq!((&left(&server)["commit"], &left(&server)["bundle"]), (&json!(commit), &Value::Null));
    // The other node's run ends before it has a worktree.
    let text = std::fs::read_to_string(&b.config).unwrap();
    std::fs::write(&b.config, text + "\n[worktree]\nsetup = [[\"false\"]]\n").unwrap();
    let (code, output, said) = b.start(&world).ended().await;
    assert_ne!(code, Some(0), "{output:#} {said}");
    assert_eq!(left(&server)["commit"], json!(commit), "it is not forgotten");
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    git(&world, &a.checkout, &["merge-base", "--is-ancestor", &commit, "feature/issue-7"]).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_19_a_former_host_goes_on_with_a_dead_run_although_it_has_commits_of_its_own() {
    if !is_there("h_19_own_commits") {
        return;
    }
    let (world, server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let text = std::fs::read_to_string(&a.config).unwrap();
    std::fs::write(&a.config, text + "checkpoint_max = 1\n").unwrap();
    let (commit, _) = failed(&world, &a).await;
    let asked = world.sim.model_requests().len();
    slow_model(&world, 5, 600_000);
    let working = b.start(&world);
    until("the third visit", || b.has("visit_started", 3) && world.sim.model_requests().len() == asked + 6)
        .await;
    let run = run_ids(&b.state).pop().unwrap();
    let third = |line: &Value| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3;
    until("it is published", || shared(&server, &run).iter().any(third)).await;
    working.kill();
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(a.journal()[0]["data"]["previous_run"], json!(run));
    assert_eq!(asked_for(&world, "Understand and plan"), 2, "no finished visit again");
    git(&world, &a.checkout, &["merge-base", "--is-ancestor", &commit, &format!("refs/agentd/rescue/{run}")])
        .await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_18_work_with_files_that_no_remote_has_is_gone_on_with_behind_the_border_before_it() {
    if !is_there("h_18_lfs") {
        return;
    }
    let (world, server) = world_with_pointer().await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 600_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&a.state).pop().unwrap();
    let third = |line: &Value| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3;
    until("it is published", || shared(&server, &run).iter().any(third)).await;
    let pinned: Vec<Value> =
        a.journal().into_iter().filter(|line| line["data"]["code"] == json!("pinned")).collect();
    let told = pinned[0]["data"]["text"].as_str().unwrap();
    assert!(pinned.len() == 1 && told.contains("logo.bin") && told.contains("after visit 2"), "{pinned:?}");
    working.kill();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 1, "others can have the first visit");
    assert_eq!(asked_for(&world, "Carry out the plan"), 2, "and not the second");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_the_label_once_more_has_another_daemon_go_on_with_what_a_failed_run_left() {
    if !is_there("h_20_daemons") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    failing_model(&world, 5);
    let first = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it has failed", || world.labels() == ["agentd:failed"]).await;
    let is_sealed = || a.journal().iter().any(|line| line["kind"] == json!("files_sealed"));
    until("its end is written", is_sealed).await;
    let commit = git(&world, &a.checkout, &["rev-parse", "feature/issue-7"]).await;
    first.kill();
    let second = Daemon::start(&world, &b);
    world.sim.remove_label("demo/shop", 7, "agentd:failed", "ada");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is done", || world.labels() == ["agentd:done"]).await;
    git(&world, &b.checkout, &["merge-base", "--is-ancestor", &commit, "feature/issue-7"]).await;
    world.assert_one_of_each();
    second.stop().await;
    world.finish().await;
}

/// The stream of files may have so many bytes more than it has.
fn room_for_files(server: &Server, more: u64) {
    with_client(&server.url(), async |context| {
        let mut stream = context.get_stream("OBJ_agentd_test_blobs").await.unwrap();
        let info = stream.info().await.unwrap();
        let most = i64::try_from(info.state.bytes + more).unwrap();
        let config = async_nats::jetstream::stream::Config { max_bytes: most, ..info.config.clone() };
        context.update_stream(config).await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn h_20_what_the_store_does_not_take_is_told_and_the_run_ends_all_the_same() {
    if !is_there("h_20_no_room") {
        return;
    }
    // What no compression makes smaller.
    let lines = (0..12_000).map(|_| uuid::Uuid::new_v4().simple().to_string());
    let refused = |scenario: &mut Scenario| {
        let third = &mut scenario.model.replies[5];
        third.delay_ms = 4_000;
        third.error = Some(serde_json::from_value(json!({ "status": 400 })).unwrap());
    };
    let content = lines.collect::<Vec<_>>().join("\n");
    let (world, server) = world_with("data.txt", &content, refused).await;
    let a = Node::of(&world, "a").await;
    let working = a.start(&world);
    let is_third = || a.has("visit_started", 3) && world.sim.model_requests().len() == 6;
    until("the third visit", is_third).await;

    let run = run_ids(&a.state).pop().unwrap();
    let third = |line: &Value| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3;
    until("it is published", || shared(&server, &run).iter().any(third)).await;
    room_for_files(&server, 130_000);
    let (code, output, said) = working.ended().await;
    assert_eq!((code, &output["stop_reason"]), (Some(1), &json!("SYSTEM_ERROR")), "{output:#} {said}");
    let told = pinned(&output).join("\n");
    assert!(told.contains("on the node a alone"), "{told}");
    let commit = git(&world, &a.checkout, &["rev-parse", "feature/issue-7"]).await;
    assert_eq!((&left(&server)["commit"], &left(&server)["bundle"]), (&json!(commit), &Value::Null));
    world.finish().await;
}
