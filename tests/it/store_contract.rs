//! What every store keeps to, asked of each that there is: the same tests by the same names.
//!
//! A store is added by a [`Place`] of its own and one line `contract!` at the end of this file.

#![expect(clippy::disallowed_methods, reason = "a store is used by several processes")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agentd::domain::artifact::Artifact;
use agentd::domain::name::RepoName;
use agentd::domain::run::RunId;
use agentd::store::Store;
use agentd::store::port::{
    Appended, Cell, CellChange, CommitOutcome, LeaseKey, LeaseNotTaken, Log, MOST_CHANGES, Revision,
};
use agentd::store::run_dir::{RunDir, StateDir};
use futures::StreamExt as _;
use uuid::Uuid;

/// Tells a copy of this program what to do as another process: test, role and address.
const ROLE: &str = "AGENTD_STORE_CONTRACT";
/// Enough for a process to begin; nothing waits for it where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a store's state is during one test. It is gone afterwards.
trait Place {
    /// Whether what it needs is on this machine; says so where it is not.
    fn is_there(_test: &str) -> bool {
        true
    }

    /// Somewhere without state.
    fn new() -> Self;

    /// Where that is, for another process.
    fn address(&self) -> String;

    /// A handle on the state at an address, as each process has its own.
    fn open(address: &str) -> StateDir;

    /// Leaves in a log what a writer leaves that dies in the middle of a line.
    fn tear(&self, run: &RunDir);

    /// Leaves of a blob what a writer leaves that dies in the middle of it.
    fn tear_blob(&self, run: &RunDir, blob: &Artifact);

    /// Makes room in a log, for this process at least, for as many bytes as it has and three quarters of them more.
    fn limit(address: &str, run: &RunDir, bytes: u64);

    /// Makes room again, where the limit was not that process's alone.
    fn unlimit(&self) {}
}

/// A day's spending stands for any cell.
fn cell(number: u32) -> Cell {
    Cell::Spend(chrono::NaiveDate::from_ymd_opt(2026, 11, number).unwrap())
}

fn run(state: &StateDir) -> RunDir {
    state.run(&RepoName::parse("o/n").unwrap(), RunId(Uuid::nil()))
}

fn log(state: &StateDir) -> Arc<dyn Log> {
    state.store().log(&run(state)).unwrap()
}

/// Appends where it has to succeed.
fn at(log: &dyn Log, after: u64, lines: &str) -> u64 {
    match log.append(after, lines.as_bytes()) {
        Appended::At(place) => place,
        other => panic!("{other:?}"),
    }
}

fn read(log: &dyn Log, from: u64) -> (String, u64) {
    let (lines, end) = log.read(from).unwrap();
    (String::from_utf8(lines).unwrap(), end)
}

fn set(store: &dyn Store, cells: &[Cell], value: &str) {
    let change = |cell: &Cell| {
        let after = store.get(cell).unwrap().0;
        CellChange { cell: cell.clone(), after, value: Some(value.to_owned()) }
    };
    let changes: Vec<CellChange> = cells.iter().map(change).collect();
    assert_eq!(store.commit(&changes).unwrap(), CommitOutcome::Done);
}

fn said(store: &dyn Store, cell: &Cell) -> Option<String> {
    store.get(cell).unwrap().1
}

