//! Which node polls a repository: of those that have it and reach GitHub, the one that comes first by the hash; and what goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agentd::domain::cluster::poller::first;
use async_nats::jetstream::consumer::push;
use futures::StreamExt as _;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};

use super::assignments::{label, node, nothing_left, third_visit};
use super::daemons::{Daemon, all_runs};
use super::eater::Gate;
use super::moving::{clustered, document};
use super::running::world;
use super::server::{Server, is_there, make_streams, with_client};
use super::taking_over::{Node, asked_for};
use crate::outside::daemons::{slow_model, until_or};
use crate::outside::world::World;

/// The node that polls the repository; empty = none.
async fn poller(world: &World) -> String {
    let bare = world.dir.path().join("bare");
    let (_, status) = document(world, "cluster.toml", &bare, &["cluster", "status"]).await;
    status["pollers"][0]["poller"]["node"].as_str().unwrap_or_default().to_owned()
}

async fn polled_by(world: &World, name: &str, nodes: &[&Node]) {
    for _ in 0..200 {
        if poller(world).await == name {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} does not poll:\n{}", said(nodes));
}

fn said(nodes: &[&Node]) -> String {
    nodes.iter().map(|node| node.said()).collect::<Vec<_>>().join("\n---\n")
}

/// What the issue says to people, before what its nodes log.
fn told(world: &World, nodes: &[&Node]) -> String {
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    format!("{:?} {comments:#?}\n{}", world.labels(), said(nodes))
}

fn each_once(world: &World) {
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(world, words));
    assert_eq!(times, [1, 1, 1], "no visit is made again");
}

