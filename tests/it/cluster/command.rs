//! `agentd cluster` from outside: every finding of its doctor is provoked, streams are made and never made less, and what does not
//! work on a cluster yet says so.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::eater;
use super::server::{Server, Three, is_there, make_streams, with_client};
use crate::ports::free_port;

/// A folder with a configuration.
pub struct Desk(tempfile::TempDir);

impl Desk {
    /// One that has these lines under `[cluster]`.
    pub fn new(cluster: &str) -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        desk.configure(cluster);
        desk
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn configure(&self, cluster: &str) {
        let text = format!("[cluster]\nname = \"test\"\nnode = \"here\"\nlease = \"15s\"\n{cluster}\n");
        std::fs::write(self.path().join("agentd.toml"), text).unwrap();
    }

    /// Gives its node another name.
    pub fn name(&self, node: &str) {
        let text = std::fs::read_to_string(self.path().join("agentd.toml")).unwrap();
        std::fs::write(self.path().join("agentd.toml"), text.replace("\"here\"", &format!("\"{node}\"")))
            .unwrap();
    }

    pub fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_agentd"))
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .envs(variables.iter().copied())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .output()
            .unwrap()
    }

    /// What the doctor finds, as "state what: told".
    pub fn doctor(&self, more: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let ran = self.run(&[&["--json", "cluster", "doctor"], more].concat(), variables);
        let told: Value = serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ran.stderr)));
        let problems = told["problems"].as_u64().unwrap();
        assert_eq!(ran.status.code(), Some(i32::from(problems > 0)), "{told}");
        let findings = told["findings"].as_array().unwrap().iter();
        findings
            .map(|one| {
                let text = |key: &str| one[key].as_str().unwrap_or_default();
                assert!(text("state") == "ok" || !text("remedy").is_empty(), "a remedy is missing: {one}");
                format!("{} {}: {}", text("state"), text("what"), text("told"))
            })
            .collect()
    }
}

fn one(urls: &str) -> String {
    format!("store = \"nats\"\nurls = [\"{urls}\"]\nreplicas = 1")
}

#[track_caller]
fn finds(found: &[String], begins: &str, has: &str) {
    let there = found.iter().any(|one| one.starts_with(begins) && one.contains(has));
    assert!(there, "nothing begins with {begins:?} and has {has:?}: {found:#?}");
}

#[test]
fn the_doctor_makes_what_is_missing_extends_what_is_smaller_and_makes_nothing_less() {
    if !is_there("the_doctor_makes") {
        return;
    }
    let server = Server::start();
    let desk = Desk::new(&format!("{}\nmonitor = [\"{}\"]", one(&server.url()), server.monitor()));
    let found = desk.doctor(&[], &[]);
    for stream in ["agentd_test_cells", "agentd_test_log", "OBJ_agentd_test_blobs"] {
        finds(&found, "problem stream: ", &format!("{stream} is missing"));
    }
    finds(&found, "warning clock: ", "not verified");
    finds(&found, "warning replicas: ", "on one server");
    let made = desk.doctor(&["--create"], &[]);
    finds(&made, "ok stream: ", "agentd_test_status was made");
    let found = desk.doctor(&[], &[]);
    assert!(found.iter().all(|one| !one.starts_with("problem")), "{found:#?}");
    for what in [
        "servers: alone has nats-server 2.",
        "encryption",
        "round trip",
        "account",
        "clock",
        "rights",
        "disk sync",
        "nodes",
    ] {
        finds(&found, &format!("ok {what}"), "");
    }
    // Something is smaller, something larger than it has to be.
    with_client(&server.url(), async |context| {
        for (name, age) in [("agentd_test_log", 3600), ("agentd_test_runs", 400 * 86_400)] {
            let mut config = context.get_stream(name).await.unwrap().cached_info().config.clone();
            config.max_age = Duration::from_secs(age);
            config.max_bytes = 500_000_000;
            context.update_stream(config).await.unwrap();
        }
    });
    let found = desk.doctor(&[], &[]);
    finds(&found, "problem stream: agentd_test_log: ", "max_age is 3600s and has to be 7776000s");
    finds(&found, "problem stream: agentd_test_runs: ", "max_age");
    let made = desk.doctor(&["--create"], &[]);
    finds(&made, "ok stream: ", "agentd_test_log was made or extended");
    finds(&made, "problem stream: ", "would have to get less");
    with_client(&server.url(), async |context| {
        let config = context.get_stream("agentd_test_log").await.unwrap().cached_info().config.clone();
        assert_eq!(
            (config.max_age.as_secs(), config.max_bytes),
            (90 * 86_400, 500_000_000),
            "what was added stays"
        );
        let config = context.get_stream("agentd_test_runs").await.unwrap().cached_info().config.clone();
        assert_eq!(config.max_age.as_secs(), 400 * 86_400);
        context.delete_stream("agentd_test_ctl").await.unwrap();
    });
    // Looking makes nothing.
    finds(&desk.doctor(&[], &[]), "problem stream: ", "agentd_test_ctl is missing");
}

