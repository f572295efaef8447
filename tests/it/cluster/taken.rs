//! Work that people take over and give back where it was made on another node than the one that reads their comments.

use serde_json::{Value, json};

use super::assignments::{label, node};
use super::daemons::{Daemon, all_runs};
use super::moving::clustered;
use super::server::{Server, is_there, make_streams};
use super::taking_over::Node;
use crate::conversation::pull_request::{admin, asked, comment, said};
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
async fn c_065_a_comment_takes_the_work_of_another_node_and_it_goes_on_from_what_was_pushed() {
    if !is_there("c_065_take") {
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
async fn c_065_what_somebody_has_on_a_node_that_is_gone_is_given_back_on_another_one() {
    if !is_there("c_065_gone") {
        return;
    }
    let (world, _server, [a, b], [first, second]) = working().await;
    let (code, has, said_by_b) = command(&world, &b, &["take", "7"]).await;
    assert_eq!(code, Some(0), "{has:#} {said_by_b}");
    // As long as that node lives it is given back there: nobody else knows what stands in its worktree.
    let (code, refused, _) = command(&world, &a, &["give-back", "7", "-m", "Go on."]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    assert!(refused.to_string().contains("on the node b, and not here"), "{refused:#}");
    comment(&world, 7, "ada", "/agentd give-back Go on.");
    until_or("it is refused", || !said(&world, 7, "do it on b").is_empty(), || a.said()).await;
    second.kill();
    let mut back = (None, Value::Null, String::new());
    for _ in 0..60 {
        back = command(&world, &a, &["give-back", "7", "-m", "Go on."]).await;
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