/// Times at which the list of labelled issues was asked for.
fn lists(world: &World) -> usize {
    let asked = world.sim.requests().into_iter();
    asked
        .filter(|request| request.method == "GET" && request.target.contains("/repos/demo/shop/issues?"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_42_a_repository_goes_to_the_node_that_comes_first_and_its_run_is_followed_where_it_works() {
    if !is_there("h_42") {
        return;
    }
    let (world, server) = world(2).await;
    // By the hash "a" comes first.
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let second = Daemon::start(&world, &b);
    polled_by(&world, "b", &[&b]).await;
    third_visit(&world, &b, 9_000).await;
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a, &b]).await;
    until_or("it follows the run", || a.said().contains("following a run"), || said(&[&a, &b])).await;
    assert!(!b.has("visit_finished", 3), "the run is at work");
    // One of both looks at the list.
    let before = lists(&world);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looks = lists(&world) - before;
    assert!((1..=5).contains(&looks), "{looks} looks in three seconds\n{}", said(&[&a, &b]));
    // What people ask of it reaches it over its new poller.
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd extend").unwrap();
    let extended = || b.journal().iter().any(|line| line["kind"] == json!("budget_extended"));
    until_or("it is given more", extended, || said(&[&a, &b])).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    assert_eq!((a.began(), b.began(), world.sim.pulls("demo/shop").len()), (0, 1, 1));
    each_once(&world);
    nothing_left(&server).await;
    // The first one goes: the other has the repository again, and the next labelling is found.
    first.stop().await;
    polled_by(&world, "b", &[&a, &b]).await;
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    label(&world, 7);
    until_or("once more", || b.began() == 2 && world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_42_a_poller_that_is_told_to_stop_gives_its_repository_away_at_once() {
    if !is_there("h_42_stop") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    third_visit(&world, &a, 12_000).await;
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    // It has said what it has room for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.signal("-TERM");
    polled_by(&world, "b", &[&a, &b]).await;
    assert!(!a.has("visit_finished", 3), "its own run is in the middle of a visit yet");
    assert!(first.ends().await.success());
    assert!(a.has("visit_finished", 3) && !a.has("visit_started", 4));
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_42_a_repository_that_is_given_to_a_node_that_ends_goes_on_to_the_next_one() {
    if !is_there("h_42_late") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    third_visit(&world, &a, 40_000).await;
    let subject = "agentd.test.cell.repo.demo.shop";
    let cell = || {
        with_client(&server.url(), async |context| {
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let last = stream.get_last_raw_message_by_subject(subject).await.unwrap();
            serde_json::from_slice::<Value>(&last.payload).unwrap()
        })
    };
    let of_the_first = tokio::task::block_in_place(cell)["poller"].clone();
    assert_eq!(of_the_first["node"], json!("a"));
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.signal("-TERM");
    polled_by(&world, "b", &[&a, &b]).await;
    // As by a node that has not heard yet that the first one ends.
    tokio::task::block_in_place(|| {
        let given = Value::Object(
            cell()
                .as_object()
                .unwrap()
                .clone()
                .into_iter()
                .chain([("poller".to_owned(), of_the_first)])
                .collect(),
        );
        with_client(&server.url(), async |context| {
            context.publish(subject, given.to_string().into()).await.unwrap().await.unwrap();
        });
    });
    polled_by(&world, "b", &[&a, &b]).await;
    assert!(!a.has("visit_finished", 3), "the first one is in the middle of a visit yet");
    assert!(first.ends().await.success());
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_26_a_node_that_is_cut_from_github_polls_no_more_and_another_publishes_its_run() {
    if !is_there("h_26") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let text = std::fs::read_to_string(&a.config).unwrap();
    let address = text.lines().find_map(|line| line.strip_prefix("api_url = \"http://")).unwrap();
    let address = address.split(['/', '"']).next().unwrap().to_owned();
    let gate = Gate::to(address.clone());
    let through = text
        .replace(&format!("api_url = \"http://{address}"), &format!("api_url = \"http://{}", gate.address));
    world.write("a.toml", &through);
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    slow_model(&world, 5, 8_000);
    label(&world, 7);
    until_or(
        "the third visit",
        || a.has("visit_started", 3) && world.sim.model_requests().len() == 6,
        || a.said(),
    )
    .await;
    let second = Daemon::start(&world, &b);
    until_or("it stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    gate.cut();
    polled_by(&world, "b", &[&a, &b]).await;
    until_or("it is done", || world.labels() == ["agentd:done"], || said(&[&a, &b])).await;
    world.assert_one_of_each();
    each_once(&world);
    nothing_left(&server).await;
    // It reaches GitHub again, and comes first again.
    gate.open();
    polled_by(&world, "a", &[&a, &b]).await;
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

/// Two polls of the daemons of many repositories.
const TWO_TICKS: Duration = Duration::from_secs(20);

/// Since 1970.
type Moment = Duration;

fn now() -> Moment {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// Who polled each repository, from when on; `None` = nobody.
type Tenures = BTreeMap<String, Vec<(Moment, Option<String>)>>;

/// Listens to the repositories' cells until the process of the tests ends.
fn tenures(server: &Server) -> Arc<Mutex<Tenures>> {
    let all: Arc<Mutex<Tenures>> = Arc::default();
    let (url, into) = (server.url(), Arc::clone(&all));
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        with_client(&url, async |context| {
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let config = push::OrderedConfig {
                deliver_subject: "tap.of.pollers".into(),
                filter_subject: "agentd.test.cell.repo.>".into(),
                ..Default::default()
            };
            let mut messages = stream.create_consumer(config).await.unwrap().messages().await.unwrap();
            ready.send(()).unwrap();
            // It ends with the server.
            while let Some(Ok(message)) = messages.next().await {
                let cell: Value = serde_json::from_slice(&message.payload).unwrap();
                let poller = cell["poller"]["node"].as_str().map(str::to_owned);
                let at = message.info().unwrap().published.unix_timestamp_nanos();
                let at = Duration::from_nanos(u64::try_from(at).unwrap());
                let repo = message.subject.rsplit('.').next().unwrap().to_owned();
                let mut all: std::sync::MutexGuard<'_, Tenures> = into.lock().unwrap();
                let of = all.entry(repo).or_default();
                if of.last().is_none_or(|(_, last)| *last != poller) {
                    of.push((at, poller));
                }
            }
        });
    });
    is_ready.recv().unwrap();
    all
}

/// Nodes that have fifty repositories, each known to GitHub by a login of its own, which the simulator notes.
async fn many() -> (World, Server, Vec<String>, Vec<Node>) {
    let names: Vec<String> = (1..=50).map(|at| format!("shop{at}")).collect();
    let world = World::of(1, |scenario| {
        let login =
            |node: &str| json!({ "token": format!("token-{node}"), "login": format!("agentd-{node}") });
        let tokens = ["a", "b", "c"].map(|node| serde_json::from_value(login(node)).unwrap());
        scenario.tokens.extend(tokens);
        for name in &names {
            let mut repository = scenario.repositories[0].clone();
            repository.name = format!("demo/{name}");
            let logins = ["a", "b", "c"].map(|node| (format!("agentd-{node}"), "write".to_owned()));
            repository.collaborators.extend(logins);
            scenario.repositories.push(repository);
        }
    })
    .await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let mut entries = String::new();
    for name in &names {
        let checkout = world.dir.path().join("many").join(name);
        std::fs::create_dir_all(checkout.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(world.shop()).arg(&checkout).status().unwrap();
        assert!(copied.success());
        let url = world.sim.remote_url("demo", name);
        world.git(&checkout, &["config", "remote.origin.url", &url]).await;
        entries += &format!(
            "[[repositories]]\nname = \"demo/{name}\"\npath = \"{}\"\norigin_branch = \"develop\"\n",
            checkout.display()
        );
    }
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let mut node = node(&world, name, 1).await;
        node.env.push(("GITHUB_TOKEN", format!("token-{name}")));
        let text = std::fs::read_to_string(&node.config).unwrap();
        let seldom = text.replace("poll_interval = \"1s\"", "poll_interval = \"10s\"");
        std::fs::write(&node.config, seldom + &entries).unwrap();
        nodes.push(node);
    }
    (world, server, names, nodes)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute and more of waiting: .ci/campaigns/cluster-cases"]
async fn h_42_fifty_repositories_are_polled_by_one_node_each_while_nodes_come_and_go() {
    if !is_there("h_42_many") {
        return;
    }
    let (world, server, names, nodes) = many().await;
    let all = tenures(&server);
    let by_the_hash = |live: &[&str]| -> BTreeMap<String, Option<String>> {
        let of = |name: &String| first(&format!("demo/{name}"), live.iter().copied()).map(str::to_owned);
        names.iter().map(|name| (name.clone(), of(name))).collect()
    };
    let spread = async |live: &[&str]| {
        let wanted = by_the_hash(live);
        let is_so = || {
            let all = all.lock().unwrap();
            wanted
                .iter()
                .all(|(name, node)| all.get(name).and_then(|of| of.last()).is_some_and(|of| of.1 == *node))
        };
        let instead = || format!("{:#?}\n{}", all.lock().unwrap(), said(&nodes.iter().collect::<Vec<_>>()));
        until_or(&format!("they are polled by {live:?}"), is_so, instead).await;
    };
    let a = Daemon::start(&world, &nodes[0]);
    spread(&["a"]).await;
    let b = Daemon::start(&world, &nodes[1]);
    spread(&["a", "b"]).await;
    let c = Daemon::start(&world, &nodes[2]);
    spread(&["a", "b", "c"]).await;
    b.stop().await;
    spread(&["a", "c"]).await;
    a.kill();
    let killed = now();
    spread(&["c"]).await;
    let again = [Daemon::start(&world, &nodes[0]), Daemon::start(&world, &nodes[1])];
    spread(&["a", "b", "c"]).await;
    // Who took one over last looks at it.
    let asked = |name: &str, node: &str| {
        let (path, login) = (format!("/repos/demo/{name}/issues?"), format!("agentd-{node}"));
        let of = move |one: &Arc<agentd::sim::world::Request>| {
            one.target.contains(&path) && one.login.as_deref() == Some(&login)
        };
        world.sim.requests().into_iter().filter(of).map(|one| one.at).collect::<Vec<_>>()
    };
    let wanted = by_the_hash(&["a", "b", "c"]);
    let (status, looks) = (
        document(&world, "cluster.toml", &world.dir.path().join("bare"), &["cluster", "status"]).await.1,
        TWO_TICKS,
    );
    let told: BTreeSet<(String, Option<String>)> = status["pollers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let name = one["repository"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (name, one["poller"]["node"].as_str().map(str::to_owned))
        })
        .collect();
    assert_eq!(told, wanted.into_iter().collect(), "{status:#}");
    tokio::time::sleep(looks).await;
    // The simulator counts from its start: what that is in the servers' time is taken from a request.
    let before = now();
    let client = reqwest::Client::new();
    client.get(format!("{}/mark", world.sim.api_url())).send().await.unwrap();
    let unsure = now() - before;
    let mark = world.sim.requests().into_iter().find(|one| one.target.ends_with("/mark")).unwrap();
    let began = before - mark.at;
    let ended = now();
    for (name, of) in all.lock().unwrap().iter() {
        // By the arrival of each node: "a", "b", "c", "b" leaves, "a" dies, and both come again.
        assert!(of.len() <= 7, "{name} goes to and fro: {of:?}");
        for (at, (from, node)) in of.iter().enumerate() {
            let to = of.get(at + 1).map_or(ended, |(to, _)| *to);
            let Some(node) = node else {
                assert!(to - *from <= TWO_TICKS, "nobody polls {name} for {:?}", to - *from);
                continue;
            };
            let looks = asked(name, node);
            let looked = looks.iter().map(|at| began + *at).find(|at| *at + unsure >= *from && *at < to);
            assert!(
                looked.is_some_and(|at| at <= *from + TWO_TICKS) || to - *from < TWO_TICKS,
                "{node} does not look at {name} from {from:?} to {to:?}: {looks:?}"
            );
            if node == "a" && *from < killed && to > killed {
                assert!(to - killed <= TWO_TICKS, "nobody polls {name} for {:?}", to - killed);
            }
        }
        for node in ["a", "b", "c"] {
            for at in asked(name, node) {
                let at = began + at;
                let is_its = |moment: Moment| {
                    let tenure = of.iter().rev().find(|(from, _)| *from <= moment);
                    tenure.is_some_and(|(_, poller)| poller.as_deref() == Some(node))
                };
                assert!(is_its(at) || is_its(at + unsure), "{node} looks at {name} at {at:?}: {of:?}");
            }
        }
    }
    for daemon in again {
        daemon.stop().await;
    }
    c.stop().await;
    world.sim.shutdown().await;
}

const SECRET: &str = "a secret of the hooks";

/// Delivers that something happened in the repository to a node's front.
async fn deliver(node: &Node, delivery: &str, action: &str) {
    until_or("it listens", || node.said().contains("listening on http://"), || node.said()).await;
    let said = node.said();
    let (_, rest) = said.split_once("listening on ").unwrap();
    let base = rest.split(|sign: char| sign.is_whitespace() || sign == '"').next().unwrap();
    let body = json!({ "action": action, "repository": { "full_name": "demo/shop" } }).to_string();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let ask = reqwest::Client::new().post(format!("{}/webhooks/github", base.trim_end_matches('/')));
    let ask = ask.header("x-github-event", "issues").header("x-github-delivery", delivery);
    let answer = ask.header("x-hub-signature-256", signature).body(body).send().await.unwrap();
    // One that this node has heard before is welcome, too.
    assert!(matches!(answer.status().as_u16(), 200 | 202), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h_05_deliveries_come_to_any_node_several_times_and_each_thing_is_answered_once() {
    if !is_there("h_05") {
        return;
    }
    let (world, server) = world(2).await;
    let (mut a, mut b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    for node in [&mut a, &mut b] {
        node.env.push(("HOOK_SECRET", SECRET.to_owned()));
        let text = std::fs::read_to_string(&node.config).unwrap();
        // So seldom that only deliveries tell of anything.
        let seldom = "poll_interval = \"1h\"\nlisten = \"127.0.0.1:0\"\nwebhook_secret = \"${HOOK_SECRET}\"";
        std::fs::write(&node.config, text.replace("poll_interval = \"1s\"", seldom)).unwrap();
    }
    let first = Daemon::start(&world, &a);
    polled_by(&world, "a", &[&a]).await;
    until_or("a first look", || lists(&world) > 0, || a.said()).await;
    let second = Daemon::start(&world, &b);
    deliver(&b, "early", "edited").await;
    until_or("it looks again", || lists(&world) > 1, || said(&[&a, &b])).await;
    assert_eq!(poller(&world).await, "a");
    label(&world, 7);
    for (node, delivery) in [(&b, "labelled"), (&b, "labelled again"), (&a, "labelled"), (&b, "labelled")] {
        deliver(node, delivery, "labeled").await;
    }
    until_or("it is done", || world.labels() == ["agentd:done"], || told(&world, &[&a, &b])).await;
    assert_eq!(all_runs([&a, &b]), 1);
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd run").unwrap();
    for (node, delivery) in [(&b, "said"), (&a, "said"), (&b, "said again")] {
        deliver(node, delivery, "created").await;
    }
    let again = || all_runs([&a, &b]) == 2 && world.labels() == ["agentd:done"];
    until_or("it is done again", again, || told(&world, &[&a, &b])).await;
    nothing_left(&server).await;
    // All of it once more, and the poller has looked.
    let before = lists(&world);
    for (node, delivery) in [(&b, "late"), (&b, "labelled"), (&a, "said again")] {
        deliver(node, delivery, "labeled").await;
    }
    until_or("it looks once more", || lists(&world) > before, || said(&[&a, &b])).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((all_runs([&a, &b]), world.sim.pulls("demo/shop").len()), (2, 1));
    assert_eq!(world.labels(), ["agentd:done"]);
    first.stop().await;
    second.stop().await;
    world.finish().await;
}
