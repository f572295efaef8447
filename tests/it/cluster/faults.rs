//! What becomes of the store's writes when answers get lost, servers die, rights are missing and processes stand still.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentd::domain::name::RepoName;
use agentd::domain::run::RunId;
use agentd::store::nats::{Access, Credentials, NatsStore};
use agentd::store::port::{
    Appended, Cell, CellChange, CommitOutcome, Holders as _, LeaseKey, LeaseNotTaken, Log, Revision,
};
use agentd::store::run_dir::StateDir;
use uuid::Uuid;

use super::eater;
use super::server::{
    LEASE, Server, Three, access, connect, is_there, make_streams, make_streams_with, with_client,
};

fn state(store: NatsStore) -> StateDir {
    StateDir::on_nats("/nowhere".into(), store)
}

fn log_of(state: &StateDir, run: u128) -> Arc<dyn Log> {
    let run = state.run(&RepoName::parse("o/n").unwrap(), RunId(Uuid::from_u128(run)));
    state.store().log(&run).unwrap()
}

fn day(number: u32) -> Cell {
    Cell::Spend(chrono::NaiveDate::from_ymd_opt(2026, 11, number).unwrap())
}

fn line(number: usize) -> String {
    format!("{{\"n\":{number}}}\n")
}

/// A path as a server in between it gives: the node's own address of it.
fn through(server: &Server, change: eater::Change) -> String {
    format!("nats://{}", eater::between(server.address(), change))
}

#[test]
fn a_blob_that_is_read_leaves_nothing_with_the_servers() {
    if !is_there("read_blobs") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let state = state(NatsStore::connect(&access(&server.url())).unwrap());
    let run = state.run(&RepoName::parse("o/n").unwrap(), RunId(Uuid::from_u128(1)));
    let blobs = state.store().blobs(&run);
    // More than one part, and one that is empty.
    let all: Vec<Vec<u8>> = vec![vec![7; 300_000], b"small".to_vec(), Vec::new()];
    let kept: Vec<_> =
        all.iter().enumerate().map(|(n, bytes)| blobs.put(&format!("f{n}"), bytes).unwrap()).collect();
    for (blob, bytes) in kept.iter().zip(&all) {
        assert!(blobs.get(blob).unwrap() == *bytes);
    }
    // A consumer of each would stay for half a minute, and the servers refuse new ones after some three hundred.
    let left = with_client(&server.url(), async |context| {
        context.get_stream("OBJ_agentd_test_blobs").await.unwrap().cached_info().state.consumer_count
    });
    assert_eq!(left, 0);
}

#[test]
fn h_16_every_third_acknowledgement_is_eaten_and_the_chain_is_whole() {
    if !is_there("h_16") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let (count, eaten) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let eats = Arc::clone(&eaten);
    let url = through(
        &server,
        Arc::new(move |answer| {
            let third = eater::is_acknowledgement(&answer) && count.fetch_add(1, Ordering::Relaxed) % 3 == 2;
            if third {
                eats.fetch_add(1, Ordering::Relaxed);
            }
            (!third).then_some(answer)
        }),
    );
    let state = state(connect(&url));
    // Each eaten answer costs the time of a request: a few writers share the wait.
    std::thread::scope(|scope| {
        for writer in 0..10_u128 {
            let state = &state;
            scope.spawn(move || {
                let log = log_of(state, writer);
                let mut place = 0;
                for number in 0..10 {
                    let Appended::At(at) = log.append(place, line(number).as_bytes()) else {
                        panic!("an append has an end")
                    };
                    place = at;
                }
                let whole: String = (0..10).map(line).collect();
                assert_eq!(log.read(0).unwrap(), (whole.into_bytes(), place));
            });
        }
    });
    assert!(eaten.load(Ordering::Relaxed) >= 30, "answers were eaten");
    // The same of commits, of one cell and of several.
    for round in 0..6 {
        let change = |number| {
            let (after, _) = state.store().get(&day(number)).unwrap();
            CellChange { cell: day(number), after, value: Some(format!("{round}")) }
        };
        let changes: Vec<CellChange> = (1..=1 + round % 3).map(change).collect();
        assert_eq!(state.store().commit(&changes).unwrap(), CommitOutcome::Done, "round {round}");
    }
}

