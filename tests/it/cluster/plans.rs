//! A plan that waits for its approval while its node goes: the next one hears what people say of it, once, and makes none anew.

use agentd::sim::Scenario;
use serde_json::{Value, json};

use super::assignments::{label, node, nothing_left};
use super::daemons::Daemon;
use super::moving::{clustered, document};
use super::server::{Server, is_there, make_streams};
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{slow_model, until_or};
use crate::outside::world::World;

const REPO: &str = "demo/shop";

fn people(scenario: &mut Scenario) {
    scenario.users.push(serde_json::from_value(json!({ "login": "max" })).unwrap());
    let may = serde_json::from_value(json!("write")).unwrap();
    scenario.repositories[0].collaborators.insert("max".to_owned(), may);
}

/// A world on a cluster's store whose every plan has to be approved.
async fn gated(rounds: usize) -> (World, Server) {
    let world = World::of(rounds, people).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let plan = "[conversation]\nquiet_period = \"1s\"\n[plan]\ngate = \"always\"\n";
    world.write("overlay.toml", &format!("{overlay}\n{plan}"));
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    (world, server)
}

/// Id and text of the issue's plan of this number.
fn plan(world: &World, number: u32) -> Option<(u64, String)> {
    let marked = format!("issue-7:plan-{number} ");
    let comments = world.sim.issue(REPO, 7).unwrap().comments;
    comments.into_iter().find(|one| one.body.contains(&marked)).map(|one| (one.id, one.body))
}

fn told(world: &World, what: &str) -> usize {
    world.sim.issue(REPO, 7).unwrap().comments.iter().filter(|one| one.body.contains(what)).count()
}

fn made(world: &World) -> [usize; 2] {
    ["Understand and plan", "Carry out the plan"].map(|words| asked_for(world, words))
}

fn said(world: &World, nodes: &[&Node]) -> String {
    let logs = nodes.iter().map(|node| node.said()).collect::<Vec<_>>().join("\n---\n");
    format!("{:?} {:#?}\n{logs}", world.labels(), world.sim.issue(REPO, 7).unwrap().comments)
}

async fn parked(world: &World, number: u32, nodes: &[&Node]) {
    let waits = || {
        let mut labels = world.labels();
        labels.sort();
        labels == ["agentd", "agentd:needs-input"] && plan(world, number).is_some()
    };
    until_or("the plan waits", waits, || said(world, nodes)).await;
}

async fn polls(node: &Node, times: usize) {
    let polls = || node.said().matches("this node polls the repository now").count() >= times;
    until_or("it polls", polls, || node.said()).await;
}

async fn stands_by(node: &Node) {
    until_or("it stands by", || node.said().contains("watching demo/shop"), || node.said()).await;
    until_or("it says so", || node.state.join("daemon/status.json").exists(), || node.said()).await;
}

/// What a node without a run knows.
async fn asked(world: &World, args: &[&str]) -> (Option<i32>, Value) {
    document(world, "cluster.toml", &world.dir.path().join("bare"), args).await
}

