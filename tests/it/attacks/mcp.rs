//! What an MCP server may not do to agentd: take the others down, hold a call, steer the terminal, or be asked for secrets.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::outside::desk::Desk;

/// How a server misbehaves while it lists its tools, the tools that are offered then, and words that a warning has.
/// No tools: the server alone is missing, because the table says `required = false`.
const LISTS: &[(&str, Option<usize>, &str)] = &[
    ("no-schema", Some(1), "it has no inputSchema"),
    ("null-schema", Some(1), "its inputSchema is not an object"),
    ("list-schema", Some(1), "its inputSchema is not an object"),
    ("text-schema", Some(1), "its inputSchema is not an object"),
    ("number-name", Some(1), "without a name"),
    ("no-name", Some(1), "without a name"),
    ("empty-name", Some(1), "it has no name"),
    ("long-name", Some(1), "its name has 100000 bytes"),
    ("long-description", Some(1), "its description has 1000000 bytes"),
    ("large-schema", Some(1), "its inputSchema has 1000"),
    ("large-pattern", Some(1), "its inputSchema has 12000"),
    ("same-name", Some(1), "the same name"),
    ("text-tool", Some(1), "without a name"),
    ("null-tool", Some(1), "without a name"),
    ("many-tools", Some(1000), "more than 1000 tools"),
    ("control-name", Some(2), ""),
    ("built-in-name", Some(2), ""),
    ("hidden-words", Some(2), ""),
    ("self-schema", Some(1), "it refers to itself"),
    ("doubled-schema", Some(1), "too many subschemas"),
    ("exploding-pattern", Some(1), "is invalid"),
    ("far-schema", Some(1), "is invalid"),
    ("same-cursor", Some(1), "again and again"),
    ("endless-pages", Some(200), "more than 200 pages"),
    ("null-tools", None, "did not list its tools"),
    ("long-list", None, "longer than 16 MiB"),
    ("deep-list", None, "cannot be read"),
    ("garbage", Some(1), ""),
    ("bytes", Some(1), ""),
    ("blank-lines", Some(1), ""),
    ("notices", Some(1), ""),
    ("list-changed", Some(1), ""),
    ("cancels", Some(1), ""),
    ("strange-ids", Some(1), ""),
    ("strange-version", Some(1), ""),
    ("error-stream", Some(1), ""),
    ("asks-for-a-model", Some(1), ""),
    ("asks-for-folders", Some(1), ""),
    ("asks-for-a-person", Some(1), ""),
    ("asks-for-anything", Some(1), ""),
    ("asks-without-end", None, "did not list its tools"),
];

/// How a server misbehaves while its tool is called, and words that the result has: at once, not when the call's time is up.
const CALLS: &[(&str, &str)] = &[
    ("long-answer", "longer than 16 MiB"),
    ("long-answer-id-last", "longer than 16 MiB"),
    ("endless-line", "longer than 16 MiB"),
    ("deep-answer", "cannot be read"),
    ("half-answer", "cannot be read"),
    ("number-answer", "not a tool result"),
    ("text-content", "\"result\": \"words\""),
    ("both", ""),
    ("closes", "went away"),
    ("asks-a-person", ""),
    ("control-answer", "\\u001b"),
    ("garbage", "went"),
    ("notices", "went"),
    ("cancels", "went"),
    ("strange-ids", "went"),
    ("asks-for-a-model", "went"),
];

/// Redirects that would carry what a server is sent to another host.
const REDIRECTS: &[u16] = &[301, 302, 303, 307, 308];

/// Attempts here.
pub const CASES: usize = LISTS.len() + CALLS.len() + REDIRECTS.len();

fn table(desk: &Desk, mode: &str, more: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/attacks/mcp_server.py");
    let notes = desk.dir.path().join("answers");
    format!(
        "[mcp.servers.{mode}]\ncommand = \"python3\"\nargs = [{script:?}, \"{mode}\", {notes:?}]\n{more}\n"
    )
}

fn name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap()
}

