//! agentd's own time: chats against a model that answers at once, and a tool output of 100,000 lines.
//!
//! `cargo bench --bench session`. Each chat is a whole `run_agent`: record, gate, policy, ledger, two turns, one tool call
//! over a real MCP server (python3). It fails when a turn's 99th percentile reaches 5 ms where files cost no disk, or when
//! a long output was in memory twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints what it measured, and has an environment of its own"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentd::config::{Config, Env, Request};
use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::budget::{Budgets, Spend};
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{Message, TokenUsage, ToolCall};
use agentd::domain::name::RepoName;
use agentd::domain::policy::PolicyPrincipal;
use agentd::domain::redaction::Redactor;
use agentd::domain::report::ReportFormat;
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::domain::target::{LoopLimits, OnFatalError, SessionSettings, Target};
use agentd::engine::arguments::Scope;
use agentd::engine::budget::Meter;
use agentd::engine::clock::RunClock;
use agentd::engine::journal::Journal;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest, ReplyStop};
use agentd::engine::offer::Offers;
use agentd::engine::pacing::Backoff;
use agentd::engine::policy::Policy;
use agentd::engine::queue::Queues;
use agentd::engine::record::SessionIds;
use agentd::engine::report::ReportShape;
use agentd::engine::session::{PromptIdentity, SessionMode, SessionRequest, SessionWorld, run_session};
use agentd::engine::stop::StopHandle;
use agentd::engine::tool_schema::ArgumentSchemas;
use agentd::service::{AgentStatus, ChatMessage, Service, Setup, execute_tool_call, run_agent, user};
use agentd::store::journal_file::FileJournal;
use agentd::store::run_dir::RunDir;
use agentd::sys::clock::Clock;
use agentd::sys::paths::AbsPath;
use agentd::sys::worktree_path::WorktreeRoot;
use agentd::tools::{ToolWorld, worktree_tools};
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const CHATS: usize = 200;
/// The most that a turn may cost in the 99th percentile.
const MOST: Duration = Duration::from_millis(5);
/// A line of the long output; 100,000 of them are just below what a command's output is cut at.
const LINE: &str = "a line of a long output, 40 bytes long.";
const LINES: usize = 100_000;
const USER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// Calls a tool when asked by the user, and answers when it has the result; takes no time. Counts its requests.
#[derive(Default)]
struct Instantly {
    requests: AtomicU64,
}

impl Model for Instantly {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let has_result = request.messages.iter().any(|message| matches!(message, Message::Tool { .. }));
        let call = ToolCall {
            id: "call-1".to_owned(),
            name: "desk__echo".to_owned(),
            arguments: "{\"text\":\"x\"}".to_owned(),
        };
        let reply = ModelReply {
            text: if has_result { "done".to_owned() } else { String::new() },
            reasoning: None,
            tool_calls: if has_result { Vec::new() } else { vec![call] },
            stop: ReplyStop::End,
            stop_raw: None,
            usage: Some(TokenUsage::new(100, 10, 0, 0)),
            cost: None,
            actual_provider: None,
            actual_model: None,
        };
        Box::pin(async move { Ok(reply) })
    }
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
    let rule =
        "[[rule]]\nid = \"a\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"bench\"\n";
    agentd::sys::files::write_public(&folder.join("agentd.toml"), toml.as_bytes()).unwrap();
    agentd::sys::files::write_public(&folder.join("policy.toml"), rule.as_bytes()).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let env = Env::new(folder, [("PATH", path.as_str())]);
    let request =
        Request { explicit: None, base: folder, repo: None, agent: None, flags: &[], entry: None, env: &env };
    let setup = Setup {
        config: Arc::new(Config::load(request).expect("the configuration is right")),
        base: AbsPath::new(folder).unwrap(),
        state: AbsPath::new(folder.join("state")).unwrap(),
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
        chats("on disk", &tempfile::tempdir().unwrap()).await;
        if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
            let p99 = chats("files in memory", &memory).await;
            assert!(p99 < MOST, "a turn costs {p99:?} in the 99th percentile; at most {MOST:?}");
        }
    });
}

