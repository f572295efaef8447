//! What an agent program says to `agentd mcp` that is no request, or that it takes back: line by line, over a real run.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::bench::{FIX, fixer, journal, no_landlock, no_sandbox, rules, script};
use super::tools::{WAITS, until};
use crate::outside::daemons;
use crate::outside::world::World;

/// Lets the program run a command that takes its time.
const SLOW_RULE: &str = "[[rule]]\nid = \"slow\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\n\
                         reason = \"slow\"\nwhen = { argv = [[\"sh\", \"slow.sh\"]] }\n";

/// A command that says that it runs, and then waits with a child; the number of its seconds is known by this process only.
fn slow() -> (String, String) {
    let seconds = format!("6{:05}", std::process::id() % 100_000);
    (format!("echo begun > ../../../$1\nsleep {seconds} &\nwait\n"), seconds)
}

/// Whether a process sleeps that many seconds.
fn sleeps(seconds: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    let line = format!("sleep\0{seconds}\0").into_bytes();
    processes
        .flatten()
        .any(|process| std::fs::read(process.path().join("cmdline")).is_ok_and(|is| is == line))
}

/// A conversation with `agentd mcp`, line by line.
struct Talk {
    child: Child,
    says: ChildStdin,
    hears: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    async fn begin(dir: &Path, socket: &str) -> Self {
        let mut talk = Self::open(dir, socket);
        let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "lines", "version": "1"},
        }});
        assert_eq!(talk.ask(&hello.to_string()).await["id"], "hello");
        talk.say(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        talk
    }

    fn open(dir: &Path, socket: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agentd"))
            .args(["mcp", "--socket", socket])
            .current_dir(dir)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (says, hears) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, says, hears: BufReader::new(hears).lines() }
    }

    async fn say(&mut self, line: &[u8]) {
        self.says.write_all(line).await.unwrap();
        self.says.write_all(b"\n").await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(120), self.hears.next_line()).await;
        let line = line.expect("an answer").unwrap().expect("a conversation");
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.say(line.as_bytes()).await;
        self.hear().await
    }
}

fn call(id: u32, tool: &str, arguments: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        .to_string()
}

/// A run whose program waits; what it ends with, and where its tools are.
async fn waiting(world: &World) -> (tokio::task::JoinHandle<std::process::Output>, String) {
    let program = script(world, "waits.sh", WAITS);
    fixer(world, "command", &json!({"argv": [program], "sandbox": "off"}));
    let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    let running = tokio::task::spawn_blocking(move || run.output().unwrap());
    let socket = until(world.dir.path().join("said")).await;
    (running, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_every_line_that_asks_is_answered_and_none_ends_the_conversation() {
    let world = World::new(0).await;
    let (running, socket) = waiting(&world).await;
    // Before the beginning, too.
    let mut talk = Talk::open(world.dir.path(), &socket);
    talk.say(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let early = talk.ask(&call(1, "git_status", &json!({}))).await;
    assert_eq!((&early["id"], early["error"]["code"].is_i64()), (&json!(1), true), "{early}");
    assert_eq!(talk.ask("hello?").await["error"]["code"], -32700);
    drop(talk);
    let mut talk = Talk::begin(world.dir.path(), &socket).await;
    let odd = [
        ("Debugger attached.", json!(null), -32700),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"\ud800"}}}"#,
            json!(2),
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call"}"#, json!(3), -32602),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"git_status","arguments":[]}}"#,
            json!(4),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"git_status","arguments":"{}"}}"#,
            json!(5),
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":"6","method":"tools/list","params":7}"#, json!("6"), -32600),
        (r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, json!(7), -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":8,"method":"no/such"}"#, json!(8), -32601),
    ];
    let mut answers = Vec::new();
    for (line, ..) in &odd {
        answers.push(talk.ask(line).await);
    }
    // What asks nothing is passed over.
    talk.say(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#).await;
    talk.say(br#"{"jsonrpc":"2.0","id":9,"result":{}}"#).await;
    let read = talk.ask(&call(10, "read_file", &json!({"path": "lib/cart.sh"}))).await;
    world.write("go", "");
    drop(talk);
    running.await.unwrap();
    for ((line, id, code), answer) in odd.iter().zip(answers) {
        assert!(answer.as_object().unwrap().contains_key("id"), "{answer}");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (id, &json!(code)), "{line}: {answer}");
    }
    assert!(read["id"] == 10 && read["result"]["isError"] != true, "{read}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_a_call_that_a_program_takes_back_or_leaves_is_given_up_with_its_processes() {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"off\"\n"));
    rules(&world, SLOW_RULE);
    let (running, socket) = waiting(&world).await;
    let (text, seconds) = slow();
    world.write("shop/.worktrees/issue-7/slow.sh", &text);
    let begun = |name: &str| world.dir.path().join(name).exists() && sleeps(&seconds);
    let slow_call = |id, name: &str| call(id, "run_command", &json!({"argv": ["sh", "slow.sh", name]}));

    // It takes the call back, and works on.
    let mut talk = Talk::begin(world.dir.path(), &socket).await;
    talk.say(slow_call(1, "first").as_bytes()).await;
    daemons::until("the command runs", || begun("first")).await;
    // One that waits behind it, and is taken back as well, never begins.
    talk.say(slow_call(2, "second").as_bytes()).await;
    for id in [2, 1] {
        let told =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        talk.say(told.to_string().as_bytes()).await;
    }
    let answer = talk.ask(&call(3, "read_file", &json!({"path": "lib/cart.sh"}))).await;
    assert_eq!(answer["id"], 3, "what was taken back is not answered: {answer}");
    daemons::until("the command's processes are gone", || !sleeps(&seconds)).await;
    assert!(!world.dir.path().join("second").exists());

    // It closes its end of the conversation; it is killed.
    talk.say(slow_call(4, "third").as_bytes()).await;
    daemons::until("the command runs", || begun("third")).await;
    let Talk { child: mut left, says, .. } = talk;
    drop(says);
    daemons::until("the command's processes are gone", || !sleeps(&seconds)).await;
    drop(left.wait().await);
    let mut talk = Talk::begin(world.dir.path(), &socket).await;
    talk.say(slow_call(5, "fourth").as_bytes()).await;
    daemons::until("the command runs", || begun("fourth")).await;
    talk.child.kill().await.unwrap();
    daemons::until("the command's processes are gone", || !sleeps(&seconds)).await;

    world.write("go", "");
    let done = running.await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    let ledger = world.json(&["runs", "accounting", "latest"]).await.1.to_string();
    assert_eq!(ledger.matches("\"error\":\"cancelled\"").count(), 3, "{ledger}");
    let told = journal(&world, &output);
    assert!(
        told.contains("the agent program no longer waits for it; what it had begun may be done"),
        "{told}"
    );
    assert!(
        told.contains("the agent program no longer waits for the answer; the call was not started"),
        "{told}"
    );
    assert!(!told.contains("because the run is stopping"), "{told}");
    let (code, checked) = world.json(&["runs", "verify", "latest"]).await;
    assert_eq!(code, Some(0), "{checked:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_in_the_cage_a_call_that_is_left_is_given_up() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    a_call_is_left("bubblewrap").await;
}