/// Counts who connects, and answers nothing.
fn watched() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let ours = seen.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap_or_default();
            ours.lock().unwrap().push(String::from_utf8_lossy(&buffer[..read]).into_owned());
        }
    });
    (at, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_lists_costs_at_most_itself() {
    let desk = Desk::new("").await;
    let (far, asked) = watched();
    // The gate's schemas of a server that has to be there end the start (A-043): these servers may be absent.
    let lenient = format!("required = false\nenv = {{ FAR = \"http://{far}/schema.json\" }}");
    let strict = ["self-schema", "doubled-schema", "exploding-pattern", "far-schema"];
    let tables: Vec<String> = LISTS
        .iter()
        .map(|(mode, tools, _)| {
            let may_be_absent = tools.is_none() || strict.contains(mode);
            table(&desk, mode, if may_be_absent { &lenient } else { "" })
        })
        .collect();
    desk.configure("", &tables.concat());
    let done = desk.agentd(&["tools", "list", "--format", "openai"]).await;
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{log}");
    let tools: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    assert!(tools.iter().any(|tool| name(tool) == "desk__echo"), "the honest server's tools are there");
    let mut wrong = Vec::new();
    for (mode, expected, words) in LISTS {
        let own = tools.iter().filter(|tool| name(tool).starts_with(&format!("{mode}__"))).count();
        let told =
            log.lines().any(|line| line.contains(&format!("MCP server {mode}")) && line.contains(words));
        if own != expected.unwrap_or(0) || told == words.is_empty() {
            wrong.push(format!("{mode}: {own} tools instead of {expected:?}, told: {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{log:.4000}", wrong.join("\n"));
    // Nothing of it reaches the terminal or a model unseen.
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &log;
    for hidden in ["\u{1b}", "\u{202e}", "\u{200b}", "\u{e0041}", "\\u001b", "\u{7}"] {
        assert!(!text.contains(hidden), "{hidden:?}");
    }
    assert!(asked.lock().unwrap().is_empty(), "no schema is fetched: {asked:?}");
    let answers = std::fs::read_to_string(desk.dir.path().join("answers")).unwrap();
    for mode in ["asks-for-a-model", "asks-for-anything"] {
        let refused = answers.lines().any(|line| line.starts_with(mode) && line.contains("-32601"));
        assert!(refused, "{mode}: {answers}");
    }
    assert!(
        answers.contains(r#"asks-for-folders: {"id": "own", "jsonrpc": "2.0", "result": {"roots": []}}"#),
        "{answers}"
    );
    assert!(answers.contains(r#""action": "decline""#), "{answers}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_answers_costs_at_most_its_call() {
    let desk = Desk::new("").await;
    let mut wrong = Vec::new();
    for (mode, words) in CALLS {
        desk.configure("", &table(&desk, mode, ""));
        let began = Instant::now();
        let done = desk
            .agentd(&[
                "tools",
                "call",
                &format!("{mode}__go"),
                "--args",
                "{}",
                "--user",
                crate::outside::desk::USER,
            ])
            .await;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let result: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{mode}: {error}: {text}"));
        let steers = text.contains("forged") || text.contains('\u{1b}');
        // The call's own time is a minute.
        let waited = result["error_type"] == "Timeout" || began.elapsed() > Duration::from_secs(50);
        if !text.contains(words) || steers || waited {
            wrong.push(format!("{mode}: after {:?}: {text:.300}", began.elapsed()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_is_sent_is_sent_to_no_other_host() {
    let desk = Desk::new("").await;
    let (other, seen) = watched();
    for status in REDIRECTS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status} Moved\r\nLocation: http://{other}/mcp\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let ours = heard.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).unwrap_or_default();
                ours.lock().unwrap().push(String::from_utf8_lossy(&buffer[..read]).into_owned());
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        desk.configure(
            "",
            &format!(
                "[mcp.servers.moved]\nurl = \"http://{at}/mcp\"\nrequired = false\n\
                 headers = {{ authorization = \"${{MODEL_KEY}}\" }}\n"
            ),
        );
        let done = desk.agentd(&["tools", "list"]).await;
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(log.contains("MCP server moved did not initialize"), "{status}: {log}");
        assert!(heard.lock().unwrap().iter().any(|request| request.contains("sim-model-key")), "{status}");
        assert!(seen.lock().unwrap().is_empty(), "{status}: {seen:?}");
    }
    desk.finish().await;
}