#[test]
fn the_doctor_finds_what_is_wrong_on_the_way_to_a_server() {
    if !is_there("the_doctor_finds") {
        return;
    }
    let desk = Desk::new(&one(&format!("nats://127.0.0.1:{}", free_port())));
    finds(&desk.doctor(&[], &[]), "problem servers: ", "cannot connect to nats://127.0.0.1:");
    let server = Server::start();
    make_streams(&server.url(), 1);
    let through =
        |change: eater::Change| one(&format!("nats://{}", eater::between(server.address(), change)));
    let replaced = |from: &'static [u8], to: &'static [u8]| -> eater::Change {
        assert_eq!(from.len(), to.len());
        Arc::new(move |mut answer: Vec<u8>| {
            if let Some(at) = answer.windows(from.len()).position(|part| part == from) {
                answer[at..at + to.len()].copy_from_slice(to);
            }
            Some(answer)
        })
    };
    let version = with_client(&server.url(), async |context| context.client().server_info().version);
    assert_eq!(version.len(), 6, "of another length the replacement below does not fit: {version}");
    let (from, to) = (format!("\"version\":\"{version}\""), b"\"version\":\"2.11.9\"");
    desk.configure(&through(replaced(from.leak().as_bytes(), to)));
    finds(&desk.doctor(&[], &[]), "problem servers: ", "2.11.9, which cannot commit several cells");
    desk.configure(&through(replaced(b"\"ts\":\"20", b"\"ts\":\"19")));
    finds(&desk.doctor(&[], &[]), "problem clock: ", "off the servers', and 30s is the most");
    desk.configure(&through(Arc::new(|answer| {
        if answer.starts_with(b"MSG") {
            std::thread::sleep(Duration::from_millis(120));
        }
        Some(answer)
    })));
    finds(&desk.doctor(&[], &[]), "warning round trip: ", " ms to the servers");
    // An address that is every one of this host's is none of loopback.
    desk.configure(&format!(
        "{}\nplaintext = true\nlease = \"3s\"",
        one(&format!("nats://0.0.0.0:{}", server.port)).replace("lease = \"15s\"", "")
    ));
    let text =
        std::fs::read_to_string(desk.path().join("agentd.toml")).unwrap().replace("lease = \"15s\"\n", "");
    std::fs::write(desk.path().join("agentd.toml"), text).unwrap();
    let found = desk.doctor(&[], &[]);
    finds(&found, "warning encryption: ", "in the open");
    finds(&found, "warning lease: ", "3s is short");
    finds(&found, "warning disk sync: ", "not verified: no monitoring address");
    desk.configure(&format!("{}\nmonitor = [\"http://127.0.0.1:{}\"]", one(&server.url()), free_port()));
    finds(&desk.doctor(&[], &[]), "warning disk sync: ", "not verified: http://127.0.0.1:");
    let hasty = Server::hasty();
    desk.configure(&format!("{}\nmonitor = [\"{}\"]", one(&server.url()), hasty.monitor()));
    finds(&desk.doctor(&[], &[]), "warning disk sync: ", "acknowledges before its disk has it");
}

