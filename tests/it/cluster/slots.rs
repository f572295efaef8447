//! Caps over all nodes: at no revision of the cells do more runs count than may, and what the dead leave behind keeps nobody out.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentd::domain::name::RepoName;
use agentd::store::nats::{Access, Caps, NatsStore};
use agentd::store::port::{HeldLease, LeaseKey, LeaseNotTaken};
use agentd::store::run_dir::StateDir;
use async_nats::jetstream::consumer::push;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::daemons::Daemon;
use super::running::world;
use super::server::{Server, access, is_there, make_streams, with_client};
use super::taking_over::Node;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::{World, text};

/// The most holders that the cells of slots ever had while it listens, by subject.
struct Tap {
    most: Arc<Mutex<std::collections::BTreeMap<String, usize>>>,
    task: Option<std::thread::JoinHandle<()>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Tap {
    fn of(server: &Server) -> Self {
        let most = Arc::new(Mutex::default());
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (url, into) = (server.url(), Arc::clone(&most));
        let task = std::thread::spawn(move || {
            with_client(&url, async |context| {
                let stream = context.get_stream("agentd_test_cells").await.unwrap();
                let config = push::OrderedConfig {
                    deliver_subject: "tap.of.slots".into(),
                    filter_subject: "agentd.test.cell.slots.>".into(),
                    ..Default::default()
                };
                let mut messages = stream.create_consumer(config).await.unwrap().messages().await.unwrap();
                ready.send(()).unwrap();
                loop {
                    let message = tokio::select! {
                        message = messages.next() => message.unwrap().unwrap(),
                        _ = &mut stopped => return,
                    };
                    let cell: Value = serde_json::from_slice(&message.payload).unwrap();
                    let now = cell["holders"].as_object().unwrap().len();
                    let mut most: std::sync::MutexGuard<'_, std::collections::BTreeMap<String, usize>> =
                        into.lock().unwrap();
                    let most = most.entry(message.subject.to_string()).or_default();
                    *most = (*most).max(now);
                }
            });
        });
        is_ready.recv().unwrap();
        Self { most, task: Some(task), stop: Some(stop) }
    }

    fn most(&self, cell: &str) -> usize {
        self.most.lock().unwrap().get(&format!("agentd.test.cell.slots.{cell}")).copied().unwrap_or(0)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.task.take().unwrap().join();
    }
}

fn node(server: &Server, caps: Caps) -> StateDir {
    let own = Access { caps, ..access(&server.url()) };
    StateDir::on_nats("/nowhere".into(), NatsStore::connect(&own).unwrap())
}

fn take(node: &StateDir, repo: &str, issue: u64) -> Result<Box<dyn HeldLease>, LeaseNotTaken> {
    let file = Path::new("leases").join(format!("issue-{issue}.json"));
    let lease = LeaseKey::Issue { repo: RepoName::parse(repo).unwrap(), file };
    node.store().take_for_run(&lease, "test", Duration::from_secs(60))
}

/// What the cell of a cap says.
fn holders(server: &Server, cell: &str) -> Value {
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let last = stream.get_last_raw_message_by_subject(&format!("agentd.test.cell.slots.{cell}")).await;
        serde_json::from_slice::<Value>(&last.unwrap().payload).unwrap()["holders"].clone()
    })
}