/// Chats with two turns each, then calls that stand alone. Gives the 99th percentile of a turn.
async fn chats(place: &str, folder: &tempfile::TempDir) -> Duration {
    let model = Arc::new(Instantly::default());
    let service = service(folder.path(), Arc::clone(&model) as Arc<dyn Model>).await;
    let user = user(USER, PrincipalSource::Local).unwrap();
    let mut turns = Vec::with_capacity(CHATS);
    for chat in 0..=CHATS {
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
struct Running {
    lines: usize,
}

impl Model for Running {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let ran = request.messages.iter().any(|message| matches!(message, Message::Tool { .. }));
        let script = format!("yes '{LINE}' | head -n {}", self.lines);
        let (name, arguments) = if ran {
            ("agent__final_report", json!({ "report_format": "markdown", "content": "done" }))
        } else {
            ("run_command", json!({ "argv": ["sh", "-c", script] }))
        };
        let reply = ModelReply {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![ToolCall {
                id: format!("call-{ran}"),
                name: name.to_owned(),
                arguments: arguments.to_string(),
            }],
            stop: ReplyStop::End,
            stop_raw: None,
            usage: Some(TokenUsage::new(100, 10, 0, 0)),
            cost: None,
            actual_provider: None,
            actual_model: None,
        };
        Box::pin(async move { Ok(reply) })
    }
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
    let run = RunId(Uuid::now_v7());
    let redactor = Arc::new(Redactor::new([7; 32], Vec::new(), &[]).unwrap());
    let repo = RepoName::parse("o/n").unwrap();
    let dir = RunDir { repo, path: folder.join(run.to_string()), run_id: run };
    let journal = Arc::new(FileJournal::open(dir, Clock::system(), Arc::clone(&redactor)).unwrap());
    let clock = RunClock::starting(Clock::system().now());
    let (_stop, signal) = StopHandle::new();
    let rules =
        "[[rule]]\nid = \"a\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"bench\"\n";
    let rules = read_policies(&[PolicySource { name: "policy.toml".into(), text: rules.into() }]).unwrap();
    let world = SessionWorld {
        model: Arc::new(Running { lines }),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        policy: Arc::new(Policy::new(rules, None)),
        redactor,
        meter: Arc::new(Meter::new(Budgets::default(), Spend::default(), clock)),
        stop: signal,
        clock,
        queues: Arc::new(Queues::new(&BTreeMap::new(), 2)),
        schemas: ArgumentSchemas::default(),
        offers: Offers::default(),
        backoff: Backoff::default(),
        runtime_version: "bench".to_owned(),
        day_cap: None,
        claims: None,
        redaction: None,
        fault_snapshots: false,
        longest_inline: 65_536,
    };
    let root = WorktreeRoot::open(&AbsPath::new(folder).unwrap()).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = worktree_tools(ToolWorld {
        root,
        environment: vec![("PATH".into(), path)],
        clock: Clock::system(),
        cancel: CancellationToken::new(),
        caged: None,
        page_lines: 500,
    });
    let request = SessionRequest {
        ids: SessionIds {
            run,
            session: Uuid::now_v7(),
            step_id: "bench".to_owned(),
            visit: 1,
            agent: "bench".to_owned(),
            call_path: "bench".to_owned(),
        },
        scope: Scope {
            principal: PolicyPrincipal::new(&Principal::new(PrincipalSource::Local, "1000@host", None), None),
            repo: "o/n".to_owned(),
            issue: IssueKey::Number(7),
            branch: "feature/issue-7".to_owned(),
            worktree: ".worktrees/issue-7".to_owned(),
        },
        mode: SessionMode::Task,
        system: "Do it.".to_owned(),
        opening: vec![Message::User { content: "Run it.".to_owned() }],
        aside: None,
        report: ReportShape::new(ReportFormat::Markdown, None).unwrap(),
        settings: settings(),
        tools,
        prompt: PromptIdentity::default(),
        turn_timeout: None,
    };
    let outcome = run_session(request, &world).await;
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let answer = outcome.messages.iter().find_map(|message| match message {
        Message::Tool { content, .. } => Some(content.as_str()),
        _ => None,
    });
    assert!(answer.is_some_and(|text| text.contains("\"handle\"")), "{answer:?}");
    journal.flush().await.unwrap();
}

fn settings() -> SessionSettings {
    SessionSettings {
        max_turns: 15,
        max_tool_calls_per_turn: 20,
        max_retries: 3,
        llm_timeout: Duration::from_secs(120),
        tool_timeout: Duration::from_secs(60),
        tool_response_max_bytes: 12_288,
        targets: vec![Target {
            provider: "none".to_owned(),
            model: "instant".to_owned(),
            context_window: 131_072,
            context_window_buffer: 256,
            max_output_tokens: 16_384,
            temperature: None,
            price: None,
        }],
        stream: false,
        on_auth_error: OnFatalError::Fail,
        on_quota: OnFatalError::Fail,
        loop_guard: LoopLimits::default(),
        schema_repair_attempts: 2,
        read_page_lines: 500,
    }
}