/// A copy of this program that does one test's other part.
fn other(store: &str, test: &str, address: &str) -> Command {
    // A file that has no room fails then, and ends nobody.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    let name = format!("store_contract::{store}::{test}");
    command.args([name.as_str(), "--exact", "--nocapture"]).env(ROLE, address);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The address, where this is the copy.
fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Looks again and again until it is so.
fn until(so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn an_append_after_a_wrong_place_is_refused<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let first = log(&state);
    let one = at(&*first, 0, "{\"n\":1}\n");
    // Another process had the run in between.
    let second = log(&P::open(&place.address()));
    assert!(matches!(second.append(0, b"{\"n\":2}\n"), Appended::Overtaken), "its beginning is no end");
    let two = at(&*second, one, "{\"n\":2}\n");
    assert!(matches!(first.append(one, b"{\"n\":3}\n"), Appended::Overtaken), "nothing is overwritten");
    assert_eq!(read(&*first, 0), ("{\"n\":1}\n{\"n\":2}\n".to_owned(), two));
    assert_eq!(read(&*first, one), ("{\"n\":2}\n".to_owned(), two), "a place is where reading may begin");
}

fn a_torn_tail_is_cut<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let end = at(&*log(&state), 0, "{\"n\":1}\n{\"n\":2}\n");
    place.tear(&run(&state));
    let next = log(&P::open(&place.address()));
    assert_eq!(read(&*next, 0), ("{\"n\":1}\n{\"n\":2}\n".to_owned(), end), "half a line is no line");
    at(&*next, end, "{\"n\":3}\n");
    next.sync().unwrap();
    assert_eq!(read(&*next, 0).0, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
}

fn an_unknown_outcome_is_resolved_by_reading<P: Place>(store: &str) {
    const LINES: &str = "{\"n\":1}\n{\"n\":2}\n";
    let test = "an_unknown_outcome_is_resolved_by_reading";
    let Some(address) = role() else {
        let place = P::new();
        let state = P::open(&place.address());
        at(&*log(&state), 0, LINES);
        assert!(other(store, test, &place.address()).status().unwrap().success());
        place.unlimit();
        // Whoever comes later finds whole lines, and goes on behind them.
        let log = log(&state);
        let (lines, end) = read(&*log, 0);
        assert!(lines.len() > LINES.len() && lines.ends_with("}\n"), "{lines}");
        at(&*log, end, LINES);
        return;
    };
    // A process of its own: room is a process's.
    let state = P::open(&address);
    let log = log(&state);
    let (_, mut end) = read(&*log, 0);
    // Room for one append, and for one line and a half of the next.
    P::limit(&address, &run(&state), LINES.len() as u64);
    end = at(&*log, end, LINES);
    let Appended::Unknown(_) = log.append(end, LINES.as_bytes()) else { panic!("there is no room for it") };
    let (stored, place) = read(&*log, end);
    assert!(stored.is_empty() && place == end || stored == LINES, "all of it or nothing: {stored:?}");
}

fn one_of_many_commits_on_one_revision_wins<P: Place>(_: &str) {
    let place = P::new();
    for round in 0..8 {
        let state = P::open(&place.address());
        let (after, _) = state.store().get(&cell(1)).unwrap();
        let outcomes: Vec<(usize, CommitOutcome)> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    let own = P::open(&place.address());
                    let value = Some(format!("{round} of {writer}"));
                    let change = CellChange { cell: cell(1), after, value };
                    scope.spawn(move || (writer, own.store().commit(&[change]).unwrap()))
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let won: Vec<usize> = outcomes
            .iter()
            .filter(|(_, done)| *done == CommitOutcome::Done)
            .map(|(writer, _)| *writer)
            .collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        assert_eq!(said(&**state.store(), &cell(1)), Some(format!("{round} of {}", won[0])));
    }
}

fn a_cell_is_emptied_once_and_an_empty_one_is_filled_once<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let store = state.store();
    let change = |after, value: Option<&str>| {
        let value = value.map(str::to_owned);
        store.commit(&[CellChange { cell: cell(1), after, value }]).unwrap()
    };
    assert_eq!(store.get(&cell(1)).unwrap(), (Revision::ABSENT, None));
    assert_eq!(change(Revision::ABSENT, None), CommitOutcome::Done, "there is nothing to do");
    assert_eq!(change(Revision::ABSENT, Some("a")), CommitOutcome::Done);
    assert_eq!(change(Revision::ABSENT, Some("b")), CommitOutcome::Overtaken);
    let (after, _) = store.get(&cell(1)).unwrap();
    assert_eq!(change(after, None), CommitOutcome::Done);
    assert_eq!(change(after, None), CommitOutcome::Overtaken);
    assert_eq!(store.get(&cell(1)).unwrap(), (Revision::ABSENT, None));
}

