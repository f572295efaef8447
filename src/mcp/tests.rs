//! MCP servers as they really behave: a Python one of our own, and public ones where node and the registries are there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::{McpError, McpServers, Phase, ServerConfig, ServerTransport};
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, Tool, ToolError};
use crate::sys::files;
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;
use crate::sys::process::{Piped, ProcessSpec, run, spawn_piped};

/// A folder that servers run in, and the host's variables.
struct Place {
    folder: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Place {
    /// `None`, with the reason said, where a program is missing.
    async fn with(programs: &[&str]) -> Option<Self> {
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        env.push(("GITHUB_TOKEN".into(), "sentinel".into()));
        env.push(("SECRET_OF_THE_HOST".into(), "sentinel".into()));
        let place = Self { folder: tempfile::tempdir().unwrap(), env };
        for program in programs {
            let spec = ProcessSpec::new(program, &place.path()).arg("--version").envs(place.env.clone());
            if !run(spec, &CancellationToken::new()).await.is_ok_and(|exit| exit.success()) {
                println!("skipped: no {program} here");
                return None;
            }
        }
        Some(place)
    }

    fn path(&self) -> AbsPath {
        AbsPath::new(self.folder.path().canonicalize().unwrap()).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for what another process is about to write.
    async fn noted(&self, line: &str, times: usize) {
        let began = Instant::now();
        while self.notes().iter().filter(|noted| *noted == line).count() < times {
            assert!(began.elapsed() < Duration::from_secs(10), "never noted: {line}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The Python server with flags.
    fn server(&self, flags: &[&str]) -> ServerConfig {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
        let mut args = vec![script.to_str().unwrap().to_owned()];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        args.extend(["--notes".to_owned(), self.file("notes").to_str().unwrap().to_owned()]);
        let env = BTreeMap::from([
            ("COUNT_FILE".to_owned(), SecretString::from(self.file("count").to_str().unwrap())),
            ("DECLARED".to_owned(), SecretString::from("sentinel-declared")),
        ]);
        let transport = ServerTransport::Stdio { command: "python3".to_owned(), args, env };
        ServerConfig { start_timeout: Duration::from_secs(20), ..ServerConfig::new(transport) }
    }

    async fn connect(&self, servers: &[(&str, ServerConfig)]) -> Result<McpServers, McpError> {
        let configs = servers.iter().map(|(name, config)| ((*name).to_owned(), config.clone())).collect();
        McpServers::connect(configs, &self.path(), &self.env).await
    }

    /// One connection, started: calls without a gate.
    async fn connection(&self, config: ServerConfig) -> Connection {
        let env = self.env.iter().filter(|(name, _)| name == "PATH").cloned().collect();
        let connection = Connection::new("fm", config.transport, &self.path(), env, config.start_timeout);
        connection.start().await.unwrap();
        connection
    }
}

const LIMIT: Duration = Duration::from_secs(10);

async fn said(connection: &Connection, tool: &str, arguments: Value) -> Result<String, ToolError> {
    connection.call(tool, &arguments, LIMIT).await.map(|output| output.text)
}

fn names(servers: &McpServers) -> Vec<String> {
    servers.tools().iter().map(|tool| tool.spec().name.clone()).collect()
}

async fn until_gone(pid: &str) {
    let began = Instant::now();
    let stat = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < Duration::from_secs(10), "process {pid} still lives");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn s_018_s_019_tools_are_offered_under_their_servers_name_in_a_fixed_order() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let mut limited = place.server(&[]);
    limited.allow = vec!["e*".into(), "big".into()];
    limited.deny = vec!["ex*".into()];
    let servers = place.connect(&[("fm", place.server(&[])), ("a b", limited)]).await.unwrap();
    let order: Vec<String> = ["a_b__big", "a_b__echo", "a_b__environment"]
        .into_iter()
        .map(str::to_owned)
        .chain(
            ["big", "child", "count", "echo", "environment", "exit", "fail", "refuse", "sleep", "whoami"]
                .map(|name| format!("fm__{name}")),
        )
        .collect();
    assert_eq!(names(&servers), order);
    let echo = &servers.tools()[1];
    assert_eq!(echo.spec().description, "The tool echo.");
    assert_eq!(
        echo.spec().parameters,
        json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"], "additionalProperties": false })
    );
    assert_eq!((echo.source(), echo.risk()), ("a b", Risk::Read));
    assert_eq!(servers.tools()[0].risk(), Risk::Network);
    assert!(servers.warnings().is_empty());
    servers.close().await;
}

#[tokio::test]
async fn d78_only_what_the_operator_names_is_known_to_read() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let config = ServerConfig { reads: vec!["count".into(), "cuont".into()], ..place.server(&[]) };
    let servers = place.connect(&[("fm", config)]).await.unwrap();
    let known: Vec<&str> = servers
        .tools()
        .iter()
        .filter(|tool| tool.only_reads())
        .map(|tool| tool.spec().name.as_str())
        .collect();
    // The server says of its tool `echo` that it only reads; that is not enough.
    assert_eq!(known, ["fm__count"]);
    let warned: Vec<&str> = servers.warnings().iter().map(|warning| warning.message.as_str()).collect();
    assert!(matches!(warned.as_slice(), [one] if one.contains("no tool \"cuont\"")), "{warned:?}");
    servers.close().await;
}

#[tokio::test]
async fn c_18_bound_parameters_are_the_server_s_and_hidden_only_where_asked() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let whoami = |mut config: ServerConfig| {
        config.allow = vec!["whoami".into()];
        config
    };
    let mut more = whoami(place.server(&[]));
    more.bind.extend([BoundParameter::Repo, BoundParameter::Worktree]);
    more.hide_bound_params = true;
    let servers = place.connect(&[("a", whoami(place.server(&[]))), ("b", more)]).await.unwrap();
    let [plain, hiding] = servers.tools() else { panic!("{servers:?}") };
    assert_eq!(plain.bound_parameters(), [BoundParameter::UserId, BoundParameter::Issue]);
    assert_eq!(plain.spec().parameters["required"], json!(["user_id"]));
    assert_eq!(
        hiding.bound_parameters(),
        [BoundParameter::UserId, BoundParameter::Issue, BoundParameter::Repo, BoundParameter::Worktree]
    );
    assert_eq!(hiding.spec().parameters["properties"], json!({ "text": { "type": "string" } }));
    assert_eq!(hiding.arguments_schema(), plain.arguments_schema());
    servers.close().await;
}

#[tokio::test]
async fn a_041_a_required_server_that_fails_stops_everything_and_an_optional_one_warns() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let missing = ServerConfig::new(ServerTransport::Stdio {
        command: "/nonexistent/server".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
    });
    let mute = ServerConfig { start_timeout: Duration::from_millis(300), ..place.server(&["--mute"]) };
    let refusing = place.server(&["--refuse-initialize"]);
    let crashing = ServerConfig::new(ServerTransport::Stdio {
        command: "sh".into(),
        args: vec!["-c".into(), "echo the key is $KEY >&2; exit 3".into()],
        env: BTreeMap::from([("KEY".to_owned(), SecretString::from("sentinel-key"))]),
    });
    let unreachable = ServerConfig::new(ServerTransport::Http {
        url: "http://user:sentinel-key@127.0.0.1:9/mcp?token=sentinel-key".into(),
        headers: BTreeMap::new(),
    });
    let cases = [
        (missing, Phase::Start, "was not found"),
        (mute, Phase::Initialize, "no answer within 0.3 s"),
        (refusing, Phase::Initialize, "not today"),
        (crashing, Phase::Initialize, "the key is [redacted]"),
        (unreachable, Phase::Initialize, "Connection refused"),
    ];
    for (config, expected, words) in cases {
        let error = place.connect(&[("ok", place.server(&[])), ("x", config.clone())]).await.unwrap_err();
        let McpError::Unavailable { server, phase, message } = &error else { panic!("{error}") };
        assert_eq!((server.as_str(), *phase), ("x", expected), "{message}");
        assert!(message.contains(words) && !error.to_string().contains("sentinel-key"), "{error}");
        let optional = ServerConfig { required: false, ..config };
        let servers = place.connect(&[("ok", place.server(&[])), ("x", optional)]).await.unwrap();
        assert_eq!(servers.tools().len(), 10);
        let [warning] = servers.warnings() else { panic!("{servers:?}") };
        assert!(warning.server == "x" && warning.message.contains(words), "{}", warning.message);
        servers.close().await;
    }
}

#[tokio::test]
async fn a_043_s_021_a_broken_input_schema_is_named_with_its_tool() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let error = place.connect(&[("fm", place.server(&["--broken"]))]).await.unwrap_err();
    assert!(matches!(&error, McpError::Schema { tool, .. } if tool == "broken"), "{error}");
    let mut without = place.server(&["--broken"]);
    without.deny = vec!["broken".into()];
    let optional = ServerConfig { required: false, ..place.server(&["--broken"]) };
    let servers = place.connect(&[("a", without), ("b", optional)]).await.unwrap();
    assert_eq!(servers.tools().len(), 20);
    assert_eq!(servers.warnings().len(), 1);
    let unfit = ServerConfig { allow: vec!["[".into()], ..place.server(&[]) };
    let error = place.connect(&[("fm", unfit)]).await.unwrap_err();
    assert!(error.to_string().starts_with("mcp.servers.fm.allow:"), "{error}");
    servers.close().await;
}

