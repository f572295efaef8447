//! agentd's own time: chats against a model that answers at once, and a tool output of 100,000 lines.
//!
//! `cargo bench --bench session`. Each chat is a whole `run_agent`: record on disk, gate, policy, ledger, two turns, one
//! tool call over a real MCP server where python3 is there.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints what it measured, and has an environment of its own"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentd::config::{Config, Env, Request};
use agentd::domain::message::{TokenUsage, ToolCall};
use agentd::domain::run::PrincipalSource;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest, ReplyStop};
use agentd::service::{AgentStatus, ChatMessage, Service, Setup, execute_tool_call, run_agent, user};
use agentd::sys::clock::Clock;
use agentd::sys::paths::AbsPath;
use futures::future::BoxFuture;
use serde_json::json;

const CHATS: usize = 200;
const USER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// Calls a tool when asked by the user, and answers when it has the result; takes no time. Counts its requests.
#[derive(Default)]
struct Instantly {
    requests: AtomicU64,
}

impl Model for Instantly {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let has_result = request
            .messages
            .iter()
            .any(|message| matches!(message, agentd::domain::message::Message::Tool { .. }));
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

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|part| percentile(&times, part));
    println!("{what:<44} p50 {p50:>9.1?}  p95 {p95:>9.1?}  p99 {p99:>9.1?}  ({} measured)", times.len());
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
        let folder = tempfile::tempdir().unwrap();
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
        report("one turn of a chat, a tool call in every other", turns);
        let mut calls = Vec::with_capacity(CHATS);
        for _ in 0..CHATS {
            let started = Instant::now();
            let arguments = json!({ "text": "x" });
            assert!(execute_tool_call(&service, "desk__echo", &arguments, &user).await.is_success());
            calls.push(started.elapsed());
        }
        report("one single call", calls);
        let lines = json!({ "text": "a line of a long output\n".repeat(100_000) });
        let mut long = Vec::new();
        for _ in 0..10 {
            let started = Instant::now();
            assert!(execute_tool_call(&service, "desk__echo", &lines, &user).await.is_success());
            long.push(started.elapsed());
        }
        report("an output of 100,000 lines", long);
        service.close().await;
    });
}