fn what_is_changed_for_now_is_read_by_all_at_once<P: Place>(_: &str) {
    let place = P::new();
    let (one, two) = (P::open(&place.address()), P::open(&place.address()));
    let cell = cell(7);
    let change = |state: &StateDir, after, value: &str| {
        let change = CellChange { cell: cell.clone(), after, value: Some(value.to_owned()) };
        state.store().commit_for_now(&change).unwrap()
    };
    let mut seen = Revision::ABSENT;
    for turn in 0..6 {
        // In turns, as several processes change what they share.
        let (own, other) = if turn % 3 == 2 { (&two, &one) } else { (&one, &two) };
        let value = format!("{{\"turn\":{turn}}}");
        assert_eq!(change(own, seen, &value), CommitOutcome::Done);
        assert_eq!(change(other, seen, "late"), CommitOutcome::Overtaken);
        assert_eq!(said(&**other.store(), &cell).as_ref(), Some(&value));
        seen = other.store().get(&cell).unwrap().0;
        if turn == 3 {
            set(&**other.store(), std::slice::from_ref(&cell), "{\"not\":\"for now\"}");
            seen = own.store().get(&cell).unwrap().0;
        }
        own.store().sync_cell(&cell).unwrap();
    }
    assert_eq!(said(&**P::open(&place.address()).store(), &cell).as_deref(), Some("{\"turn\":5}"));
}

fn a_commit_of_several_cells_is_all_or_nothing<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let store = &**state.store();
    set(store, &[cell(1), cell(2)], "before");
    let (stale, _) = store.get(&cell(2)).unwrap();
    set(store, &[cell(2)], "meanwhile");
    let change = |number, after, value: Option<&str>| CellChange {
        cell: cell(number),
        after,
        value: value.map(str::to_owned),
    };
    let (one, _) = store.get(&cell(1)).unwrap();
    let refused = store.commit(&[change(1, one, Some("after")), change(2, stale, Some("after"))]).unwrap();
    assert_eq!(refused, CommitOutcome::Overtaken);
    assert_eq!(said(store, &cell(1)).as_deref(), Some("before"), "the first of the two stays, too");
    let (two, _) = store.get(&cell(2)).unwrap();
    let changes =
        [change(1, one, None), change(2, two, Some("after")), change(3, Revision::ABSENT, Some("after"))];
    assert_eq!(store.commit(&changes).unwrap(), CommitOutcome::Done);
    let now = [1, 2, 3].map(|number| said(store, &cell(number)));
    assert_eq!(now, [None, Some("after".to_owned()), Some("after".to_owned())]);
    let many: Vec<CellChange> =
        (1..=MOST_CHANGES as u32 + 1).map(|n| change(n, Revision::ABSENT, Some("x"))).collect();
    assert!(store.commit(&many).is_err(), "that is more than any store has to take");
    assert_eq!(said(store, &cell(9)), None);
}