/// Lets the server change what it lists, and looks.
async fn changed(servers: &McpServers, change: Value) -> Option<super::ToolChange> {
    let connection = servers.connections().next().unwrap();
    assert_eq!(said(connection, "change", change).await.unwrap(), "changed");
    // Over HTTP, what was told is heard a moment after the answer that it came with.
    let began = Instant::now();
    while !connection.has_changed() && began.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    servers.changes().await
}

async fn the_list_follows(servers: &McpServers) {
    let first = names(servers);
    assert!(servers.changes().await.is_none(), "nobody said a word");
    let change = changed(servers, json!({ "add": ["zoom", "above"] })).await.unwrap();
    let now: Vec<&str> = change.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert!(first.iter().all(|name| now.contains(&name.as_str())) && now.len() == first.len() + 2, "{now:?}");
    let same = |name: &str| {
        let of =
            |tools: &[Arc<dyn Tool>]| tools.iter().find(|tool| tool.spec().name == name).cloned().unwrap();
        Arc::ptr_eq(&of(servers.tools()), &of(&change.tools))
    };
    assert!(same("fm__echo") && same("fm__big"), "what is as it was stays the same tool");
    assert!(servers.changes().await.is_none(), "it is told once");
    let change = changed(servers, json!({ "drop": ["above"], "describe": ["echo"] })).await.unwrap();
    let told = |name: &str| {
        change.tools.iter().find(|tool| tool.spec().name == name).map(|tool| tool.spec().description.clone())
    };
    assert_eq!((told("fm__above"), told("fm__echo")), (None, Some("Another echo.".to_owned())));
    let change = changed(servers, json!({ "add": ["unfit"] })).await.unwrap();
    let [warning] = &change.warnings[..] else { panic!("{:?}", change.warnings) };
    assert!(warning.message.contains("its tool unfit is left out: it has no inputSchema"), "{warning:?}");
    assert!(
        changed(servers, json!({})).await.is_none(),
        "a word that changes nothing, and what was said is not said again"
    );
    servers.close().await;
}