#[test]
fn the_doctor_finds_a_small_account_and_another_node_of_the_same_name() {
    if !is_there("the_doctor_finds_a_small_account") {
        return;
    }
    let small = Server::with(
        "accounts { A { jetstream { max_streams: 2, max_store: 1MB, max_bytes_required: true }, users: [{ user: a, password: a }] } }\n\
         no_auth_user: a",
    );
    with_client(&small.url(), async |context| {
        let config = async_nats::jetstream::stream::Config {
            name: "other".into(),
            subjects: vec!["other".into()],
            max_bytes: 1_000_000,
            ..Default::default()
        };
        context.create_stream(config).await.unwrap();
        context.publish("other", vec![0; 900_000].into()).await.unwrap().await.unwrap();
    });
    let desk = Desk::new(&one(&small.url()));
    let found = desk.doctor(&[], &[]);
    finds(&found, "problem account: ", "may have 2 streams");
    finds(&found, "warning account: ", "on disk");
    finds(&found, "problem account: ", "say how large they may become");
    let server = Server::start();
    make_streams(&server.url(), 1);
    let cell = serde_json::json!({
        "schema_version": "agentd.cell.node.v1", "session": 3, "renewed": 7, "state": "live", "host": "elsewhere",
        "boot_id": "b", "pid": 4711, "started": 1, "version": "0.1.0", "capacity": 1,
    });
    with_client(&server.url(), async |context| {
        let ack = context.publish("agentd.test.cell.node.here", cell.to_string().into()).await.unwrap();
        ack.await.unwrap();
    });
    desk.configure(&one(&server.url()));
    finds(&desk.doctor(&[], &[]), "problem nodes: ", "\"here\" is pid 4711 on elsewhere");
    // A process of this host that lives, with another state directory: it is the node, and who asks cannot be it.
    let (host, pid) = (agentd::sys::host::Host::current(), std::process::id());
    let mut rival = cell.clone();
    rival["host"] = host.name.clone().into();
    rival["boot_id"] = host.boot_id.into();
    rival["pid"] = pid.into();
    rival["started"] = agentd::sys::process_tree::start_time(pid).into();
    rival["place"] = "another".into();
    let here = |cell: &Value| {
        with_client(&server.url(), async |context| {
            let ack = context.publish("agentd.test.cell.node.here", cell.to_string().into()).await.unwrap();
            ack.await.unwrap();
        });
    };
    here(&rival);
    finds(&desk.doctor(&[], &[]), "problem nodes: ", &format!("\"here\" is pid {pid} on {}", host.name));
    // Once it is dead, its name and its state directory are free.
    rival["started"] = 1.into();
    here(&rival);
    finds(&desk.doctor(&[], &[]), "ok nodes: ", "");
    here(&cell);
    // Another name, and the same state directory.
    let folder = desk.path().join(".local/state/agentd");
    let place = format!("{}\n{}", agentd::sys::host::Host::current().name, folder.display());
    let mut cell = cell;
    cell["place"] = agentd::domain::canonical::sha256_hex(place.as_bytes())[..16].into();
    with_client(&server.url(), async |context| {
        let ack = context.publish("agentd.test.cell.node.other", cell.to_string().into()).await.unwrap();
        ack.await.unwrap();
    });
    desk.name("third");
    finds(&desk.doctor(&[], &[]), "problem nodes: ", "\"other\" has this state directory");
    let ran = desk.run(&["--json", "cluster", "status"], &[]);
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(told["nodes"][0]["node"], "here");
    assert_eq!(
        (&told["nodes"][0]["host"], &told["nodes"][0]["state"]),
        (&"elsewhere".into(), &"live".into())
    );
    assert_eq!(told["streams"].as_array().unwrap().len(), 6);
    assert_eq!(told["nodes"][0]["silent"], false, "{told:#}");
    let text = std::fs::read_to_string(desk.path().join("agentd.toml")).unwrap();
    std::fs::write(desk.path().join("agentd.toml"), text.replace("\"15s\"", "\"3s\"")).unwrap();
    let begin = std::time::Instant::now();
    // What its last word was is not what it is now.
    let mut shown = String::new();
    while !shown.contains("live, silent") {
        assert!(begin.elapsed() < Duration::from_secs(30), "{shown}");
        let ran = desk.run(&["cluster", "status"], &[]);
        assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
        shown = String::from_utf8(ran.stdout).unwrap();
    }
    assert!(shown.contains("elsewhere (pid 4711)") && shown.contains("Nobody holds an issue."), "{shown}");
}

#[test]
fn the_doctor_finds_a_server_that_is_away() {
    if !is_there("the_doctor_finds_a_server_that_is_away") {
        return;
    }
    let mut three = Three::start();
    let urls: Vec<String> = three.servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    let desk = Desk::new(&format!("store = \"nats\"\nurls = [{}]\nretention = \"1d\"", urls.join(", ")));
    let found = desk.doctor(&[], &[]);
    assert!(found.iter().all(|one| !one.starts_with("problem")), "{found:#?}");
    three.servers[2].kill();
    let begin = std::time::Instant::now();
    // A leader needs a moment to miss a server.
    while !desk
        .doctor(&[], &[])
        .iter()
        .any(|one| one.starts_with("problem peers: ") && one.contains("not whole on s2"))
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:#?}", desk.doctor(&[], &[]));
    }
}

#[test]
fn what_cannot_work_is_refused_before_any_connection() {
    // Nobody listens there, and nobody is asked.
    let nobody = one(&format!("nats://127.0.0.1:{}", free_port()));
    let desk = Desk::new(&nobody);
    desk.configure("");
    for args in [&["cluster", "doctor"][..], &["cluster", "status"], &["cluster", "account"]] {
        let ran = desk.run(args, &[]);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {told}");
        assert!(told.contains("there is no cluster"), "{args:?}: {told}");
    }
    desk.configure(&one("nats://a.example.org:4222"));
    let told = String::from_utf8(desk.run(&["cluster", "status"], &[]).stderr).unwrap();
    assert!(told.contains("in the open") && told.contains("tls://"), "{told}");
    let creds = desk.path().join("own.creds");
    std::fs::write(&creds, "x").unwrap();
    desk.configure(&format!("{}\ncredentials = \"own.creds\"", one("nats://127.0.0.1:4222")));
    let ran = desk.run(&["cluster", "status"], &[]);
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(4), "{told}");
    assert!(told.contains("may be read by others") && told.contains("chmod 600"), "{told}");
}