/// Kills a process that commits again and again, and looks at once: later cells are never older than earlier ones.
fn no_part_of_a_commit_is_read_also_of_one_whose_process_was_killed<P: Place>(store: &str) {
    let cells = [cell(1), cell(2), cell(3), cell(4)];
    if let Some(address) = role() {
        let state = P::open(&address);
        loop {
            let next = said(&**state.store(), &cells[0]).map_or(0, |text| text.parse::<u64>().unwrap()) + 1;
            set(&**state.store(), &cells, &next.to_string());
        }
    }
    let test = "no_part_of_a_commit_is_read_also_of_one_whose_process_was_killed";
    let place = P::new();
    let state = P::open(&place.address());
    let number = |cell: &Cell| said(&**state.store(), cell).map_or(0, |text| text.parse::<u64>().unwrap());
    for round in 0..12 {
        let before = number(&cells[0]);
        let mut writer = other(store, test, &place.address()).spawn().unwrap();
        until(|| number(&cells[0]) > before);
        for _ in 0..round {
            let seen: Vec<u64> = cells.iter().map(number).collect();
            assert!(seen.is_sorted(), "what was read later is older: {seen:?}");
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        // A server may take the last one while it is looked at. What is left in the end is whole.
        until(|| {
            let left: Vec<u64> = cells.iter().map(number).collect();
            assert!(left.is_sorted(), "what was read later is older: {left:?}");
            left.iter().all(|value| *value == left[0])
        });
    }
}

fn a_watch_misses_no_final_value<P: Place>(_: &str) {
    let place = P::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let state = P::open(&place.address());
    let watched = runtime.block_on(async {
        let mut values = state.store().watch(&cell(1));
        assert_eq!(values.next().await, Some(None), "it begins with what is there");
        let writer = P::open(&place.address());
        let writing = std::thread::spawn(move || {
            for value in 0..40 {
                set(&**writer.store(), &[cell(1)], &value.to_string());
            }
        });
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "39") {
            let next = tokio::time::timeout(PATIENCE, values.next()).await.unwrap();
            seen.extend(next.unwrap());
        }
        writing.join().unwrap();
        seen
    });
    let numbers: Vec<u32> = watched.iter().map(|value| value.parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

fn the_cells_that_say_something_are_listed<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let (repo, run_id) = (RepoName::parse("o/n").unwrap(), RunId(Uuid::from_u128(5)));
    let issue = agentd::domain::issue::IssueKey::of_text("7");
    // A word of digits alone is no number.
    let word = agentd::domain::issue::IssueKey::of_text("012345678");
    let parked = [(repo.clone(), word.clone())];
    let all = [
        Cell::Approval { repo: repo.clone(), proposal_hash: "ab".into() },
        Cell::Denial { repo: repo.clone(), proposal_hash: "cd".into() },
        cell(1),
        Cell::IssueSpend { repo: repo.clone(), issue: issue.clone() },
        Cell::Stop { repo: repo.clone(), run_id },
        Cell::Inbox { repo: repo.clone(), issue: 7.into() },
        Cell::Parked { repo, issue: word },
        Cell::Daemon,
        Cell::Status,
        Cell::SealKeys,
    ];
    assert_eq!(state.store().cells().unwrap(), [], "of nothing");
    assert_eq!(state.store().parked().unwrap(), [], "of nothing");
    for cell in &all {
        state.store().put(cell, Some("\"x\"")).unwrap();
    }
    // One that was emptied says nothing.
    set(&**state.store(), &[cell(2)], "\"y\"");
    state.store().put(&cell(2), None).unwrap();
    let named = |cells: &[Cell]| {
        let mut names: Vec<String> = cells.iter().map(|cell| format!("{cell:?}")).collect();
        names.sort();
        names
    };
    assert_eq!(named(&state.store().cells().unwrap()), named(&all));
    assert_eq!(state.store().parked().unwrap(), parked);
}

fn a_lease_has_one_holder_and_what_is_recorded_outlives_it<P: Place>(_: &str) {
    let place = P::new();
    let (state, other) = (P::open(&place.address()), P::open(&place.address()));
    let key = lease(&place.address());
    let lasts = Duration::from_secs(60);
    let mut held = state.store().take(&key, "first", lasts).unwrap();
    held.set_record(serde_json::json!({ "origin": "main" })).unwrap();
    held.renew(lasts * 2).unwrap();
    let holder = other.store().look(&key).unwrap().holder.unwrap();
    assert_eq!(holder.instance, "first");
    assert!(other.store().lives(&holder));
    let LeaseNotTaken::Busy(Some(named)) = other.store().take(&key, "second", lasts).unwrap_err() else {
        panic!("not busy")
    };
    assert_eq!(*named, holder);
    held.release().unwrap();
    assert_eq!(other.store().look(&key).unwrap().holder, None);
    let second = other.store().take(&key, "second", lasts).unwrap();
    assert_eq!(second.record(), Some(&serde_json::json!({ "origin": "main" })));
    assert_eq!(second.holder().unwrap().instance, "second");
    drop(second);
    let known =
        state.store().leases(&RepoName::parse("o/n").unwrap(), std::path::Path::new(&place.address()));
    assert_eq!(known, [key]);
}

fn a_holder_that_died_is_seen<P: Place>(store: &str) {
    let lasts = Duration::from_secs(3600);
    if let Some(address) = role() {
        let state = P::open(&address);
        let _held = state.store().take(&lease(&address), "dies", lasts).unwrap();
        std::thread::sleep(PATIENCE);
        return;
    }
    let place = P::new();
    let state = P::open(&place.address());
    let key = lease(&place.address());
    let holder = || state.store().look(&key).and_then(|content| content.holder);
    let mut process = other(store, "a_holder_that_died_is_seen", &place.address()).spawn().unwrap();
    until(|| holder().is_some());
    let held = holder().unwrap();
    assert!(state.store().lives(&held) && held.instance == "dies");
    assert!(matches!(state.store().take(&key, "next", lasts), Err(LeaseNotTaken::Busy(Some(_)))));
    process.kill().unwrap();
    process.wait().unwrap();
    until(|| holder().is_none());
    assert!(!state.store().lives(&held));
    assert_eq!(state.store().take(&key, "next", lasts).unwrap().holder().unwrap().instance, "next");
}

fn a_blob_is_whole_or_absent<P: Place>(_: &str) {
    let place = P::new();
    let state = P::open(&place.address());
    let (blobs, reader) = (state.store().blobs(&run(&state)), P::open(&place.address()));
    let reader = reader.store().blobs(&run(&state));
    let kept = blobs.put("tool-output/a", b"all of it").unwrap();
    assert_eq!(kept.sha256, agentd::domain::canonical::sha256_hex(b"all of it"));
    blobs.sync().unwrap();
    assert_eq!(reader.get(&kept).unwrap(), b"all of it");
    let torn = blobs.put("tool-output/b", b"the whole of another").unwrap();
    place.tear_blob(&run(&state), &torn);
    assert!(reader.get(&torn).is_err(), "a part is not given for the whole");
    let sha256 = agentd::domain::canonical::sha256_hex(b"never kept");
    let never = Artifact { path: "tool-output/c".to_owned(), sha256, ..kept };
    assert!(reader.get(&never).is_err());
}

fn lease(folder: &str) -> LeaseKey {
    let file = std::path::Path::new(folder).join("issue-7.json");
    LeaseKey::Issue { repo: RepoName::parse("o/n").unwrap(), file }
}

/// Every test of the contract, for one store.
macro_rules! contract {
    ($store:ident, $place:ty) => {
        contract!(
            $store,
            $place,
            an_append_after_a_wrong_place_is_refused,
            a_torn_tail_is_cut,
            an_unknown_outcome_is_resolved_by_reading,
            one_of_many_commits_on_one_revision_wins,
            a_cell_is_emptied_once_and_an_empty_one_is_filled_once,
            what_is_changed_for_now_is_read_by_all_at_once,
            a_commit_of_several_cells_is_all_or_nothing,
            no_part_of_a_commit_is_read_also_of_one_whose_process_was_killed,
            a_watch_misses_no_final_value,
            the_cells_that_say_something_are_listed,
            a_lease_has_one_holder_and_what_is_recorded_outlives_it,
            a_holder_that_died_is_seen,
            a_blob_is_whole_or_absent
        );
    };
    ($store:ident, $place:ty, $($test:ident),*) => {
        mod $store {
            $(
                #[test]
                fn $test() {
                    if <$place as super::Place>::is_there(concat!(module_path!(), "::", stringify!($test))) {
                        super::$test::<$place>(stringify!($store));
                    }
                }
            )*
        }
    };
}

/// Files in a folder.
struct Files(tempfile::TempDir);

impl Place for Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn address(&self) -> String {
        self.0.path().to_str().unwrap().to_owned()
    }

    fn open(address: &str) -> StateDir {
        StateDir::new(address.into())
    }

    fn tear(&self, run: &RunDir) {
        use std::io::Write as _;
        let mut log = std::fs::OpenOptions::new().append(true).open(run.events()).unwrap();
        log.write_all(b"{\"n\":3,\"half").unwrap();
    }

    fn tear_blob(&self, run: &RunDir, blob: &Artifact) {
        let blob = std::fs::OpenOptions::new().write(true).open(run.path.join(&blob.path)).unwrap();
        blob.set_len(3).unwrap();
    }

    fn limit(_address: &str, run: &RunDir, bytes: u64) {
        use nix::sys::resource::{Resource, setrlimit};
        let room = run.events().metadata().unwrap().len() + bytes + bytes * 3 / 4;
        setrlimit(Resource::RLIMIT_FSIZE, room, room).unwrap();
    }
}

