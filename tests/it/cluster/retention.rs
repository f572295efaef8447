//! What is past `cluster.retention` is gone from the store, and holds nobody up.

use async_nats::jetstream::stream::Stream;

use super::moving::{document, with_client};
use super::running::world;
use super::server::{Server, is_there};
use super::taking_over::Node;

/// Takes a stream's messages as the servers do when they are past their time: all of them, or all but the last.
fn expire(server: &Server, stream: &str, but_the_last: bool) {
    with_client(&server.url(), async |context| {
        let mut stream: Stream = context.get_stream(stream).await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        match but_the_last {
            true => stream.purge().sequence(last).await.unwrap(),
            false => stream.purge().await.unwrap(),
        };
        let left = stream.info().await.unwrap().state.messages;
        assert_eq!(left, u64::from(but_the_last));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn k_020_an_issue_whose_last_run_is_past_its_time_has_its_next_run_on_any_node() {
    if !is_there("k_020_retention") {
        return;
    }
    for but_the_last in [true, false] {
        let (world, server) = world(2).await;
        let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
        let run = async |node: &Node, file: &str| {
            document(&world, file, &node.state, &["run", "--issue", "7"]).await
        };
        let (code, output) = run(&a, "a.toml").await;
        assert_eq!(code, Some(0), "{output:#}");
        expire(&server, "agentd_test_log", but_the_last);
        for stream in ["agentd_test_runs", "OBJ_agentd_test_blobs"] {
            expire(&server, stream, false);
        }
        world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
        let (code, output) = run(&b, "b.toml").await;
        assert_eq!(code, Some(0), "all but the last: {but_the_last}: {output:#}");
        assert_eq!((a.began(), b.began()), (1, 1));
        world.assert_one_of_each();
        world.finish().await;
    }
}
