//! Runs of a cluster as any host reads them: the same everywhere, checked before it is shown, and never an empty list for want of the
//! store.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd::domain::name::RepoName;
use agentd::domain::redaction::Redactor;
use agentd::domain::run::RunId;
use agentd::domain::seal::SealStatement;
use agentd::store::journal_file::{self, FileJournal};
use agentd::store::nats::{Access, Credentials, NatsStore};
use agentd::store::port::{Appended, Cell, LeaseKey};
use agentd::store::run_dir::StateDir;
use agentd::store::seal_key::{self, SealKey};
use serde_json::{Value, json};
use uuid::Uuid;

use super::moving::{agentd, clustered, document, hashes, run_ids, runs, with_client};
use super::server::{Server, access, connect, is_there, make_streams};
use crate::outside::world::{World, text};

/// A world with a run in its state directory, and a cluster that it was imported into.
async fn imported() -> (World, Server, PathBuf, String) {
    let world = World::new(1).await;
    let state = world.dir.path().join("state");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let server = Server::start();
    make_streams(&server.url(), 1);
    clustered(&world, &server.url());
    let (code, said) = document(&world, "cluster.toml", &state, &["cluster", "import"]).await;
    assert_eq!((code, &said["runs"]), (Some(0), &json!(1)), "{said:#}");
    let run = run_ids(&state).pop().unwrap();
    (world, server, state, run)
}

/// Without what depends on the moment.
fn timeless(document: &Value) -> Value {
    let mut document = document.clone();
    let mut forget = |item: &mut Value| {
        if let Value::Object(members) = item {
            for member in ["age_ms", "as_of", "node"] {
                members.remove(member);
            }
        }
    };
    match &mut document {
        Value::Array(items) => items.iter_mut().for_each(&mut forget),
        other => forget(other),
    }
    document
}

fn subject(run: &str) -> String {
    format!("agentd.test.log.demo.shop.{run}")
}

/// Makes a run of these lines, with the row that its node would have written of `known` of them.
fn publish(server: &Server, run: Uuid, lines: &str, known: usize) {
    with_client(&server.url(), async |context| {
        context.publish(subject(&run.to_string()), lines.to_owned().into()).await.unwrap().await.unwrap();
    });
    let (repo, run) = (RepoName::parse("demo/shop").unwrap(), RunId(run));
    let text: String = lines.split_inclusive('\n').take(known).collect();
    let read = journal_file::parse(text.as_bytes()).unwrap();
    let mut row = journal_file::row_of(&repo, run, &read.lines);
    row.node = "gone".into();
    connect(&server.url()).put_row(&repo, &row).unwrap();
}

/// A journal as that of another run: its lines chained anew.
fn as_run(journal: &str, run: Uuid) -> String {
    rechained(journal, run, |_, _| {})
}

/// A journal as that of another run: its lines changed one by one, with the hash of the line before at hand, and chained anew.
fn rechained(journal: &str, run: Uuid, change: impl Fn(&mut Value, &str)) -> String {
    let mut prev = agentd::store::journal_format::GENESIS.to_owned();
    let mut lines = Vec::new();
    for line in journal.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        change(&mut line, &prev);
        let event = json!({ "kind": line["kind"], "data": line["data"] });
        let place = (line["seq"].as_u64().unwrap(), line["ts"].as_i64().unwrap(), run.to_string());
        let (exact, canonical) = agentd::domain::canonical::both_texts(&event).unwrap();
        let place = (place.0, place.1, place.2.as_str());
        let canonical = canonical.as_ref().unwrap_or(&exact);
        let (exact, canonical) = (exact.as_bytes(), canonical.as_bytes());
        prev = agentd::store::journal_format::seal(place, exact, canonical, &prev, &mut lines).unwrap();
    }
    String::from_utf8(lines).unwrap()
}

/// Signs the seal of a line anew, for the chain that it stands in now.
fn sign(line: &mut Value, prev: &str, run: Uuid, key: &SealKey) {
    if line["kind"] == "files_sealed" {
        let signature = &mut line["data"]["signature"];
        let mut statement: SealStatement = serde_json::from_value(signature["statement"].clone()).unwrap();
        statement.run_id = RunId(run);
        prev.clone_into(&mut statement.last_hash);
        *signature = serde_json::to_value(key.sign(statement).unwrap()).unwrap();
    }
}

/// The run ended otherwise than it did.
fn forge(line: &mut Value) {
    if line["kind"] == "run_ended" {
        line["data"]["stop"]["message"] = json!("Done: forged.");
    }
}

