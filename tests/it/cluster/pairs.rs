//! Two things that come together in a cluster: a journal of a later version and a takeover, a question and a node that goes, a repository that
//! leaves a configuration and its run, a run that cannot go along and a move.

use agentd::domain::canonical::{canonical_json, sha256_hex};
use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::assignments::{label, node, third_visit};
use super::daemons::Daemon;
use super::definitions::{killed, told};
use super::left_unpushed::world_with_pointer;
use super::moving::{clustered, document, run_ids, with_client};
use super::running::world;
use super::server::{Server, is_there, make_streams};
use super::taking_over::{Node, asked_for, shared};
use crate::agents::bench::{fixer, no_sandbox};
use crate::agents::metering;
use crate::flow::outside::says;
use crate::git::Ground;
use crate::outside::daemons::{slow_model, until, until_or};
use crate::outside::handoffs;
use crate::outside::solo::{asked, calls, reports, solo_of};
use crate::outside::world::{World, basic};

/// A line behind the last one of a run, as a later version writes it.
fn line_of_a_later_version(server: &Server, run: &str) {
    let last = shared(server, run).pop().unwrap();
    let prev = last["hash"].as_str().unwrap();
    let mut line = json!({
        "seq": last["seq"].as_u64().unwrap() + 1, "ts": last["ts"], "run_id": run, "kind": "thought_of_later",
        "data": { "of": "a later version" }, "prev": prev,
    });
    let hash = sha256_hex(format!("{prev}{}", canonical_json(&line).unwrap()).as_bytes());
    line["hash"] = json!(hash);
    let subject = format!("agentd.test.log.demo.shop.{run}");
    with_client(&server.url(), async |context| {
        context.publish(subject, format!("{line}\n").into()).await.unwrap().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn k_050_a_run_with_a_line_that_this_version_does_not_know_is_not_gone_on_with_as_if_it_were_not_there()
{
    if !is_there("k_050_unknown") {
        return;
    }
    let (world, server) = world(2).await;
    let (a, b) = (Node::of(&world, "a").await, Node::of(&world, "b").await);
    let run = killed(&world, &server, &a).await;
    line_of_a_later_version(&server, &run);
    let (code, output, said) = b.start(&world).ended().await;
    assert_eq!(code, Some(0), "{output:#} {said}");
    let told = told(&output);
    assert!(told.len() == 1 && told[0].contains("lines that this version does not know"), "{told:?} {said}");
    assert!(told[0].contains("thought_of_later") && told[0].contains("done anew"), "{told:?}");
    assert_eq!(asked_for(&world, "Understand and plan"), 2, "from the beginning");
    let kept = shared(&server, &run);
    assert!(kept.iter().any(|line| line["kind"] == json!("thought_of_later")), "it stays");
    world.assert_one_of_each();
    world.finish().await;
}

fn question() -> ReplyFile {
    let arguments = json!({ "question": "In which unit is the discount?", "options": ["cents", "dollars"] });
    calls(&[("agent__ask", arguments)])
}

/// A world on a cluster's store whose agent asks once.
async fn asking() -> (World, Server) {
    let replies = vec![question(), reports("Done.", json!([]))];
    let world = solo_of(replies, None, "[conversation]\nquiet_period = \"1s\"\n", |_| ()).await;
    world.configure(&["agent = \"solo\""]);
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    (world, server)
}

fn comments(world: &World, part: &str) -> usize {
    let all = world.sim.issue("demo/shop", 7).unwrap().comments;
    all.iter().filter(|comment| comment.body.contains(part)).count()
}

async fn parked(world: &World, nodes: &[&Node]) {
    let parked = || {
        let mut labels = world.labels();
        labels.sort();
        labels == ["agentd", "agentd:needs-input"] && comments(world, "issue-7:question-1 ") == 1
    };
    let said = || nodes.iter().map(|node| node.said()).collect::<Vec<_>>().join("\n---\n");
    until_or("it is parked", parked, said).await;
}

/// The answer is given, and the run that goes on has it; nothing was asked twice.
async fn answered(world: &World, server: &Server, nodes: &[&Node]) {
    world.sim.add_comment("demo/shop", 7, "ada", "2").unwrap();
    // What the store has of what people said, and of what is waited for.
    let cells = || {
        with_client(&server.url(), async |context| {
            let stream = context.get_stream("agentd_test_cells").await.unwrap();
            let mut text = String::new();
            for subject in ["inbox", "parked"].map(|kind| format!("agentd.test.cell.{kind}.demo.shop.7")) {
                if let Ok(last) = stream.get_last_raw_message_by_subject(&subject).await {
                    text += String::from_utf8_lossy(&last.payload).trim();
                }
            }
            text
        })
    };
    let said = || {
        let logs = nodes.iter().map(|node| node.said()).collect::<Vec<_>>().join("\n---\n");
        format!("{:?} {}\n{logs}", world.labels(), cells())
    };
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    let requests = asked(world);
    assert_eq!(requests.len(), 2, "{requests:#?}");
    let answer = &requests[1];
    assert!(answer.contains("The answer to your question") && answer.contains("dollars"), "{answer}");
    assert_eq!((comments(world, "The agent asked:"), comments(world, "ada answered")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn k_057_a_question_that_a_drained_node_asked_is_answered_on_the_next_one() {
    if !is_there("k_057_question") {
        return;
    }
    let (world, server) = asking().await;
    let (a, b) = (node(&world, "a", 2).await, node(&world, "b", 2).await);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    parked(&world, &[&a]).await;
    let second = Daemon::start(&world, &b);
    until_or("the other stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    let bare = world.dir.path().join("bare");
    let (code, drained) = document(&world, "cluster.toml", &bare, &["cluster", "drain", "a"]).await;
    assert_eq!((code, &drained["heard"]), (Some(0), &json!(true)), "{drained:#}");
    let done = first.ends().await;
    assert!(done.success(), "{done:?} {}", a.said());
    parked(&world, &[&b]).await;
    until_or("the other polls", || b.said().contains("this node polls the repository now"), || b.said())
        .await;
    let (_, why) = document(&world, b.config.to_str().unwrap(), &b.state, &["why", "7"]).await;
    let waits = |rule: &Value| rule["code"] == json!("waits_for_answer");
    assert!(why["rules"].as_array().unwrap().iter().any(waits), "{why:#}");
    answered(&world, &server, &[&a, &b]).await;
    assert_eq!((a.began(), b.began()), (1, 2), "its own run, and the one that it goes on with");
    // The run before holds on both, although its seal is by the key of one.
    for node in [&a, &b] {
        let verify = ["runs", "verify", &run_ids(&a.state)[0]];
        let (code, said) = document(&world, node.config.to_str().unwrap(), &node.state, &verify).await;
        assert_eq!((code, &said["proof"]["signature"]), (Some(0), &json!("valid")), "{said:#}");
    }
    second.stop().await;
    world.finish().await;
}

/// Otherwise what waits for people when a state moves is answered, and nobody goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn h_48_a_question_that_waits_goes_along_into_the_cluster_and_back_and_only_who_has_it_now_goes_on() {
    if !is_there("h_48_question") {
        return;
    }
    let (world, _server) = asking().await;
    let state = world.dir.path().join("state");
    label(&world, 7);
    let (code, output) = document(&world, "overlay.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#}");
    let mark = || {
        let all = world.sim.issue("demo/shop", 7).unwrap().comments;
        let marks =
            all.iter().flat_map(|one| one.body.lines()).filter(|line| line.contains("agentd:parked "));
        marks.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = mark();
    assert_eq!(first.len(), 1);
    let (code, said) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!(code, Some(0), "{said:#}");
    let a = node(&world, "a", 2).await;
    let daemon = Daemon::start(&world, &a);
    until_or("it waits in the cluster", || mark().len() == 1 && mark() != first, || a.said()).await;
    // With the next look that is noted as well.
    let seen = world.sim.requests().len();
    let looks = || world.sim.requests()[seen..].iter().any(|one| one.target.contains("/issues?"));
    until_or("the next look", looks, || a.said()).await;
    daemon.stop().await;
    let (code, answered) = document(&world, "overlay.toml", &state, &["answer", "7", "2"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    let (code, refused) = document(&world, "overlay.toml", &state, &["run", "--issue", "7"]).await;
    assert_eq!((code, &refused["stop_detail"]), (Some(4), &json!("branch_busy")), "{refused:#}");
    assert!(refused.to_string().contains("agentd elsewhere waits"), "{refused:#}");
    let back = world.dir.path().join("back");
    let export = ["cluster", "export", back.to_str().unwrap(), "--leases"];
    let (code, said) = document(&world, "cluster.toml", &state, &export).await;
    assert_eq!(code, Some(0), "{said:#}");
    let (code, answered) = document(&world, "overlay.toml", &back, &["answer", "7", "2"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    let (code, output) = document(&world, "overlay.toml", &back, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let requests = asked(&world);
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert!(requests[1].contains("The answer to your question"), "{}", requests[1]);
    assert_eq!(mark(), Vec::<String>::new());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_054_a_question_of_a_run_on_another_node_is_answered_where_it_works_and_after_that_node_died_elsewhere()
 {
    if !is_there("k_054_question") {
        return;
    }
    for dies in [false, true] {
        let (world, server) = asking().await;
        let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
        let first = Daemon::start(&world, &a);
        until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
        let second = Daemon::start(&world, &b);
        until_or("the other stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
        label(&world, 7);
        parked(&world, &[&a, &b]).await;
        assert_eq!((a.began(), b.began()), (0, 1), "the other one has it");
        let ended = || a.said().contains("a run ended issue=demo/shop#7 detail=\"question_pending\"");
        until_or("its poller knows that it waits", ended, || a.said()).await;
        let second = match dies {
            true => {
                second.kill();
                None
            }
            false => Some(second),
        };
        answered(&world, &server, &[&a, &b]).await;
        assert_eq!((a.began(), b.began()), if dies { (2, 1) } else { (0, 2) }, "with what each goes on with");
        if let Some(second) = second {
            second.stop().await;
        }
        first.stop().await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k_048_a_run_whose_work_cannot_go_along_is_moved_and_nothing_of_it_is_lost() {
    if !is_there("k_048_move") {
        return;
    }
    let (world, _server) = world_with_pointer().await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    let second = Daemon::start(&world, &b);
    until_or("the other stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    third_visit(&world, &b, 6_000).await;
    let pinned = || b.journal().iter().any(|line| line["data"]["code"] == json!("pinned"));
    until("it is pinned", pinned).await;
    let bare = world.dir.path().join("bare");
    let (code, moved) = document(&world, "cluster.toml", &bare, &["cluster", "move", "7", "--to", "a"]).await;
    assert_eq!((code, &moved["to"]), (Some(0), &json!("a")), "{moved:#}");
    let said = || [&a, &b].map(Node::said).join("\n---\n");
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan"].map(|words| asked_for(&world, words));
    assert_eq!(times[0], 1, "the first visit is everybody's");
    assert!(times[1] <= 2, "{times:?}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let pushed = world.git(&git_dir, &["show", "feature/issue-7:logo.bin"]).await;
    assert!(pushed.contains("git-lfs"), "{pushed} {}", said());
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_048_a_run_of_a_repository_with_a_submodule_is_moved_and_the_submodule_stands_there_as_it_stood() {
    if !is_there("k_048_submodule") {
        return;
    }
    let (world, _server) = world(2).await;
    let library = Ground::named("library").await;
    let (_served, from) = library.served();
    let shop = world.shop();
    world.git(&shop, &["switch", "-q", "develop"]).await;
    world.write("shop/.gitmodules", &format!("[submodule \"vendor\"]\n\tpath = vendor\n\turl = {from}\n"));
    let commit = library.head("main").await;
    world.git(&shop, &["add", ".gitmodules"]).await;
    let link = format!("160000,{commit},vendor");
    world.git(&shop, &["update-index", "--add", "--cacheinfo", &link]).await;
    world.git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "vendor"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 4).await);
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    let second = Daemon::start(&world, &b);
    until_or("the other stands by", || b.state.join("daemon/status.json").exists(), || b.said()).await;
    third_visit(&world, &b, 6_000).await;
    let worktree = |node: &Node| node.checkout.join(".worktrees/issue-7");
    let before = std::fs::read_to_string(worktree(&b).join("vendor/src/lib.rs")).unwrap();
    let bare = world.dir.path().join("bare");
    let (code, moved) = document(&world, "cluster.toml", &bare, &["cluster", "move", "7", "--to", "a"]).await;
    assert_eq!((code, &moved["to"]), (Some(0), &json!("a")), "{moved:#}");
    let said = || [&a, &b].map(Node::said).join("\n---\n");
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    assert_eq!((a.began(), b.began()), (2, 1), "its own run, and the one that it goes on with: {}", said());
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan"].map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1], "no visit is made twice");
    let after = std::fs::read_to_string(worktree(&a).join("vendor/src/lib.rs"));
    assert_eq!(after.unwrap_or_else(|error| panic!("{error}: {}", said())), before);
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let pushed = world.git(&git_dir, &["ls-tree", "feature/issue-7", "vendor"]).await;
    assert!(pushed.contains(&format!("commit {commit}")), "{pushed}");
    let changed = world.git(&git_dir, &["diff", "--name-only", "develop", "feature/issue-7"]).await;
    assert!(!changed.is_empty() && !changed.contains("vendor"), "{changed}");
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_10_a_dead_node_s_run_goes_on_from_where_it_began_although_the_origin_branch_went_on_in_the_same_files()
 {
    if !is_there("h_10_origin") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    until_or("it polls", || a.said().contains("this node polls the repository now"), || a.said()).await;
    third_visit(&world, &a, 20_000).await;
    let shop = world.shop();
    world.git(&shop, &["switch", "-q", "develop"]).await;
    let text = std::fs::read_to_string(shop.join("lib/cart.sh")).unwrap();
    world.write("shop/lib/cart.sh", &text.replace("# Cart functions.", "# The functions of a cart."));
    let by = ["-c", "user.name=a", "-c", "user.email=a@b"];
    world.git(&shop, &[&by[..], &["commit", "-qm", "words", "lib/cart.sh"]].concat()).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    first.kill();
    let second = Daemon::start(&world, &b);
    let said = || [&a, &b].map(Node::said).join("\n---\n");
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    world.assert_one_of_each();
    let times = ["Understand and plan", "Carry out the plan"].map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1], "no finished visit is made again: {}", said());
    let began_from = |node: &Node| {
        let line = node.journal().into_iter().find(|line| line["kind"] == json!("lease_taken"));
        line.map(|line| line["data"]["origin"]["commit"].clone()).unwrap_or_default()
    };
    assert_eq!((began_from(&a), began_from(&a).is_string()), (began_from(&b), true));
    // Its worktree was made for this, and had no edits of anybody.
    let rescued = b.journal().iter().any(|line| line["data"]["code"] == json!("edits_rescued"));
    assert!(!rescued, "{}", said());
    until_or("its end is known", || b.said().contains("a run ended"), said).await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_006_a_person_goes_on_with_another_nodes_run_in_the_checkout_here_wherever_that_nodes_was() {
    if !is_there("k_006_resume") {
        return;
    }
    let (world, _server) = world(2).await;
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    // What the run begins from is not in the other's clone yet.
    let shop = world.shop();
    world.git(&shop, &["switch", "-q", "develop"]).await;
    world.write("shop/NOTES.md", "new\n");
    world.git(&shop, &["add", "NOTES.md"]).await;
    world
        .git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "notes", "NOTES.md"])
        .await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
    slow_model(&world, 5, 3_000);
    let working = a.start_with(&world, &["--publish", "none"]);
    until("the third visit", || a.has("visit_started", 3) && world.sim.model_requests().len() == 6).await;
    working.signal("-TERM");
    let (code, stopped, said) = working.ended().await;
    assert_eq!((code, &stopped["stop_detail"]), (Some(1), &json!("shutdown")), "{said}");
    // Its host is another one: nothing is where it was.
    std::fs::rename(&a.checkout, a.checkout.with_file_name("gone")).unwrap();
    let mut resume = b.command(&world, &["runs", "resume", stopped["run_id"].as_str().unwrap()]);
    let done = tokio::task::spawn_blocking(move || resume.output().unwrap()).await.unwrap();
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{words}");
    assert_eq!((a.began(), b.journal().is_empty()), (1, false));
    assert!(b.checkout.join(".worktrees/issue-7/NOTES.md").exists() && !a.checkout.exists(), "{words}");
    let times = ["Understand and plan", "Carry out the plan"].map(|words| asked_for(&world, words));
    assert_eq!(times, [1, 1], "no finished visit is made again: {words}");
    world.finish().await;
}

/// Entries of these repositories, each with a checkout of the node's own.
async fn entries(world: &World, node: &Node, names: &[&str]) -> String {
    let mut text = String::new();
    for name in names {
        let checkout = node.checkout.with_file_name(name);
        if !checkout.exists() {
            let copied = std::process::Command::new("cp").arg("-a").arg(world.shop()).arg(&checkout).status();
            assert!(copied.unwrap().success());
            let url = world.sim.remote_url("demo", name);
            world.git(&checkout, &["config", "remote.origin.url", &url]).await;
        }
        let path = checkout.display();
        text += &format!(
            "[[repositories]]\nname = \"demo/{name}\"\npath = \"{path}\"\norigin_branch = \"develop\"\n"
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn k_034_a_repository_that_leaves_a_node_s_configuration_goes_to_another_and_its_run_ends_where_it_works()
 {
    if !is_there("k_034_reload") {
        return;
    }
    let world = World::of(2, |scenario| {
        let mut second = scenario.repositories[0].clone();
        second.name = "demo/other".to_owned();
        scenario.repositories.push(second);
    })
    .await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let alone = std::fs::read_to_string(&a.config).unwrap();
    for node in [&a, &b] {
        let both = entries(&world, node, &["shop", "other"]).await;
        let text = std::fs::read_to_string(&node.config).unwrap();
        std::fs::write(&node.config, text + &both).unwrap();
    }
    let said = || [&a, &b].map(Node::said).join("\n---\n");
    let first = Daemon::start(&world, &a);
    third_visit(&world, &a, 9_000).await;
    let second = Daemon::start(&world, &b);
    until_or("the other stands by", || b.state.join("daemon/status.json").exists(), said).await;
    std::fs::write(&a.config, alone + &entries(&world, &a, &["other"]).await).unwrap();
    until_or("it is in force", || a.said().contains("was read again and is in force"), said).await;
    let follows = || b.said().contains("following a run on another node");
    until_or("the other polls it and follows the run", follows, said).await;
    assert!(!a.has("visit_finished", 3), "the run is at work");
    until_or("it is done", || world.labels() == ["agentd:done"], said).await;
    world.assert_one_of_each();
    assert_eq!((a.began(), b.began()), (1, 0));
    // The next one is the other's.
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    label(&world, 7);
    let ended = || b.said().matches("a run ended issue=demo/shop#7 detail=\"completed\"").count();
    until_or("once more", || ended() == 2 && world.labels() == ["agentd:done"], said).await;
    assert_eq!(a.began(), 1);
    first.stop().await;
    second.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k_015_no_program_of_a_run_reaches_the_clusters_servers_whatever_its_definition_lists() {
    if !is_there("k_015") {
        return;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let curl = agentd::sys::sandbox::which("curl".as_ref(), &path);
    if let Some(why) = no_sandbox().or_else(|| curl.is_none().then(|| "curl is not installed".to_owned())) {
        eprintln!("skipped: {why}");
        return;
    }
    let (world, server) = (World::new(0).await, Server::start());
    make_streams(&server.url(), 1);
    let address = server.url().trim_start_matches("nats://").to_owned();
    fixer(&world, "command", &json!({"argv": ["true"]}));
    let agent = std::fs::read_to_string(world.shop().join(".agent/fixer/agent.json")).unwrap();
    let network = format!(
        "\"permissionMode\":\"acceptEdits\",\"sandbox\":{{\"network\":{{\"mode\":\"custom\",\"trustedDomains\":[\"{address}\"]}}}}"
    );
    let listed = agent.replace("\"permissionMode\":\"acceptEdits\"", &network);
    assert_ne!(listed, agent);
    world.write("shop/.agent/fixer/agent.json", &listed);
    clustered(&world, &server.url());
    let config = std::fs::read_to_string(world.dir.path().join("cluster.toml")).unwrap();
    let asks = format!("[[\"curl\", \"-sSf\", \"http://{address}/\"]]");
    let asking = config.replace("[[\"sh\", \"tests/run.sh\"]]", &asks);
    assert_ne!(asking, config);
    world.write("cluster.toml", &asking);
    let state = world.dir.path().join("state");
    let args = ["run", "--issue", "7", "--agent", "fixer"];
    let (_, output) = document(&world, "cluster.toml", &state, &args).await;
    let warnings = output["warnings"].to_string();
    assert!(warnings.contains(&format!("{address}: it is a server of the cluster")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_a_handoff_whose_node_died_is_made_by_another_once_it_is_approved_and_no_model_is_asked_for_it_again()
 {
    if !is_there("p_036_handoff") {
        return;
    }
    let world = handoffs::asking(vec![handoffs::hands_over(), says("closing")]).await;
    handoffs::of_the_daemon(&world);
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let (a, b) = (node(&world, "a", 1).await, node(&world, "b", 1).await);
    let first = Daemon::start(&world, &a);
    label(&world, 7);
    until_or("a question", || world.labels() == ["agentd:attention"], || a.said()).await;
    let proposed = || a.journal().into_iter().find(|line| line["kind"] == json!("proposal_suspended"));
    let hash = proposed().unwrap()["data"]["proposalHash"].as_str().unwrap().to_owned();
    let sealed = || a.journal().iter().any(|line| line["kind"] == json!("files_sealed"));
    until("its end", sealed).await;
    first.kill();

    let second = Daemon::start(&world, &b);
    until_or("it polls", || b.said().contains("this node polls the repository now"), || b.said()).await;
    let (code, told) = document(&world, "b.toml", &b.state, &["approvals", "approve", &hash]).await;
    assert_eq!(code, Some(0), "{told:#}");
    until_or("it is done", || world.labels() == ["agentd:done"], || b.said()).await;
    assert_eq!(world.sim.model_requests().len(), 2, "{}", b.said());
    second.stop().await;
    world.finish().await;
}

/// Two nodes, and an agent whose program is this.
async fn metered(model: &str, further: &str, more: &str) -> (World, Server, [Node; 2]) {
    let world = metering::world().await;
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let file = world.dir.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n{more}")).unwrap();
    fixer(&world, "command", &metering::asking_for(&world, model, further));
    let nodes = [Node::of(&world, "a").await, Node::of(&world, "b").await];
    (world, server, nodes)
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_what_a_program_spent_on_a_node_that_died_is_under_the_cap_of_the_run_that_goes_on_elsewhere() {
    if !is_there("d61_spent") || metering::skipped() {
        return;
    }
    let (world, server, [a, b]) = metered("recorded-model", "ask false; sleep 600", "").await;
    let more = ["--agent", "fixer", "--max-cost", "3.5"];
    let first = a.start_with(&world, &more);
    until("a run", || a.began() == 1).await;
    // Where the others read it: what a node had not sent yet when it died is on its disk alone.
    let run = run_ids(&a.state).pop().unwrap();
    let noted = || shared(&server, &run).iter().any(|line| line["kind"] == json!("agent_spent"));
    until_or("it is noted", noted, || format!("{:#?}", a.journal())).await;
    first.kill();
    let (code, output, said) = b.start_with(&world, &more).ended().await;
    let told = || format!("{said}\n{output:#}\n{:#?}", b.journal());
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{}", told());
    let runs = b.command(&world, &["runs", "list"]).output().unwrap();
    let runs: Value = serde_json::from_slice(&runs.stdout).unwrap();
    let cost = |run: &Value| (run["cost_usd"].as_f64().unwrap_or_default() * 10_000.0).round();
    let costs: Vec<f64> = runs.as_array().unwrap().iter().map(cost).collect();
    assert_eq!(costs, [30_003.0, 30_003.0], "{runs:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d87_a_model_without_a_price_counts_against_the_day_of_all_nodes() {
    if !is_there("d87_day") || metering::skipped() {
        return;
    }
    let day = "[budgets]\nmax_cost_per_day = 4.0\n";
    let (world, _server, [a, b]) = metered("other-model", "ask false; ask true; sleep 600", day).await;
    for (node, spent) in [(&a, 400_000), (&b, 0)] {
        let (code, output, said) = node.start_with(&world, &["--agent", "fixer"]).ended().await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{said}\n{output:#}");
        assert_eq!(output["totals"]["tokens_out"], json!(spent), "{said}\n{output:#}");
    }
    world.sim.shutdown().await;
}
