//! agentd's own time: chats against a model that answers at once, a tool output of 100,000 lines, and a conversation of 400 turns.
//!
//! `cargo bench --bench session`. Each chat is a whole `run_agent`: record, gate, policy, ledger, two turns, one tool call
//! over a real MCP server (python3). A turn's time is half of its chat's: all of it is agentd's and the tool server's, the
//! model takes none; on disk, the wait at the chat's end for the record to be there is in it. Beside it stands what the
//! machine takes just then for nothing but work handed to another thread and back, of which a chat has some six.
//! It fails when a turn's 99th percentile reaches 5 ms where files cost no disk, or when a long output was in memory twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints what it measured, and has an environment of its own"
)]

mod world;

use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentd::config::{Config, Env, Request};
use agentd::domain::canonical::sha256_hex;
use agentd::domain::message::{Message, ToolCall};
use agentd::domain::model_target::SessionSettings;
use agentd::domain::report::ReportFormat;
use agentd::domain::run::PrincipalSource;
use agentd::engine::journal::Journal;
use agentd::engine::model::{Model, ModelReply, ModelRequest};
use agentd::engine::report::ReportShape;
use agentd::engine::session::{PromptIdentity, SessionMode, SessionRequest, run_session};
use agentd::engine::session_outcome::SessionOutcome;
use agentd::engine::session_trace::SessionIds;
use agentd::service::{AgentStatus, ChatMessage, Service, Setup, execute_tool_call, run_agent, user};
use agentd::sys::clock::Clock;
use agentd::sys::paths::AbsPath;
use agentd::sys::worktree_path::WorktreeRoot;
use agentd::tools::{ToolWorld, worktree_tools};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use world::Instantly;

const CHATS: usize = 200;
/// The most that a turn may cost in the 99th percentile.
const MOST: Duration = Duration::from_millis(5);
/// A line of the long output; 100,000 of them are just below what a command's output is cut at.
const LINE: &str = "a line of a long output, 40 bytes long.";
const LINES: usize = 100_000;
const USER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// Calls a tool when asked by the user, and answers when it has the result.
fn chat(request: &ModelRequest) -> ModelReply {
    if has_result(request) {
        return world::reply("done", Vec::new());
    }
    let arguments = "{\"text\":\"x\"}".to_owned();
    world::reply("", vec![ToolCall { id: "call-1".to_owned(), name: "desk__echo".to_owned(), arguments }])
}

fn has_result(request: &ModelRequest) -> bool {
    request.messages.iter().any(|message| matches!(message, Message::Tool { .. }))
}

fn percentile(times: &[Duration], part: f64) -> Duration {
    let place = ((times.len() as f64 - 1.0) * part).round() as usize;
    times[place]
}

/// Prints the percentiles and gives the 99th.
fn report(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|part| percentile(&times, part));
    println!("{what:<56} p50 {p50:>9.1?}  p95 {p95:>9.1?}  p99 {p99:>9.1?}  ({} measured)", times.len());
    p99
}

async fn service(folder: &Path, model: Arc<dyn Model>) -> Service {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
    let toml = format!(
        "[policy]\nfiles = [\"policy.toml\"]\n\
         [session]\ntool_response_max_bytes = 12288\n\
         [[session.targets]]\nprovider = \"none\"\nmodel = \"instantly\"\nprice = {{ input = 1.0, output = 1.0 }}\n\
         [providers.none]\nkind = \"openai\"\n\
         [mcp.servers.desk]\ncommand = \"python3\"\nargs = [{script:?}]\n"
    );
    agentd::sys::files::write_public(&folder.join("agentd.toml"), toml.as_bytes()).unwrap();
    agentd::sys::files::write_public(&folder.join("policy.toml"), world::ALLOW_ALL.as_bytes()).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let env = Env::new(folder, [("PATH", path.as_str())]);
    let request =
        Request { explicit: None, base: folder, repo: None, agent: None, flags: &[], entry: None, env: &env };
    let setup = Setup {
        config: Arc::new(Config::load(request).expect("the configuration is right")),
        base: AbsPath::new(folder).unwrap(),
        state: agentd::store::run_dir::StateDir::new(folder.join("state")),
        env,
        clock: Clock::system(),
        model: Some(model),
    };
    Service::open(setup).await.expect("python3 is there")
}

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        long_output().await;
        long_conversation().await;
        chats("on disk", &tempfile::tempdir().unwrap()).await;
        if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
            let p99 = chats("files in memory", &memory).await;
            assert!(p99 < MOST, "a turn costs {p99:?} in the 99th percentile; at most {MOST:?}");
        }
    });
}

