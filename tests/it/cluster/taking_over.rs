//! Runs of several nodes on one issue: one works, the others are told so; a dead one's work is gone on with elsewhere, and whoever was
//! overtaken writes nothing more.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::assignments::label;
use super::daemons::Daemon;
use super::eater::Gate;
use super::moving::{run_ids, runs, with_client};
use super::running::world;
use super::server::{Server, is_there};
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::world::{World, text};

/// A node: a clone, a state directory and a configuration of its own.
pub struct Node {
    pub checkout: PathBuf,
    pub state: PathBuf,
    pub config: PathBuf,
    /// More of its environment, and other than the world's.
    pub env: Vec<(&'static str, String)>,
}

impl Node {
    pub async fn of(world: &World, name: &str) -> Self {
        let dir = world.dir.path();
        let checkout = dir.join(name).join("shop");
        std::fs::create_dir_all(checkout.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(world.shop()).arg(&checkout).status().unwrap();
        assert!(copied.success());
        let text = std::fs::read_to_string(dir.join("cluster.toml")).unwrap();
        world.write(&format!("{name}.toml"), &text.replace("node = \"here\"", &format!("node = \"{name}\"")));
        Self {
            checkout,
            state: dir.join(name).join("state"),
            config: dir.join(format!("{name}.toml")),
            env: Vec::new(),
        }
    }

    pub fn command(&self, world: &World, args: &[&str]) -> Command {
        let mut command = world.command(&["--config"]);
        command.arg(&self.config).arg("--json").args(args);
        command.current_dir(&self.checkout).env("AGENTD_STATE_DIR", &self.state);
        command.envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `agentd run --issue 7` under way.
    pub fn start(&self, world: &World) -> Working {
        self.start_with(world, &[])
    }

    /// The same with more arguments.
    pub fn start_with(&self, world: &World, more: &[&str]) -> Working {
        let args = [&["run", "--issue", "7"], more].concat();
        Working(Some(self.command(world, &args).spawn().unwrap()))
    }

    /// Lines of the journal of its last run.
    pub fn journal(&self) -> Vec<Value> {
        let last =
            runs(&self.state).read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).max();
        let text =
            last.and_then(|run| std::fs::read_to_string(run.join("events.jsonl")).ok()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Runs that began here.
    pub fn began(&self) -> usize {
        if runs(&self.state).exists() { run_ids(&self.state).len() } else { 0 }
    }

    /// What its daemon said.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.state.with_extension("log")).unwrap_or_default()
    }

    pub fn has(&self, kind: &str, visit: u64) -> bool {
        self.journal().iter().any(|line| line["kind"] == json!(kind) && line["data"]["visit"] == json!(visit))
    }
}

/// A run as a process; dropped, it is killed.
pub struct Working(Option<Child>);

impl Working {
    pub fn signal(&self, name: &str) {
        let pid = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Exit code, run output, and what it said.
    pub async fn ended(mut self) -> (Option<i32>, Value, String) {
        let child = self.0.take().unwrap();
        let done = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        let said = text(&done.stderr);
        let document = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        (done.status.code(), document, said)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What the store has of a run, line by line.
pub fn shared(server: &Server, run: &str) -> Vec<Value> {
    let subject = format!("agentd.test.log.demo.shop.{run}");
    let bytes = with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_log").await.unwrap();
        let (mut bytes, mut from) = (Vec::new(), 1);
        while let Ok(message) =
            stream.raw_message_builder().next_by_subject(subject.clone()).sequence(from).send().await
        {
            bytes.extend_from_slice(&message.payload);
            from = message.sequence + 1;
        }
        bytes
    });
    text(&bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Requests of a run that say what its step is to do.
pub fn asked_for(world: &World, words: &str) -> usize {
    let first = |request: &Value| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        messages.len() <= 2 && request.to_string().contains(words)
    };
    world.sim.model_requests().iter().filter(|request| first(&request.body)).count()
}

pub async fn git(world: &World, dir: &Path, args: &[&str]) -> String {
    world.git(dir, args).await.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_45_an_issue_that_another_node_holds_is_busy_and_the_node_is_named() {
    if !is_there("h_45") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, c) = (Node::of(&world, "a").await, Node::of(&world, "c").await);
    slow_model(&world, 2, 8_000);
    let working = a.start(&world);
    until("the second visit", || a.has("visit_started", 2)).await;
    let (code, output, said) = c.start(&world).ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("branch_busy")), "{output:#} {said}");
    let holder = a.journal()[0]["data"]["instance"].as_str().unwrap().to_owned();
    assert!(said.contains("the node a+1") && said.contains(&holder) && said.contains("since 20"), "{said}");
    assert!(!runs(&c.state).exists());
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_run_that_dies_before_it_has_done_anything_is_gone_on_with() {
    if !is_there("h_10_beginning") {
        return;
    }
    let (world, server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let text = std::fs::read_to_string(&a.config).unwrap();
    std::fs::write(&a.config, text + "\n[worktree]\nsetup = [[\"sleep\", \"600\"]]\n").unwrap();
    let working = a.start(&world);
    until("its worktree is being made", || {
        a.journal().iter().any(|line| line["kind"] == json!("worktree_planned"))
    })
    .await;
    let run = run_ids(&a.state).pop().unwrap();
    let is_published = || shared(&server, &run).iter().any(|line| line["kind"] == json!("worktree_planned"));
    until("it is published", is_published).await;
    working.kill();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(b.journal()[0]["data"]["previous_run"], json!(run));
    let end = shared(&server, &run).into_iter().find(|line| line["kind"] == json!("run_ended")).unwrap();
    assert_eq!(end["data"]["stop"]["detail"], json!("interrupted"));
    world.finish().await;
}

/// The issue's cell as it is between a run's first line and the record that names the run; or of another run, which has no line yet.
fn without_record(server: &Server, other: Option<&str>) {
    let subject = "agentd.test.cell.issue.demo.shop.7";
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let last = stream.get_last_raw_message_by_subject(subject).await.unwrap();
        let mut cell: Value = serde_json::from_slice(last.payload.trim_ascii()).unwrap();
        assert!(cell["record"].is_object() && cell["holder"]["run_id"].is_string(), "{cell:#}");
        cell.as_object_mut().unwrap().remove("record");
        if let Some(run) = other {
            cell["holder"]["run_id"] = json!(run);
        }
        context.publish(subject, cell.to_string().into()).await.unwrap().await.unwrap();
    });
}

/// A run of a node that died between its first line and the record that names it.
async fn died_unnamed(world: &World, server: &Server, node: &Node) -> String {
    slow_model(world, 1, 600_000);
    let working = node.start(world);
    until("the first visit", || node.has("visit_started", 1) && world.sim.model_requests().len() == 2).await;
    let run = run_ids(&node.state).pop().unwrap();
    working.kill();
    tokio::task::block_in_place(|| without_record(server, None));
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_run_that_dies_before_its_lease_names_it_is_ended_by_the_next_one() {
    if !is_there("h_10_unnamed") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let run = died_unnamed(&world, &server, &a).await;
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(b.journal()[0]["data"]["previous_run"], Value::Null, "it begins anew");
    let lines = shared(&server, &run);
    let end = lines.iter().find(|line| line["kind"] == json!("run_ended")).expect("it has an end");
    assert_eq!(end["data"]["stop"]["detail"], json!("interrupted"));
    assert_eq!(lines.last().unwrap()["kind"], json!("files_sealed"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_12_a_run_is_sealed_whose_ending_died_with_a_second_node() {
    if !is_there("h_12_unsealed") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b, c) = (Node::of(&world, "a").await, Node::of(&world, "b").await, Node::of(&world, "c").await);
    let run = died_unnamed(&world, &server, &a).await;
    let gate = Gate::to(server.address());
    let config = std::fs::read_to_string(&b.config).unwrap();
    world.write("b.toml", &config.replace(&server.address(), &gate.address));
    gate.end_before(Some("files_sealed"));
    let second = b.start(&world);
    until_or("it is about to be sealed", || gate.ended() > 0, || b.said()).await;
    second.kill();
    let last = || tokio::task::block_in_place(|| shared(&server, &run).pop().unwrap()["kind"].clone());
    assert_eq!(last(), json!("run_ended"));
    let (code, output, said) = c.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    until_or("it is sealed", || last() == json!("files_sealed"), || c.said()).await;
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_run_that_dies_before_its_first_line_never_was() {
    if !is_there("h_10_no_line") {
        return;
    }
    let (world, server) = world(2).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 1, 600_000);
    let working = a.start(&world);
    until("the first visit", || a.has("visit_started", 1) && world.sim.model_requests().len() == 2).await;
    working.kill();
    let run = "01900000-0000-7000-8000-000000000001";
    std::fs::create_dir(runs(&a.state).join(run)).unwrap();
    std::fs::write(runs(&a.state).join(run).join("events.jsonl"), "").unwrap();
    tokio::task::block_in_place(|| without_record(&server, Some(run)));
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert_eq!(shared(&server, run), Vec::<Value>::new(), "there is nothing to end");
    world.finish().await;
}

/// A node dies when all of its run is written, and only the lease not given back: its cell is as it was in the middle of the run.
async fn died_with_its_lease(test: &str, after: &str) {
    if !is_there(test) {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    let next = Node::of(&world, after).await;
    let cell = || tokio::task::block_in_place(|| issue_cell(&server));
    let state = || cell()["state"].as_str().unwrap_or_default().to_owned();
    slow_model(&world, 1, 3_000);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("the first visit", || a.has("visit_started", 1), || a.said()).await;
    let held = cell();
    assert!(held["record"].is_object() && held["state"] == json!("leased"), "{held:#}");
    until_or("it is done", || world.labels() == ["agentd:done"] && state() == "free", || a.said()).await;
    first.kill();
    with_client(&server.url(), async |context| {
        context
            .publish("agentd.test.cell.issue.demo.shop.7", held.to_string().into())
            .await
            .unwrap()
            .await
            .unwrap();
    });
    let second = Daemon::start(&world, &next);
    until_or("the lease is free", || state() == "free", || next.said()).await;
    second.stop().await;
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_091_a_record_without_its_seal_is_completed_also_where_the_lease_was_given_back() {
    unsealed("k_091_unsealed", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_091_a_record_without_its_seal_is_completed_also_where_no_lease_names_its_run() {
    unsealed("k_091_unnamed", |cell| {
        cell["record"]["run_id"] = json!("01900000-0000-7000-8000-000000000001");
    })
    .await;
}

/// The record of a run that ended is completed at a daemon's start, with the issue's cell given back, and as `change` makes it.
async fn unsealed(test: &str, change: impl FnOnce(&mut Value)) {
    if !is_there(test) {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    let gate = Gate::to(server.address());
    let config = std::fs::read_to_string(&a.config).unwrap();
    world.write("a.toml", &config.replace(&server.address(), &gate.address));
    gate.end_before(Some("files_sealed"));
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("it is about to be sealed", || gate.ended() > 0, || a.said()).await;
    first.kill();
    gate.end_before(None);
    // It died a moment earlier, and who took the issue then had to give it back.
    let run = run_ids(&a.state).pop().unwrap();
    for file in [runs(&a.state).join(&run).join("events.jsonl"), a.state.join("seals.jsonl")] {
        let lines = std::fs::read_to_string(&file).unwrap();
        let before = lines.trim_end().rfind('\n').map_or("", |end| &lines[..=end]);
        std::fs::write(&file, before).unwrap();
    }
    let mut cell = issue_cell(&server);
    let members = cell.as_object_mut().unwrap();
    members.retain(|name, _| !["by", "key", "holder"].contains(&name.as_str()));
    members.insert("state".to_owned(), json!("free"));
    change(&mut cell);
    with_client(&server.url(), async |context| {
        let subject = "agentd.test.cell.issue.demo.shop.7";
        context.publish(subject, cell.to_string().into()).await.unwrap().await.unwrap();
    });
    let last = || tokio::task::block_in_place(|| shared(&server, &run).pop().unwrap()["kind"].clone());
    assert_eq!(last(), json!("run_ended"));
    let second = Daemon::start(&world, &a);
    until_or("it is sealed", || last() == json!("files_sealed"), || a.said()).await;
    second.stop().await;
    world.finish().await;
}

/// What the store has of the issue now.
pub fn issue_cell(server: &Server) -> Value {
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_cells").await.unwrap();
        let last = stream.get_last_raw_message_by_subject("agentd.test.cell.issue.demo.shop.7").await;
        last.map_or(Value::Null, |last| serde_json::from_slice(last.payload.trim_ascii()).unwrap())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn k_091_a_lease_that_a_node_died_with_after_its_run_is_given_back_by_another_one() {
    died_with_its_lease("k_091_other", "b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_091_a_lease_that_a_node_died_with_after_its_run_is_given_back_by_itself() {
    died_with_its_lease("k_091_own", "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_what_a_killed_node_had_done_is_gone_on_with_elsewhere_and_no_finished_visit_again() {
    if !is_there("h_10") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 600_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&a.state).pop().unwrap();
    until("it is published", || {
        shared(&server, &run)
            .iter()
            .any(|line| line["kind"] == json!("visit_started") && line["data"]["visit"] == 3)
    })
    .await;
    working.kill();
    let begin = Instant::now();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan", "You review another's work"]
        .map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1, 2], "the third visit once more, the others not");
    let first = shared(&server, &run);
    let end = first.iter().find(|line| line["kind"] == json!("run_ended")).unwrap();
    assert_eq!(end["data"]["stop"]["detail"], json!("interrupted"));
    assert_eq!(first.last().unwrap()["kind"], json!("files_sealed"));
    let second = b.journal();
    assert_eq!(second[0]["data"]["previous_run"], json!(run), "{:#}", second[0]);
    assert_eq!(second[0]["data"]["held"]["term"], json!(2));
    // Nothing of it names a place of the former node.
    let text = serde_json::to_string(&second).unwrap();
    assert!(!text.contains(a.checkout.to_str().unwrap()) && !text.contains(a.state.to_str().unwrap()));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_13_a_node_that_stood_still_is_overtaken_and_writes_nothing_more() {
    if !is_there("h_13") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 4_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&a.state).pop().unwrap();
    working.signal("-STOP");
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    let (lines, writes) = (shared(&server, &run), world.sim.requests().len());
    working.signal("-CONT");
    let (code, output, said) = working.ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("overtaken")), "{output:#} {said}");
    assert_eq!(shared(&server, &run), lines, "its appends are refused");
    let later = super::daemons::written(&world, writes);
    assert!(later.is_empty(), "{later:?}");
    world.assert_one_of_each();
    let rescued = git(&world, &a.checkout, &["show", &format!("refs/agentd/rescue/{run}:lib/cart.sh")]).await;
    assert!(rescued.contains("$1 * (100 - $2) / 100"), "{rescued}");
    // Its journal is that of the store; what only it wrote is beside it.
    let dir = runs(&a.state).join(&run);
    let own = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
    assert_eq!(own.lines().count(), lines.len());
    assert!(std::fs::read_to_string(dir.join("overtaken.jsonl")).unwrap().lines().count() > 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_17_a_foreign_message_on_its_subject_ends_the_run_and_is_not_written_over() {
    if !is_there("h_17") {
        return;
    }
    let (world, server) = world(1).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 2, 6_000);
    let working = a.start(&world);
    until("the second visit", || a.has("visit_started", 2) && world.sim.model_requests().len() == 3).await;
    let run = run_ids(&a.state).pop().unwrap();
    let subject = format!("agentd.test.log.demo.shop.{run}");
    tokio::time::sleep(Duration::from_millis(600)).await;
    with_client(&server.url(), async |context| {
        context.publish(subject.clone(), "foreign\n".into()).await.unwrap().await.unwrap();
    });
    let (code, output, said) = working.ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("overtaken")), "{output:#} {said}");
    let last = with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_log").await.unwrap();
        stream.raw_message_builder().last_by_subject(subject).send().await.unwrap()
    });
    assert_eq!(text(&last.payload), "foreign\n");
    assert!(world.sim.pulls("demo/shop").is_empty());
    world.finish().await;
}

/// The store is gone for a while in the middle of a visit.
async fn gone_for(test: &str, away: Duration) {
    if !is_there(test) {
        return;
    }
    let (world, mut server) = world(1).await;
    let a = Node::of(&world, "a").await;
    slow_model(&world, 3, 1_500);
    let working = a.start(&world);
    until("the second visit", || world.sim.model_requests().len() == 4).await;
    server.kill();
    tokio::time::sleep(away).await;
    let asked = world.sim.model_requests().len();
    assert!(asked <= 5, "{asked} requests: nothing begins without the store");
    server.run();
    server.wait();
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(world.sim.model_requests().len(), 9, "nothing was asked twice");
    assert_eq!(run_ids(&a.state).len(), 1);
    let own = a.journal();
    assert_eq!(shared(&server, &run_ids(&a.state)[0]), own);
    assert_eq!(own[0]["data"]["held"]["session"], json!(1));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_22_the_store_is_gone_5_s_and_the_run_goes_on_in_place() {
    gone_for("h_22", Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_22_the_store_is_gone_60_s_and_the_run_goes_on_in_place() {
    gone_for("h_22_long", Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_44_two_nodes_of_one_name_do_not_work_at_once() {
    if !is_there("h_44") {
        return;
    }
    let (world, _server) = world(1).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let same = std::fs::read_to_string(&a.config).unwrap();
    world.write("b.toml", &same);
    slow_model(&world, 2, 8_000);
    let working = a.start(&world);
    until("the second visit", || a.has("visit_started", 2)).await;
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("config_invalid")), "{output:#} {said}");
    let pid = working.0.as_ref().unwrap().id();
    assert!(said.contains(&format!("pid {pid} on")), "{said}");
    let (code, output, said) = working.ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_12_a_taker_that_dies_while_it_takes_over_is_followed_by_a_third() {
    if !is_there("h_12") {
        return;
    }
    let (world, server) = world(3).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let c = Node::of(&world, "c").await;
    slow_model(&world, 5, 600_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&a.state).pop().unwrap();
    working.kill();
    let taking = b.start(&world);
    let ended = |run: &str| shared(&server, run).iter().any(|line| line["kind"] == json!("run_ended"));
    until("the dead run's end", || ended(&run)).await;
    taking.kill();
    let (code, output, said) = c.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(c.journal()[0]["data"]["held"]["term"], json!(3));
    assert_eq!(asked_for(&world, "Understand and plan"), 1);
    assert_eq!(shared(&server, &run).iter().filter(|line| line["kind"] == json!("run_ended")).count(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_18_work_that_is_too_large_for_others_is_begun_anew_and_the_run_had_said_so() {
    if !is_there("h_18") {
        return;
    }
    let (world, _server) = world(2).await;
    let text = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    world.write("cluster.toml", &format!("{text}checkpoint_max = 1\n"));
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 600_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let pinned = a.journal().into_iter().filter(|line| line["data"]["code"] == json!("pinned")).count();
    assert_eq!(pinned, 1, "it is said once");
    tokio::time::sleep(Duration::from_millis(600)).await;
    working.kill();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Understand and plan"), 2, "from the beginning");
    let spent = b.journal().into_iter().find(|line| line["kind"] == json!("run_started")).unwrap();
    assert!(spent["data"]["inherited"]["steps"].as_u64().unwrap() >= 2, "what it had used counts: {spent:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_19_the_next_run_on_a_former_host_goes_on_from_what_the_other_pushed() {
    if !is_there("h_19") {
        return;
    }
    let (world, _server) = world(4).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    slow_model(&world, 5, 600_000);
    let working = a.start(&world);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    let run = run_ids(&a.state).pop().unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    // What nobody has seen yet.
    let worktree = a.checkout.join(".worktrees/issue-7");
    std::fs::write(worktree.join("left.txt"), "of the former host").unwrap();
    working.kill();
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    let pushed = git(&world, &b.checkout, &["rev-parse", "feature/issue-7"]).await;
    let (code, output, said) = a.start(&world).ended().await;
    assert_eq!(output["stop_reason"], json!("OBJECTIVE_ACHIEVED"), "{code:?} {output:#} {said}");
    let forward = git(&world, &a.checkout, &["merge-base", &pushed, "feature/issue-7"]).await;
    assert_eq!(forward, pushed, "the branch was brought forward");
    let own = run_ids(&a.state).pop().unwrap();
    let kept =
        git(&world, &a.checkout, &["ls-tree", "--name-only", &format!("refs/agentd/rescue/{own}")]).await;
    assert!(kept.lines().any(|name| name == "left.txt"), "the former work of {run} is kept: {kept}");
    assert!(!worktree.join("left.txt").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_12_work_whose_flow_had_ended_survives_two_nodes_that_die_before_they_commit_it() {
    if !is_there("h_12_flow_ended") {
        return;
    }
    let (world, server) = world(1).await;
    let nodes = [Node::of(&world, "a").await, Node::of(&world, "b").await, Node::of(&world, "c").await];
    let mut dead: Vec<String> = Vec::new();
    for node in &nodes[..2] {
        let works = node.start(&world);
        // A run that it brought from the other node is none of its own.
        let own = || {
            let all = if node.began() > 0 { run_ids(&node.state) } else { Vec::new() };
            all.into_iter().find(|run| !dead.contains(run))
        };
        let ended =
            |run: String| shared(&server, &run).iter().any(|line| line["kind"] == json!("flow_ended"));
        until("the others know that its flow has ended", || own().is_some_and(ended)).await;
        works.kill();
        assert!(world.sim.pulls("demo/shop").is_empty(), "it died before it published");
        let run = own().unwrap();
        dead.push(run);
    }
    let (code, output, said) = nodes[2].start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#}\n{said}");
    assert_eq!(output["stop_detail"], json!("completed"));
    world.assert_one_of_each();
    assert_eq!(asked_for(&world, "Carry out the plan"), 1, "a finished visit is not made again");
    world.finish().await;
}