#[tokio::test]
async fn a_list_that_changed_is_read_anew_and_what_is_as_it_was_stays() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let servers = place.connect(&[("fm", place.server(&["--changing"]))]).await.unwrap();
    the_list_follows(&servers).await;
    let (config, _alive) = http_server(&place, &["--changing"]).await;
    the_list_follows(&place.connect(&[("fm", config)]).await.unwrap()).await;
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tools_again_keeps_those_that_it_had() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let config = ServerConfig {
        start_timeout: Duration::from_secs(2),
        ..place.server(&["--changing", "--list-once"])
    };
    let servers = place.connect(&[("fm", config)]).await.unwrap();
    let change = changed(&servers, json!({ "add": ["zoom"] })).await.unwrap();
    assert_eq!(change.tools.len(), servers.tools().len());
    let [warning] = &change.warnings[..] else { panic!("{:?}", change.warnings) };
    let words = "MCP server fm said that its tools changed, and then did not list its tools";
    assert!(warning.message.starts_with(words), "{warning:?}");
    assert!(changed(&servers, json!({})).await.is_none(), "it is said once");
    servers.close().await;
}

#[tokio::test]
async fn calls_give_text_and_failures_a_class() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let fm = place.connection(place.server(&[])).await;
    assert_eq!(said(&fm, "echo", json!({ "text": "hello" })).await.unwrap(), "hello");
    assert_eq!(said(&fm, "big", json!({ "bytes": 2_000_000 })).await.unwrap().len(), 2_000_000);
    let class = |answer: Result<String, ToolError>| match answer {
        Err(ToolError::ForModel { error_type, message }) => (error_type, message),
        other => panic!("{other:?}"),
    };
    let own = class(said(&fm, "fail", json!({ "class": "TaskNotFoundError" })).await);
    assert_eq!(own, ("TaskNotFoundError".into(), "as you wish".into()));
    assert_eq!(class(said(&fm, "fail", json!({})).await), ("ToolExecutionError".into(), "no".into()));
    assert_eq!(class(said(&fm, "nothing", json!({})).await).0, "ToolNotFound");
    assert_eq!(class(said(&fm, "refuse", json!({})).await), ("Own".into(), "refused".into()));
    fm.close().await;
    assert!(said(&fm, "echo", json!({})).await.is_err(), "a closed server is not started again");
    assert_eq!(place.notes().iter().filter(|note| *note == "start").count(), 1);
}

