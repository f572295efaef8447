//! Runs of one repository on several nodes: its poller gives each to the node with the worktree, else to the one with the most room, and
//! follows it there, whichever of both dies.

use serde_json::{Value, json};

use super::daemons::Daemon;
use super::moving::{document, run_ids};
use super::running::world;
use super::server::{Server, is_there};
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// A node whose daemon may have so many runs.
pub async fn node(world: &World, name: &str, runs: u32) -> Node {
    let node = Node::of(world, name).await;
    let text = std::fs::read_to_string(&node.config).unwrap();
    let daemon = format!(
        "\n[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = {runs}\nmax_runs_per_repository = 8\n"
    );
    std::fs::write(&node.config, text + &daemon).unwrap();
    node
}

pub fn another(world: &World, number: u64) {
    let mut issue =
        serde_json::to_value(json!({ "number": number, "title": "Another one", "author": "ada" })).unwrap();
    issue["body"] = json!(world.sim.issue("demo/shop", 7).unwrap().body);
    world.sim.add_issue("demo/shop", &serde_json::from_value(issue).unwrap()).unwrap();
}

pub fn label(world: &World, number: u64) {
    world.sim.add_label("demo/shop", number, "agentd", "ada");
}

pub fn labels(world: &World, number: u64) -> Vec<String> {
    world.sim.issue("demo/shop", number).unwrap().labels
}

/// A poller without much room, and a node with a lot of it: a run goes to the second.
pub async fn two(rounds: usize) -> (World, Server, [Node; 2], [Daemon; 2]) {
    two_with_lease(rounds, "3s").await
}

/// The same with another lease.
async fn two_with_lease(rounds: usize, lease: &str) -> (World, Server, [Node; 2], [Daemon; 2]) {
    let (world, server) = world(rounds).await;
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &text.replace("lease = \"3s\"", &format!("lease = \"{lease}\"")));
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
    let first = Daemon::start(&world, &a);
    until("it polls", || a.said().contains("this node polls the repository now")).await;
    let second = Daemon::start(&world, &b);
    until("the other stands by", || world.dir.path().join("b/state/daemon/status.json").exists()).await;
    (world, server, [a, b], [first, second])
}