/// What is asked of GitHub so takes so long.
fn slow(world: &World, method: &str, path: &str, delay_ms: u32) {
    let slow = json!({ "method": method, "path": path, "kind": "delay", "delay_ms": delay_ms, "times": 0 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
}

async fn done(world: &World, nodes: &[&Node]) {
    let is_done = || world.labels().contains(&"agentd:done".to_owned());
    until_or("it is done", is_done, || said(world, nodes)).await;
    assert_eq!(
        (world.sim.pulls(REPO).len(), told(world, "agentd:issue-7 ")),
        (1, 1),
        "{}",
        said(world, nodes)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn k_057_a_plan_of_a_drained_node_is_made_again_and_approved_by_comments_on_the_next_ones() {
    if !is_there("k_057_plan") {
        return;
    }
    let (world, server) = gated(2).await;
    let (a, b) = (node(&world, "a", 2).await, node(&world, "b", 2).await);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    parked(&world, 1, &[&a]).await;
    let second = Daemon::start(&world, &b);
    stands_by(&b).await;
    let (code, drained) = asked(&world, &["cluster", "drain", "a"]).await;
    assert_eq!((code, &drained["heard"]), (Some(0), &json!(true)), "{drained:#}");
    // Somebody changes it while nobody polls, or one of both does.
    world.sim.add_comment(REPO, 7, "max", "/agentd reject Round half up, please.").unwrap();
    let ended = first.ends().await;
    assert!(ended.success(), "{ended:?} {}", a.said());
    parked(&world, 2, &[&a, &b]).await;
    assert_eq!(made(&world), [2, 0], "{}", said(&world, &[&a, &b]));
    assert!(world.told(2).contains("Round half up"), "{}", world.told(2));
    // A node that dies does not take it along either.
    let first = Daemon::start(&world, &a);
    stands_by(&a).await;
    second.kill();
    world.sim.add_comment(REPO, 7, "ada", "/agentd approve").unwrap();
    done(&world, &[&a, &b]).await;
    assert_eq!(made(&world), [2, 1], "{}", said(&world, &[&a, &b]));
    assert_eq!((told(&world, "issue-7:plan-1 "), told(&world, "issue-7:plan-2 ")), (1, 1));
    nothing_left(&server).await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_a_plan_whose_node_died_is_approved_by_a_command_and_one_whose_poller_died_by_the_label() {
    for poller_dies in [false, true] {
        if !is_there("k_054_plan_dies") {
            return;
        }
        let (world, server) = gated(1).await;
        let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
        let first = Daemon::start(&world, &a);
        polls(&a, 1).await;
        let second = Daemon::start(&world, &b);
        stands_by(&b).await;
        slow(&world, "POST", "/**/issues/7/assignees", 1_500);
        label(&world, 7);
        if poller_dies {
            parked(&world, 1, &[&a, &b]).await;
        } else {
            let posted = || plan(&world, 1).is_some();
            until_or("the plan is posted", posted, || said(&world, &[&a, &b])).await;
            // It is never said by labels before the node dies.
            slow(&world, "PUT", "/**/issues/7/labels", 60_000);
            slow(&world, "POST", "/**/issues/7/labels", 60_000);
        }
        assert_eq!((a.began(), b.began()), (0, 1), "the other one has it");
        let lives = if poller_dies {
            first.kill();
            // An edit in the second of the approval would make it void, and GitHub's times are whole seconds.
            let (id, text) = plan(&world, 1).unwrap();
            let edit = json!({ "body": text.replace("2. `tests", "2. MARZIPAN `tests"), "actor": "max" });
            world.sim.admin("PATCH", &format!("repos/{REPO}/comments/{id}"), &edit).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
            world.sim.add_label(REPO, 7, "agentd:approved", "max");
            second
        } else {
            // The approval comes while its run works still, which dies then.
            let approves = || async { asked(&world, &["approve", "demo/shop#7"]).await.0 == Some(0) };
            let approved =
                || tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(approves()));
            until_or("it is approved", approved, || said(&world, &[&a, &b])).await;
            assert!(b.journal().iter().all(|line| line["kind"] != json!("run_ended")), "it works still");
            second.kill();
            world.sim.world().faults.clear();
            first
        };
        done(&world, &[&a, &b]).await;
        assert_eq!(made(&world), [1, 1], "{}", said(&world, &[&a, &b]));
        assert_eq!(told(&world, "issue-7:plan-"), 1);
        if poller_dies {
            assert!(world.told(2).contains("MARZIPAN"), "{}", world.told(2));
        }
        nothing_left(&server).await;
        lives.stop().await;
        world.finish().await;
    }
}

/// How a run leaves its node while it makes its plan.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaves {
    Drained,
    Moved,
    /// Its node dies when the plan stands on the issue, and nobody else knows of it yet.
    Killed,
}

#[tokio::test(flavor = "multi_thread")]
async fn k_057_a_plan_whose_node_is_left_while_it_is_made_waits_on_the_next_one_and_nothing_is_done_before() {
    for leaves in [Leaves::Drained, Leaves::Moved, Leaves::Killed] {
        if !is_there("k_057_planning") {
            return;
        }
        let (world, server) = gated(1).await;
        let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
        let first = Daemon::start(&world, &a);
        polls(&a, 1).await;
        let second = Daemon::start(&world, &b);
        stands_by(&b).await;
        let posting = || world.sim.requests().iter().any(|asked| asked.target.ends_with("/assignees"));
        if leaves == Leaves::Killed {
            slow(&world, "POST", "/**/issues/7/assignees", 60_000);
        } else {
            slow_model(&world, 1, 5_000);
        }
        label(&world, 7);
        let mut second = Some(second);
        match leaves {
            Leaves::Killed => {
                until_or("the plan is posted", posting, || said(&world, &[&a, &b])).await;
                second.take().unwrap().kill();
                world.sim.world().faults.clear();
            }
            Leaves::Drained | Leaves::Moved => {
                let plans = || b.has("visit_started", 1) && world.sim.model_requests().len() == 2;
                until_or("it plans", plans, || said(&world, &[&a, &b])).await;
                let args: &[&str] = match leaves {
                    Leaves::Moved => &["cluster", "move", "7", "--to", "a"],
                    Leaves::Drained | Leaves::Killed => &["cluster", "drain", "b"],
                };
                let (code, heard) = asked(&world, args).await;
                assert_eq!(code, Some(0), "{heard:#}");
            }
        }
        parked(&world, 1, &[&a, &b]).await;
        if leaves == Leaves::Drained {
            let ended = second.take().unwrap().ends().await;
            assert!(ended.success(), "{ended:?} {}", b.said());
        }
        let gates = || {
            let (_, why) = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(asked(&world, &["why", "7"]))
            });
            why["rules"].to_string().contains("waits_for_answer")
        };
        until_or("why says so", gates, || said(&world, &[&a, &b])).await;
        assert_eq!(made(&world), [1, 0], "{leaves:?}: {}", said(&world, &[&a, &b]));
        world.sim.add_comment(REPO, 7, "ada", "/agentd approve").unwrap();
        done(&world, &[&a, &b]).await;
        assert_eq!(made(&world), [1, 1], "{leaves:?}: {}", said(&world, &[&a, &b]));
        assert_eq!(told(&world, "issue-7:plan-"), 1, "{leaves:?}");
        nothing_left(&server).await;
        if let Some(second) = second {
            second.stop().await;
        }
        first.stop().await;
        world.finish().await;
    }
}