#[tokio::test]
async fn a_094_a_server_gets_the_declared_variables_and_path_home_lang_alone() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let servers = place.connect(&[("fm", place.server(&[]))]).await.unwrap();
    let connection = servers.connections().next().unwrap();
    let told: Value =
        serde_json::from_str(&said(connection, "environment", json!({})).await.unwrap()).unwrap();
    let allowed = ["COUNT_FILE", "DECLARED", "PATH", "HOME", "LANG"];
    // What shells and version switchers add on the way from `python3` to Python itself.
    let added =
        |name: &str| ["PYENV", "_", "PWD", "SHLVL", "LC_CTYPE"].iter().any(|start| name.starts_with(start));
    let names: Vec<&str> =
        told["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.iter().all(|name| allowed.contains(name) || added(name)), "{names:?}");
    assert!(names.contains(&"DECLARED") && names.contains(&"PATH"), "{names:?}");
    assert_eq!(told["cwd"], json!(place.path().as_path()), "D25: servers run in the worktree");
    servers.close().await;
}

#[tokio::test]
async fn a_032_a_call_over_its_time_is_cancelled_at_the_server() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let fm = place.connection(place.server(&[])).await;
    let began = Instant::now();
    let slow = fm.call("sleep", &json!({ "ms": 20_000 }), Duration::from_millis(200)).await;
    assert_eq!(slow.unwrap_err(), ToolError::Timeout);
    assert!(began.elapsed() < Duration::from_secs(15));
    place.noted("cancelled", 1).await;
    // Dropped from outside.
    let arguments = json!({ "ms": 20_000 });
    tokio::select! {
        answer = fm.call("sleep", &arguments, LIMIT) => panic!("{answer:?}"),
        () = place.noted("call sleep", 2) => {}
    }
    place.noted("cancelled", 2).await;
    assert_eq!(said(&fm, "echo", json!({ "text": "alive" })).await.unwrap(), "alive");
    fm.close().await;
}

#[tokio::test]
async fn c_14_a_server_that_died_is_started_for_the_next_call_and_no_call_is_sent_twice() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let fm = place.connection(place.server(&[])).await;
    let gone = said(&fm, "exit", json!({})).await.unwrap_err();
    assert!(gone.to_string().contains("whether the call had an effect is unknown"), "{gone}");
    assert_eq!(said(&fm, "echo", json!({ "text": "back" })).await.unwrap(), "back");
    let count = |line: &str| place.notes().iter().filter(|note| *note == line).count();
    assert_eq!((count("call exit"), count("start")), (1, 2));
    // Twice in a row without an answer between: the second start waits.
    said(&fm, "exit", json!({})).await.unwrap_err();
    // The pause counts from the death, which is before the error is here.
    let began = Instant::now();
    said(&fm, "exit", json!({})).await.unwrap_err();
    assert_eq!(said(&fm, "echo", json!({ "text": "later" })).await.unwrap(), "later");
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(count("call exit"), 3);
    fm.close().await;
}

#[tokio::test]
async fn a_server_ends_with_everything_it_started_closed_or_dropped() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    for close in [true, false] {
        let fm = place.connection(place.server(&[])).await;
        let child = said(&fm, "child", json!({})).await.unwrap();
        if close {
            fm.close().await;
        } else {
            drop(fm);
        }
        until_gone(&child).await;
    }
}