/// Nobody is shown anything of a run, and is told why.
async fn assert_refused(world: &World, host: &Path, run: Uuid, why: &str) {
    let run = run.to_string();
    for what in ["show", "report", "events", "evidence", "accounting", "log", "verify"] {
        let shown = agentd(world, "cluster.toml", host, &["runs", what, &run]).await;
        let told = text(&shown.stderr);
        assert_eq!((shown.status.code(), text(&shown.stdout)), (Some(1), String::new()), "{what}: {told}");
        assert!(told.contains("not as it was written") && told.contains(why), "{what}: {told}");
    }
    let copy = host.join("cluster/test/repos/demo/shop/runs").join(run);
    assert!(!copy.join("events.jsonl").exists(), "nothing that others would take for a run is left here");
}

#[tokio::test(flavor = "multi_thread")]
async fn h_46_a_run_of_a_dead_node_reads_the_same_on_a_bare_host_and_is_changed_by_nobody() {
    if !is_there("h_46") {
        return;
    }
    let (world, _server, state, run) = imported().await;
    let bare = world.dir.path().join("bare");
    let elsewhere = world.dir.path().join("elsewhere");
    for args in [
        &["runs", "report", &run][..],
        &["runs", "events", &run],
        &["runs", "accounting", "latest"],
        &["runs", "evidence", &run[..30]],
        &["runs", "log", &run],
    ] {
        let own = agentd(&world, "overlay.toml", &state, args).await;
        assert!(own.status.success() && !own.stdout.is_empty(), "{}", text(&own.stderr));
        for host in [&bare, &elsewhere, &state] {
            let there = agentd(&world, "cluster.toml", host, args).await;
            assert_eq!(text(&there.stdout), text(&own.stdout), "{args:?} {}", text(&there.stderr));
        }
    }
    for args in [&["runs", "list"][..], &["runs", "show", &run], &["runs", "report", &run]] {
        let (code, own) = document(&world, "overlay.toml", &state, args).await;
        assert_eq!(code, Some(0));
        for host in [&bare, &elsewhere, &state] {
            let (code, there) = document(&world, "cluster.toml", host, args).await;
            assert_eq!((code, timeless(&there)), (Some(0), timeless(&own)), "{args:?}");
            let seen = if there.is_array() { &there[0] } else { &there };
            assert!(
                seen["as_of"].is_string() && seen["age_ms"].is_u64() && seen["node"].is_string(),
                "{seen:#}"
            );
            assert!(seen.get("stale").is_none(), "{seen:#}");
        }
    }
    let (code, verified) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
    assert_eq!(
        (code, &verified["ok"], &verified["proof"]["signature"]),
        (Some(0), &json!(true), &json!("valid")),
        "{verified:#}"
    );
    let copy = bare.join("cluster/test/repos/demo/shop/runs").join(&run);
    assert_eq!(hashes(&copy), hashes(&runs(&state).join(&run)), "the same bytes");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_46_what_is_not_as_it_was_written_is_not_shown_and_a_run_at_work_is_ended_by_no_reader() {
    if !is_there("h_46_broken") {
        return;
    }
    let (world, server, state, run) = imported().await;
    let bare = world.dir.path().join("bare");
    let journal = std::fs::read_to_string(runs(&state).join(&run).join("events.jsonl")).unwrap();
    let (works, cut, flipped) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let half = journal.lines().count() / 2;
    let begun: String = as_run(&journal, works).split_inclusive('\n').take(half).collect();
    publish(&server, works, &begun, half);
    // Its row knows more lines than are left of its journal.
    let whole = as_run(&journal, cut);
    let read = journal_file::parse(whole.as_bytes()).unwrap();
    let repo = RepoName::parse("demo/shop").unwrap();
    let row = journal_file::row_of(&repo, RunId(cut), &read.lines);
    let left: String = whole.split_inclusive('\n').take(half).collect();
    with_client(&server.url(), async |context| {
        context.publish(subject(&cut.to_string()), left.into()).await.unwrap().await.unwrap();
    });
    connect(&server.url()).put_row(&repo, &row).unwrap();
    // A line of it says something else.
    let other: String = as_run(&journal, flipped).split_inclusive('\n').take(half).collect();
    publish(&server, flipped, &other, half);
    with_client(&server.url(), async |context| {
        context.publish(subject(&flipped.to_string()), "{\"seq\":1}\n".into()).await.unwrap().await.unwrap();
    });
    for (run, why) in [(cut, "its journal does not have it"), (flipped, "is not a journal line")] {
        let shown = agentd(&world, "cluster.toml", &bare, &["runs", "show", &run.to_string()]).await;
        assert_eq!(shown.status.code(), Some(1), "{}", text(&shown.stdout));
        let told = text(&shown.stderr);
        assert!(told.contains("not as it was written") && told.contains(why), "{told}");
    }
    // A run at work, whose node nobody hears of: it is shown, and left alone.
    let (code, listed) =
        document(&world, "cluster.toml", &bare, &["runs", "list", "--state", "running"]).await;
    let ids: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|one| one["run_id"].as_str()).collect();
    assert_eq!(code, Some(0));
    assert!(ids.contains(&works.to_string().as_str()) && !ids.contains(&run.as_str()), "{listed:#}");
    let (code, shown) = document(&world, "cluster.toml", &bare, &["runs", "show", &works.to_string()]).await;
    assert_eq!(
        (code, &shown["running"], &shown["node"]),
        (Some(0), &json!(true), &json!("gone")),
        "{shown:#}"
    );
    let events = agentd(&world, "cluster.toml", &bare, &["runs", "events", &works.to_string()]).await;
    assert_eq!(text(&events.stdout), begun);
    let store = StateDir::on_nats("/nowhere".into(), connect(&server.url()));
    let log = store.store().log(&store.run(&repo, RunId(works))).unwrap();
    assert_eq!(text(&log.read(0).unwrap().0), begun, "no reader ends a run");
    // Told to stop from here, its node would see it where all nodes look.
    let mut command = world.command(&["--config"]);
    command.arg(world.dir.path().join("cluster.toml")).args(["runs", "stop", &works.to_string()]);
    let mut stop =
        command.env("AGENTD_STATE_DIR", &bare).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let asked = Cell::Stop { repo: repo.clone(), run_id: RunId(works) };
    let begin = Instant::now();
    while store.store().get(&asked).unwrap().1.as_deref() != Some("stop\n") {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody asked it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.kill().unwrap();
    stop.wait().unwrap();
    // What it writes further is there the next time.
    let next = as_run(&journal, works).split_inclusive('\n').nth(half).unwrap().to_owned();
    with_client(&server.url(), async |context| {
        context.publish(subject(&works.to_string()), next.clone().into()).await.unwrap().await.unwrap();
    });
    let events = agentd(&world, "cluster.toml", &bare, &["runs", "events", &works.to_string()]).await;
    assert_eq!(text(&events.stdout), begun + &next);
    // Past its time, its row alone is left.
    with_client(&server.url(), async |context| {
        let stream = context.get_stream("agentd_test_log").await.unwrap();
        let mut config = stream.cached_info().config.clone();
        config.max_age = Duration::from_secs(1);
        context.update_stream(config).await.unwrap();
    });
    let fresh = world.dir.path().join("fresh");
    let begin = Instant::now();
    loop {
        let shown = agentd(&world, "cluster.toml", &fresh, &["runs", "show", &works.to_string()]).await;
        let told = text(&shown.stderr);
        if told.contains("ran on gone; it is expired here") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{told}");
        std::fs::remove_dir_all(&fresh).unwrap();
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_46_a_journal_that_was_changed_and_sealed_anew_is_refused_by_name() {
    if !is_there("h_46_sealed_anew") {
        return;
    }
    let (world, server, state, run) = imported().await;
    let bare = world.dir.path().join("bare");
    let journal = std::fs::read_to_string(runs(&state).join(&run).join("events.jsonl")).unwrap();
    let host = SealKey::of_host(&state).unwrap().unwrap();
    let foreign = SealKey::of_host_or_new(world.dir.path()).unwrap();
    let id = |number| Uuid::from_u128(number);
    let count = journal.lines().count();
    // What a node signed is shown, under whatever id: the test changes what it says it changes.
    let honest = rechained(&journal, id(1), |line, prev| sign(line, prev, id(1), &host));
    publish(&server, id(1), &honest, count);
    let (code, shown) = document(&world, "cluster.toml", &bare, &["runs", "show", &id(1).to_string()]).await;
    assert_eq!((code, &shown["node"]), (Some(0), &json!("gone")), "{shown:#}");
    // Another key, which says who it is.
    let signed = rechained(&journal, id(2), |line, prev| {
        forge(line);
        sign(line, prev, id(2), &foreign);
    });
    publish(&server, id(2), &signed, count);
    let key = seal_key::key_id(&foreign.public_key());
    assert_refused(&world, &bare, id(2), &format!("signed by the key {key}, which is not known here")).await;
    // Another key, which says that it is the node's.
    let posed = rechained(&journal, id(3), |line, prev| {
        forge(line);
        sign(line, prev, id(3), &foreign);
        if let Some(seal) = line["data"].get_mut("signature") {
            seal["public_key"] = json!(host.public_key());
            seal["key_id"] = json!(seal_key::key_id(&host.public_key()));
        }
    });
    publish(&server, id(3), &posed, count);
    assert_refused(&world, &bare, id(3), "the signature of its seal is wrong").await;
    // The node's own seal, behind lines that it did not sign.
    let honest = rechained(&journal, id(4), |line, prev| sign(line, prev, id(4), &host));
    let kept: Value = serde_json::from_str(honest.lines().last().unwrap()).unwrap();
    assert_eq!(kept["kind"], "files_sealed");
    let moved = rechained(&honest, id(4), |line, _| forge(line));
    publish(&server, id(4), &moved, count);
    assert_refused(&world, &bare, id(4), "its signed seal is of another journal").await;
    // An export leaves them as well.
    let out = world.dir.path().join("out");
    let (_, said) =
        document(&world, "cluster.toml", &bare, &["cluster", "export", out.to_str().unwrap()]).await;
    assert_eq!(said["left"].as_array().map(Vec::len), Some(3), "{said:#}");
    assert_eq!(run_ids(&out), [id(1).to_string(), run]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_46_the_journal_of_another_run_under_a_runs_id_is_refused_by_name() {
    if !is_there("h_46_another_run") {
        return;
    }
    let (world, server, state, run) = imported().await;
    let bare = world.dir.path().join("bare");
    let journal = std::fs::read_to_string(runs(&state).join(&run).join("events.jsonl")).unwrap();
    let (whole, begun) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let half = journal.lines().count() / 2;
    let first: String = journal.split_inclusive('\n').take(half).collect();
    for (id, lines) in [(whole, journal.as_str()), (begun, &first)] {
        publish(&server, id, lines, half);
        assert_refused(&world, &bare, id, &format!("line 1 of its journal is of another run: {run}")).await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h_46_the_key_of_a_seal_counts_in_the_shared_store_before_the_seal_is_there() {
    if !is_there("h_46_key_first") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    let shared = StateDir::on_nats(own.clone(), connect(&server.url()));
    let (repo, run) = (RepoName::parse("demo/shop").unwrap(), RunId(Uuid::from_u128(1)));
    let clock = agentd::sys::clock::Clock::system();
    let redactor = Arc::new(Redactor::new([7; 32], Vec::new(), &[]).unwrap());
    tokio::task::block_in_place(|| {
        let dir = shared.run(&repo, run);
        std::fs::create_dir_all(&dir.path).unwrap();
        std::fs::write(dir.events(), "").unwrap();
        let journal = FileJournal::open(dir, clock.clone(), redactor).unwrap();
        agentd::record::seal::seal(&journal, None, &clock).unwrap();
        let keys = seal_key::that_count(&**shared.store()).unwrap().keys;
        let key = SealKey::of_host(&own).unwrap().unwrap().public_key();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [key]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn h_47_without_the_store_the_last_known_is_shown_as_stale_and_never_an_empty_list() {
    if !is_there("h_47") {
        return;
    }
    let (world, mut server, state, run) = imported().await;
    let (bare, fresh) = (world.dir.path().join("bare"), world.dir.path().join("fresh"));
    let said = agentd::daemon::DaemonFiles::of(&StateDir::on_nats(state.clone(), connect(&server.url())));
    said.save_status(&status()).unwrap();
    let list = ["runs", "list"];
    let (_, before) = document(&world, "cluster.toml", &bare, &list).await;
    let (code, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    assert_eq!((code, &told["stale"]), (Some(0), &json!(false)), "{told:#}");
    assert_eq!(told["status"]["waiting"][0]["code"], json!("no_slot"), "{told:#}");
    assert!(told["nodes"][0]["age_ms"].as_u64().unwrap() < 60_000, "{told:#}");
    assert!(told["status"]["waiting"][0]["node"].is_string(), "{told:#}");
    let shown = document(&world, "cluster.toml", &bare, &["runs", "show", &run]).await.1;
    server.kill();
    for host in [&bare, &state] {
        let (code, now) = document(&world, "cluster.toml", host, &list).await;
        assert_eq!(
            (code, &now[0]["stale"], &now[0]["run_id"]),
            (Some(0), &json!(true), &json!(run)),
            "{now:#}"
        );
        assert!(now[0]["stale_since"].is_string(), "{now:#}");
    }
    let (_, now) = document(&world, "cluster.toml", &bare, &list).await;
    assert_eq!(now[0]["as_of"], before[0]["as_of"], "as old as it was");
    let (code, told) = document(&world, "cluster.toml", &bare, &["status"]).await;
    assert_eq!((code, &told["stale"]), (Some(0), &json!(true)), "{told:#}");
    assert_eq!(told["status"]["waiting"][0]["code"], json!("no_slot"), "{told:#}");
    let (code, again) = document(&world, "cluster.toml", &bare, &["runs", "show", &run]).await;
    assert_eq!(
        (code, &again["stale"], &again["pr_url"]),
        (Some(0), &json!(true), &shown["pr_url"]),
        "{again:#}"
    );
    let listed = agentd(&world, "cluster.toml", &bare, &list).await;
    assert!(text(&listed.stderr).contains("The cluster's store cannot be reached; this was known at"));
    // A run that is not among them may be there all the same.
    for host in [&bare, &state] {
        let told = agentd(&world, "cluster.toml", host, &["runs", "show", "0000"]).await;
        let words = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{words}");
        assert!(words.contains("whether there is a run \"0000\" is not known without the store"), "{words}");
    }
    // A node that never looked at the others knows its own runs, and no later than it wrote them.
    let (_, own) = document(&world, "cluster.toml", &state, &list).await;
    let last = journal_file::parse(&std::fs::read(runs(&state).join(&run).join("events.jsonl")).unwrap())
        .unwrap()
        .lines
        .last()
        .unwrap()
        .ts;
    let wrote = json!(agentd::domain::run_output::rfc3339_of_ms(last));
    assert_eq!((&own[0]["as_of"], &own[0]["stale_since"]), (&wrote, &wrote), "{own:#}");
    let listed = agentd(&world, "cluster.toml", &state, &list).await;
    let words = text(&listed.stderr);
    assert!(words.contains("of other nodes nothing is known here"), "{words}");
    // Nothing is decided by what was known.
    for args in [
        &["runs", "stop", "latest"][..],
        &["runs", "approve", "latest", "00000000"],
        &["runs", "resume", "latest"],
    ] {
        let told = agentd(&world, "cluster.toml", &bare, args).await;
        let words = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{args:?}: {words}");
        assert!(words.contains("not known without the store"), "{args:?}: {words}");
    }
    // Where nothing is known, that is said.
    for args in [&list[..], &["status"]] {
        let told = agentd(&world, "cluster.toml", &fresh, args).await;
        assert_eq!((told.status.code(), text(&told.stdout)), (Some(1), String::new()));
        assert!(
            text(&told.stderr).contains("nothing of the cluster is known here yet"),
            "{}",
            text(&told.stderr)
        );
    }
    world.finish().await;
}

/// `agentd` with a user of the cluster's account.
async fn as_user(world: &World, user: &str, args: &[&str]) -> Output {
    let file = world.dir.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let line = text.lines().find(|line| line.starts_with("node = ")).unwrap();
    std::fs::write(&file, text.replace(line, &format!("node = \"{user}\""))).unwrap();
    let seed = std::fs::read_to_string(world.shop().join(format!("keys/{user}.nkey"))).unwrap();
    let mut command = world.command(&["--config"]);
    command.arg(file).args(args).env("SEED", seed.trim());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn h_35_a_reader_sees_runs_and_status_and_stops_nothing() {
    if !is_there("h_35") {
        return;
    }
    let world = World::new(1).await;
    clustered(&world, "nats://127.0.0.1:1");
    let state = world.dir.path().join("state");
    let users = ["--keeper", "keeper", "--node", "host1", "--reader", "page"];
    let account = [&["cluster", "account", "--keys", "keys"][..], &users].concat();
    let account = text(&agentd(&world, "cluster.toml", &state, &account).await.stdout);
    let server = Server::with(&account);
    clustered(&world, &server.url());
    let file = world.dir.path().join("cluster.toml");
    let with_key = std::fs::read_to_string(&file).unwrap() + "nkey = \"${SEED}\"\n";
    std::fs::write(&file, with_key).unwrap();
    let made = as_user(&world, "keeper", &["cluster", "doctor", "--create"]).await;
    assert!(made.status.success(), "{}", text(&made.stdout));
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let brought = as_user(&world, "host1", &["cluster", "import"]).await;
    assert!(brought.status.success(), "{} {}", text(&brought.stdout), text(&brought.stderr));
    // A run at work: half of what was brought, under another id.
    let run = run_ids(&state).pop().unwrap();
    let journal = std::fs::read_to_string(runs(&state).join(&run).join("events.jsonl")).unwrap();
    let works = Uuid::from_u128(1);
    let begun: String = as_run(&journal, works).split_inclusive('\n').take(40).collect();
    let lines = begun.clone();
    let node = Access {
        credentials: Credentials::Nkey(
            std::fs::read_to_string(world.shop().join("keys/host1.nkey")).unwrap().trim().to_owned().into(),
        ),
        node: "host1".into(),
        ..access(&server.url())
    };
    let store = StateDir::on_nats("/nowhere".into(), NatsStore::connect(&node).unwrap());
    let dir = store.run(&RepoName::parse("demo/shop").unwrap(), RunId(works));
    assert!(matches!(store.store().log(&dir).unwrap().append(0, lines.as_bytes()), Appended::At(_)));
    let read = journal_file::parse(begun.as_bytes()).unwrap();
    let row = journal_file::row_of(&dir.repo, dir.run_id, &read.lines);
    NatsStore::connect(&node).unwrap().put_row(&dir.repo, &row).unwrap();
    let run = works.to_string();
    for args in [&["status"][..], &["runs", "list"], &["runs", "show", &run], &["runs", "events", &run]] {
        let shown = as_user(&world, "page", args).await;
        assert!(shown.status.success(), "{args:?} {}", text(&shown.stderr));
    }
    let stop = as_user(&world, "page", &["runs", "stop", &run]).await;
    assert_eq!(stop.status.code(), Some(4), "{} {}", text(&stop.stdout), text(&stop.stderr));
    assert!(
        text(&stop.stderr).contains("not permitted: agentd.test.ctl.demo.shop.7-"),
        "{}",
        text(&stop.stderr)
    );
    let asked = Cell::Stop { repo: dir.repo.clone(), run_id: dir.run_id };
    assert_eq!(store.store().get(&asked).unwrap().1, None);
    // A node that lives is drained by nobody with such a key, and such a key's daemon is no node.
    let held = store.store().take(&LeaseKey::Poller(dir.repo.clone()), "daemon", Duration::ZERO).unwrap();
    for args in [&["daemon", "--once"][..], &["cluster", "drain", "host1"]] {
        let refused = as_user(&world, "page", args).await;
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{args:?} {words}");
        assert!(
            words.contains("error: ") && words.contains("not permitted: agentd.test."),
            "{args:?} {words}"
        );
        assert!(!words.contains("nothing to do"), "{args:?} {words}");
    }
    drop(held);
    world.finish().await;
}

/// A daemon for which an issue waits.
fn status() -> agentd::daemon::status_format::Status {
    let at = "2026-11-25T05:00:00Z";
    serde_json::from_value(json!({
        "schema_version": "agentd.daemon_status.v1", "pid": 1, "version": "0", "started_at": at, "at": at, "stopping": false,
        "repositories": [], "running": [], "parked": [], "limits": { "budgets": [], "counted": 0, "unchanged": 0 },
        "waiting": [{ "repo": "demo/shop", "issue": 7, "code": "no_slot", "text": "All slots are taken." }],
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn k_063_a_run_whose_files_cannot_be_had_is_named_and_nothing_of_it_is_taken_for_the_run() {
    if !is_there("k_063_files") {
        return;
    }
    let (world, server, _, run) = imported().await;
    tokio::task::block_in_place(|| {
        with_client(&server.url(), async |context| {
            context.delete_stream("OBJ_agentd_test_blobs").await.unwrap();
        });
    });
    let bare = world.dir.path().join("bare");
    for _ in 0..2 {
        let (code, said) = document(&world, "cluster.toml", &bare, &["runs", "verify", &run]).await;
        let told = said["error"]["message"].as_str().unwrap_or_else(|| panic!("{said:#}"));
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(&run) && told.contains("read"), "{told}");
    }
    let copies = bare.join("cluster/test/repos/demo/shop/runs").join(&run).join("events.jsonl");
    assert!(!copies.exists());
    world.finish().await;
}