#[test]
fn h_07_nine_issues_at_three_nodes_never_have_more_slots_than_there_are() {
    if !is_there("h_07") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let tap = Tap::of(&server);
    let caps = Caps { in_all: 3, in_a_repository: 2 };
    let nodes: Vec<StateDir> = (0..3).map(|_| node(&server, caps)).collect();
    let refused = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for issue in 0..9 {
            let node = &nodes[issue as usize % 3];
            let repo = if issue < 7 { "o/one" } else { "o/two" };
            let refused = &refused;
            scope.spawn(move || {
                loop {
                    match take(node, repo, issue) {
                        Ok(held) => {
                            // Until another one came to the cap, however slow the machine is.
                            while repo == "o/one" && !refused.load(Ordering::Relaxed) {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                            // Given back by hand or as it is dropped.
                            if issue % 2 == 0 {
                                held.release().unwrap();
                            }
                            return;
                        }
                        Err(LeaseNotTaken::Full { setting, .. }) => {
                            if setting == "daemon.max_runs_per_repository" {
                                refused.store(true, Ordering::Relaxed);
                            }
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert!(refused.into_inner(), "they came to the cap");
    let none = json!({});
    assert_eq!((holders(&server, "all"), holders(&server, "o.one")), (none.clone(), none));
    drop(nodes);
    let most = ["o.one", "o.two", "all"].map(|cell| tap.most(cell));
    assert!(most[0] == 2 && most[1] <= 2 && (2..=3).contains(&most[2]), "{most:?}");
}

#[test]
fn k_038_what_a_dead_node_left_in_the_slots_keeps_nobody_out() {
    if !is_there("k_038") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let caps = Caps { in_all: 1, in_a_repository: 1 };
    let (a, b) = (node(&server, caps), node(&server, caps));
    let held = take(&a, "o/one", 1).unwrap();
    let full = take(&b, "o/two", 2).unwrap_err();
    assert!(matches!(full, LeaseNotTaken::Full { cap: 1, setting: "cluster.max_runs" }), "{full}");
    let same = take(&b, "o/one", 2).unwrap_err();
    assert!(matches!(same, LeaseNotTaken::Full { setting: "daemon.max_runs_per_repository", .. }), "{same}");
    held.release().unwrap();
    // Its issue is free, and its slots are not, as after an end while the stream had no room.
    let left = json!({
        "schema_version": "agentd.cell.slots.v1",
        "holders": { "o.one.1": { "node": "gone", "session": 4 } },
        "of_a_later_version": 7,
    });
    for cell in ["all", "o.one"] {
        with_client(&server.url(), async |context| {
            let subject = format!("agentd.test.cell.slots.{cell}");
            context.publish(subject, left.to_string().into()).await.unwrap().await.unwrap();
        });
    }
    let held = take(&b, "o/one", 2).unwrap();
    let all = holders(&server, "all");
    assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), ["o.one.2"], "{all:#}");
    assert!(matches!(take(&a, "o/one", 1), Err(LeaseNotTaken::Full { .. })), "a living one's slot stays");
    held.release().unwrap();
}

fn another(world: &World, number: u64) {
    let issue = json!({ "number": number, "title": "Another one", "author": "ada", "body": "b" });
    world.sim.add_issue("demo/shop", &serde_json::from_value(issue).unwrap()).unwrap();
}

fn with_max_runs(node: &Node, max: u32) {
    let text = std::fs::read_to_string(&node.config).unwrap();
    std::fs::write(&node.config, format!("{text}\nmax_runs = {max}\n")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k_039_a_run_of_a_command_and_a_daemons_count_against_the_same_cap() {
    if !is_there("k_039_slots") {
        return;
    }
    let (world, server) = world(2).await;
    let tap = Tap::of(&server);
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    for node in [&a, &b] {
        with_max_runs(node, 1);
    }
    another(&world, 8);
    slow_model(&world, 2, 6_000);
    let daemon = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || a.has("visit_started", 2) && world.sim.model_requests().len() == 3).await;
    let mut refused = b.command(&world, &["run", "--issue", "8"]);
    let done = tokio::task::spawn_blocking(move || refused.output().unwrap()).await.unwrap();
    let told = text(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{told}");
    assert!(told.contains("are at work: 1 (`") && told.contains(" cluster status"), "{told}");
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(output["stop_detail"], json!("branch_busy"), "{output:#}");
    assert_eq!(b.began(), 0);
    until("it is done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    let ended = || holders(&server, "all") == json!({});
    tokio::task::block_in_place(|| {
        while !ended() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!((tap.most("all"), tap.most("demo.shop")), (1, 1));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_064_a_full_cluster_is_said_and_its_first_free_slot_is_taken_at_the_next_look() {
    if !is_there("k_064_cluster_full") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    for node in [&a, &b] {
        with_max_runs(node, 1);
    }
    another(&world, 8);
    slow_model(&world, 2, 5_000);
    let mut foreground = b.command(&world, &["run", "--issue", "7"]);
    let works = tokio::task::spawn_blocking(move || foreground.output().unwrap());
    until("the second visit", || b.has("visit_started", 2)).await;
    let daemon = Daemon::start(&world, &a);
    world.sim.add_label("demo/shop", 8, "agentd", "ada");
    let waits = || -> Value {
        let text = std::fs::read_to_string(a.state.join("daemon/status.json")).unwrap_or_default();
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        status["waiting"][0]["code"].clone()
    };
    until("it says so", || waits() == json!("cluster_full")).await;
    // Anywhere, also where no daemon works.
    for (node, number, code) in
        [(&a, "8", "cluster_full"), (&b, "8", "cluster_full"), (&b, "7", "running_elsewhere")]
    {
        let why = node.command(&world, &["why", number]).output().unwrap();
        let told: Value = serde_json::from_slice(&why.stdout).unwrap();
        let rules = told["rules"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["code"] == json!(code)), "{number} {code} {told:#}");
        assert!(!rules.iter().any(|rule| rule["code"] == json!("no_daemon")), "{told:#}");
    }
    assert!(works.await.unwrap().status.success());
    let begin = Instant::now();
    until("it starts", || a.began() == 1).await;
    assert!(begin.elapsed() < Duration::from_secs(20), "no long pause: {:?}", begin.elapsed());
    until("it is done", || world.sim.issue("demo/shop", 8).unwrap().labels == ["agentd:done"]).await;
    daemon.stop().await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let why = || -> Value {
        let why = b.command(&world, &["why", "7"]).output().unwrap();
        serde_json::from_slice(&why.stdout).unwrap()
    };
    let said = || why()["summary"].as_str().unwrap().contains("no node of the cluster lives");
    until_or("nobody is there", said, || format!("{:#}", why())).await;
    let told = why();
    let rules = told["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["code"] == json!("no_poller")), "{told:#}");
    world.finish().await;
}