#[tokio::test]
async fn streamable_http_with_headers() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let ServerTransport::Stdio { args, .. } = place.server(&["--http"]).transport else { panic!() };
    let spec = ProcessSpec::new("python3", &place.path()).args(args).envs(place.env.clone());
    let Piped { stdin: _open, stdout, stderr: _quiet, guard: _alive } = spawn_piped(spec).await.unwrap();
    let mut port = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(stdout), &mut port).await.unwrap();
    let config = ServerConfig::new(ServerTransport::Http {
        url: format!("http://127.0.0.1:{}/mcp", port.trim()),
        headers: BTreeMap::from([("x-test".to_owned(), SecretString::from("sentinel-header"))]),
    });
    let servers = place.connect(&[("web", config.clone())]).await.unwrap();
    assert!(names(&servers).contains(&"web__echo".to_owned()));
    servers.close().await;
    let web = place.connection(config).await;
    assert_eq!(said(&web, "echo", json!({ "text": "hello" })).await.unwrap(), "hello");
    let slow = web.call("sleep", &json!({ "ms": 3000 }), Duration::from_millis(100)).await;
    assert_eq!(slow.unwrap_err(), ToolError::Timeout);
    assert!(place.notes().contains(&"header sentinel-header".to_owned()), "{:?}", place.notes());
    web.close().await;
}

#[tokio::test]
async fn a_call_that_is_refused_over_http_says_the_status() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let (config, _alive) = http_server(&place, &[]).await;
    let web = place.connection(config).await;
    for (status, words) in [
        (400, "refused the call: HTTP 400 Bad Request: not you"),
        (401, "refused the call: HTTP 401"),
        (403, "refused the call: HTTP 403"),
        (429, "refused the call: HTTP 429, try again after 7"),
        (503, "answered the call with HTTP 503; whether the call had an effect is unknown"),
    ] {
        let told = said(&web, "echo", json!({ "text": "hello", "status": status })).await.unwrap_err();
        assert!(told.to_string().contains(words), "{status}: {told}");
    }
    assert_eq!(said(&web, "echo", json!({ "text": "hello" })).await.unwrap(), "hello", "it goes on");
    web.close().await;
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_is_begun_anew_and_the_call_sent_again() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let ServerTransport::Stdio { args, .. } = place.server(&["--http", "--sessions"]).transport else {
        panic!()
    };
    let spec = ProcessSpec::new("python3", &place.path()).args(args).envs(place.env.clone());
    let Piped { stdin: _open, stdout, stderr: _quiet, guard: _alive } = spawn_piped(spec).await.unwrap();
    let mut port = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(stdout), &mut port).await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    let config = ServerConfig::new(ServerTransport::Http { url, headers: BTreeMap::new() });
    let web = place.connection(config).await;
    assert_eq!(said(&web, "echo", json!({ "text": "one" })).await.unwrap(), "one");
    drop(said(&web, "exit", json!({})).await);
    assert_eq!(said(&web, "echo", json!({ "text": "two" })).await.unwrap(), "two");
    let notes = place.notes();
    let count = |line: &str| notes.iter().filter(|note| *note == line).count();
    assert_eq!((count("session"), count("call echo")), (2, 2), "{notes:?}");
    web.close().await;
}

/// Runs an installer; `None`, with the reason said, where it fails (no registry in reach).
async fn installed(place: &Place, program: &str, args: &[&str]) -> Option<()> {
    let spec = ProcessSpec::new(program, &place.path())
        .args(args)
        .envs(place.env.clone())
        .timeout(Duration::from_secs(150));
    let exit = run(spec, &CancellationToken::new()).await.unwrap();
    if !exit.success() {
        println!("skipped: {program} {args:?} failed: {}", exit.stderr.text());
        return None;
    }
    Some(())
}

