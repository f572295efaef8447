//! A store that is full, or slow: runs wait or are slower, none begins that would find no room, and nobody loses what they have.

use std::time::Duration;

use serde_json::{Value, json};

use super::assignments::{another, label, labels, node};
use super::daemons::{Daemon, all_runs};
use super::eater;
use super::moving::{clustered, document, run_ids, runs, with_client};
use super::running::world;
use super::server::{Server, is_there, three_with_gates};
use super::taking_over::{Node, shared};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// What the daemon of a node wrote of itself last.
fn status(node: &Node) -> Value {
    let text = std::fs::read_to_string(node.state.join("daemon/status.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The stream of journals may have so many bytes more than it has; `None` = as many as it likes.
fn room_for_journals(server: &Server, more: Option<u64>) {
    with_client(&server.url(), async |context| {
        let mut stream = context.get_stream("agentd_test_log").await.unwrap();
        let info = stream.info().await.unwrap();
        let most = more.map_or(-1, |more| i64::try_from(info.state.bytes + more).unwrap());
        let config = async_nats::jetstream::stream::Config { max_bytes: most, ..info.config.clone() };
        context.update_stream(config).await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn k_076_agentd_run_begins_nothing_while_the_store_is_full_and_one_that_works_waits() {
    if !is_there("k_076_run") {
        return;
    }
    let (world, server) = world(2).await;
    let a = node(&world, "a", 1).await;
    another(&world, 8);
    slow_model(&world, 3, 4_000);
    let working = a.start(&world);
    until("the second visit", || world.sim.model_requests().len() == 4).await;
    room_for_journals(&server, Some(300));
    let (config, state) = (a.config.to_str().unwrap(), &a.state);
    let (code, output) = document(&world, config, state, &["run", "--issue", "8"]).await;
    assert_eq!(
        (code, &output["stop_reason"], &output["stop_detail"]),
        (Some(1), &json!("SYSTEM_ERROR"), &json!("store_unavailable")),
        "{output:#}"
    );
    let told = output.to_string();
    assert!(told.contains("store_full: the stream agentd_test_log may have"), "{told}");
    assert_eq!(a.began(), 1, "nothing was made");
    // The answer of the visit under way finds no room: it is not gone on with what could not be noted.
    let has_it = || world.sim.model_requests().len();
    until("its answer is there", || a.has("visit_started", 2)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let asked = has_it();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(has_it(), asked, "nothing is asked that could not be noted");
    room_for_journals(&server, None);
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert_eq!(world.sim.model_requests().len(), 9, "nothing was asked twice");
    let (code, output) = document(&world, config, state, &["run", "--issue", "8"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_32_a_run_waits_while_the_stream_of_journals_is_full_none_begins_and_after_room_both_go_on() {
    if !is_there("h_32") {
        return;
    }
    let (world, server) = world(2).await;
    let a = node(&world, "a", 2).await;
    another(&world, 8);
    slow_model(&world, 3, 4_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the second visit", || world.sim.model_requests().len() == 4, || a.said()).await;
    room_for_journals(&server, Some(300));
    until_or("it says so", || status(&a)["store_full"].is_object(), || a.said()).await;
    let told = status(&a)["store_full"]["error"].as_str().unwrap().to_owned();
    assert!(told.contains("agentd_test_log"), "{told}");
    label(&world, 8);
    let code = |number: u64| {
        let rows = status(&a)["waiting"].as_array().cloned().unwrap_or_default();
        rows.iter().find(|row| row["issue"] == json!(number)).map(|row| row["code"].clone())
    };
    until_or("the next one waits", || code(8) == Some(json!("store_full")), || a.said()).await;
    let (config, state) = (a.config.to_str().unwrap(), &a.state);
    let (_, why) = document(&world, config, state, &["why", "8"]).await;
    let says = |rule: &Value| rule["rule"] == json!("daemon_goes_on") && rule["code"] == json!("store_full");
    assert!(why["rules"].as_array().unwrap().iter().any(says), "{why:#}");
    until_or("the run waits", || a.said().contains("waiting for the cluster's store"), || a.said()).await;
    let asked = world.sim.model_requests().len();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.sim.model_requests().len(), asked, "nothing is asked that could not be noted");
    assert_eq!((a.began(), labels(&world, 7)), (1, vec!["agentd".to_owned(), "agentd:running".to_owned()]));
    let run = run_ids(&a.state).pop().unwrap();
    assert!(shared(&server, &run).len() < a.journal().len(), "it is behind");
    room_for_journals(&server, None);
    let done = || [7, 8].iter().all(|number| labels(&world, *number) == ["agentd:done"]);
    until_or("both are done", done, || a.said()).await;
    until("it is over", || status(&a).get("store_full").is_none()).await;
    assert_eq!(world.sim.model_requests().len(), 18, "nothing was asked twice");
    assert_eq!(a.began(), 2);
    until("its last word is there", || {
        a.journal().last().is_some_and(|line| line["kind"] == json!("files_sealed"))
    })
    .await;
    daemon.stop().await;
    for run in run_ids(&a.state) {
        let own = std::fs::read_to_string(runs(&a.state).join(&run).join("events.jsonl")).unwrap();
        let own: Vec<Value> = own.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(shared(&server, &run), own, "{run}");
        assert_eq!(own[0]["data"]["held"]["session"], json!(1));
    }
    world.finish().await;
}

fn of_a_journal(answer: &[u8]) -> bool {
    eater::is_acknowledgement(answer)
        && String::from_utf8_lossy(answer).contains("\"stream\":\"agentd_test_log\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn h_50_a_store_that_takes_longer_than_a_second_is_said_to_be_slow_and_nobody_takes_over() {
    if !is_there("h_50") {
        return;
    }
    let (world, server) = world(1).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let late = eater::late(server.address(), of_a_journal, Duration::from_millis(1_200));
    let text = std::fs::read_to_string(&a.config).unwrap();
    std::fs::write(&a.config, text.replace(&server.url(), &format!("nats://{late}"))).unwrap();
    let first = Daemon::start(&world, &a);
    until("it polls", || a.said().contains("this node polls the repository now")).await;
    let second = Daemon::start(&world, &b);
    until("the other stands by", || b.state.join("daemon/status.json").exists()).await;
    label(&world, 7);
    let working = || [&a, &b].into_iter().find(|node| node.began() > 0);
    until_or("a node works", || working().is_some(), || a.said() + &b.said()).await;
    assert!(working().is_some_and(|node| node.state == a.state), "{}", b.said());
    until_or("it says so", || status(&a)["store_slow"].is_object(), || a.said()).await;
    let p99 = status(&a)["store_slow"]["p99_ms"].as_u64().unwrap();
    assert!((1_200..20_000).contains(&p99), "{p99}");
    let bare = world.dir.path().join("bare");
    let heard = || {
        let (_, told) = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(document(&world, "cluster.toml", &bare, &["status"]))
        });
        let nodes = told["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().any(|node| node["status"]["store_slow"]["p99_ms"].is_u64())
    };
    until("the others hear it", heard).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said() + &b.said()).await;
    world.assert_one_of_each();
    assert_eq!((a.began(), b.began()), (1, 0));
    let begin = a.journal().remove(0);
    assert_eq!((&begin["data"]["held"]["term"], &begin["data"]["held"]["session"]), (&json!(1), &json!(1)));
    assert!(status(&b).get("store_slow").is_none(), "the other one's way is not slow");
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_51_a_journal_is_published_again_where_the_servers_are_set_back_to_an_older_copy() {
    if !is_there("h_51") {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 3, 2_000);
    slow_model(&world, 5, 6_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the second visit", || world.sim.model_requests().len() == 4, || a.said()).await;
    let run = run_ids(&a.state).pop().unwrap();
    server.copied();
    let before = shared(&server, &run).len();
    until_or("the third visit", || world.sim.model_requests().len() == 6, || a.said()).await;
    let published = || shared(&server, &run).len() > before + 3;
    until_or("it is published", published, || a.said()).await;
    server.set_back();
    assert!(shared(&server, &run).len() <= before + 3, "it has an older copy");
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    until("its last word is there", || {
        a.journal().last().is_some_and(|line| line["kind"] == json!("files_sealed"))
    })
    .await;
    assert!(a.said().contains("is published again"), "{}", a.said());
    world.assert_one_of_each();
    assert_eq!((a.began(), world.sim.model_requests().len()), (1, 9), "nothing was asked twice");
    daemon.stop().await;
    assert_eq!(shared(&server, &run), a.journal());
    // Its files are there as well.
    let bare = world.dir.path().join("bare");
    let (code, verified) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
    assert_eq!((code, &verified["ok"]), (Some(0), &json!(true)), "{verified:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_27_a_node_that_is_cut_off_together_with_a_server_is_overtaken_and_one_node_holds_the_issue() {
    if !is_there("h_27") {
        return;
    }
    let world = World::new(2).await;
    let (three, gates) = tokio::task::block_in_place(three_with_gates);
    clustered(&world, &three.servers[2].url());
    let b = node(&world, "b", 1).await;
    clustered(&world, &format!("{}\", \"{}", three.servers[0].url(), three.servers[1].url()));
    let a = node(&world, "a", 1).await;
    let first = Daemon::start(&world, &b);
    until_or("it polls", || b.said().contains("this node polls the repository now"), || b.said()).await;
    slow_model(&world, 5, 20_000);
    label(&world, 7);
    until_or("the third visit", || world.sim.model_requests().len() == 6, || b.said()).await;
    gates.iter().for_each(eater::Gate::cut);
    let writes = world.sim.requests().len();
    let second = Daemon::start(&world, &a);
    let both = || [&a, &b].map(Node::said).join("\n---\n");
    until_or("another goes on", || a.began() > 0, both).await;
    until_or("it is done", || world.labels() == ["agentd:done"], both).await;
    world.assert_one_of_each();
    assert_eq!(a.journal()[0]["data"]["held"]["term"], json!(2));
    assert!(world.sim.requests().len() > writes);
    gates.iter().for_each(eater::Gate::open);
    let overtaken = || {
        runs(&b.state).join(&run_ids(&b.state)[0]).join("overtaken.jsonl").exists()
            || b.said().contains("overtaken")
    };
    until_or("the other one sees that", overtaken, both).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.assert_one_of_each();
    // The one that was taken over, and the one that went on with it.
    assert_eq!((all_runs([&a, &b]), world.labels()), (2, vec!["agentd:done".to_owned()]), "{}", both());
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_079_a_lease_that_the_servers_lost_is_taken_anew_where_nobody_took_it_and_no_visit_is_made_again() {
    if !is_there("k_079") {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = node(&world, "a", 1).await;
    slow_model(&world, 5, 8_000);
    let daemon = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    server.copied();
    label(&world, 7);
    until_or("the third visit", || world.sim.model_requests().len() == 6, || a.said()).await;
    let run = run_ids(&a.state).pop().unwrap();
    let published = || {
        shared(&server, &run)
            .iter()
            .any(|line| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3)
    };
    until_or("it is published", published, || a.said()).await;
    server.set_back();
    assert!(shared(&server, &run).is_empty(), "the copy knows nothing of it");
    until_or("the issue is taken anew", || a.said().contains("an issue is taken anew"), || a.said()).await;
    assert_eq!((held(&server)["term"].clone(), held(&server)["state"].clone()), (json!(1), json!("leased")));
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    until("its last word is there", || {
        a.journal().last().is_some_and(|line| line["kind"] == json!("files_sealed"))
    })
    .await;
    world.assert_one_of_each();
    assert_eq!((a.began(), world.sim.model_requests().len()), (1, 9), "nothing was asked twice");
    super::assignments::nothing_left(&server).await;
    daemon.stop().await;
    assert_eq!(shared(&server, &run), a.journal());
    world.finish().await;
}

/// What the issue's cell says.
fn held(server: &Server) -> Value {
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let last =
            stream.get_last_raw_message_by_subject("agentd.test.cell.issue.demo.shop.7").await.unwrap();
        serde_json::from_slice(last.payload.trim_ascii()).unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn k_079_a_lease_that_the_servers_lost_and_another_took_is_lost_and_nothing_is_written_by_who_had_it() {
    if !is_there("k_079_taken") {
        return;
    }
    let (world, mut server) = world(2).await;
    let (a, c) = (node(&world, "a", 1).await, node(&world, "c", 1).await);
    slow_model(&world, 5, 600_000);
    let daemon = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    server.copied();
    label(&world, 7);
    until_or("the third visit", || world.sim.model_requests().len() == 6, || a.said()).await;
    daemon.signal("-STOP");
    server.set_back();
    let (code, output, said) = c.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    let asked = world.sim.requests().len();
    let paid = world.sim.model_requests().len();
    daemon.signal("-CONT");
    let overtaken = || a.said().contains("another node of the cluster may have the issue now");
    until_or("it sees that", overtaken, || a.said()).await;
    // It polls some more times.
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.assert_one_of_each();
    assert_eq!(super::daemons::written(&world, asked), Vec::<String>::new(), "{}", a.said());
    assert_eq!((world.sim.model_requests().len(), world.labels()), (paid, vec!["agentd:done".to_owned()]));
    daemon.stop().await;
    world.finish().await;
}
