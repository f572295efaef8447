//! What people ask with a key that may change nothing: it goes as a message, is carried out by the node that polls the repository, once
//! however often it comes, and waits where no node lives.

use std::process::Output;
use std::time::Duration;

use agentd::domain::issue::IssueKey;
use agentd::domain::money::Money;
use agentd::domain::name::RepoName;
use agentd::domain::run::RunId;
use agentd::engine::shared_cap::issue_spending;
use agentd::engine::shared_cap_format::Spending;
use agentd::store::nats::{Access, Credentials, NatsStore};
use agentd::store::port::Cell;
use agentd::store::run_dir::StateDir;
use async_nats::ConnectOptions;
use async_nats::jetstream::Context;
use serde_json::{Value, json};
use uuid::Uuid;

use super::assignments::{node, third_visit};
use super::daemons::Daemon;
use super::moving::{agentd, clustered, run_ids};
use super::server::{Server, access, is_there};
use super::taking_over::Node;
use crate::outside::approvals::{ASK, write};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::solo::{calls, reports, solo};
use crate::outside::world::{World, text};

/// Nodes and people with keys of their own, on the account that agentd writes.
pub async fn with_keys(world: &World) -> Server {
    clustered(world, "nats://127.0.0.1:1");
    let users = [
        "--keeper",
        "keeper",
        "--node",
        "a",
        "--node",
        "b",
        "--operator",
        "anna",
        "--operator",
        "otto",
        "--reader",
        "page",
    ];
    let state = world.dir.path().join("state");
    let account = [&["cluster", "account", "--keys", "keys"][..], &users].concat();
    let account = text(&agentd(world, "cluster.toml", &state, &account).await.stdout);
    let server = Server::with(&account);
    clustered(world, &server.url());
    let file = world.dir.path().join("cluster.toml");
    let with_key = std::fs::read_to_string(&file).unwrap() + "nkey = \"${SEED}\"\n";
    std::fs::write(&file, with_key).unwrap();
    let made = person(world, "keeper", &["cluster", "doctor", "--create"]).await;
    assert!(made.status.success(), "{}", text(&made.stdout));
    server
}

pub fn seed(world: &World, user: &str) -> String {
    let text = std::fs::read_to_string(world.shop().join(format!("keys/{user}.nkey"))).unwrap();
    text.trim().to_owned()
}

/// A node that has its key, and room for so many runs.
async fn keyed(world: &World, name: &str, runs: u32) -> Node {
    let node = node(world, name, runs).await;
    Node { env: vec![("SEED", seed(world, name))], ..node }
}

/// A poller without much room, and a node with a lot of it: a run goes to the second.
async fn two(world: &World) -> ([Node; 2], [Daemon; 2]) {
    let (a, b) = (keyed(world, "a", 1).await, keyed(world, "b", 4).await);
    let first = Daemon::start(world, &a);
    polls(&a).await;
    let second = Daemon::start(world, &b);
    until("the other stands by", || world.dir.path().join("b/state/daemon/status.json").exists()).await;
    ([a, b], [first, second])
}

async fn polls(node: &Node) {
    until_or("it polls", || node.said().contains("this node polls the repository now"), || node.said()).await;
}

/// `agentd` as somebody with a key on a host that has neither a checkout nor a state.
pub async fn person(world: &World, user: &str, args: &[&str]) -> Output {
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    let file = format!("{user}.toml");
    world.write(&file, &text.replace("node = \"here\"", &format!("node = \"{user}\"")));
    let bare = world.dir.path().join("hosts").join(user);
    std::fs::create_dir_all(&bare).unwrap();
    let mut command = world.command(&["--config"]);
    command.arg(world.dir.path().join(file)).args(args).env("SEED", seed(world, user));
    command.current_dir(&bare).env("AGENTD_STATE_DIR", bare.join("state"));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The same with `--json`, and the document.
async fn asked(world: &World, user: &str, args: &[&str]) -> (Option<i32>, Value) {
    let done = person(world, user, &[&["--json"], args].concat()).await;
    let document = serde_json::from_slice(&done.stdout);
    (done.status.code(), document.unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr))))
}

