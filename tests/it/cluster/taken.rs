//! What people write where several nodes work: work that they take over and give back on another node than the one that reads their
//! comments, a run by hand that is to stop, and words of another node's account, which are nobody's.

use serde_json::{Value, json};

use super::assignments::{label, node};
use super::daemons::{Daemon, all_runs};
use super::moving::clustered;
use super::server::{Server, is_there, make_streams};
use super::taking_over::Node;
use crate::conversation::pull_request::{REPO, admin, asked, comment, replies, review, said};
use crate::conversation::steering::{AT_ONCE, on_remote, run, until_labels, writes};
use crate::outside::daemons::{until, until_or};
use crate::outside::solo::{reports, solo_of};
use crate::outside::world::{World, text};

/// A run works on the node b in its first turn, and the node a polls the repository.
async fn working() -> (World, Server, [Node; 2], [Daemon; 2]) {
    let replies = vec![writes(3_000), reports("Done.", json!([]))];
    let world = solo_of(replies, None, AT_ONCE, |_| ()).await;
    world.configure(&["agent = \"solo\""]);
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    let second = Daemon::start(&world, &b);
    until("the other stands by", || world.dir.path().join("b/state/daemon/status.json").exists()).await;
    label(&world, 7);
    until_or("it works on b", || asked(&world) == 1 && b.began() == 1, || a.said() + &b.said()).await;
    (world, server, [a, b], [first, second])
}

/// What `agentd ARGS` on a node gives: how it ends, its document, and what it said.
async fn command(world: &World, node: &Node, args: &[&str]) -> (Option<i32>, Value, String) {
    let done = run(node.command(world, args)).await;
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap_or_default(), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_takes_the_work_of_another_node_and_it_goes_on_from_what_was_pushed() {
    if !is_there("taken_by_comment") {
        return;
    }
    let (world, _server, [a, b], [first, second]) = working().await;
    comment(&world, 7, "ada", "/agentd take");
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    until_or("the answer", || !said(&world, 7, "ada takes the work over").is_empty(), || a.said()).await;
    until_or("it is pushed", || on_remote(&world, "notes/1.md").is_some(), || b.said()).await;
    // Somebody works elsewhere, and pushes.
    let files = json!({ "elsewhere.txt": "from elsewhere\n" });
    let pushed = json!({ "branch": "feature/issue-7", "message": "By hand", "files": files });
    admin(&world, "POST", "commits", &pushed);
    comment(&world, 7, "ada", "/agentd give-back Keep elsewhere.txt.");
    until_or("it is told", || !said(&world, 7, "gave the work back").is_empty(), || a.said()).await;
    until_labels(&world, &["agentd:done"]).await;
    let prompt = world.told(1);
    for part in ["Keep elsewhere.txt.", "A elsewhere.txt +1", "give-back of ada"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!((all_runs([&a, &b]), asked(&world)), (2, 2), "{}", b.said());
    assert_eq!(on_remote(&world, "elsewhere.txt").as_deref(), Some("from elsewhere\n"));
    first.stop().await;
    second.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_has_on_a_node_that_is_gone_is_given_back_on_another_one() {
    if !is_there("taken_and_gone") {
        return;
    }
    let (world, _server, [a, b], [first, second]) = working().await;
    let (code, has, said_by_b) = command(&world, &b, &["take", "7"]).await;
    assert_eq!(code, Some(0), "{has:#} {said_by_b}");
    // As long as that node lives it is given back there: nobody else knows what stands in its worktree.
    let (code, refused, _) = command(&world, &a, &["give-back", "7", "-m", "Go on."]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    assert!(refused.to_string().contains("on the node b, and not here"), "{refused:#}");
    // What `why` advises is what is not refused.
    for (node, todo) in [(&a, "on the node b: give-back 7"), (&b, "agentd give-back 7, or the comment")] {
        let (_, why, _) = command(&world, node, &["why", "7"]).await;
        assert!(why["do"].as_str().is_some_and(|told| told.starts_with(todo)), "{why:#}");
    }
    comment(&world, 7, "ada", "/agentd give-back Go on.");
    until_or("it is refused", || !said(&world, 7, "do it on b").is_empty(), || a.said()).await;
    second.kill();
    let (code, refused, _) = command(&world, &a, &["give-back", "7", "-m", "Go on."]).await;
    assert_eq!(code, Some(4), "what stands there is not left behind without a word: {refused:#}");
    let mut back = (None, Value::Null, String::new());
    for _ in 0..60 {
        back = command(&world, &a, &["give-back", "7", "--elsewhere", "-m", "Go on."]).await;
        if back.0 == Some(0) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert_eq!(back.0, Some(0), "{:#} {}", back.1, back.2);
    assert_eq!(back.1["stays_on"], "b", "{:#}", back.1);
    until_labels(&world, &["agentd:done"]).await;
    let prompt = world.told(1);
    assert!(prompt.contains("Go on."), "{prompt}");
    first.stop().await;
    world.sim.shutdown().await;
}

/// A world whose agent reports after each change, and its one node.
async fn alone(runs: usize, model: &[agentd::sim::ReplyFile]) -> (World, Server, Node) {
    let all = [model.to_vec(), replies(runs)].concat();
    let world = solo_of(all, None, AT_ONCE, |_| ()).await;
    world.configure(&["agent = \"solo\""]);
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let a = node(&world, "a", 4).await;
    (world, server, a)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_nodes_account_wrote_for_agentd_starts_no_round() {
    if !is_there("two_accounts") {
        return;
    }
    let (world, _server, a) = alone(2, &[]).await;
    admin(&world, "PUT", "collaborators/bee", &json!({ "role": "write" }));
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_labels(&world, &["agentd:done"]).await;
    let pull = world.sim.pulls(REPO)[0].number;
    let words = "<!-- agentd:issue-7:thread-1 -->\nDeclined, says another node.";
    review(&world, pull, "bee", "CHANGES_REQUESTED", words, &[]);
    // It was read by the time that this one is.
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Please mend this.", &[]);
    let ended = || {
        let dirs = super::moving::runs(&a.state).read_dir().unwrap().flatten();
        dirs.filter(|dir| dir.path().join("result.json").exists()).count()
    };
    until_or("a second run", || ended() == 2, || a.said()).await;
    let told: Vec<String> =
        world.sim.model_requests().iter().map(|request| request.body.to_string()).collect();
    assert!(told.iter().any(|told| told.contains("Please mend this.")), "{told:?}");
    assert!(!told.iter().any(|told| told.contains("says another node")), "{told:?}");
    assert_eq!(a.began(), 2, "{}", a.said());
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_stops_a_run_of_agentd_run_and_what_is_said_is_queued_for_it() {
    if !is_there("stopped_by_comment") {
        return;
    }
    let (world, _server, a) = alone(0, &[writes(6_000), reports("Stopped.", json!([]))]).await;
    let daemon = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    let c = Node::of(&world, "c").await;
    let by_hand = c.start(&world);
    until_or("it works", || asked(&world) == 1 && c.began() == 1, || a.said()).await;
    comment(&world, 7, "ada", "/agentd say Mind the gap.");
    until_or("it is queued", || !said(&world, 7, "Queued for run ").is_empty(), || a.said()).await;
    comment(&world, 7, "ada", "/agentd stop");
    until_or("it is told", || !said(&world, 7, "ada asked run ").is_empty(), || a.said()).await;
    let (code, output, told) = by_hand.ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("user_stop")), "{output:#} {told}");
    daemon.stop().await;
    world.sim.shutdown().await;
}
