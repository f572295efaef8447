//! What a long tool output of a real MCP server costs in memory, from the moment its client has it to the session's end.
#![expect(
    clippy::disallowed_methods,
    reason = "the test runs itself again, and asks the system about its own process"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use agentd::domain::message::ToolSpec;
use agentd::domain::name::RepoName;
use agentd::domain::policy::Risk;
use agentd::domain::run::RunId;
use agentd::engine::session::{SessionRequest, SessionWorld, run_session};
use agentd::engine::tool::{CallLimits, Permit, Tool, ToolError, ToolOutput};
use agentd::mcp::{McpServers, ServerConfig, ServerTransport};
use agentd::store::journal_file::FileJournal;
use agentd::store::run_dir::StateDir;
use agentd::sys::clock::Clock;
use agentd::sys::paths::AbsPath;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use uuid::Uuid;

use super::world::{World, call, report};

/// 100,000 lines of 40 bytes.
const BYTES: u64 = 4_000_000;
const THIS: &str = "session::memory::a_long_output_of_an_mcp_server_is_not_copied_once_its_client_has_it";
/// Set where this test runs alone in a process of its own.
const ALONE: &str = "AGENTD_TEST_ALONE";

/// Bytes that this process has in memory, as the system counts them.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Whether this process runs the test alone; if not, it was run in one that does, with an allocator that gives back every long
/// piece at once. Memory is a process's.
pub(super) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args([test, "--exact", "--nocapture"]).env(ALONE, "1").env("MALLOC_MMAP_THRESHOLD_", "131072");
    let done = alone.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// Counts the most that it has anew from now on; gives what it has now.
pub(super) fn begin() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    resident("VmRSS:")
}

/// How much more than `before` it had at its most.
pub(super) fn grown(before: u64) -> u64 {
    resident("VmHWM:").saturating_sub(before)
}

/// A tool as it is; tells what was in memory when a call of it came back, and how much that was at most more than before.
struct Watched {
    tool: Arc<dyn Tool>,
    returned: Mutex<Option<(u64, u64)>>,
}

impl Tool for Watched {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn source(&self) -> &str {
        self.tool.source()
    }

    fn risk(&self) -> Risk {
        self.tool.risk()
    }

    fn arguments_schema(&self) -> &Value {
        self.tool.arguments_schema()
    }

    fn call<'a>(
        &'a self,
        permit: Permit,
        arguments: &'a Value,
        limits: CallLimits,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let before = begin();
            let output = self.tool.call(permit, arguments, limits).await;
            let by_client = grown(before);
            *self.returned.lock().unwrap() = Some((begin(), by_client));
            output
        })
    }
}

#[tokio::test]
async fn a_long_output_of_an_mcp_server_is_not_copied_once_its_client_has_it() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    if !is_alone(THIS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path()).await;
    let tool = servers.tools().iter().find(|tool| tool.spec().name == "desk__big").unwrap();
    // What any session needs is there before it is measured.
    session(folder.path(), tool, 40_000).await;
    let (by_client, by_session) = session(folder.path(), tool, BYTES).await;
    servers.close().await;
    println!("{BYTES} bytes: {by_client} more while the client read them, {by_session} more afterwards");
    // The library that reads the reply has it some six times while it does: the line with room to grow, what it is parsed
    // into, tries at what kind of answer it is, and the text at last. Told here so that a change of it is seen.
    assert!((2 * BYTES..8 * BYTES).contains(&by_client), "{by_client}");
    assert!(by_session < BYTES / 2, "{by_session} bytes more for an output of {BYTES}");
}

async fn servers(folder: &Path) -> McpServers {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
    let args = vec![script.to_str().unwrap().to_owned()];
    let transport = ServerTransport::Stdio { command: "python3".to_owned(), args, env: BTreeMap::new() };
    let configs = BTreeMap::from([("desk".to_owned(), ServerConfig::new(transport))]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let env = [(OsString::from("PATH"), path)];
    McpServers::connect(configs, &AbsPath::new(folder).unwrap(), &env).await.unwrap()
}

/// A session that calls the tool once. Gives how much more was in memory at most: in the call, and after it.
async fn session(folder: &Path, tool: &Arc<dyn Tool>, bytes: u64) -> (u64, u64) {
    let script = vec![call("desk__big", json!({ "bytes": bytes, "lines": true })), report("ok")];
    let world = World::new(script);
    let session = world.session_world();
    let run_id = RunId(Uuid::now_v7());
    let repo = RepoName::parse("o/n").unwrap();
    let dir = StateDir::new(folder.to_owned()).run(&repo, run_id);
    let journal = FileJournal::open(dir, Clock::system(), Arc::clone(&session.redactor)).unwrap();
    let session = SessionWorld { journal: Arc::new(journal), ..session };
    let watched = Arc::new(Watched { tool: Arc::clone(tool), returned: Mutex::default() });
    let request =
        SessionRequest { tools: vec![Arc::clone(&watched) as Arc<dyn Tool>].into(), ..world.request() };
    let outcome = run_session(request, &session).await;
    let (returned, by_client) = watched.returned.lock().unwrap().unwrap();
    let by_session = grown(returned);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let text = format!("{:?}", outcome.messages);
    assert!(text.contains("\\\"handle\\\""), "{text}");
    (by_client, by_session)
}