/// A folder of installed packages that outlives the test run: they are fetched once for all runs and processes. `install`
/// gives the commands for the folder; `None` where one of them fails, and then for all tests of this process: a registry that is out of
/// reach is waited for once.
async fn shelf(
    place: &Place,
    name: &str,
    install: impl FnOnce(String) -> Vec<(String, Vec<String>)>,
) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp-servers").join(name);
    let (lock, marker) = (folder.with_extension("lock"), folder.join("installed"));
    let turn = tokio::task::spawn_blocking(move || {
        files::create_dir(lock.parent().unwrap()).unwrap();
        Turn::wait(&lock, Duration::from_secs(300)).unwrap()
    });
    let _turn = turn.await.unwrap();
    static OUT_OF_REACH: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let out_of_reach = || OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
    if out_of_reach().contains(name) {
        println!("skipped: the packages of {name} could not be installed a moment ago");
        return None;
    }
    if !marker.exists() {
        files::create_dir(&folder).unwrap();
        for (program, args) in install(folder.to_str().unwrap().to_owned()) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            if installed(place, &program, &args).await.is_none() {
                out_of_reach().insert(name.to_owned());
                return None;
            }
        }
        files::write_public(&marker, b"").unwrap();
    }
    Some(folder)
}

/// The folder of programs of the public servers from npm.
async fn npm_servers(place: &Place) -> Option<PathBuf> {
    let npm = |folder: String| {
        let packages = ["@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-everything"];
        // A connection that stands still is given up and made anew.
        let patience = "--fetch-timeout=20000";
        let args = ["install", "--no-audit", "--no-fund", "--ignore-scripts", patience, "--prefix", &folder];
        vec![("npm".to_owned(), args.into_iter().chain(packages).map(str::to_owned).collect())]
    };
    Some(shelf(place, "npm", npm).await?.join("node_modules/.bin"))
}

#[tokio::test]
async fn real_servers_from_npm_work() {
    let Some(place) = Place::with(&["node", "npm"]).await else { return };
    let Some(programs) = npm_servers(&place).await else { return };
    let bin = |name: &str| ServerTransport::Stdio {
        command: programs.join(name).to_str().unwrap().to_owned(),
        args: if name == "mcp-server-filesystem" { vec![".".to_owned()] } else { vec!["stdio".to_owned()] },
        env: BTreeMap::new(),
    };
    std::fs::create_dir(place.file("docs")).unwrap();
    let mut ours = std::fs::File::create(place.file("docs/note.txt")).unwrap();
    std::io::Write::write_all(&mut ours, b"written by the test").unwrap();
    let configs = [
        ("files", ServerConfig::new(bin("mcp-server-filesystem"))),
        ("every", ServerConfig::new(bin("mcp-server-everything"))),
    ];
    let servers = place.connect(&configs).await.unwrap();
    let offered = names(&servers);
    assert!(offered.iter().any(|name| name == "files__read_text_file"), "{offered:?}");
    assert!(offered.iter().any(|name| name == "every__echo"), "{offered:?}");
    let [every, files] = servers.connections().collect::<Vec<_>>()[..] else { panic!() };
    let text = said(files, "read_text_file", json!({ "path": "docs/note.txt" })).await.unwrap();
    assert!(text.contains("written by the test"), "{text}");
    let outside = said(files, "read_text_file", json!({ "path": "/etc/passwd" })).await.unwrap_err();
    assert!(matches!(outside, ToolError::ForModel { .. }), "{outside:?}");
    let echoed = said(every, "echo", json!({ "message": "hello" })).await.unwrap();
    assert!(echoed.contains("hello"), "{echoed}");
    assert!(said(every, "no-such-tool", json!({})).await.is_err());
    servers.close().await;
}

#[tokio::test]
async fn a_real_server_from_npm_works_over_http() {
    let Some(place) = Place::with(&["node", "npm"]).await else { return };
    let Some(programs) = npm_servers(&place).await else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let spec = ProcessSpec::new(programs.join("mcp-server-everything"), &place.path())
        .arg("streamableHttp")
        .envs(place.env.clone())
        .env("PORT", port.to_string());
    let Piped { stdin: _open, stdout: _quiet, stderr, guard: _alive } = spawn_piped(spec).await.unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(stderr));
    while !lines.next_line().await.unwrap().expect("it listens before it ends").contains("listening on port")
    {
    }
    let url = format!("http://127.0.0.1:{port}/mcp");
    let config = ServerConfig::new(ServerTransport::Http { url, headers: BTreeMap::new() });
    let servers = place.connect(&[("web", config)]).await.unwrap();
    assert!(names(&servers).contains(&"web__echo".to_owned()), "{:?}", names(&servers));
    let web = servers.connections().next().unwrap();
    let echoed = said(web, "echo", json!({ "message": "over HTTP" })).await.unwrap();
    assert!(echoed.contains("over HTTP"), "{echoed}");
    assert!(said(web, "no-such-tool", json!({})).await.is_err());
    servers.close().await;
}