/// Does something with the key of an operator.
fn as_operator<T>(world: &World, server: &Server, work: impl AsyncFnOnce(Context) -> T) -> T {
    let (url, seed) = (server.url(), seed(world, "otto"));
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ConnectOptions::with_nkey(seed).custom_inbox_prefix("_INBOX_otto");
            work(async_nats::jetstream::new(options.connect(url).await.unwrap())).await
        })
    })
}

/// All that was asked and answered, in order: subject, message.
fn messages(world: &World, server: &Server) -> Vec<(String, Value)> {
    as_operator(world, server, async |context| {
        let mut stream = context.get_stream("agentd_test_ctl").await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        let mut found = Vec::new();
        for sequence in 1..=last {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let document = serde_json::from_slice(&message.payload).unwrap_or_default();
            found.push((message.subject.to_string(), document));
        }
        found
    })
}

/// Delivers a message.
fn deliver(world: &World, server: &Server, (subject, message): &(String, Value)) {
    as_operator(world, server, async |context| {
        let kept = context.publish(subject.clone(), message.to_string().into()).await.unwrap();
        kept.await.unwrap();
    });
}

/// Delivers it, and waits until a node has heard it once more. Gives what that one says.
async fn delivered(world: &World, server: &Server, message: &(String, Value)) -> Value {
    deliver(world, server, message);
    until("it is heard", || answer(world, server, message).is_object()).await;
    answer(world, server, message)
}

/// What the last message about a request says became of it.
fn answer(world: &World, server: &Server, message: &(String, Value)) -> Value {
    let all = messages(world, server);
    let last = all.into_iter().rfind(|(subject, _)| *subject == message.0);
    last.map(|(_, message)| message["answer"].clone()).unwrap_or_default()
}

/// The first message of a kind, as it was sent.
fn sent(world: &World, server: &Server, kind: &str) -> (String, Value) {
    let of_kind =
        |(_, message): &(String, Value)| message["kind"] == json!(kind) && message["answer"].is_null();
    messages(world, server).into_iter().find(of_kind).unwrap()
}

/// The same as another request, with something else in it.
fn other(message: &(String, Value), change: impl FnOnce(&mut Value)) -> (String, Value) {
    let mut other = message.1.clone();
    other["id"] = json!(Uuid::new_v4());
    change(&mut other);
    let subject = format!("agentd.test.ctl.demo.shop.{}-{}", other["issue"], other["id"].as_str().unwrap());
    (subject, other)
}

/// What the nodes share, as an operator reads it.
fn shared(world: &World, server: &Server) -> StateDir {
    let own = Access {
        credentials: Credentials::Nkey(seed(world, "otto").into()),
        node: "otto".into(),
        ..access(&server.url())
    };
    StateDir::on_nats("/nowhere".into(), tokio::task::block_in_place(|| NatsStore::connect(&own).unwrap()))
}

fn shop() -> RepoName {
    RepoName::parse("demo/shop").unwrap()
}

fn spending(world: &World, server: &Server) -> Spending {
    let state = shared(world, server);
    tokio::task::block_in_place(|| issue_spending(state.store(), &shop(), &IssueKey::Number(7)).unwrap())
}

fn ended(node: &Node) -> Value {
    let end = node.journal().into_iter().find(|line| line["kind"] == json!("run_ended"));
    end.map_or(Value::Null, |line| line["data"]["stop"]["detail"].clone())
}

/// Whether the last run of a node goes on with another one, of which the node has a copy then.
fn goes_on(node: &Node, run: &str) -> bool {
    node.journal().first().is_some_and(|first| first["data"]["previous_run"] == json!(run))
}