/// A server of its own, and a cluster on it.
#[cfg(feature = "nats")]
struct Nats(crate::cluster::server::Server);

#[cfg(feature = "nats")]
impl Place for Nats {
    fn is_there(test: &str) -> bool {
        crate::cluster::server::is_there(test)
    }

    fn new() -> Self {
        let server = crate::cluster::server::Server::start();
        crate::cluster::server::make_streams(&server.url(), 1);
        Self(server)
    }

    fn address(&self) -> String {
        self.0.url()
    }

    fn open(address: &str) -> StateDir {
        let store = crate::cluster::server::connect(address);
        StateDir::on_nats("/nowhere".into(), store)
    }

    fn tear(&self, run: &RunDir) {
        // Whoever dies while it sends leaves half a message on the wire.
        use std::io::{Read as _, Write as _};
        let mut socket = std::net::TcpStream::connect(self.0.address()).unwrap();
        assert!(socket.read(&mut [0; 4096]).unwrap() > 0, "it greets");
        let subject = format!("agentd.test.log.o.n.{}", run.run_id);
        write!(socket, "CONNECT {{\"verbose\":false}}\r\nPUB {subject} 100\r\n{{\"n\":3,\"half").unwrap();
    }

    fn tear_blob(&self, _run: &RunDir, blob: &Artifact) {
        let bucket = "agentd_test_blobs";
        crate::cluster::server::with_client(&self.0.url(), async |context| {
            let object = context.get_object_store(bucket).await.unwrap().info(&blob.sha256).await.unwrap();
            let stream = context.get_stream(format!("OBJ_{bucket}")).await.unwrap();
            let parts = format!("$O.{bucket}.C.{}", object.nuid);
            assert_eq!(stream.purge().filter(parts).await.unwrap().purged, 1);
        });
    }

    fn limit(address: &str, _run: &RunDir, _bytes: u64) {
        crate::cluster::server::with_client(address, async |context| {
            let mut stream = context.get_stream("agentd_test_log").await.unwrap();
            let info = stream.info().await.unwrap();
            // All messages are of one size, or nearly.
            let one = info.state.bytes / info.state.messages;
            let room = info.state.bytes + one + one * 3 / 4;
            let config = async_nats::jetstream::stream::Config {
                max_bytes: room.try_into().unwrap(),
                ..info.config.clone()
            };
            context.update_stream(config).await.unwrap();
        });
    }

    fn unlimit(&self) {
        crate::cluster::server::with_client(&self.0.url(), async |context| {
            let config = context.get_stream("agentd_test_log").await.unwrap().cached_info().config.clone();
            let config = async_nats::jetstream::stream::Config { max_bytes: -1, ..config };
            context.update_stream(config).await.unwrap();
        });
    }
}

contract!(files, super::Files);
#[cfg(feature = "nats")]
contract!(nats, super::Nats);