/// Chats with two turns each, then calls that stand alone. Gives the 99th percentile of a turn.
async fn chats(place: &str, folder: &tempfile::TempDir) -> Duration {
    let service = service(folder.path(), Arc::new(Instantly(chat))).await;
    let user = user(USER, PrincipalSource::Local).unwrap();
    let (mut turns, mut hops) = (Vec::with_capacity(CHATS), Vec::with_capacity(CHATS));
    for chat in 0..=CHATS {
        let started = Instant::now();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        hops.push(started.elapsed());
        let history = [ChatMessage::user(format!("chat {chat}"))];
        let started = Instant::now();
        let response = run_agent(&service, &history, &user, None).await.unwrap();
        let took = started.elapsed();
        assert_eq!((response.status, response.iterations), (AgentStatus::Completed, 2), "{response:?}");
        // The first one warms up.
        if chat > 0 {
            turns.push(took / response.iterations);
        }
    }
    let p99 = report(&format!("a turn of a chat, a tool call in every other, {place}"), turns);
    report("work handed to another thread and back", hops);
    let mut calls = Vec::with_capacity(CHATS);
    for _ in 0..CHATS {
        let started = Instant::now();
        let arguments = json!({ "text": "x" });
        assert!(execute_tool_call(&service, "desk__echo", &arguments, &user).await.is_success());
        calls.push(started.elapsed());
    }
    report(&format!("a single call, {place}"), calls);
    service.close().await;
    p99
}

/// Runs a command that puts out so many lines, then reports.
fn running(request: &ModelRequest, lines: usize) -> ModelReply {
    let script = format!("yes '{LINE}' | head -n {lines}");
    let (name, arguments) = if has_result(request) {
        ("agent__final_report", json!({ "report_format": "markdown", "content": "done" }))
    } else {
        ("run_command", json!({ "argv": ["sh", "-c", script] }))
    };
    let (id, arguments) = (format!("call-{name}"), arguments.to_string());
    world::reply("", vec![ToolCall { id, name: name.to_owned(), arguments }])
}

/// A command's output of 100,000 lines through a whole session: captured, redacted, hashed, stored behind a handle. What
/// the process has in memory at most while it does so must be less than two such outputs more than before.
async fn long_output() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = (LINE.len() + 1) * LINES;
    let mut times = Vec::new();
    // What any session needs is there before it is measured: code that is read, threads, buffers.
    for _ in 0..3 {
        session(folder.path(), 1_000).await;
    }
    for round in 0..10 {
        let before = Memory::now();
        let started = Instant::now();
        session(folder.path(), LINES).await;
        times.push(started.elapsed());
        // Later rounds find what earlier ones gave back.
        if let Some(before) = before.filter(|_| round == 0) {
            let more = before.grown();
            let times = more as f64 / bytes as f64;
            println!(
                "{:<56} {more} bytes at most for {bytes}: {times:.2} times",
                "an output of 100,000 lines in memory"
            );
            assert!(times < 2.0, "a long output was in memory twice");
        }
    }
    report("a session with an output of 100,000 lines, on disk", times);
}

/// What the process has in memory, as the system counts it; not everywhere.
struct Memory {
    before: u64,
}

impl Memory {
    fn now() -> Option<Self> {
        // Starts the count of the most ever had anew.
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { before: Self::read("VmRSS:")? })
    }

    /// Bytes that it had more at its most, since `now`.
    fn grown(&self) -> u64 {
        Self::read("VmHWM:").unwrap_or_default().saturating_sub(self.before)
    }

    fn read(name: &str) -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }
}