#[test]
fn h_17_a_foreign_message_on_the_subject_is_never_written_over() {
    if !is_there("h_17") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let state = state(connect(&server.url()));
    let log = log_of(&state, 1);
    let Appended::At(place) = log.append(0, line(1).as_bytes()) else { panic!("it is the first") };
    let subject = format!("agentd.test.log.o.n.{}", Uuid::from_u128(1));
    with_client(&server.url(), async |context| {
        context.publish(subject, "{\"foreign\":1}\n".into()).await.unwrap().await.unwrap();
    });
    assert!(matches!(log.append(place, line(2).as_bytes()), Appended::Overtaken));
    let (lines, end) = log.read(0).unwrap();
    assert_eq!(String::from_utf8(lines).unwrap(), format!("{}{{\"foreign\":1}}\n", line(1)));
    assert!(matches!(log.append(place, line(2).as_bytes()), Appended::Overtaken), "nor by trying again");
    assert!(matches!(log.append(end, line(2).as_bytes()), Appended::At(_)), "who has read it goes on");
}

/// Writers go on while the leaders of log and cells are killed, one after the other, and begin again.
#[test]
fn h_28_the_leader_is_killed_under_load_and_nothing_acknowledged_is_lost() {
    if !is_there("h_28") {
        return;
    }
    let mut three = Three::start();
    let urls = three.urls();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3_u128)
        .map(|writer| {
            let (urls, stop) = (urls.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let state = state(connect(&urls));
                let log = log_of(&state, writer);
                let (mut place, mut number, mut longest) = (0, 0, Duration::ZERO);
                // A busy machine gets fewer rounds into the same time: they are made all the same.
                while !stop.load(Ordering::Relaxed) || number <= 20 {
                    let begin = Instant::now();
                    match log.append(place, line(number).as_bytes()) {
                        Appended::At(at) => place = at,
                        other => panic!("writer {writer}, line {number}: {other:?}"),
                    }
                    let cells = [day(1 + writer as u32 * 2), day(2 + writer as u32 * 2)];
                    let changes = cells.clone().map(|cell| {
                        let (after, _) = state.store().get(&cell).unwrap();
                        CellChange { cell, after, value: Some(number.to_string()) }
                    });
                    assert_eq!(state.store().commit(&changes).unwrap(), CommitOutcome::Done);
                    longest = longest.max(begin.elapsed());
                    number += 1;
                }
                let whole: String = (0..number).map(line).collect();
                assert_eq!(String::from_utf8(log.read(0).unwrap().0).unwrap(), whole, "writer {writer}");
                for cell in [day(1 + writer as u32 * 2), day(2 + writer as u32 * 2)] {
                    assert_eq!(state.store().get(&cell).unwrap().1, Some((number - 1).to_string()));
                }
                (number, longest)
            })
        })
        .collect();
    for stream in ["agentd_test_log", "agentd_test_cells"] {
        let leader = with_client(&urls, async |context| {
            // The server that came back may still be joining: asked until one answers.
            let begin = Instant::now();
            loop {
                let known = async { context.get_stream(stream).await.ok()?.get_info().await.ok() };
                if let Some(leader) = known.await.and_then(|info| info.cluster?.leader) {
                    break leader;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "nobody knows the leader of {stream}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let index: usize = leader.trim_start_matches('s').parse().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        three.servers[index].kill();
        std::thread::sleep(Duration::from_secs(6));
        three.servers[index].run();
        three.servers[index].wait();
        std::thread::sleep(Duration::from_secs(2));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let (number, longest) = writer.join().unwrap();
        assert!(number > 20, "{number} rounds");
        // Twelve seconds for the election, and as much for a machine that does other things as well.
        assert!(longest < Duration::from_secs(24), "writes stood still for {longest:?}");
    }
}

/// A stream without room takes a change of what it has, so that nodes go on living and runs can end.
#[test]
fn a_full_stream_takes_a_change_of_a_cell_and_no_new_one() {
    if !is_there("a_full_stream") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let state = state(connect(&server.url()));
    let held = state.store().take(&lease(), "first", LEASE).unwrap();
    state.store().put(&day(1), Some("{}")).unwrap();
    with_client(&server.url(), async |context| {
        let mut stream = context.get_stream("agentd_test_cells").await.unwrap();
        let info = stream.info().await.unwrap();
        let config = async_nats::jetstream::stream::Config {
            max_bytes: (info.state.bytes + 100).try_into().unwrap(),
            ..info.config.clone()
        };
        context.update_stream(config).await.unwrap();
    });
    for round in 0..5 {
        state.store().put(&day(1), Some(&"x".repeat(100 * round))).unwrap();
    }
    let words = state.store().put(&day(2), Some("{}")).unwrap_err().to_string();
    assert!(words.contains("maximum bytes exceeded"), "{words}");
    // Of several cells it takes none: the server counts all of the batch, and nothing that goes for it.
    let change = |number| {
        let (after, _) = state.store().get(&day(number)).unwrap();
        CellChange { cell: day(number), after, value: Some("{}".into()) }
    };
    state.store().commit(&[change(1), change(2)]).unwrap_err();
    // The session is renewed meanwhile, and gives back what it has.
    std::thread::sleep(LEASE);
    held.release().unwrap();
    assert_eq!(state.store().look(&lease()).unwrap().holder, None);
}

#[test]
fn h_34_a_missing_right_is_named_and_waited_for_by_nobody() {
    if !is_there("h_34") {
        return;
    }
    let [all, some] = [0, 1].map(|_| nkeys::KeyPair::new_user());
    let server = Server::with(&format!(
        "accounts {{ A {{ jetstream: enabled, users: [
           {{ nkey: {} }}
           {{ nkey: {}, permissions: {{ publish: [\"$JS.API.STREAM.INFO.>\", \"agentd.test.cell.>\"], subscribe: \"_INBOX_some.>\" }} }}
         ] }} }}",
        all.public_key(),
        some.public_key()
    ));
    let with = |node: &str, key: &nkeys::KeyPair| {
        let own = Access {
            node: node.to_owned(),
            credentials: Credentials::Nkey(key.seed().unwrap().into()),
            ..access(&server.url())
        };
        NatsStore::connect(&own).unwrap()
    };
    make_streams_with(&with("all", &all), 1);
    let state = state(with("some", &some));
    let begin = Instant::now();
    let Appended::Unknown(error) = log_of(&state, 1).append(0, b"{}\n") else { panic!("it may not") };
    let subject = format!("agentd.test.log.o.n.{}", Uuid::from_u128(1));
    let words = error.to_string();
    assert!(words.contains(&format!("not permitted: {subject}")), "{words}");
    let words = state.store().get(&day(1)).unwrap_err().to_string();
    assert!(words.contains("not permitted: $JS.API.STREAM.MSG.GET.agentd_test_cells"), "{words}");
    assert!(begin.elapsed() < Duration::from_secs(3), "a time-out would take longer");
}

const ROLE: &str = "AGENTD_PAUSED_HOLDER";

fn lease() -> LeaseKey {
    LeaseKey::Issue { repo: RepoName::parse("o/n").unwrap(), file: "/c/issue-7.json".into() }
}

/// The holder's process stands still for twice its lease; then it goes on and believes what it believed before.
#[test]
fn a_holder_that_stood_still_for_twice_its_lease_is_taken_over_and_refused() {
    let test = "cluster::faults::a_holder_that_stood_still_for_twice_its_lease_is_taken_over_and_refused";
    if let Ok(role) = std::env::var(ROLE) {
        let (url, folder) = role.split_once(' ').unwrap();
        let state = state(connect(url));
        let mut held = state.store().take(&lease(), "first", LEASE).unwrap();
        let log = log_of(&state, 1);
        let Appended::At(place) = log.append(0, line(1).as_bytes()) else { panic!("it is the first") };
        std::fs::write(format!("{folder}/holds"), "").unwrap();
        let waits = Instant::now();
        while !std::path::Path::new(&format!("{folder}/taken-over")).exists() {
            assert!(waits.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        let refused = [
            matches!(log.append(place, line(2).as_bytes()), Appended::Overtaken),
            held.renew(LEASE).is_err(),
            held.set_record(serde_json::json!({ "of": "first" })).is_err(),
            held.release().is_err(),
        ];
        std::fs::write(format!("{folder}/refused"), format!("{refused:?}")).unwrap();
        return;
    }
    if !is_there(test) {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ROLE, format!("{} {place}", server.url()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let wait = |name: &str| {
        let begin = Instant::now();
        while !folder.path().join(name).exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{name} never came");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait("holds");
    let pid = nix::unistd::Pid::from_raw(process.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let state = state(connect(&server.url()));
    let begin = Instant::now();
    let mut taken = loop {
        match state.store().take(&lease(), "second", LEASE) {
            Ok(held) => break held,
            Err(LeaseNotTaken::Busy(Some(holder))) => assert_eq!(holder.instance, "first"),
            Err(other) => panic!("{other}"),
        }
        assert!(begin.elapsed() < LEASE + Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        begin.elapsed() >= LEASE * 2 / 3,
        "nobody is taken over while it may believe to hold: {:?}",
        begin.elapsed()
    );
    // Whoever takes over ends the other's journal at its tail.
    let log = log_of(&state, 1);
    let (_, end) = log.read(0).unwrap();
    assert!(matches!(log.append(end, line(9).as_bytes()), Appended::At(_)));
    taken.set_record(serde_json::json!({ "of": "second" })).unwrap();
    std::thread::sleep((LEASE * 2).saturating_sub(begin.elapsed()));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    std::fs::write(folder.path().join("taken-over"), "").unwrap();
    wait("refused");
    assert!(process.wait().unwrap().success());
    let refused = std::fs::read_to_string(folder.path().join("refused")).unwrap();
    assert_eq!(refused, "[true, true, true, true]");
    assert_eq!(state.store().look(&lease()).unwrap().record, Some(serde_json::json!({ "of": "second" })));
    assert_eq!(state.store().get(&day(9)).unwrap().0, Revision::ABSENT);
}

#[test]
fn h_44_a_second_node_of_the_same_name_is_refused_and_names_the_first() {
    if !is_there("h_44") {
        return;
    }
    let server = Server::start();
    make_streams(&server.url(), 1);
    let mut own = access(&server.url());
    own.node = "same".into();
    let (first, second) = (NatsStore::connect(&own).unwrap(), NatsStore::connect(&own).unwrap());
    let held = first.take(&lease(), "first", LEASE).unwrap();
    let other = LeaseKey::Issue { repo: RepoName::parse("o/n").unwrap(), file: "/c/issue-8.json".into() };
    let Err(LeaseNotTaken::Store(error)) = second.take(&other, "second", LEASE) else {
        panic!("the name is taken")
    };
    let words = error.to_string();
    assert!(
        words.contains(&format!("pid {}", std::process::id())) && words.contains("cluster.node"),
        "{words}"
    );
    held.release().unwrap();
    drop(first);
    // The first one left by itself: nobody waits for it.
    second.take(&other, "second", LEASE).unwrap();
}
