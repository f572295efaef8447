//! The rights that `agentd cluster account` writes, tried on a real server: each role against each subject.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{ConnectOptions, Event};

use super::command::Desk;
use super::server::{Server, is_there, with_client};

const STREAMS: [&str; 6] = [
    "agentd_test_cells",
    "agentd_test_log",
    "agentd_test_runs",
    "agentd_test_ctl",
    "agentd_test_status",
    "OBJ_agentd_test_blobs",
];

/// Every subject of the server's API, of each stream.
fn api() -> Vec<String> {
    let mut subjects: Vec<String> =
        ["INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "ACCOUNT.PURGE.A"]
            .map(|api| format!("$JS.API.{api}"))
            .to_vec();
    for stream in STREAMS.into_iter().chain(["agentd_other_cells"]) {
        let of_streams = [
            "INFO",
            "CREATE",
            "UPDATE",
            "DELETE",
            "PURGE",
            "SNAPSHOT",
            "RESTORE",
            "MSG.GET",
            "MSG.DELETE",
            "LEADER.STEPDOWN",
            "PEER.REMOVE",
        ];
        subjects.extend(of_streams.map(|api| format!("$JS.API.STREAM.{api}.{stream}")));
        subjects.extend(
            ["CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT"]
                .map(|api| format!("$JS.API.CONSUMER.{api}.{stream}.x")),
        );
        subjects.extend(["LIST", "NAMES"].map(|api| format!("$JS.API.CONSUMER.{api}.{stream}")));
        subjects.push(format!("$JS.API.DIRECT.GET.{stream}"));
    }
    subjects
}

/// What is kept, and what is of others.
const DATA: [&str; 13] = [
    "agentd.test.cell.spend.x",
    "agentd.test.log.o.n.r",
    "agentd.test.run.o.n.r",
    "agentd.test.ctl.o.n.7",
    "agentd.test.status.node1",
    "agentd.test.status.node2",
    "$O.agentd_test_blobs.C.x",
    "$O.agentd_test_blobs.M.x",
    "agentd.other.cell.spend.x",
    "$KV.bucket.key",
    "$SYS.REQ.SERVER.PING",
    "_INBOX_node2.x",
    "agentd.test.wake",
];

/// What a role may send to, in the words of the specification.
fn may(role: &str, subject: &str) -> bool {
    let own_stream = STREAMS.iter().any(|stream| subject.split('.').any(|token| token == *stream));
    let asks =
        |api: &[&str]| own_stream && api.iter().any(|api| subject.starts_with(&format!("$JS.API.{api}.")));
    let reads = subject == "$JS.API.INFO"
        || (role != "keeper" && asks(&["STREAM.MSG.GET", "CONSUMER.CREATE", "CONSUMER.DELETE"]))
        || asks(&["STREAM.INFO"]);
    reads
        || match role {
            "keeper" => asks(&["STREAM.CREATE", "STREAM.UPDATE"]),
            "operator" => subject == "agentd.test.ctl.o.n.7",
            "node1" => DATA[..5].contains(&subject) || DATA[6..8].contains(&subject) || subject == DATA[12],
            _ => false,
        }
}

/// Sends to each subject, hears each, and gives what the server did not permit.
async fn refused(url: &str, seed: &str, name: &str, sent: &[String], heard: &[&str]) -> BTreeSet<String> {
    let denied: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let notes = Arc::clone(&denied);
    let client = ConnectOptions::with_nkey(seed.to_owned())
        .custom_inbox_prefix(format!("_INBOX_{name}"))
        .event_callback(move |event| {
            let notes = Arc::clone(&notes);
            async move {
                if let Event::ServerError(error) = event {
                    let words = error.to_string();
                    notes.lock().unwrap().extend(words.split('"').nth(1).map(str::to_ascii_lowercase));
                }
            }
        })
        .connect(url)
        .await
        .unwrap();
    for subject in sent {
        client.publish(subject.clone(), "".into()).await.unwrap();
        // The client forgets what the server says of many at once: one after the other.
        client.request("$JS.API.INFO", "".into()).await.unwrap();
    }
    let mut subscriptions = Vec::new();
    for subject in heard {
        subscriptions.push(client.subscribe((*subject).to_owned()).await.unwrap());
        client.request("$JS.API.INFO", "".into()).await.unwrap();
    }
    // The server's words come in order: after those about the last subject, which nobody may, nothing is missing.
    client.publish(LAST, "".into()).await.unwrap();
    client.flush().await.unwrap();
    let begin = std::time::Instant::now();
    while !denied.lock().unwrap().contains(LAST) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{name}: the server does not refuse {LAST}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut denied = denied.lock().unwrap();
    std::mem::take(&mut *denied)
}

/// Nobody may send there.
const LAST: &str = "nobody.may";

#[test]
fn each_role_may_what_it_is_for_and_nothing_else() {
    if !is_there("each_role") {
        return;
    }
    let desk = Desk::new("store = \"nats\"\nurls = [\"nats://127.0.0.1:4222\"]\nreplicas = 1");
    let users = [
        "--keeper",
        "keeper",
        "--node",
        "node1",
        "--node",
        "node2",
        "--operator",
        "operator",
        "--reader",
        "reader",
    ];
    let ran = desk.run(&[&["cluster", "account", "--keys", "keys"][..], &users].concat(), &[]);
    let account = String::from_utf8(ran.stdout).unwrap();
    assert!(account.contains("AGENTD_TEST") && !account.contains("\n        nkey: S"), "{account}");
    // Asked for again, with the seeds that there are, it is the same.
    let again = desk.run(&[&["cluster", "account", "--keys", "keys"][..], &users].concat(), &[]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), account);
    let seed = |name: &str| {
        let path = desk.path().join("keys").join(format!("{name}.nkey"));
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    let other = nkeys::KeyPair::new_user();
    let more = account.replace(
        "accounts {\n",
        &format!("accounts {{\n  B {{ jetstream: enabled, users: [{{ nkey: {} }}] }}\n", other.public_key()),
    );
    let server = Server::with(&more);
    // The keeper makes the streams, and does nothing else.
    let configure = |name: &str| {
        desk.configure(&format!(
            "store = \"nats\"\nurls = [\"{}\"]\nreplicas = 1\nnkey = \"${{SEED}}\"",
            server.url()
        ));
        desk.name(name);
    };
    configure("keeper");
    let keeper = seed("keeper");
    let made = desk.doctor(&["--create"], &[("SEED", &keeper)]);
    assert!(made.iter().all(|one| !one.starts_with("problem")), "{made:#?}");
    configure("node1");
    let node = seed("node1");
    let found = desk.doctor(&[], &[("SEED", &node)]);
    assert!(found.iter().any(|one| one.starts_with("ok rights")), "{found:#?}");
    assert!(found.iter().all(|one| !one.starts_with("problem")), "{found:#?}");
    // A node makes no streams; a reader is told what a node would need.
    let refused_to_make = {
        with_client_of(&server, &other, async |context| {
            context.delete_stream("agentd_test_ctl").await.is_err()
        });
        desk.run(&["cluster", "doctor", "--create"], &[("SEED", &node)])
    };
    assert_eq!(refused_to_make.status.code(), Some(0), "nothing is missing, so nothing is made");
    // Each is judged as what it is.
    for (role, told) in [("reader", "a reader's"), ("operator", "an operator's"), ("keeper", "a keeper's")] {
        configure(role);
        let found = desk.doctor(&[], &[("SEED", &seed(role))]);
        let rights = found.iter().find(|one| one.contains(" rights: ")).unwrap();
        assert!(rights.starts_with("ok ") && rights.contains(told), "{rights}");
        assert!(found.iter().all(|one| !one.starts_with("problem")), "{role}: {found:#?}");
    }
    configure("reader");
    let reader = seed("reader");
    assert_eq!(desk.run(&["cluster", "status"], &[("SEED", &reader)]).status.code(), Some(0));
    // Each against each.
    let sent: Vec<String> = api().into_iter().chain(DATA.map(str::to_owned)).collect();
    let hears =
        ["_INBOX_node2.>", "agentd.test.>", "agentd.test.cell.>", "$JS.EVENT.>", "$SYS.>", "_INBOX.>"];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for role in ["keeper", "node1", "operator", "reader"] {
        let refused = runtime.block_on(refused(&server.url(), &seed(role), role, &sent, &hears));
        let wrong: Vec<&String> = sent
            .iter()
            .filter(|subject| may(role, subject) == refused.contains(&subject.to_ascii_lowercase()))
            .collect();
        assert!(wrong.is_empty(), "{role}: what it may and what the server says differ: {wrong:#?}");
        for subject in hears {
            assert!(refused.contains(&subject.to_ascii_lowercase()), "{role} hears {subject}");
        }
        let (none, wake) = (Vec::new(), "agentd.test.wake");
        let refused = runtime.block_on(self::refused(&server.url(), &seed(role), role, &none, &[wake]));
        assert_eq!(refused.contains(wake), role != "node1", "{role} hears that something happened");
    }
    // Another account has nothing of it.
    with_client_of(&server, &other, async |context| {
        for stream in STREAMS {
            assert!(context.get_stream(stream).await.is_err(), "{stream}");
        }
    });
    assert!(
        std::panic::catch_unwind(|| with_client(&server.url(), async |_| ())).is_err(),
        "without a key nobody comes in"
    );
}

fn with_client_of<T>(
    server: &Server,
    key: &nkeys::KeyPair,
    work: impl AsyncFnOnce(async_nats::jetstream::Context) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = ConnectOptions::with_nkey(key.seed().unwrap()).connect(server.url()).await.unwrap();
        work(async_nats::jetstream::new(client)).await
    })
}
