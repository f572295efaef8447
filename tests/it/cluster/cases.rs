//! Cases of the specification's table in which several things meet: labels and kills, stores that go away, nodes that are cut off.

use std::sync::Barrier;
use std::time::Duration;

use agentd::domain::approval::{APPROVAL_SCHEMA, Approval};
use agentd::domain::issue::IssueKey;
use agentd::domain::name::RepoName;
use agentd::domain::policy::{ProposalKind, Resource};
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::store::approvals::Approvals;
use agentd::store::run_dir::StateDir;
use chrono::{DateTime, TimeDelta};
use serde_json::json;

use super::assignments::{another, label, labels, node};
use super::daemons::{Daemon, all_runs, written};
use super::eater::Gate;
use super::moving::{clustered, document, run_ids, runs};
use super::running::world;
use super::server::{Server, Three, connect, is_there, make_streams};
use super::taking_over::{Node, issue_cell, shared};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::World;

/// Something goes wrong in the simulator.
fn fault(world: &World, fault: serde_json::Value) {
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
}

/// Whether the last run of a node has its end and its seal.
fn is_sealed(node: &Node) -> bool {
    node.journal().iter().any(|line| line["kind"] == json!("files_sealed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn h_04_the_label_off_and_on_while_a_run_works_is_one_further_run_after_it() {
    if !is_there("h_04") {
        return;
    }
    let (world, _server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 2, 3_000);
    let (first, second) = (Daemon::start(&world, &a), Daemon::start(&world, &b));
    label(&world, 7);
    until("the third request", || world.sim.model_requests().len() == 3).await;
    assert!(world.sim.remove_label("demo/shop", 7, "agentd", "ada"));
    label(&world, 7);
    let both = || [&a, &b].map(|node| node.said()).join("\n---\n");
    until_or("a further run", || all_runs([&a, &b]) == 2, both).await;
    assert!(world.sim.model_requests().len() >= 9, "the first one was at its end");
    until_or("it is done", || world.labels() == ["agentd:done"], both).await;
    // Both look once more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((world.labels(), all_runs([&a, &b])), (vec!["agentd:done".to_owned()], 2));
    world.assert_one_of_each();
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_15_a_run_that_is_killed_on_three_nodes_has_failed_and_no_node_begins_a_fourth() {
    if !is_there("h_15") {
        return;
    }
    let (world, server) = world(5).await;
    let nodes = ["a", "b", "c", "d"];
    let nodes = futures::future::join_all(nodes.map(|name| Node::of(&world, name))).await;
    label(&world, 7);
    for node in &nodes[..3] {
        let asked = world.sim.model_requests().len();
        slow_model(&world, 1, 600_000);
        let daemon = Daemon::start(&world, node);
        until_or("it works", || world.sim.model_requests().len() > asked + 1, || node.said()).await;
        daemon.kill();
    }
    let asked = world.sim.model_requests().len();
    let last = Daemon::start(&world, &nodes[3]);
    until_or("it has failed", || world.labels() == ["agentd:failed"], || nodes[3].said()).await;
    until("its end is written", || is_sealed(&nodes[3])).await;
    // It looks once more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((world.labels(), world.sim.model_requests().len()), (vec!["agentd:failed".to_owned()], asked));
    for node in &nodes[..3] {
        let lines = shared(&server, &run_ids(&node.state)[0]);
        let end = lines.iter().find(|line| line["kind"] == json!("run_ended")).unwrap();
        assert_eq!(end["data"]["stop"]["detail"], json!("interrupted"), "{end:#}");
    }
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(comments[0].body.contains("was killed") && comments[0].body.contains("and in 2 more"));
    assert!(world.sim.pulls("demo/shop").is_empty());
    last.stop().await;
    world.finish().await;
}

/// Five runs on two nodes, and a store that goes away for longer than two leases.
async fn all_away(world: World, servers: &mut [Server], kills: bool) {
    let nodes = [node(&world, "a", 2).await, node(&world, "b", 3).await];
    let first = Daemon::start(&world, &nodes[0]);
    until("it polls", || nodes[0].said().contains("this node polls the repository now")).await;
    let second = Daemon::start(&world, &nodes[1]);
    until("the other stands by", || nodes[1].state.join("daemon/status.json").exists()).await;
    let issues = 7..12;
    issues.clone().skip(1).for_each(|number| another(&world, number));
    fault(&world, json!({ "path": "/model/**", "kind": "delay", "delay_ms": 1_500, "skip": 5, "times": 0 }));
    issues.clone().for_each(|number| label(&world, number));
    let began = || nodes.each_ref().map(Node::began);
    until("all work", || began().iter().sum::<usize>() == 5 && world.sim.model_requests().len() >= 10).await;
    let before = began();
    assert_eq!(before, [2, 3]);
    let of_all = || {
        let of =
            |node: &Node| run_ids(&node.state).into_iter().map(|run| runs(&node.state).join(run)).collect();
        nodes.iter().flat_map(|node| -> Vec<_> { of(node) }).collect::<Vec<_>>()
    };
    let name = |run: &std::path::Path| run.file_name().unwrap().to_str().unwrap().to_owned();
    let kept: Vec<(String, Vec<serde_json::Value>)> =
        of_all().iter().map(|run| (name(run), shared(&servers[0], &name(run)))).collect();
    assert!(kept.iter().map(|(_, lines)| lines.len()).sum::<usize>() > 50, "they have written something");
    servers.iter_mut().for_each(|server| if kills { server.kill() } else { server.signal("-STOP") });
    tokio::time::sleep(Duration::from_secs(8)).await;
    let asked = world.sim.model_requests().len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.sim.model_requests().len(), asked, "nothing begins without the store");
    world.sim.world().faults.clear();
    servers.iter_mut().for_each(|server| if kills { server.run() } else { server.signal("-CONT") });
    servers.iter().for_each(Server::wait);
    let done = || issues.clone().all(|number| labels(&world, number) == ["agentd:done"]);
    until_or("all are done", done, || nodes.each_ref().map(Node::said).join("\n---\n")).await;
    assert_eq!(began(), before, "each run stayed on its node, and none was begun anew");
    assert_eq!(world.sim.model_requests().len(), 5 * 9, "nothing was asked twice");
    assert_eq!(world.sim.pulls("demo/shop").len(), 5);
    for number in issues {
        assert_eq!(world.sim.issue("demo/shop", number).unwrap().comments.len(), 1, "{number}");
    }
    let ends = |run: &std::path::Path| std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    until("all are sealed", || of_all().iter().all(|run| ends(run).contains("\"files_sealed\""))).await;
    for (run, lines) in kept {
        let now = shared(&servers[0], &run);
        assert!(now.starts_with(&lines), "{run}: nothing acknowledged is missing: {lines:#?} {now:#?}");
        assert_eq!(now[0]["data"]["held"]["session"], json!(1));
        let (code, told) =
            document(&world, "cluster.toml", &world.dir.path().join("bare"), &["runs", "verify", &run]).await;
        assert_eq!((code, &told["ok"]), (Some(0), &json!(true)), "{told:#}");
    }
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute and more of waiting: .ci/campaigns/cluster-cases"]
async fn h_24_the_store_stands_still_for_all_and_no_run_changes_its_node() {
    if !is_there("h_24") {
        return;
    }
    let (world, server) = world(5).await;
    all_away(world, &mut [server], false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute and more of waiting: .ci/campaigns/cluster-cases"]
async fn h_49_all_servers_are_killed_and_back_and_nothing_acknowledged_is_missing() {
    if !is_there("h_49") {
        return;
    }
    let world = World::new(5).await;
    let mut three = tokio::task::block_in_place(Three::start);
    clustered(&world, &three.urls().replace(',', "\", \""));
    all_away(world, &mut three.servers, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_070_a_lease_that_cannot_be_given_back_is_given_back_as_soon_as_it_can() {
    if !is_there("k_070_given_back") {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    let gate = Gate::to(server.address());
    let text = std::fs::read_to_string(&a.config).unwrap();
    world.write("a.toml", &text.replace(&server.address(), &gate.address));
    let daemon = Daemon::start(&world, &a);
    gate.end_before(Some("\"state\":\"free\""));
    label(&world, 7);
    until_or("it is about to be given back", || gate.ended() > 0, || a.said()).await;
    assert_eq!(world.labels(), ["agentd:done"], "{}", a.said());
    until_or("the run has ended for its daemon", || daemon_works_on(&a) == Some(0), || a.said()).await;
    let state = || tokio::task::block_in_place(|| issue_cell(&server)["state"].clone());
    assert_eq!(state(), json!("leased"), "{}", a.said());
    gate.end_before(None);
    until_or("the lease is free", || state() == json!("free"), || a.said()).await;
    daemon.stop().await;
    world.assert_one_of_each();
    world.finish().await;
}

/// How many runs the daemon of a node says that it has; `None` = it has not said yet.
fn daemon_works_on(node: &Node) -> Option<usize> {
    let status = std::fs::read_to_string(node.state.join("daemon/status.json")).ok()?;
    let status: serde_json::Value = serde_json::from_str(&status).ok()?;
    status["running"].as_array().map(Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn h_25_a_node_that_is_cut_from_the_store_before_it_publishes_writes_nothing_and_another_publishes() {
    if !is_there("h_25") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let gate = Gate::to(server.address());
    let text = std::fs::read_to_string(&a.config).unwrap();
    world.write("a.toml", &text.replace(&server.address(), &gate.address));
    slow_model(&world, 8, 4_000);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the last request", || world.sim.model_requests().len() == 9, || a.said()).await;
    let run = run_ids(&a.state).pop().unwrap();
    gate.shut();
    let seen = world.sim.requests().len();
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(written(&world, seen), Vec::<String>::new(), "the answer came, and nothing was made of it");
    let second = Daemon::start(&world, &b);
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    until("its end is written", || is_sealed(&b)).await;
    world.assert_one_of_each();
    let (ended, lines) = (world.sim.requests().len(), shared(&server, &run));
    gate.open();
    until_or("it says so", || a.said().contains("another node"), || a.said()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(written(&world, ended), Vec::<String>::new());
    assert_eq!(shared(&server, &run), lines, "its late lines are refused");
    assert_eq!(b.journal()[0]["data"]["previous_run"], json!(run));
    world.assert_one_of_each();
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

/// A node's POST is held on its way, the node stands still, and another takes over; then the POST arrives, and the node goes on. The model
/// takes its time for the request behind `asked`.
async fn held(test: &str, (path, delay_ms): (&str, u32), asked: u32) {
    if !is_there(test) {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    fault(&world, json!({ "method": "POST", "path": path, "kind": "delay", "delay_ms": delay_ms }));
    slow_model(&world, asked, 5_000);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    let posted = || {
        let all = world.sim.requests().into_iter();
        all.filter(|request| request.method == "POST" && request.target == path).collect::<Vec<_>>()
    };
    until_or("it is on its way", || !posted().is_empty(), || a.said()).await;
    first.signal("-STOP");
    let second = Daemon::start(&world, &b);
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    until("its end is written", || is_sealed(&b)).await;
    until("the first one arrived", || posted()[0].status != 0).await;
    assert!(posted().len() > 1, "the second node did not wait for it");
    let comments = || world.sim.issue("demo/shop", 7).unwrap().comments.len();
    until_or("only one comment is left", || comments() == 1, || format!("{} {}", comments(), b.said())).await;
    world.assert_one_of_each();
    let ended = world.sim.requests().len();
    first.signal("-CONT");
    until_or("it says so", || a.said().contains("another node"), || a.said()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(written(&world, ended), Vec::<String>::new());
    world.assert_one_of_each();
    let begun = if runs(&a.state).exists() { run_ids(&a.state) } else { Vec::new() };
    for run in begun {
        let lines = shared(&server, &run);
        let ended = lines.iter().any(|line| line["kind"] == json!("run_ended"));
        assert!(lines.is_empty() || ended, "run {run} goes on for ever: {lines:?}");
    }
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_14_a_held_post_of_the_comment_arrives_after_a_takeover_and_there_is_one_comment() {
    held("h_14_comment", ("/repos/demo/shop/issues/7/comments", 20_000), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_14_a_held_post_of_the_pull_request_arrives_after_a_takeover_and_there_is_one() {
    held("h_14_pull", ("/repos/demo/shop/pulls", 20_000), 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_33_a_stream_that_was_deleted_is_named_and_not_made_again() {
    if !is_there("h_33") {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 2, 2_000);
    let daemon = Daemon::start(&world, &a);
    label(&world, 7);
    until("the third request", || world.sim.model_requests().len() == 3).await;
    super::moving::with_client(&server.url(), async |context| {
        context.delete_stream("agentd_test_log").await.unwrap();
    });
    until_or("it is named", || a.said().contains("agentd_test_log"), || a.said()).await;
    let seen = world.sim.requests().len();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(written(&world, seen), Vec::<String>::new(), "the run waits");
    let config = a.config.to_str().unwrap();
    let (code, told) = document(&world, config, &world.dir.path().join("bare"), &["cluster", "doctor"]).await;
    assert_ne!(code, Some(0));
    assert!(told.to_string().contains("agentd_test_log"), "{told:#}");
    let again = super::moving::with_client(&server.url(), async |context| {
        context.get_stream("agentd_test_log").await.is_ok()
    });
    assert!(!again, "nobody makes it again");
    daemon.kill();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_08_money_of_a_day_for_four_requests_is_not_exceeded_by_six_on_three_nodes() {
    if !is_there("h_08") {
        return;
    }
    let (world, server) = world(6).await;
    fault(&world, json!({ "path": "/model/**", "kind": "delay", "delay_ms": 600_000, "times": 0 }));
    let nodes = [node(&world, "a", 4).await, node(&world, "b", 4).await, node(&world, "c", 4).await];
    // All ask for the same: their numbers have as many digits.
    (10..16).for_each(|number| another(&world, number));
    let capped = |cap: f64| {
        for node in &nodes {
            let text = std::fs::read_to_string(&node.config).unwrap();
            let (text, _) = text.split_once("\n[budgets]").unwrap_or((&text, ""));
            std::fs::write(&node.config, format!("{text}\n[budgets]\nmax_cost_per_day = {cap}\n")).unwrap();
        }
    };
    let start = |node: &Node, number: u64| {
        let log = std::fs::File::create(world.dir.path().join(format!("{number}.log"))).unwrap();
        let mut command = node.command(&world, &["run", "--issue", &number.to_string()]);
        command.stdout(log).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    // What one request sets aside at most.
    capped(1000.0);
    let mut ran = vec![start(&nodes[0], 10)];
    until("the first asks", || world.sim.model_requests().len() == 1).await;
    let spent = || {
        super::moving::with_client(&server.url(), async |context| {
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let subject = "agentd.test.cell.spend.*".to_owned();
            let last = stream.raw_message_builder().last_by_subject(subject).send().await.unwrap();
            serde_json::from_slice::<serde_json::Value>(&last.payload).unwrap()["reserved"].clone()
        })
    };
    let reserved = spent();
    let one = reserved.as_object().unwrap().values().next().unwrap().as_f64().unwrap();
    // The longest reply is what the money covers: only all of it being used up refuses a request.
    capped(one * 4.0);
    // Its process dies: what it has set aside stays spent.
    ran[0].kill().unwrap();
    ran.extend((11..16).map(|number| start(&nodes[number as usize % 3], number)));
    let begun = || {
        let journals = nodes.iter().flat_map(|node| {
            let runs = runs(&node.state);
            run_ids(&node.state).into_iter().map(move |run| runs.join(run).join("events.jsonl"))
        });
        // One that waits for money writes nothing of its first visit yet.
        let begins = |journal: &std::path::PathBuf| {
            std::fs::read_to_string(journal).is_ok_and(|text| text.contains("\"run_started\""))
        };
        journals.filter(begins).count()
    };
    let asked = || world.sim.model_requests().len();
    // The others wait for what these have set aside.
    let has_asked = || spent().as_object().is_some_and(|reserved| reserved.len() == asked());
    until("four ask, and all have begun", || asked() >= 4 && begun() == 6 && has_asked()).await;
    let reserved = spent();
    let reserved: Vec<f64> =
        reserved.as_object().unwrap().values().map(|worst| worst.as_f64().unwrap()).collect();
    for mut process in ran {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    // Four, and a fifth with a shorter reply, of what the others keep back for their last report.
    assert!(reserved.len() == asked() && (4..6).contains(&asked()), "{reserved:?} of {one}");
    assert!(reserved.iter().sum::<f64>() <= one * 4.0 + 1e-9, "{reserved:?} of {one}");
    world.finish().await;
}

#[test]
fn h_39_one_grant_is_used_by_one_of_the_nodes_that_propose_at_once_and_each_of_several_people_has_its_own() {
    if !is_there("h_39") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let repo = RepoName::parse("demo/shop").unwrap();
    let (now, person) =
        (DateTime::UNIX_EPOCH, Principal::new(PrincipalSource::Github, "1", Some("ada".into())));
    let nodes: Vec<Approvals> = (0..4)
        .map(|_| Approvals::new(&StateDir::on_nats("/nowhere".into(), connect(&server.url())), &repo))
        .collect();
    for round in 0..20 {
        let grant = Approval {
            schema_version: APPROVAL_SCHEMA.into(),
            proposal_hash: format!("{round:064x}"),
            resource: Resource { kind: ProposalKind::Tool, name: "write_file".into() },
            repo: repo.clone(),
            issue: IssueKey::Number(7),
            run_id: RunId(uuid::Uuid::nil()),
            principal: person.clone(),
            approver: person.clone(),
            granted_at: now,
            expires_at: now + TimeDelta::hours(24),
            files: None,
        };
        nodes[0].put(&grant).unwrap();
        let begin = Barrier::new(nodes.len());
        let takes = |node: &Approvals| {
            begin.wait();
            node.take(&grant.proposal_hash, person.id, now)
        };
        let taken: Vec<Option<Approval>> = std::thread::scope(|scope| {
            let at_once: Vec<_> = nodes.iter().map(|node| scope.spawn(|| takes(node))).collect();
            at_once.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().flatten().collect::<Vec<_>>(), [&grant], "round {round}");
        assert_eq!(nodes[1].find(&grant.proposal_hash, person.id, now), None);
        // Four nodes keep one each, for the runs of four people: each of these uses its own, and no other.
        let people: Vec<Principal> =
            ["2", "3", "4", "5"].map(|id| Principal::new(PrincipalSource::Github, id, None)).into();
        let given = |of: &Principal| Approval { principal: of.clone(), ..grant.clone() };
        std::thread::scope(|scope| {
            for (node, of) in nodes.iter().zip(&people) {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    node.put(&given(of)).unwrap();
                });
            }
        });
        for of in &people {
            assert_eq!(nodes[0].take(&grant.proposal_hash, of.id, now), Some(given(of)), "round {round}");
            assert_eq!(nodes[1].take(&grant.proposal_hash, of.id, now), None, "round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h_23_what_is_asked_while_the_store_is_gone_is_paid_for_by_nobody_and_done_once_when_it_is_back() {
    if !is_there("h_23") {
        return;
    }
    let (world, mut server) = world(3).await;
    let a = node(&world, "a", 2).await;
    let daemon = Daemon::start(&world, &a);
    slow_model(&world, 2, 2_000);
    label(&world, 7);
    another(&world, 8);
    until_or("the second visit", || world.sim.model_requests().len() == 3, || a.said()).await;
    server.kill();
    let is_away = || a.said().contains("the connection to the store is lost");
    until_or("it misses the store", is_away, || a.said()).await;
    // What was under way has come.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let paid = world.sim.model_requests().len();
    label(&world, 8);
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd stop").unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(world.sim.model_requests().len(), paid, "nothing is paid for meanwhile");
    assert_eq!(a.began(), 1);
    server.run();
    server.wait();
    until_or("the other is done", || labels(&world, 8) == ["agentd:done"], || a.said()).await;
    until_or("it is stopped", || world.labels() == ["agentd:attention"], || a.said()).await;
    assert_eq!(a.began(), 2);
    let ends = || {
        let of = |run: String| {
            let text = std::fs::read_to_string(runs(&a.state).join(run).join("events.jsonl")).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let ends = lines.filter(|line| line["kind"] == json!("run_ended"));
            ends.map(|line| line["data"]["stop"]["detail"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        run_ids(&a.state).into_iter().flat_map(of).collect::<Vec<_>>()
    };
    until_or("both have ended", || ends().len() == 2, || a.said()).await;
    // It polls some more times.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ends(), ["user_stop", "completed"]);
    assert_eq!(
        (labels(&world, 7), labels(&world, 8)),
        (vec!["agentd:attention".to_owned()], vec!["agentd:done".to_owned()])
    );
    let comments = |number| world.sim.issue("demo/shop", number).unwrap().comments.len();
    assert_eq!((comments(7), comments(8)), (3, 1), "what was asked with its answer, and one report each");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_38_an_extension_counts_once_over_a_takeover() {
    if !is_there("h_38") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    slow_model(&world, 5, 600_000);
    label(&world, 7);
    until_or(
        "the third visit",
        || a.has("visit_started", 3) && world.sim.model_requests().len() == 6,
        || a.said(),
    )
    .await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend").unwrap();
    let raised =
        |node: &Node| node.journal().iter().filter(|line| line["kind"] == json!("budget_extended")).count();
    until_or("it is given more", || raised(&a) == 1, || a.said()).await;
    let budgets = |node: &Node, kind: &str| {
        let lines = node.journal();
        let line = lines.iter().rev().find(|line| line["kind"] == json!(kind)).unwrap().clone();
        line["data"]["budgets"].clone()
    };
    let given = budgets(&a, "budget_extended");
    // What was read is told to the next poller at the end of the tick.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    first.kill();
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    // What it had is noted by the run that goes on, and the comment gives nothing more.
    assert_eq!((raised(&b), budgets(&b, "budget_extended")), (1, given));
    second.stop().await;
    world.finish().await;
}