#[tokio::test]
async fn a_real_server_from_pypi_works() {
    let Some(place) = Place::with(&["python3", "git"]).await else { return };
    let pip = |folder: String| {
        let command = |program: &str, args: &[&str]| {
            (program.to_owned(), args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        let in_folder = format!("{folder}/bin/pip");
        vec![
            command("python3", &["-m", "venv", &folder]),
            command(&in_folder, &["install", "-q", "mcp-server-git"]),
        ]
    };
    let Some(venv) = shelf(&place, "pypi", pip).await else { return };
    if installed(&place, "git", &["init", "-q", "repo"]).await.is_none() {
        return;
    }
    let transport = ServerTransport::Stdio {
        command: venv.join("bin/mcp-server-git").to_str().unwrap().to_owned(),
        args: vec!["--repository".into(), "repo".into()],
        env: BTreeMap::new(),
    };
    let servers = place.connect(&[("git", ServerConfig::new(transport))]).await.unwrap();
    assert!(names(&servers).contains(&"git__git_status".to_owned()), "{servers:?}");
    let connection = servers.connections().next().unwrap();
    let path = place.file("repo");
    let status = said(connection, "git_status", json!({ "repo_path": path })).await.unwrap();
    assert!(status.contains("No commits yet"), "{status}");
    let unknown = said(connection, "no_such_tool", json!({})).await.unwrap_err();
    assert!(matches!(unknown, ToolError::ForModel { .. }), "{unknown:?}");
    servers.close().await;
}

/// The Python server over HTTP with flags, and what it lives by.
async fn http_server(place: &Place, flags: &[&str]) -> (ServerConfig, Piped) {
    let ServerTransport::Stdio { args, .. } = place.server(&[&["--http"], flags].concat()).transport else {
        panic!()
    };
    let spec = ProcessSpec::new("python3", &place.path()).args(args).envs(place.env.clone());
    let mut server = spawn_piped(spec).await.unwrap();
    let mut port = String::new();
    let mut stdout = tokio::io::BufReader::new(&mut server.stdout);
    tokio::io::AsyncBufReadExt::read_line(&mut stdout, &mut port).await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    (ServerConfig::new(ServerTransport::Http { url, headers: BTreeMap::new() }), server)
}

#[tokio::test]
async fn what_can_be_read_of_an_odd_answer_is_read_over_both_transports() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let result = r#"{"content": [{"type": "text", "text": "one \ud83d", "annotations": 7}, {"type": "chart"},
        {"type": "text", "text": "two"}], "structuredContent": 7}"#;
    let stdio = place.connection(place.server(&["--odd"])).await;
    let said_there = said(&stdio, "odd", json!({ "result": result })).await.unwrap();
    assert_eq!(said_there, "one \u{fffd}\n[content of the type \"chart\": it cannot be shown]\ntwo");
    let failed = said(&stdio, "odd", json!({ "result": r#"{"content": "broke", "isError": "true"}"# })).await;
    assert_eq!(failed.unwrap_err(), ToolError::for_model("broke"));
    stdio.close().await;
    let (http, _alive) = http_server(&place, &["--odd"]).await;
    let http = place.connection(http).await;
    let result = result.replace(r"\ud83d", "");
    assert_eq!(
        said(&http, "odd", json!({ "result": result })).await.unwrap(),
        "one \n[content of the type \"chart\": it cannot be shown]\ntwo"
    );
    http.close().await;
}

#[tokio::test]
async fn lines_that_are_no_messages_are_passed_over_and_named_where_nothing_else_comes() {
    let Some(place) = Place::with(&["python3"]).await else { return };
    let connection = place.connection(place.server(&["--chatty"])).await;
    assert_eq!(said(&connection, "echo", json!({ "text": "hi" })).await.unwrap(), "hi");
    connection.close().await;
    let mut config = place.server(&["--chatty", "--mute"]);
    config.start_timeout = Duration::from_secs(2);
    let connection =
        Connection::new("fm", config.transport, &place.path(), place.env.clone(), config.start_timeout);
    let failed = connection.start().await.unwrap_err();
    assert!(failed.message.contains("no message: INFO 0: [redacted] is declared"), "{}", failed.message);
}