/// Has the newest run stopped. Rows are up to two seconds behind.
async fn stopped(world: &World, more: &[&str]) -> Value {
    for _ in 0..20 {
        let (code, told) = asked(world, "anna", &[&["runs", "stop", "latest"], more].concat()).await;
        if code == Some(0) {
            return told;
        }
        assert!(told["error"]["message"].as_str().unwrap().contains("there is no run"), "{told:#}");
    }
    panic!("no run is shown");
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_an_operator_stops_a_run_of_another_node_which_hears_it_once() {
    if !is_there("h_37_operator") {
        return;
    }
    let world = World::new(2).await;
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    third_visit(&world, &b, 5_000).await;
    let told = stopped(&world, &[]).await;
    assert_eq!(
        (&told["heard_by"], &told["ended"], &told["stop_detail"]),
        (&json!("a"), &json!(true), &json!("user_stop")),
        "{told:#} {}",
        a.said()
    );
    assert_eq!((ended(&b), a.began(), b.began()), (json!("user_stop"), 0, 1));
    assert_eq!(world.sim.model_requests().len(), 7, "it gave one last report");
    let all = messages(&world, &server);
    assert_eq!(all.len(), 2, "asked once, answered once: {all:#?}");
    assert_eq!(all[1].1["answer"], json!({ "heard_by": "a" }));
    // It comes once more: the run has ended, and nothing is left behind for it.
    let answer = delivered(&world, &server, &all[0]).await;
    assert!(answer["refused"].as_str().unwrap().contains("has ended already"), "{answer:#}");
    let run: RunId = serde_json::from_value(all[0].1["run_id"].clone()).unwrap();
    let cell = Cell::Stop { repo: shop(), run_id: run };
    let state = shared(&world, &server);
    tokio::task::block_in_place(|| assert_eq!(state.store().get(&cell).unwrap().1, None));
    // A run of another issue, and one that there is not.
    for (issue, run) in [(8, run), (7, RunId(Uuid::from_u128(1)))] {
        let message = other(&all[0], |message| {
            message["issue"] = json!(issue);
            message["run_id"] = json!(run);
        });
        let answer = delivered(&world, &server, &message).await;
        assert!(answer["refused"].is_string(), "{answer:#}");
    }
    let (code, refused) = asked(&world, "anna", &["runs", "stop", "latest"]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_a_stop_that_a_run_did_not_hear_before_its_node_died_is_heard_by_the_one_that_goes_on() {
    if !is_there("h_37_successor") {
        return;
    }
    let world = World::new(3).await;
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    third_visit(&world, &b, 60_000).await;
    // The row is there.
    until("it is shown", || {
        let shown = || async { asked(&world, "anna", &["runs", "list"]).await.1 };
        let listed = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(shown()));
        listed.as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    second.signal("-STOP");
    let run = run_ids(&b.state).pop().unwrap();
    let (code, told) = asked(&world, "anna", &["runs", "stop", &run]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#}");
    second.kill();
    until_or("another run goes on", || goes_on(&a, &run), || a.said()).await;
    until_or("it ended", || ended(&a) != Value::Null, || a.said()).await;
    assert_eq!(ended(&a), json!("user_stop"));
    let cell = Cell::Stop { repo: shop(), run_id: serde_json::from_value(json!(run)).unwrap() };
    let state = shared(&world, &server);
    until("it is forgotten", || {
        tokio::task::block_in_place(|| state.store().get(&cell).unwrap().1.is_none())
    })
    .await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_37_a_stop_that_comes_late_is_for_the_run_that_goes_on() {
    if !is_there("h_37_late") {
        return;
    }
    let world = World::new(3).await;
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    third_visit(&world, &b, 60_000).await;
    let (code, told) = asked(&world, "anna", &["extend", "demo/shop#7", "1"]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#}");
    let run = run_ids(&b.state).pop().unwrap();
    slow_model(&world, 0, 8_000);
    second.kill();
    until_or("another goes on", || goes_on(&a, &run), || a.said()).await;
    let stop = other(&sent(&world, &server, "extend"), |message| {
        message.as_object_mut().unwrap().remove("amount");
        message["kind"] = json!("stop");
        message["run_id"] = json!(run);
        message["at_once"] = json!(false);
    });
    let answer = delivered(&world, &server, &stop).await;
    assert_eq!(answer, json!({ "heard_by": "a" }));
    until_or("it ended", || ended(&a) == json!("user_stop"), || a.said()).await;
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_38_an_issue_is_given_more_once_however_often_that_comes_and_whoever_polls() {
    if !is_there("h_38_operator") {
        return;
    }
    let world = World::new(1).await;
    let server = with_keys(&world).await;
    let a = keyed(&world, "a", 1).await;
    let first = Daemon::start(&world, &a);
    polls(&a).await;
    // What is no request is passed over.
    deliver(&world, &server, &("agentd.test.ctl.demo.shop.7-x".into(), json!("nonsense")));
    let (code, told) = asked(&world, "anna", &["extend", "demo/shop#7", "5"]).await;
    assert_eq!(
        (code, &told["heard_by"], &told["given_usd"]),
        (Some(0), &json!("a"), &json!(5.0)),
        "{told:#} {}",
        a.said()
    );
    let request = sent(&world, &server, "extend");
    // At the same node, at another one, and both at once.
    assert_eq!(delivered(&world, &server, &request).await, json!({ "heard_by": "a" }));
    let b = keyed(&world, "b", 1).await;
    let second = Daemon::start(&world, &b);
    until("the other stands by", || world.dir.path().join("b/state/daemon/status.json").exists()).await;
    // The one that polls stands still: what it does not hear is heard by the next one.
    first.signal("-STOP");
    deliver(&world, &server, &request);
    let unheard = other(&request, |message| message["amount"] = json!(0));
    deliver(&world, &server, &unheard);
    first.kill();
    until("it is heard", || answer(&world, &server, &unheard).is_object()).await;
    assert_eq!(answer(&world, &server, &unheard)["heard_by"], json!("b"));
    polls(&b).await;
    for _ in 0..2 {
        assert_eq!(delivered(&world, &server, &request).await, json!({ "heard_by": "b" }));
    }
    let known = spending(&world, &server);
    assert_eq!((known.given(), known.extensions.len()), (Money::from_micros(5_000_000), 1), "{known:?}");
    assert!(known.extensions.values().all(|one| one.by.starts_with("local:")), "{known:?}");
    // Another request gives more, and one that says nonsense does not.
    let more = other(&request, |message| message["amount"] = json!(0.5));
    assert_eq!(delivered(&world, &server, &more).await, json!({ "heard_by": "b" }));
    for amount in [json!(0), json!(0.001)] {
        let bad = other(&request, |message| message["amount"] = amount);
        let answer = delivered(&world, &server, &bad).await;
        assert!(answer["refused"].as_str().unwrap().contains("no amount"), "{answer:#}");
    }
    // On a subject that is not its own nobody looks for an answer.
    let (stray, _) = other(&request, |_| ());
    deliver(&world, &server, &(stray.clone(), more.1.clone()));
    let last = other(&request, |message| message["amount"] = json!(0.25));
    assert_eq!(delivered(&world, &server, &last).await, json!({ "heard_by": "b" }));
    assert_eq!(spending(&world, &server).given(), Money::from_micros(5_750_000));
    let of_stray = messages(&world, &server).into_iter().filter(|(subject, _)| *subject == stray).count();
    assert_eq!(of_stray, 1, "it is passed over");
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_what_an_operator_says_is_told_to_the_run_that_works_on_another_node_once() {
    if !is_there("k_054_say") {
        return;
    }
    let world = World::new(1).await;
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    slow_model(&world, 2, 5_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("the second visit", || b.has("visit_started", 2) && world.sim.model_requests().len() == 3).await;
    let words = "Keep the name of the function.";
    let (code, told) = asked(&world, "anna", &["say", "demo/shop#7", words]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#} {}", a.said());
    let request = sent(&world, &server, "say");
    assert_eq!(delivered(&world, &server, &request).await, json!({ "heard_by": "a" }));
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    // And when it was told already.
    assert_eq!(delivered(&world, &server, &request).await, json!({ "heard_by": "a" }));
    let times: Vec<usize> = world
        .sim
        .model_requests()
        .iter()
        .map(|asked| asked.body.to_string().matches(words).count())
        .collect();
    assert!(times[..3].iter().all(|times| *times == 0), "{times:?}");
    assert_eq!(times.iter().max(), Some(&1), "it is told once: {times:?}");
    assert_eq!((a.began(), b.began()), (0, 1));
    world.assert_one_of_each();
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_an_operator_denies_and_approves_a_call_of_another_nodes_run_and_it_goes_on() {
    if !is_there("k_054_approve") {
        return;
    }
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or("a question", || world.labels() == ["agentd:attention"], || b.said()).await;
    let list = async || asked(&world, "anna", &["approvals", "list"]).await.1;
    let mut waiting = list().await;
    for _ in 0..20 {
        if waiting.as_array().is_some_and(|all| !all.is_empty()) {
            break;
        }
        waiting = list().await;
    }
    let hash = waiting[0]["proposal_hash"].as_str().unwrap_or_else(|| panic!("{waiting:#}")).to_owned();
    let (code, told) = asked(&world, "anna", &["approvals", "deny", &hash]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#} {}", a.said());
    let denied = sent(&world, &server, "deny");
    // Somebody who did not see that decision does not undo it.
    let unseen = other(&denied, |message| {
        message["kind"] = json!("approve");
        message["holds_ms"] = json!(60_000);
    });
    let answer = delivered(&world, &server, &unseen).await;
    assert!(answer["refused"].as_str().unwrap().contains("has denied the call meanwhile"), "{answer:#}");
    let (code, told) = asked(&world, "anna", &["approvals", "approve", &hash[..12]]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#} {}", a.said());
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said() + &b.said()).await;
    let written = b.checkout.join(".worktrees/issue-7/release/notes.md");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "made\n");
    assert_eq!((a.began(), b.began()), (0, 2));
    // It comes again once the approval is used: it is not given twice. Neither is the decision before it.
    let approved = messages(&world, &server).into_iter().find(|(_, message)| {
        message["kind"] == json!("approve") && !message["instead_of"].is_null() && message["answer"].is_null()
    });
    for message in [approved.unwrap(), denied] {
        let answer = delivered(&world, &server, &message).await;
        assert!(answer["refused"].as_str().unwrap().contains("is not the newest one"), "{answer:#}");
    }
    let state = shared(&world, &server);
    tokio::task::block_in_place(|| {
        for cell in [
            Cell::Approval { repo: shop(), proposal_hash: hash.clone() },
            Cell::Denial { repo: shop(), proposal_hash: hash.clone() },
        ] {
            assert_eq!(state.store().get(&cell).unwrap().1, None, "{cell:?}");
        }
    });
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

/// What a node's run has in its journal of a kind.
fn event(node: &Node, kind: &str) -> Value {
    let line = node.journal().into_iter().find(|line| line["kind"] == json!(kind));
    line.map_or(Value::Null, |line| line["data"].clone())
}

/// The same command until the store's readers see what it is about.
async fn heard(world: &World, user: &str, args: &[&str]) -> Value {
    for _ in 0..40 {
        let (code, told) = asked(world, user, args).await;
        if code == Some(0) {
            return told;
        }
        assert!(told["error"]["message"].as_str().unwrap().contains("nothing waits"), "{told:#}");
    }
    panic!("nothing waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_an_operator_answers_the_question_of_another_nodes_run_once_and_it_goes_on() {
    if !is_there("k_054_answer") {
        return;
    }
    let ask = json!({ "question": "In which unit?", "options": ["cents", "dollars"] });
    let replies = vec![calls(&[("agent__ask", ask)]), reports("Done.", json!([]))];
    let world = solo(replies, Some(ASK), "").await;
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    let (code, refused) = asked(&world, "anna", &["answer", "demo/shop#7", "2"]).await;
    assert_eq!(code, Some(4), "nothing waits yet: {refused:#}");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let waits = || world.labels().contains(&"agentd:needs-input".to_owned());
    until_or("a question", waits, || b.said()).await;
    let told = heard(&world, "anna", &["answer", "demo/shop#7", "2"]).await;
    assert_eq!(told["heard_by"], json!("a"), "{told:#} {}", a.said());
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said() + &b.said()).await;
    let answered = [&a, &b].map(|node| event(node, "question_answered"));
    let answered = answered.into_iter().find(|data| data.is_object()).unwrap();
    assert!(answered["by"].as_str().unwrap().starts_with("local:"), "{answered:#}");
    assert_eq!(answered["text"], json!("dollars"));
    // It comes again, and another one comes late.
    let request = sent(&world, &server, "answer");
    assert_eq!(delivered(&world, &server, &request).await, json!({ "heard_by": "a" }));
    let late = other(&request, |message| message["at"] = json!(chrono::Utc::now()));
    let answer = delivered(&world, &server, &late).await;
    assert!(answer["refused"].as_str().unwrap().contains("is answered already"), "{answer:#}");
    assert_eq!(world.sim.model_requests().len(), 2);
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_operators_have_a_plan_made_again_and_approve_it_as_its_comment_reads() {
    if !is_there("k_054_plan") {
        return;
    }
    let world = World::new(2).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[plan]\ngate = \"always\"\nmax_rounds = 1\n"));
    let server = with_keys(&world).await;
    let ([a, b], [first, second]) = two(&world).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let plan = |number: u32| {
        let marked = format!("issue-7:plan-{number} ");
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        comments.into_iter().find(|one| one.body.contains(&marked)).map(|one| (one.id, one.body))
    };
    until_or("a plan", || plan(1).is_some(), || b.said()).await;
    let told = heard(&world, "otto", &["reject", "demo/shop#7", "Round half up, please."]).await;
    assert_eq!(told["heard_by"], json!("a"), "{told:#} {}", a.said());
    until_or("another plan", || plan(2).is_some(), || a.said() + &b.said()).await;
    let rejected = world.told(2);
    assert!(rejected.contains("Round half up"), "{rejected}");
    // Once was as often as it may be.
    let (mut code, mut refused) = (Some(0), Value::Null);
    for _ in 0..40 {
        (code, refused) = asked(&world, "otto", &["reject", "demo/shop#7", "Not so."]).await;
        if refused["error"]["message"].as_str().is_some_and(|why| why.contains("is not made again")) {
            break;
        }
    }
    assert_eq!(code, Some(4), "{refused:#}");
    // What people made of it before it is approved is what is carried out.
    let (id, text) = plan(2).unwrap();
    let at = chrono::Utc::now() + chrono::TimeDelta::seconds(1);
    let edit = json!({ "body": text.replace("2. `tests", "MARZIPAN `tests"), "actor": "ada", "at": at });
    world.sim.admin("PATCH", &format!("repos/demo/shop/comments/{id}"), &edit).unwrap();
    until("the edit is past", || chrono::Utc::now() > at + chrono::TimeDelta::seconds(3)).await;
    let told = heard(&world, "anna", &["approve", "demo/shop#7"]).await;
    assert_eq!(told["heard_by"], json!("a"), "{told:#} {}", a.said());
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said() + &b.said()).await;
    let approved = [&a, &b].map(|node| event(node, "plan_approved"));
    let approved = approved.into_iter().find(|data| data.is_object()).unwrap();
    assert!(approved["by"].as_str().unwrap().starts_with("local:"), "{approved:#}");
    assert!(approved["edited"] == json!(true) && approved["text"].as_str().unwrap().contains("MARZIPAN"));
    // Both come again, and somebody comes late.
    for kind in ["reject_plan", "approve_plan"] {
        let request = sent(&world, &server, kind);
        let answer = delivered(&world, &server, &request).await;
        let gone = answer["refused"].as_str().is_some_and(|why| why.contains("nothing waits"));
        assert!(gone || (kind == "approve_plan" && answer == json!({ "heard_by": "a" })), "{answer:#}");
    }
    let late = other(&sent(&world, &server, "approve_plan"), |message| {
        message["at"] = json!(chrono::Utc::now());
    });
    let answer = delivered(&world, &server, &late).await;
    assert!(answer["refused"].is_string(), "{answer:#}");
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_what_is_asked_while_no_node_lives_is_heard_by_the_first_that_comes() {
    if !is_there("k_054_nobody") {
        return;
    }
    let world = World::new(1).await;
    let server = with_keys(&world).await;
    let begin = std::time::Instant::now();
    let (given, said) = tokio::join!(
        asked(&world, "anna", &["extend", "demo/shop#7", "2.50"]),
        person(&world, "otto", &["say", "demo/shop#7", "Keep the name of the function."])
    );
    assert!(begin.elapsed() >= Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!((given.0, &given.1["heard_by"]), (Some(0), &Value::Null), "{:#}", given.1);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let told = text(&said.stdout);
    assert!(told.contains("Nobody has heard it yet") && told.contains("within 7 days"), "{told}");
    assert_eq!(spending(&world, &server).given(), Money::ZERO);
    let a = keyed(&world, "a", 1).await;
    let daemon = Daemon::start(&world, &a);
    until_or(
        "both are heard",
        || messages(&world, &server).iter().filter(|(_, message)| message["answer"].is_object()).count() == 2,
        || a.said(),
    )
    .await;
    assert_eq!(spending(&world, &server).given(), Money::from_micros(2_500_000));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or("it is done", || world.labels() == ["agentd:done"], || a.said()).await;
    let told =
        world.sim.model_requests().iter().any(|asked| asked.body.to_string().contains("Keep the name"));
    assert!(told, "the next run was told");
    daemon.stop().await;
    // What was answered is not done again by the next daemon.
    let answered = messages(&world, &server).len();
    let daemon = Daemon::start(&world, &a);
    let (code, told) = asked(&world, "anna", &["extend", "demo/shop#7", "1"]).await;
    assert_eq!((code, &told["heard_by"]), (Some(0), &json!("a")), "{told:#}");
    assert_eq!(messages(&world, &server).len(), answered + 2);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_35_a_reader_asks_for_nothing_and_too_long_a_text_is_not_sent() {
    if !is_there("h_35_requests") {
        return;
    }
    let world = World::new(1).await;
    let server = with_keys(&world).await;
    for args in [&["extend", "demo/shop#7", "5"][..], &["say", "demo/shop#7", "hello"]] {
        let refused = person(&world, "page", args).await;
        assert_eq!(refused.status.code(), Some(4), "{args:?} {}", text(&refused.stderr));
        let told = text(&refused.stderr);
        assert!(told.contains("not permitted: agentd.test.ctl.demo.shop.7-"), "{told}");
    }
    let long = "x".repeat(17_000);
    let refused = person(&world, "anna", &["say", "demo/shop#7", &long]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("16384 are the most"), "{}", text(&refused.stderr));
    let refused = person(&world, "anna", &["say", "7", "hello"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("which repository"), "{}", text(&refused.stderr));
    assert_eq!(messages(&world, &server), []);
    assert_eq!(spending(&world, &server).given(), Money::ZERO);
    world.finish().await;
}