async fn session(folder: &Path, lines: usize) {
    let model = Arc::new(Instantly(move |request: &ModelRequest| running(request, lines)));
    let outcome = run(folder, model, world::settings()).await;
    let answer = outcome.messages.iter().find_map(|message| match message {
        Message::Tool { content, .. } => Some(content.as_str()),
        _ => None,
    });
    assert!(answer.is_some_and(|text| text.contains("\"handle\"")), "{answer:?}");
}

/// Turns of the long conversation, and the lines that a tool gives in each: some 200 KB.
const TURNS: usize = 400;
const TURN_LINES: usize = 5_000;

/// A conversation of 400 turns with a long output in each: what a turn costs at its begin and at its end, beside one copy and
/// one hash of the conversation, and what is in memory at most.
async fn long_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let times = Arc::clone(&begun);
    let model = Arc::new(Instantly(move |request: &ModelRequest| {
        let mut times = times.lock().unwrap();
        times.push(Instant::now());
        let script = format!(": {}; yes '{LINE}' | head -n {TURN_LINES}", times.len());
        let (name, arguments) = match times.len() > TURNS {
            true => ("agent__final_report", json!({ "report_format": "markdown", "content": "done" })),
            false => ("run_command", json!({ "argv": ["sh", "-c", script] })),
        };
        let (id, arguments) = (format!("call-{}", request.messages.len()), arguments.to_string());
        world::reply("", vec![ToolCall { id, name: name.to_owned(), arguments }])
    }));
    let mut settings = world::settings();
    (settings.max_turns, settings.tool_response_max_bytes) = (1_000, 1_000_000);
    settings.targets[0].context_window = 1_000_000_000;
    settings.targets[0].price = None;
    let before = Memory::now();
    let outcome = run(folder.path(), model, settings).await;
    let more = before.map(|before| before.grown());
    let begun = begun.lock().unwrap();
    let turns: Vec<Duration> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
    report("a turn of 200 KB, the first 50 of 400, on disk", turns[..50].to_vec());
    report("a turn of 200 KB, the last 50 of 400, on disk", turns[TURNS - 50..].to_vec());
    let text: Vec<u8> = outcome.messages.iter().flat_map(|message| message.text().bytes()).collect();
    let timed = |act: &dyn Fn()| {
        let started = Instant::now();
        act();
        started.elapsed()
    };
    report("one copy of all of it", (0..9).map(|_| timed(&|| drop(black_box(text.clone())))).collect());
    report("one hash of all of it", (0..3).map(|_| timed(&|| drop(black_box(sha256_hex(&text))))).collect());
    if let Some(more) = more {
        let (bytes, times) = (text.len(), more as f64 / text.len() as f64);
        println!("{:<56} {more} bytes at most for {bytes}: {times:.2} times", "that conversation in memory");
        assert!(times < 3.0, "a long conversation was in memory more than three times");
    }
}

/// A session with the built-in tools and a record on disk.
async fn run(folder: &Path, model: Arc<dyn Model>, settings: SessionSettings) -> SessionOutcome {
    let (journal, world) = world::run(folder, &world::redactor(), model);
    let root = WorktreeRoot::open(&AbsPath::new(folder).unwrap()).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = worktree_tools(ToolWorld {
        root,
        environment: vec![("PATH".into(), path)],
        clock: Clock::system(),
        cancel: CancellationToken::new(),
        sandbox: None,
        page_lines: 500,
    });
    let request = SessionRequest {
        ids: SessionIds {
            run: journal.dir().run_id,
            session: Uuid::now_v7(),
            step_id: "bench".to_owned(),
            visit: 1,
            agent: "bench".to_owned(),
            call_path: "bench".to_owned(),
        },
        scope: world::scope(),
        mode: SessionMode::Task,
        system: "Do it.".to_owned(),
        opening: vec![Message::User { content: "Run it.".to_owned() }].into(),
        aside: None,
        report: ReportShape::new(ReportFormat::Markdown, None).unwrap(),
        settings,
        tools: tools.into(),
        prompt: PromptIdentity::default(),
        turn_timeout: None,
        background: Arc::default(),
    };
    let outcome = run_session(request, &world).await;
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    journal.flush().await.unwrap();
    outcome
}