/// The issue is labelled, and its third visit waits so long for the model on a node.
pub async fn third_visit(world: &World, node: &Node, delay_ms: u64) {
    slow_model(world, 5, delay_ms);
    label(world, 7);
    until("the third visit", || node.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
}

/// The run comes to its end on the second node, and on no other.
async fn done_by_the_second(world: World, server: Server, [a, b]: [&Node; 2], second: Daemon) {
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    world.assert_one_of_each();
    assert_eq!((a.began(), b.began()), (0, 1));
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}

/// What a node's cell says that it has room for.
fn capacity(server: &Server, node: &str) -> u64 {
    let read = || {
        super::server::with_client(&server.url(), async |context| {
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let subject = format!("agentd.test.cell.node.{node}");
            // There is none before its session has begun.
            let Ok(last) = stream.get_last_raw_message_by_subject(&subject).await else { return 0 };
            let cell: Value = serde_json::from_slice(last.payload.trim_ascii()).unwrap();
            cell["capacity"].as_u64().unwrap_or_default()
        })
    };
    tokio::task::block_in_place(read)
}

/// Waits until nothing is assigned any more.
pub async fn nothing_left(server: &Server) {
    until("no assignment is left", || {
        let left = || {
            super::server::with_client(&server.url(), async |context| {
                let stream = context.get_stream("agentd_test_cells").await.unwrap();
                let mut left = 0;
                let info = stream.info_with_subjects("agentd.test.cell.assignment.>").await.unwrap();
                let subjects = futures::TryStreamExt::try_collect::<Vec<_>>(info).await.unwrap();
                for (subject, _) in subjects {
                    let last = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
                    left += usize::from(!String::from_utf8_lossy(&last.payload).trim().is_empty());
                }
                left == 0
            })
        };
        tokio::task::block_in_place(left)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute and more of waiting: .ci/campaigns/cluster-cases"]
async fn h_06_runs_of_one_repository_work_on_the_nodes_that_have_room() {
    if !is_there("h_06") {
        return;
    }
    let (world, server) = world(12).await;
    let nodes = [node(&world, "a", 2).await, node(&world, "b", 2).await, node(&world, "c", 2).await];
    let first = Daemon::start(&world, &nodes[0]);
    until("it polls", || nodes[0].said().contains("this node polls the repository now")).await;
    let others = [Daemon::start(&world, &nodes[1]), Daemon::start(&world, &nodes[2])];
    let stands_by = |node: &Node| node.state.join("daemon/status.json").exists();
    until("the others stand by", || nodes.iter().all(stands_by)).await;
    for number in 8..13 {
        another(&world, number);
    }
    for number in 7..13 {
        label(&world, number);
    }
    let done = || (7..13).all(|number| labels(&world, number) == ["agentd:done"]);
    until_or("all are done", done, || nodes.each_ref().map(Node::said).join("\n---\n")).await;
    let began = nodes.each_ref().map(Node::began);
    assert_eq!(began.iter().sum::<usize>(), 6, "one run for each: {began:?}");
    assert!(began.iter().all(|runs| (1..=4).contains(runs)), "{began:?}");
    assert_eq!(world.sim.pulls("demo/shop").len(), 6);
    for number in 7..13 {
        assert_eq!(world.sim.issue("demo/shop", number).unwrap().comments.len(), 1, "{number}");
    }
    nothing_left(&server).await;
    // Where an issue was worked on, it is worked on again.
    let worktree = |node: &Node| node.checkout.join(".worktrees/issue-12").exists();
    let at = nodes.iter().position(worktree).unwrap();
    let before = began;
    world.sim.remove_label("demo/shop", 12, "agentd:done", "ada");
    label(&world, 12);
    until("once more", || nodes[at].began() == before[at] + 1).await;
    until("it is done again", done).await;
    assert_eq!(nodes.each_ref().map(Node::began).iter().sum::<usize>(), 7);
    first.stop().await;
    for other in others {
        other.stop().await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_run_on_a_node_that_dies_is_gone_on_with_by_its_poller() {
    if !is_there("h_10_offered") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(2).await;
    third_visit(&world, &b, 600_000).await;
    assert_eq!(a.began(), 0);
    // The cluster's status tells of it once, as the other node's.
    let bare = world.dir.path().join("bare");
    let (_, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    let running = told["status"]["running"].as_array().unwrap();
    assert_eq!(running.iter().map(|run| &run["node"]).collect::<Vec<_>>(), [&json!("b")], "{told:#}");
    second.kill();
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1, 2], "the third visit once more, the others not");
    assert_eq!(a.journal()[0]["data"]["previous_run"], json!(run_ids(&b.state).pop().unwrap()));
    nothing_left(&server).await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_03_a_run_outlives_its_poller_and_is_followed_by_the_next_one() {
    if !is_there("h_03_offered") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(1).await;
    third_visit(&world, &b, 8_000).await;
    first.kill();
    until_or("the next poller follows it", || b.said().contains("following a run"), || b.said()).await;
    done_by_the_second(world, server, [&a, &b], second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_40_a_poller_that_is_told_to_stop_leaves_its_runs_where_they_work() {
    if !is_there("h_40_offered") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(1).await;
    third_visit(&world, &b, 15_000).await;
    first.stop().await;
    assert!(
        !b.journal().iter().any(|line| line["kind"] == json!("run_ended")),
        "it does not wait for the run"
    );
    done_by_the_second(world, server, [&a, &b], second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_what_is_asked_at_the_poller_reaches_a_run_on_another_node() {
    if !is_there("h_37_offered") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(1).await;
    slow_model(&world, 3, 6_000);
    label(&world, 7);
    until("the second visit", || b.has("visit_started", 2) && world.sim.model_requests().len() == 4).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend").unwrap();
    let extended = || b.journal().iter().any(|line| line["kind"] == json!("budget_extended"));
    until_or("it is given more", extended, || a.said() + &b.said()).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd stop").unwrap();
    let detail = || {
        let ended = b.journal().into_iter().find(|line| line["kind"] == json!("run_ended"));
        ended.map_or(Value::Null, |line| line["data"]["stop"]["detail"].clone())
    };
    until_or("it is stopped", || detail() == json!("user_stop"), || a.said() + &b.said()).await;
    until("the labels say so", || world.labels() == ["agentd:attention"]).await;
    let given = b.journal().iter().filter(|line| line["kind"] == json!("budget_extended")).count();
    assert_eq!(given, 1);
    nothing_left(&server).await;
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_what_is_said_and_a_label_that_is_taken_off_reach_a_run_on_another_node() {
    if !is_there("h_37_label") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(1).await;
    for skip in [3, 5] {
        slow_model(&world, skip, 5_000);
    }
    label(&world, 7);
    until("the second visit", || b.has("visit_started", 2) && world.sim.model_requests().len() == 4).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd say Mind the rounding.").unwrap();
    let told = || {
        world.sim.model_requests().iter().any(|asked| asked.body.to_string().contains("Mind the rounding"))
    };
    until_or("the model is told", told, || a.said() + &b.said()).await;
    assert!(world.sim.remove_label("demo/shop", 7, "agentd", "ada"));
    let detail = || {
        let ended = b.journal().into_iter().find(|line| line["kind"] == json!("run_ended"));
        ended.map_or(Value::Null, |line| line["data"]["stop"]["detail"].clone())
    };
    until_or("it is stopped", || detail() == json!("label_removed"), || a.said() + &b.said()).await;
    assert_eq!((a.began(), b.began()), (0, 1));
    nothing_left(&server).await;
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_40_a_node_that_is_told_to_stop_gives_its_run_back_to_the_poller() {
    if !is_there("h_40_given_back") {
        return;
    }
    let (world, server, [a, b], [first, second]) = two(2).await;
    third_visit(&world, &b, 3_000).await;
    second.stop().await;
    assert!(b.has("visit_finished", 3), "it finishes the visit that is under way");
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 1, "a finished visit is not made again");
    assert_eq!(asked_for(&world, "You review another's work"), 1, "nor the one that was under way");
    nothing_left(&server).await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_13_a_node_that_stands_still_before_it_answers_gets_nothing_and_begins_nothing() {
    if !is_there("h_13_assigned") {
        return;
    }
    // Nobody takes it for gone, however long it takes until the run is decided on.
    let (world, server, [a, b], [first, second]) = two_with_lease(1, "15s").await;
    until("it has said what it has room for", || capacity(&server, "b") == 4).await;
    second.signal("-STOP");
    label(&world, 7);
    until("it is assigned", || a.said().contains("assigning a run to another node")).await;
    until_or("the poller works on it itself", || world.labels() == ["agentd:done"], || a.said()).await;
    second.signal("-CONT");
    nothing_left(&server).await;
    world.assert_one_of_each();
    assert_eq!((a.began(), b.began()), (1, 0));
    first.stop().await;
    second.stop().await;
    world.finish().await;
}