/// There are no sockets: the way is one of pipes.
#[tokio::test(flavor = "multi_thread")]
async fn c_24_under_landlock_a_call_that_is_left_is_given_up() {
    if let Some(why) = no_landlock() {
        eprintln!("skipped: {why}");
        return;
    }
    a_call_is_left("landlock").await;
}

/// The program says something that is no JSON, leaves a call that runs, calls again and ends.
async fn a_call_is_left(cage: &str) {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{cage}\"\n"));
    rules(&world, SLOW_RULE);
    let slow = call(2, "run_command", &json!({"argv": ["sh", "slow.sh"]}));
    let look = call(3, "read_file", &json!({"path": "lib/cart.sh"}));
    let text = format!(
        "#!/bin/bash\ncat >/dev/null\n\
         echo 'echo begun > begun; sleep 600' > slow.sh\n\
         ask() {{ printf '%s\\n' \"$1\" >&\"${{MCP[1]}}\"; }}\n\
         begin() {{ coproc MCP {{ exec {agentd} mcp; }}\n\
         ask '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"2025-06-18\",\
         \"capabilities\":{{}},\"clientInfo\":{{\"name\":\"sh\",\"version\":\"1\"}}}}}}'\n\
         read -r hello <&\"${{MCP[0]}}\"; }}\n\
         begin; ask 'Debugger attached.'; read -r odd <&\"${{MCP[0]}}\"\n\
         ask '{slow}'\n\
         while [ ! -e begun ]; do sleep 0.05; done\n\
         kill -9 $MCP_PID; wait $MCP_PID 2>/dev/null; rm begun slow.sh\n\
         begin; ask '{look}'; read -r answer <&\"${{MCP[0]}}\"\n\
         {FIX}; echo \"heard: $odd $answer\"\n",
        agentd = env!("CARGO_BIN_EXE_agentd"),
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "leaves.sh", &text)]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let words = output.to_string();
    assert!(
        words.contains("heard: ") && words.contains("-32700") && words.contains("lib/cart.sh"),
        "{output:#}"
    );
    assert!(journal(&world, &output).contains("the agent program no longer waits for it"), "{output:#}");
    let ledger = world.json(&["runs", "accounting", "latest"]).await.1.to_string();
    assert_eq!(ledger.matches("\"error\":\"cancelled\"").count(), 1, "{ledger}");
    world.finish().await;
}
